"""Base class of the mobility models: a component that defines the path of every device."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar, Protocol, final, runtime_checkable

import numpy as np

from fednet_emu.arrays import Array, IntArray
from fednet_emu.component.component import Component
from fednet_emu.devices.mobility.regions import Region
from fednet_emu.errors import ScenarioError
from fednet_emu.files.lines import LONGEST_S
from fednet_emu.kernel.streams import Streams


@final
class Polylines:
    """Polylines through arrays [rows, 3] of time in s, x and y in m, with linear interpolation between the rows.

    The times of a polyline must not decrease, and its last two times must differ. All polylines are stored one after
    the other on a common time axis, with gaps of one second. A `ScenarioError` is raised if this axis is so long that
    times would not be exact to two microseconds.
    """

    def __init__(self, lines: list[Array]) -> None:
        lengths = np.array([len(rows) for rows in lines])
        last = np.cumsum(lengths) - 1
        self.duration_s = np.array([rows[-1, 0] - rows[0, 0] for rows in lines])
        self.length_m = np.array([float(np.hypot(*np.diff(rows[:, 1:], axis=0).T).sum()) for rows in lines])
        if not (whole_s := float(self.duration_s.sum())) + len(lines) <= LONGEST_S:
            what = f"{len(lines)} recorded ways are too long, got {whole_s:.3g} s in all"
            raise ScenarioError(f"devices.mobility: {what}; give ways of at most {LONGEST_S:g} s in all")
        # on a common time axis, one search serves devices on different lines
        self._base_s = np.cumsum(self.duration_s + 1.0) - self.duration_s
        self._time_s = np.concatenate(
            [rows[:, 0] - rows[0, 0] + start_s for rows, start_s in zip(lines, self._base_s, strict=True)]
        )
        self._xy_m = np.concatenate([rows[:, 1:] for rows in lines])
        self._first, self._last = last - lengths + 1, last

    def at_m(self, line: IntArray, time_s: Array) -> Array:
        """Return coordinates [k, 2] in m on polylines [k] at times [k] in s from the first row, clipped to the ends."""
        clock_s = self._base_s[line] + time_s
        row = np.searchsorted(self._time_s, clock_s, side="right") - 1
        row = np.minimum(np.maximum(row, self._first[line]), self._last[line] - 1)
        start_s = self._time_s[row]
        along = np.minimum(np.maximum((clock_s - start_s) / (self._time_s[row + 1] - start_s), 0.0), 1.0)[:, None]
        return np.asarray(self._xy_m[row] * (1 - along) + self._xy_m[row + 1] * along)


class Paths(Protocol):
    """Protocol of the positions of all devices over time.

    A position depends only on the device and the time, not on the order of calls or on other devices.
    """

    speed_m_s: float
    """Typical speed of moving devices, in m/s; 0 without movement."""

    def positions_m(self, devices: IntArray, time_s: float) -> Array:
        """Return the coordinates [k, 2] in m of devices [k] at `time_s` >= 0 in s; [k, 3] if the paths have heights."""


@runtime_checkable
class Visits(Paths, Protocol):
    """Protocol of the positions over time of devices that join and leave."""

    present_s: Sequence[tuple[tuple[float, float], ...]]
    """Windows [from, to) in s in which each device is present, in order and without overlap."""


class Mobility(Component):
    """Mobility model, which defines the movement of all devices."""

    COMES_AND_GOES: ClassVar[bool] = False
    """Whether devices join and leave, so that their paths are `Visits`."""
    ORBITS: ClassVar[bool] = False
    """Whether devices are satellites, whose positions relative to the ground stations are given by a `SatelliteView`.
    """
    places: ClassVar[bool] = False
    """Whether the mobility model ignores the initial placement and sets the initial positions itself."""

    @abstractmethod
    def paths(self, initial_xy_m: Array, region: Region, streams: Streams, data_dir: Path | None = None) -> Paths:
        """Return the paths of all devices.

        Args:
            initial_xy_m: initial coordinates [devices, 2] in m, from the placement.
            region: region in which devices stay; static devices and recorded paths ignore the region.
            streams: random numbers, keyed by device, so that additional devices do not change the paths of others.
            data_dir: folder of recorded paths; None for the folder in the environment variable FEDNET_DATA.

        Raises:
            ScenarioError: a device is placed outside the region, or a recording has fewer paths than devices.
            DataError: a file of recorded paths cannot be used.
            FednetError: a package that is needed to read the file is not installed.
        """


class StillPaths:
    """Paths of devices that stay at their initial positions."""

    def __init__(self, initial_xy_m: Array) -> None:
        self.speed_m_s = 0.0
        self._xy_m = np.array(initial_xy_m, dtype=np.float64)

    def positions_m(self, devices: IntArray, time_s: float) -> Array:
        return self._xy_m[devices]


class Static(Mobility):
    """Devices stay at their initial positions, which may be outside the region."""

    def paths(self, initial_xy_m: Array, region: Region, streams: Streams, data_dir: Path | None = None) -> StillPaths:
        return StillPaths(initial_xy_m)
