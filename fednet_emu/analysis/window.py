"""The part of a run that a timeline or a trace shows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np

from fednet_emu.analysis.activity import SORTS
from fednet_emu.analysis.run import RunRecords
from fednet_emu.arrays import IntArray, Mask
from fednet_emu.errors import FednetError, did_you_mean

FOREVER_NS = 1 << 62


@dataclass(frozen=True)
class Window:
    """A span of simulated time and some devices.

    Attributes:
        from_s: its begin in simulated seconds.
        until_s: its end; None for the end of the run in a trace, and in a timeline for the end of the third round, the
            latest of all runs, or of the last run if the begin is not its start.
        devices: the devices that are shown; None for all.
        sort: order of the devices in a timeline, one of `SORTS`; None for the order of their numbers, or of their
            waiting times if there are too many for a row each.
    """

    from_s: float = 0.0
    until_s: float | None = None
    devices: tuple[int, ...] | None = None
    sort: str | None = None

    @classmethod
    def of(
        cls,
        from_s: float | None = None,
        until_s: float | None = None,
        devices: Iterable[int] | None = None,
        sort: str | None = None,
    ) -> Self:
        """Return what is asked for by arguments that may all be left out."""
        return cls(from_s or 0.0, until_s, None if devices is None else tuple(sorted(set(devices))), sort)

    def check(self, runs: Sequence[RunRecords]) -> None:
        """Check that there is something to show.

        Raises:
            FednetError: the window ends before it begins, or there is no such order or device.
        """
        if not self.from_s >= 0:
            raise FednetError(f"from_s: must be at least 0, got {self.from_s:g} s; leave it out to begin with the run")
        if self.until_s is not None and not self.until_s > self.from_s:
            begin = f"must be after the begin at {self.from_s:g} s"
            raise FednetError(f"until_s: {begin}, got {self.until_s:g} s; give a later end")
        if self.sort is not None and self.sort not in SORTS:
            hint = did_you_mean(self.sort, SORTS) or f"; choose from {', '.join(SORTS)}"
            raise FednetError(f"sort: no such order of devices, got '{self.sort}'{hint}")
        if self.devices is None:
            return
        count = max((run.devices for run in runs), default=0)
        wrong = [device for device in self.devices if not 0 <= device < count]
        if not self.devices:
            raise FednetError("devices: no device is to be shown, got no number; leave it out to show all")
        if wrong:
            raise FednetError(f"devices: no such device, got {wrong[0]}; they are numbered 0 to {count - 1}")

    @property
    def from_ns(self) -> int:
        """The begin in simulated nanoseconds."""
        return round(self.from_s * 1e9)

    @property
    def until_ns(self) -> int:
        """The end in simulated nanoseconds, of a trace."""
        return FOREVER_NS if self.until_s is None or np.isinf(self.until_s) else round(self.until_s * 1e9)

    def overlaps(self, started_ns: IntArray, ended_ns: IntArray) -> Mask:
        """Which spans of time are at least partly inside."""
        return np.asarray((ended_ns >= self.from_ns) & (started_ns <= self.until_ns))

    def has(self, device: IntArray) -> Mask:
        """Which devices are shown."""
        return np.ones(len(device), np.bool_) if self.devices is None else np.isin(device, self.devices)


WHOLE = Window()
