"""The interface of a tracker: three methods, and what they are told."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol

Scalar = str | int | float | bool | None


@dataclass(frozen=True)
class RunInfo:
    """What is known of a run when it starts.

    Attributes:
        id: eight hexadecimal digits that name the run; a run that is resumed keeps them.
        resumed: whether an earlier attempt of this run may have been told to the tracker. A resumed run tells
            everything again from the start, with the same values, so that a tracker replaces or skips what it has.
        name: the name of the scenario, of a cell with its settings.
        group: the name of the study, or of the scenario if the run belongs to none.
        seed: the seed.
        parameters: every setting of the scenario by its path, `{"algorithm.lr": 0.05}`; lists are JSON texts.
        folder: the run folder; None for a run in memory.
        store: the folder for what several runs share: that of the study, else the run folder.
    """

    id: str
    resumed: bool
    name: str
    group: str
    seed: int
    parameters: Mapping[str, Scalar]
    folder: Path | None
    store: Path | None


class Costs(NamedTuple):
    """What had been spent when something was measured.

    Attributes:
        round: rounds ended, or the number of the round that the metrics are about.
        simulated_s: simulated time in seconds.
        uplink_bit: bits sent by devices to the server so far.
        downlink_bit: bits sent by the server so far.
        sidelink_bit: bits sent from device to device so far.
        energy_j: energy spent so far, in joules.
    """

    round: int
    simulated_s: float
    uplink_bit: int
    downlink_bit: int
    sidelink_bit: int
    energy_j: float

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
    """How a run has ended.

    Attributes:
        status: done, diverged, interrupted or failed.
        reason: why it has diverged or failed; an empty text otherwise.
        summary: the content of summary.json, with the event digest; less or nothing if the run failed before it began.
        files: the files of the run folder: scenario, summary, tables, manifest, log, and the model if there is one.
    """

    status: str
    reason: str
    summary: Mapping[str, Any]
    files: tuple[Path, ...]


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
