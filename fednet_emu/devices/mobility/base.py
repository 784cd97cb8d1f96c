"""Mobility: a component that defines every device's path, which can be evaluated at any time."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar, Protocol, runtime_checkable

import numpy as np

from fednet_emu.arrays import Array, IntArray
from fednet_emu.component.component import Component
from fednet_emu.devices.mobility.regions import Region
from fednet_emu.kernel.streams import Streams


class Paths(Protocol):
    """Where every device is at every time.

    A position depends on the device and the time only, not on the order of calls or on other devices.

    Attributes:
        speed_m_s: Typical speed while moving, from which a coherence time follows; 0 when nobody ever moves.
    """

    speed_m_s: float

    def positions_m(self, devices: IntArray, time_s: float) -> Array:
        """Coordinates [k, 2] in metres of devices [k] at a time of 0 or later; [k, 3] for those with heights."""


@runtime_checkable
class Visits(Paths, Protocol):
    """Where devices are that come and go.

    Attributes:
        present_s: When each device is there: windows [from, to) in s, in order and apart.
    """

    present_s: Sequence[tuple[tuple[float, float], ...]]


class Mobility(Component):
    """How devices move."""

    COMES_AND_GOES: ClassVar[bool] = False
    """Whether its paths are `Visits`."""
    ORBITS: ClassVar[bool] = False
    """Whether devices are satellites, whose paths become those of a `SatelliteView` over stations on the ground."""
    places: ClassVar[bool] = False
    """Whether it overrides the initial placement."""

    @abstractmethod
    def paths(self, initial_xy_m: Array, region: Region, streams: Streams, data_dir: Path | None = None) -> Paths:
        """The paths of all devices.

        Args:
            initial_xy_m: Coordinates [devices, 2] that the placement gave.
            region: Where devices stay; kinds that replay recorded walks, or stand still, do not use it.
            streams: Randomness, keyed per device: more devices move none of the others.
            data_dir: Folder of recorded walks; None means the one that FEDNET_DATA names.

        Raises:
            ScenarioError: A device that should roam in the region was placed outside it.
            DataError: A file of recorded walks cannot be used.
        """


class StillPaths:
    """Every device stays where it was placed."""

    def __init__(self, initial_xy_m: Array) -> None:
        self.speed_m_s = 0.0
        self._xy_m = np.array(initial_xy_m, dtype=np.float64)

    def positions_m(self, devices: IntArray, time_s: float) -> Array:
        """Where the devices [k] were placed, [k, 2]."""
        placed: Array = self._xy_m[devices]
        return placed


class Static(Mobility):
    """Nobody moves."""

    def paths(self, initial_xy_m: Array, region: Region, streams: Streams, data_dir: Path | None = None) -> StillPaths:
        return StillPaths(initial_xy_m)
