"""Geometry of the rotating Earth: sites on the ground, sidereal time, and changes of axes.

Coordinates are earth-fixed: the origin in the centre of the Earth, x towards latitude and longitude 0, z north.
"""

from __future__ import annotations

import math

import numpy as np
from pydantic import Field

from fednet_emu.arrays import Array, cos, sin
from fednet_emu.component.component import Component

MEAN_RADIUS_M = 6.371e6
"""Mean radius of the Earth."""
GRAVITY_M3_S2 = 3.986004418e14
"""Gravitational constant times the mass of the Earth (WGS84)."""
TURN_RAD_S = 7.292115e-5
"""Angular speed of the Earth (WGS84)."""
_EQUATOR_M = 6_378_137.0
_FLATTENING = 1 / 298.257223563
_DAY_S = 86_400.0
_J2000 = 2_451_545.0


class Site(Component):
    """A site on the ground, on the ellipsoid of WGS84."""

    lat_deg: float = Field(ge=-90, le=90)
    """Geodetic latitude in degrees, north positive."""
    lon_deg: float = Field(ge=-180, le=180)
    """Longitude in degrees, east positive."""
    height_m: float = Field(0.0, ge=-1e4, le=1e5)
    """Height in m above the ellipsoid."""

    @property
    def axes(self) -> Array:
        """Unit vectors to the east, to the north and up, [3, 3], one per row."""
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
    """Lengths in m of one degree of longitude and of latitude at a latitude, on the ellipsoid of WGS84."""
    lat, flat = math.radians(lat_deg), _FLATTENING * (2 - _FLATTENING)
    curve = 1 - flat * math.sin(lat) ** 2
    east_m = _EQUATOR_M / math.sqrt(curve) * math.cos(lat)
    north_m = _EQUATOR_M * (1 - flat) / curve**1.5
    return math.radians(east_m), math.radians(north_m)


def sidereal_rad(julian_day: float, time_s: Array) -> Array:
    """Greenwich mean sidereal time (IAU 1982) in radians at times [T] in s after a Julian day of UT1.

    Ignored here: the difference between UT1 and UTC, less than a second.
    """
    centuries = (julian_day - _J2000 + time_s / _DAY_S) / 36_525.0
    whole_s = 67_310.54841 + (0.093104 - 6.2e-6 * centuries) * centuries**2
    # the large term in two parts, for precision: one turn a day, and the rotation of the sky beyond it
    gained_s = 8_640_184.812866 * centuries + ((julian_day - _J2000) % 1.0) * _DAY_S + time_s % _DAY_S
    return np.asarray(2 * math.pi * (((whole_s + gained_s) / _DAY_S) % 1.0))


def turned(place_m: Array, angle_rad: Array) -> Array:
    """Transform coordinates [..., 3] to axes that are rotated about z by angles [...]."""
    c, s = cos(angle_rad), sin(angle_rad)
    x, y, z = place_m[..., 0], place_m[..., 1], place_m[..., 2]
    return np.stack([c * x + s * y, c * y - s * x, np.broadcast_to(z, np.shape(c * x))], axis=-1)


def in_axes(way_m: Array, axes: Array) -> Array:
    """Components [..., n] of vectors [..., 3] along axes [n, 3], with the same bits on every processor."""
    return np.stack([way_m[..., 0] * x + way_m[..., 1] * y + way_m[..., 2] * z for x, y, z in axes], axis=-1)
