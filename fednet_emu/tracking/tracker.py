"""The interface of a tracker, which has three methods, and the available trackers by name."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from fednet_emu.component.plugins import imported, is_import_path, offered, offers
from fednet_emu.errors import FednetError, did_you_mean, one_line

Scalar = str | int | float | bool | None


@dataclass(frozen=True)
class RunInfo:
    """Description of a run at its start."""

    id: str
    """Eight hexadecimal digits that identify the run. A resumed run keeps them."""
    resumed: bool
    """True if an earlier attempt of this run may have been logged. A resumed run logs all values again from the start,
    so a tracker must replace or skip values that it already has."""
    name: str
    """The name of the scenario and, for a run of a study, the settings that the study varies."""
    group: str
    """The name of the study, or the name of the scenario if the run belongs to no study."""
    seed: int
    parameters: Mapping[str, Scalar]
    """Every setting of the scenario by its path, as in `{"algorithm.lr": 0.05}`. Lists are JSON strings."""
    folder: Path | None
    """The run folder; None for a run in memory."""
    store: Path | None
    """The folder that several runs share: the folder of the study, or the run folder if the run belongs to no study."""


class Costs(NamedTuple):
    """Costs of a run from its start to a log call."""

    round: int
    """Number of completed rounds, or the round to which the logged metrics belong."""
    simulated_s: float
    """Simulated time so far, in seconds."""
    uplink_bit: int
    """Bits that devices have sent to the server so far."""
    downlink_bit: int
    """Bits that the server has sent so far."""
    sidelink_bit: int
    """Bits that devices have sent to each other so far."""
    energy_j: float
    """Energy spent so far, in joules."""

    @property
    def sent_bit(self) -> int:
        """Number of bits sent so far on uplink, downlink and sidelink."""
        return self.uplink_bit + self.downlink_bit + self.sidelink_bit

    def metrics(self) -> dict[str, float]:
        """Return the costs as metrics: `simulated_s`, `uplink_bit`, ..., `energy_j`, `sent_bit`, but not `round`."""
        named = self._asdict()
        del named["round"]
        return {**named, "sent_bit": self.sent_bit}


@dataclass(frozen=True)
class Outcome:
    """The state of a run at its end."""

    status: str
    """`done`, `diverged`, `interrupted` or `failed`."""
    reason: str
    """Reason of a failure or divergence; empty otherwise."""
    summary: Mapping[str, Any]
    """The content of summary.json, with the event digest. It is incomplete or empty if the run failed before its
    start.
    """
    files: tuple[Path, ...]
    """The files of the run folder: scenario, summary, tables, manifest, log, and the model if there is one."""


class Tracker(Protocol):
    """Interface of an object that receives the metrics of one run at a time, without influence on the run.

    An exception in `start` ends the run before it begins. An exception in `log` or `end` causes a warning, and the run
    continues without the tracker.
    """

    def start(self, run: RunInfo) -> None:
        """Called when a run starts or is resumed."""

    def log(self, metrics: Mapping[str, float], costs: Costs) -> None:
        """Called with metrics that were recorded at the same simulated time.

        Args:
            metrics: values by name. Names are `loss`, `accuracy` and other scores of the global model;
                `rounds/duration_s`, `rounds/invited` and `rounds/arrived`; and `series/column` for the columns of each
                series that the algorithm records.
            costs: the number of the round, and the costs of the run so far.
        """

    def end(self, outcome: Outcome) -> None:
        """Called after the run has ended and all its files are written."""


BUILT_IN = {"tensorboard": "TensorBoard", "mlflow": "MLflow", "wandb": "WeightsAndBiases"}
"""The class of each tracker in `built_in.py`, by name. The package extra that a tracker requires has the same name."""
SLOT = "tracker"
"""Prefix of the names of entry points for trackers, `tracker.<name>`; see `fednet_emu.component.plugins`."""


def trackers_of(chosen: str | Tracker | Iterable[str | Tracker]) -> list[Tracker]:
    """Create a tracker for each name, import path or entry point. Objects are returned unchanged.

    The library of a tracker is imported here, so that a missing library is reported before the run.

    Raises:
        FednetError: the tracker does not exist, the library of a tracker is missing, or an object is not a tracker.
    """
    if not isinstance(chosen, Iterable) and not hasattr(chosen, "start"):
        raise FednetError(f"track: expected a tracker or several, got {chosen!r}; see docs/guides/trackers.md")
    several: list[Any] = [chosen] if isinstance(chosen, str) or hasattr(chosen, "start") else list(chosen)
    twice = [name for name in several if isinstance(name, str) and several.count(name) > 1]
    if twice:
        raise FednetError(f"track: each tracker once, got '{twice[0]}' {several.count(twice[0])} times; leave one")
    return [_checked(_named(each) if isinstance(each, str) else each) for each in several]


def _named(name: str) -> Tracker:
    if name in BUILT_IN:
        return _built_in(name)
    if name in offers().get(SLOT, ()):
        make: Callable[[], Tracker] = offered(SLOT, name)
    elif is_import_path(name):
        make = imported(name)
    else:
        known = [*BUILT_IN, *offers().get(SLOT, ())]
        hint = did_you_mean(name, known) or f"; give one of {', '.join(known)}, or package.module:Class"
        raise FednetError(f"track: no such tracker, got '{name}'{hint}")
    try:
        return make()
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"
        raise FednetError(f"track: '{name}' cannot be made without arguments, got {reason}; correct it") from error


def _built_in(name: str) -> Tracker:
    try:
        made: Tracker = getattr(importlib.import_module("fednet_emu.tracking.built_in"), BUILT_IN[name])()
    except ImportError as error:
        lacking = f"{name} is not installed or incomplete ({one_line(error)})"
        raise FednetError(f"track: {lacking}, got '{name}'; pip install 'fednet-emu[{name}]'") from error
    return made


def _checked(tracker: Any) -> Tracker:
    lacking = [name for name in ("start", "log", "end") if not callable(getattr(tracker, name, None))]
    if lacking or isinstance(tracker, type):
        what = "a class" if isinstance(tracker, type) else f"one without {', '.join(lacking)}"
        raise FednetError(f"track: expected a tracker, got {what} ({tracker!r}); see docs/guides/trackers.md")
    found: Tracker = tracker
    return found
