"""The interface of a tracker (three methods, and what they are told), and the trackers by name."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from fednet_emu.component.plugins import imported, is_import_path, offered, offers
from fednet_emu.errors import FednetError, did_you_mean

Scalar = str | int | float | bool | None


@dataclass(frozen=True)
class RunInfo:
    """What is known of a run when it starts."""

    id: str
    """Eight hexadecimal digits that name the run; a run that is resumed keeps them."""
    resumed: bool
    """Whether an earlier attempt of this run may have been told to the tracker. A resumed run tells everything again
    from the start, with the same values, so that a tracker replaces or skips what it has."""
    name: str
    """The name of the scenario, of a cell with its settings."""
    group: str
    """The name of the study, or of the scenario if the run belongs to none."""
    seed: int
    """The seed."""
    parameters: Mapping[str, Scalar]
    """Every setting of the scenario by its path, `{"algorithm.lr": 0.05}`; lists are JSON texts."""
    folder: Path | None
    """The run folder; None for a run in memory."""
    store: Path | None
    """The folder for what several runs share: that of the study, else the run folder."""


class Costs(NamedTuple):
    """What had been spent when something was measured."""

    round: int
    """Rounds ended, or the number of the round that the metrics are about."""
    simulated_s: float
    """Simulated time in seconds."""
    uplink_bit: int
    """Bits sent by devices to the server so far."""
    downlink_bit: int
    """Bits sent by the server so far."""
    sidelink_bit: int
    """Bits sent from device to device so far."""
    energy_j: float
    """Energy spent so far, in joules."""

    @property
    def sent_bit(self) -> int:
        """Bits sent so far, in all directions."""
        return self.uplink_bit + self.downlink_bit + self.sidelink_bit

    def metrics(self) -> dict[str, float]:
        """The costs but the round as metrics, for axes: simulated_s, uplink_bit, ..., energy_j, sent_bit."""
        named = self._asdict()
        del named["round"]
        return {**named, "sent_bit": self.sent_bit}


@dataclass(frozen=True)
class Outcome:
    """How a run has ended."""

    status: str
    """`done`, `diverged`, `interrupted` or `failed`."""
    reason: str
    """Why it has diverged or failed; an empty text otherwise."""
    summary: Mapping[str, Any]
    """The content of summary.json, with the event digest; less or nothing if the run failed before it began."""
    files: tuple[Path, ...]
    """The files of the run folder: scenario, summary, tables, manifest, log, and the model if there is one."""


class Tracker(Protocol):
    """Hears of one run at a time; it can change nothing in it.

    An exception in `start` ends the run before it begins. One in `log` or `end` is a warning, and the run goes on
    without the tracker.
    """

    def start(self, run: RunInfo) -> None:
        """Hear that a run starts or is resumed."""

    def log(self, metrics: Mapping[str, float], costs: Costs) -> None:
        """Hear what was measured at one moment.

        Args:
            metrics: values by name: `loss`, `accuracy` and other scores of the global model; `rounds/duration_s`,
                `rounds/invited`, `rounds/arrived`; and `series/column` for what the algorithm records.
            costs: the round, and what had been spent by then.
        """

    def end(self, outcome: Outcome) -> None:
        """Hear how the run has ended, when all its files are written."""


HOMES = {
    "tensorboard": "to_tensorboard:TensorBoard",
    "mlflow": "to_mlflow:MLflow",
    "wandb": "to_wandb:WeightsAndBiases",
}
"""Where each tracker is defined; the extra of the package that it needs has its name."""
SLOT = "tracker"
"""What installed packages call theirs, `tracker.<name>`; see `fednet_emu.component.plugins`."""


def trackers_of(chosen: str | Tracker | Iterable[str | Tracker]) -> list[Tracker]:
    """Return trackers, each a new one for a name, an import path, or an entry point; objects are taken as they are.

    The library that a tracker needs is imported here, so that a missing one is known before anything runs.

    Raises:
        FednetError: there is no such tracker, its library is missing, or an object is none.
    """
    if not isinstance(chosen, Iterable) and not hasattr(chosen, "start"):
        raise FednetError(f"track: expected a tracker or several, got {chosen!r}; see docs/guides/trackers.md")
    several: list[Any] = [chosen] if isinstance(chosen, str) or hasattr(chosen, "start") else list(chosen)
    twice = [name for name in several if isinstance(name, str) and several.count(name) > 1]
    if twice:
        raise FednetError(f"track: each tracker once, got '{twice[0]}' {several.count(twice[0])} times; leave one")
    return [_checked(_named(each) if isinstance(each, str) else each) for each in several]


def _named(name: str) -> Tracker:
    if name in HOMES:
        return _built_in(name)
    if name in offers().get(SLOT, ()):
        make: Callable[[], Tracker] = offered(SLOT, name)
    elif is_import_path(name):
        make = imported(name)
    else:
        known = [*HOMES, *offers().get(SLOT, ())]
        hint = did_you_mean(name, known) or f"; give one of {', '.join(known)}, or package.module:Class"
        raise FednetError(f"track: no such tracker, got '{name}'{hint}")
    try:
        return make()
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"
        raise FednetError(f"track: '{name}' cannot be made without arguments, got {reason}; mend it") from error


def _built_in(name: str) -> Tracker:
    module, _, kind = HOMES[name].partition(":")
    try:
        made: Tracker = getattr(importlib.import_module(f"fednet_emu.tracking.{module}"), kind)()
    except ImportError as error:
        lacking = f"{name} is not installed or incomplete ({' '.join(str(error).split())})"
        raise FednetError(f"track: {lacking}, got '{name}'; pip install 'fednet-emu[{name}]'") from error
    return made


def _checked(tracker: Any) -> Tracker:
    lacking = [name for name in ("start", "log", "end") if not callable(getattr(tracker, name, None))]
    if lacking or isinstance(tracker, type):
        what = "a class" if isinstance(tracker, type) else f"one without {', '.join(lacking)}"
        raise FednetError(f"track: expected a tracker, got {what} ({tracker!r}); see docs/guides/trackers.md")
    found: Tracker = tracker
    return found
