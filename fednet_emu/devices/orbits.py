"""Orbits: geometry of the rotating Earth, positions of satellites, and their passes over ground stations.

Earth-fixed coordinates have their origin at the centre of the Earth, the x axis towards latitude and longitude 0, and
the z axis towards the north pole.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Sequence
from operator import itemgetter

import numpy as np
from pydantic import Field

from fednet_emu.arrays import Array, IntArray, Mask, cos, sin
from fednet_emu.component.component import Component
from fednet_emu.kernel.clock import NS_PER_S

MEAN_RADIUS_M = 6.371e6
"""Mean radius of the Earth, in m."""
GRAVITY_M3_S2 = 3.986004418e14
"""Gravitational constant times the mass of the Earth, in m^3/s^2 (WGS84)."""
TURN_RAD_S = 7.292115e-5
"""Angular speed of the Earth, in rad/s (WGS84)."""
_EQUATOR_M = 6_378_137.0
_FLATTENING = 1 / 298.257223563
_DAY_S = 86_400.0
_J2000 = 2_451_545.0


class Site(Component):
    """A site on the ground, relative to the WGS84 ellipsoid."""

    lat_deg: float = Field(ge=-90, le=90)
    """Geodetic latitude in degrees, north positive."""
    lon_deg: float = Field(ge=-180, le=180)
    """Longitude in degrees, east positive."""
    height_m: float = Field(0.0, ge=-1e4, le=1e5)
    """Height in m above the ellipsoid."""

    @property
    def axes(self) -> Array:
        """Unit vectors towards east, north and up at the site, as rows [3, 3]."""
        lat, lon = math.radians(self.lat_deg), math.radians(self.lon_deg)
        east = (-math.sin(lon), math.cos(lon), 0.0)
        north = (-math.sin(lat) * math.cos(lon), -math.sin(lat) * math.sin(lon), math.cos(lat))
        up = (math.cos(lat) * math.cos(lon), math.cos(lat) * math.sin(lon), math.sin(lat))
        return np.array([east, north, up])

    @property
    def place_m(self) -> Array:
        lat = math.radians(self.lat_deg)
        flat = _FLATTENING * (2 - _FLATTENING)  # the first eccentricity squared
        normal_m = _EQUATOR_M / math.sqrt(1 - flat * math.sin(lat) ** 2)
        place_m: Array = (normal_m + self.height_m) * self.axes[2]
        place_m[2] -= flat * normal_m * math.sin(lat)
        return place_m


def metres_per_degree(lat_deg: float) -> tuple[float, float]:
    """Return the lengths in m of one degree of longitude and one degree of latitude at `lat_deg` on WGS84."""
    lat, flat = math.radians(lat_deg), _FLATTENING * (2 - _FLATTENING)
    curve = 1 - flat * math.sin(lat) ** 2
    east_m = _EQUATOR_M / math.sqrt(curve) * math.cos(lat)
    north_m = _EQUATOR_M * (1 - flat) / curve**1.5
    return math.radians(east_m), math.radians(north_m)


def sidereal_rad(julian_day: float, time_s: Array) -> Array:
    """Return Greenwich mean sidereal time (IAU 1982) in rad at the times `time_s` in s after a Julian day in UT1.

    Ignored here: the difference between UT1 and UTC, less than a second.
    """
    centuries = (julian_day - _J2000 + time_s / _DAY_S) / 36_525.0
    whole_s = 67_310.54841 + (0.093104 - 6.2e-6 * centuries) * centuries**2
    # the large term is split into two parts for precision: one rotation per day, and the excess over this rotation
    gained_s = 8_640_184.812866 * centuries + ((julian_day - _J2000) % 1.0) * _DAY_S + time_s % _DAY_S
    return np.asarray(2 * math.pi * (((whole_s + gained_s) / _DAY_S) % 1.0))


def turned(place_m: Array, angle_rad: Array) -> Array:
    """Return coordinates [..., 3] in axes that are rotated about the z axis by angles [...] in rad."""
    c, s = cos(angle_rad), sin(angle_rad)
    x, y, z = place_m[..., 0], place_m[..., 1], place_m[..., 2]
    return np.stack([c * x + s * y, c * y - s * x, np.broadcast_to(z, np.shape(c * x))], axis=-1)


def in_axes(way_m: Array, axes: Array) -> Array:
    """Return the components [..., n] of vectors [..., 3] along the `axes` [n, 3], bit-identical on every processor."""
    return np.stack([way_m[..., 0] * x + way_m[..., 1] * y + way_m[..., 2] * z for x, y, z in axes], axis=-1)


STEP_NS = 10 * NS_PER_S
"""Sampling interval of elevations, in ns; a shorter pass may be missed."""
CHUNK_NS = 14_400 * NS_PER_S
"""Duration, in ns, of the periods for which satellite passes are computed together."""
NEVER_NS = 10 * 86_400 * NS_PER_S
"""Time in ns without a pass after which a satellite counts as permanently absent."""
_HALVINGS = 24
"""Number of bisection steps that shorten a sampling interval to a microsecond."""

Pass = tuple[int, int]
"""Times in ns at which a satellite rises above and sets below the minimum elevation."""


class Orbits(ABC):
    """Positions of satellites over time."""

    count: int
    """Number of satellites."""
    speed_m_s: float
    """Typical speed of the satellites, in m/s."""

    @abstractmethod
    def places_m(self, satellites: IntArray, time_s: Array) -> Array:
        """Return Earth-fixed coordinates [k, T, 3] in m of `satellites` [k] at times [T] or [k, T] in s (>= 0)."""

    def positions_m(self, devices: IntArray, time_s: float) -> Array:
        return self.places_m(devices, np.array([time_s]))[:, 0]


class SatelliteView:
    """Paths of satellites in local coordinates: metres to the east, north and up from the first ground station."""

    def __init__(self, orbits: Orbits, sites: Sequence[Site]) -> None:
        self.count, self.speed_m_s, self.orbits = orbits.count, orbits.speed_m_s, orbits
        self._axes, self._origin_m = sites[0].axes, sites[0].place_m
        self._sites_m = np.stack([site.place_m for site in sites])
        self._ups = np.stack([site.axes[2] for site in sites])

    def positions_m(self, devices: IntArray, time_s: float) -> Array:
        return in_axes(self.orbits.positions_m(devices, time_s) - self._origin_m, self._axes)

    def overhead_m(self) -> Array:
        """Return coordinates [count, 3] in m of points above the first station, at the satellites' initial heights."""
        place_m = self.orbits.positions_m(np.arange(self.count), 0.0)
        height_m = np.sqrt((place_m**2).sum(axis=-1)) - math.hypot(*self._origin_m)
        return np.column_stack([np.zeros((self.count, 2)), height_m])

    def sine_of_elevation(self, devices: IntArray, time_s: Array) -> Array:
        """Return the sine [k, T] of the maximum elevation of satellites [k] over all stations, at times in s."""
        place_m, best = self.orbits.places_m(devices, time_s), np.float64(-1.0)
        for site_m, up in zip(self._sites_m, self._ups, strict=True):
            way_m = place_m - site_m
            height_m = in_axes(way_m, up[None])[..., 0]
            best = np.maximum(best, height_m / np.sqrt((way_m * way_m).sum(axis=-1)))
        return np.asarray(best)


