"""Satellites seen from ground stations: positions, elevations and contact windows."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Sequence
from operator import itemgetter

import numpy as np

from fednet_emu.arrays import Array, IntArray, Mask
from fednet_emu.devices.orbits.earth import Site, in_axes
from fednet_emu.kernel.clock import NS_PER_S

STEP_NS = 10 * NS_PER_S
"""Sampling interval of elevations; a shorter pass may be missed."""
CHUNK_NS = 14_400 * NS_PER_S
"""Period for which passes are calculated at once."""
NEVER_NS = 10 * 86_400 * NS_PER_S
"""Time without a pass after which a satellite counts as gone."""
_HALVINGS = 24
"""Bisection steps from a sampling interval to a microsecond."""

Pass = tuple[int, int]
"""Rise and set of a satellite in ns."""


class Orbits(ABC):
    """Positions of satellites over time."""

    count: int
    """Number of satellites."""
    speed_m_s: float
    """Typical speed."""

    @abstractmethod
    def places_m(self, satellites: IntArray, time_s: Array) -> Array:
        """Earth-fixed coordinates [k, T, 3] of satellites [k] at times [T] or [k, T] of 0 or later."""

    def positions_m(self, devices: IntArray, time_s: float) -> Array:
        return self.places_m(devices, np.array([time_s]))[:, 0]


class SatelliteView:
    """Paths of satellites in metres east, north and up of the first station."""

    def __init__(self, orbits: Orbits, sites: Sequence[Site]) -> None:
        self.count, self.speed_m_s, self._orbits = orbits.count, orbits.speed_m_s, orbits
        self._axes, self._origin_m = sites[0].axes, sites[0].place_m
        self.stations_m = stations_m(sites)
        self._sites_m = np.stack([site.place_m for site in sites])
        self._ups = np.stack([site.axes[2] for site in sites])

    def positions_m(self, devices: IntArray, time_s: float) -> Array:
        return in_axes(self._orbits.positions_m(devices, time_s) - self._origin_m, self._axes)

    def overhead_m(self) -> Array:
        """Coordinates [count, 3] of satellites directly above the first station, with their heights at time 0."""
        place_m = self._orbits.positions_m(np.arange(self.count), 0.0)
        height_m = np.sqrt((place_m**2).sum(axis=-1)) - math.hypot(*self._origin_m)
        return np.column_stack([np.zeros((self.count, 2)), height_m])

    def sine_of_elevation(self, devices: IntArray, time_s: Array) -> Array:
        """Sine of the largest elevation [k, T] of satellites [k] over any station at times [T] or [k, T]."""
        place_m, best = self._orbits.places_m(devices, time_s), np.float64(-1.0)
        for site_m, up in zip(self._sites_m, self._ups, strict=True):
            way_m = place_m - site_m
            height_m = in_axes(way_m, up[None])[..., 0]
            best = np.maximum(best, height_m / np.sqrt((way_m * way_m).sum(axis=-1)))
        return np.asarray(best)


def stations_m(sites: Sequence[Site]) -> Array:
    """Coordinates [stations, 3] of sites in metres east, north and up of the first site."""
    return in_axes(np.stack([site.place_m - sites[0].place_m for site in sites]), sites[0].axes)


class PassTable:
    """Passes of satellites above an elevation of `mask_deg` over any station, calculated on demand."""

    def __init__(self, sky: SatelliteView, mask_deg: float) -> None:
        self._sky, self._mask = sky, math.sin(math.radians(mask_deg))
        self._all, self._known_ns = np.arange(sky.count), 0
        self._passes: list[list[Pass]] = [[] for _ in range(sky.count)]

    def next(self, satellite: int, now_ns: int) -> Pass | None:
        """Return the present pass of a satellite, else its next pass; None without a pass within ten days."""
        mine = self._passes[satellite]
        while True:
            place = bisect_right(mine, now_ns, key=itemgetter(1))
            found = mine[place] if place < len(mine) else None
            if self._known_ns > now_ns + NEVER_NS or (found is not None and found[1] < self._known_ns):
                return found
            self._extend()

    def _extend(self) -> None:
        from_ns = self._known_ns
        self._known_ns += CHUNK_NS
        for mine, found in zip(self._passes, self._between(from_ns, self._known_ns), strict=True):
            if mine and found and mine[-1][1] == from_ns == found[0][0]:  # one pass across the edge of two periods
                mine[-1] = (mine[-1][0], found[0][1])
                del found[0]
            mine.extend(found)

    def _between(self, from_ns: int, to_ns: int) -> list[list[Pass]]:
        looks_s = np.arange(from_ns, to_ns + STEP_NS, STEP_NS) / NS_PER_S
        up = self._sky.sine_of_elevation(self._all, looks_s) > self._mask
        satellite, place = np.nonzero(up[:, 1:] != up[:, :-1])
        edges_s = self._edges_s(satellite, looks_s[place], looks_s[place + 1], rising=up[satellite, place + 1])
        edges_ns: list[list[int]] = [[from_ns] if already else [] for already in up[:, 0]]
        for k, edge_s in zip(satellite.tolist(), edges_s.tolist(), strict=True):
            edges_ns[k].append(round(edge_s * NS_PER_S))
        for mine, still in zip(edges_ns, up[:, -1], strict=True):
            mine.extend([to_ns] if still else [])
        return [list(zip(mine[::2], mine[1::2], strict=True)) for mine in edges_ns]

    def _edges_s(self, satellite: IntArray, low_s: Array, high_s: Array, *, rising: Mask) -> Array:
        """Times in s, to a microsecond, at which satellites [k] cross the mask between two samples, by bisection."""
        for _ in range(_HALVINGS):
            middle_s = (low_s + high_s) / 2
            up = self._sky.sine_of_elevation(satellite, middle_s[:, None])[:, 0] > self._mask
            before = up != rising
            low_s, high_s = np.where(before, middle_s, low_s), np.where(before, high_s, middle_s)
        return np.round(high_s, 6)
