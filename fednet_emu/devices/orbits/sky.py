"""The sky of stations on the ground: where satellites are from there, and when they are high enough."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from operator import itemgetter
from typing import Protocol, runtime_checkable

import numpy as np

from fednet_emu.arrays import Array, IntArray, Mask
from fednet_emu.devices.orbits.earth import Site, in_axes
from fednet_emu.kernel.clock import NS_PER_S

STEP_NS = 10 * NS_PER_S
"""Time between two looks at the sky; a pass that is shorter may be missed."""
CHUNK_NS = 14_400 * NS_PER_S
"""Time of which passes are worked out at once."""
NEVER_NS = 10 * 86_400 * NS_PER_S
"""Time after which a satellite that has not been seen counts as never seen again."""
_HALVINGS = 24
"""They bring the edge of a pass from a step down to a microsecond."""

Pass = tuple[int, int]
"""A pass: rise and set in ns."""


@runtime_checkable
class Orbits(Protocol):
    """Where satellites are.

    Attributes:
        count: how many there are.
        speed_m_s: their typical speed.
    """

    count: int
    speed_m_s: float

    def places_m(self, satellites: IntArray, time_s: Array) -> Array:
        """Earth-fixed coordinates [k, T, 3] of satellites [k] at times [T] or [k, T] of 0 or later."""


class SatelliteView:
    """Satellites seen from stations, in metres east, north and up of the first station.

    Attributes:
        count: How many satellites there are.
        speed_m_s: Their typical speed.
        stations_m: Coordinates of the stations, [stations, 3].
    """

    def __init__(self, orbits: Orbits, sites: Sequence[Site]) -> None:
        self.count, self.speed_m_s, self._orbits = orbits.count, orbits.speed_m_s, orbits
        self._axes, self._origin_m = sites[0].axes, sites[0].place_m
        self.stations_m = stations_m(sites)
        self._sites_m = np.stack([site.place_m for site in sites])
        self._ups = np.stack([site.axes[2] for site in sites])

    def positions_m(self, devices: IntArray, time_s: float) -> Array:
        """Coordinates [k, 3] in metres of devices [k] at a time of 0 or later."""
        place_m = self._orbits.places_m(devices, np.array([time_s]))[:, 0]
        return in_axes(place_m - self._origin_m, self._axes)

    def overhead_m(self) -> Array:
        """Coordinates [count, 3] of the satellites if each were straight above the first station, as far up as now."""
        place_m = self._orbits.places_m(np.arange(self.count), np.zeros(1))[:, 0]
        height_m = np.sqrt((place_m**2).sum(axis=-1)) - math.hypot(*self._origin_m)
        return np.column_stack([np.zeros((self.count, 2)), height_m])

    def sine_of_elevation(self, devices: IntArray, time_s: Array) -> Array:
        """How high [k, T] satellites [k] stand at times [T] or [k, T], over the station that sees them highest."""
        place_m, best = self._orbits.places_m(devices, time_s), np.float64(-1.0)
        for site_m, up in zip(self._sites_m, self._ups, strict=True):
            way_m = place_m - site_m
            height_m = in_axes(way_m, up[None])[..., 0]
            best = np.maximum(best, height_m / np.sqrt((way_m * way_m).sum(axis=-1)))
        return np.asarray(best)


def stations_m(sites: Sequence[Site]) -> Array:
    """Coordinates [stations, 3] of sites in metres east, north and up of the first one."""
    return in_axes(np.stack([site.place_m - sites[0].place_m for site in sites]), sites[0].axes)


class PassTable:
    """The passes of satellites over stations, worked out as far as somebody asks.

    Args:
        sky: where they are.
        mask_deg: how high in degrees one has to stand to be heard.
    """

    def __init__(self, sky: SatelliteView, mask_deg: float) -> None:
        self._sky, self._mask = sky, math.sin(math.radians(mask_deg))
        self._all, self._known_ns = np.arange(sky.count), 0
        self._passes: list[list[Pass]] = [[] for _ in range(sky.count)]

    def next(self, satellite: int, now_ns: int) -> Pass | None:
        """The pass that a satellite is in now, in ns, or its next one; None if there is none within ten days."""
        mine = self._passes[satellite]
        while True:
            place = bisect_right(mine, now_ns, key=itemgetter(1))
            found = mine[place] if place < len(mine) else None
            if self._known_ns > now_ns + NEVER_NS or (found is not None and found[1] < self._known_ns):
                return found
            self._look_on()

    def _look_on(self) -> None:
        """Work out the passes of another chunk of time."""
        from_ns = self._known_ns
        self._known_ns += CHUNK_NS
        for mine, found in zip(self._passes, self._between(from_ns, self._known_ns), strict=True):
            if mine and found and mine[-1][1] == from_ns == found[0][0]:  # one pass that the edge has cut
                mine[-1] = (mine[-1][0], found[0][1])
                del found[0]
            mine.extend(found)

    def _between(self, from_ns: int, to_ns: int) -> list[list[Pass]]:
        """The passes of each satellite from one time in ns to another."""
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
        """When satellites [k] cross the mask between two looks, by bisection, in s to a microsecond."""
        for _ in range(_HALVINGS):
            middle_s = (low_s + high_s) / 2
            up = self._sky.sine_of_elevation(satellite, middle_s[:, None])[:, 0] > self._mask
            before = up != rising
            low_s, high_s = np.where(before, middle_s, low_s), np.where(before, high_s, middle_s)
        return np.round(high_s, 6)