def stations_m(sites: Sequence[Site]) -> Array:
    """Return the coordinates [stations, 3] of sites in metres to the east, north and up from the first site."""
    return in_axes(np.stack([site.place_m - sites[0].place_m for site in sites]), sites[0].axes)


class PassTable:
    """Table of satellite passes (elevation above `mask_deg` at any station), computed on demand."""

    def __init__(self, sky: SatelliteView, mask_deg: float) -> None:
        self._sky, self._mask = sky, math.sin(math.radians(mask_deg))
        self._all, self._known_ns = np.arange(sky.count), 0
        self._passes: list[list[Pass]] = [[] for _ in range(sky.count)]

    def next(self, satellite: int, now_ns: int) -> Pass | None:
        """Return a satellite's current pass or, if none is in progress, its next; None if none begins in ten days."""
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
            if mine and found and mine[-1][1] == from_ns == found[0][0]:  # a pass over a boundary
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
        """Return the times in s, exact to 1 us, at which satellites [k] cross the minimum elevation between samples."""
        for _ in range(_HALVINGS):
            middle_s = (low_s + high_s) / 2
            up = self._sky.sine_of_elevation(satellite, middle_s[:, None])[:, 0] > self._mask
            before = up != rising
            low_s, high_s = np.where(before, middle_s, low_s), np.where(before, high_s, middle_s)
        return np.round(high_s, 6)
