"""Regions in which devices move: convex regions, centred at the base station, with reflecting walls."""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import Annotated

import numpy as np
from pydantic import Field

from fednet_emu.arrays import Array, Mask, cos, sin
from fednet_emu.component.component import Component
from fednet_emu.component.slot import Slot, kinds
from fednet_emu.errors import ScenarioError

_SLACK = 1e-9
_AT_REST_M_S = 1e-200
_GRAZING = 1e-3
"""Minimum sine of the angle between a wall and a reflected path; it limits the number of reflections along a circle."""


class Region(Component):
    """A convex region around the origin; coordinates are [k, 2] in m and velocities [k, 2] in m/s."""

    @abstractmethod
    def holds(self, xy_m: Array) -> Mask:
        """Return the mask [k] of the points inside the region, with a tolerance of 1e-9 times the region's size."""

    @abstractmethod
    def points_m(self, first: Array, second: Array) -> Array:
        """Return points [k, 2] uniformly distributed over the area, for two arrays [k] of uniform random numbers."""

    @abstractmethod
    def exit_s(self, xy_m: Array, velocity_m_s: Array) -> Array:
        """Return the time [k] in s until points inside that move straight on reach a wall; infinity for speed 0."""

    @abstractmethod
    def normal(self, xy_m: Array, velocity_m_s: Array) -> Array:
        """Return the outward unit normals [k, 2] of the walls that devices at `xy_m` have just reached."""

    @abstractmethod
    def clipped_m(self, xy_m: Array) -> Array:
        """Return the points [k, 2]; points that are outside because of rounding errors are moved onto the wall."""

    @abstractmethod
    def mean_distance_m(self) -> float:
        """Return the mean distance in m between two independent, uniformly distributed points of the region."""

    @abstractmethod
    def diameter_m(self) -> float:
        """Return the maximum distance in m between two points of the region."""


class DiscRegion(Region):
    """A disc around the base station."""

    kind = "disc"
    radius_m: float = Field(gt=0)
    """Radius of the disc, in m."""

    def holds(self, xy_m: Array) -> Mask:
        return np.hypot(xy_m[:, 0], xy_m[:, 1]) <= self.radius_m * (1 + _SLACK)

    def points_m(self, first: Array, second: Array) -> Array:
        distance_m, angle = self.radius_m * np.sqrt(first), 2 * math.pi * second
        return np.stack([distance_m * cos(angle), distance_m * sin(angle)], axis=1)

    def exit_s(self, xy_m: Array, velocity_m_s: Array) -> Array:
        # the larger root of |x + v t| = radius, in the form that avoids cancellation
        square = _dot(velocity_m_s, velocity_m_s)
        a = np.maximum(square, _AT_REST_M_S)
        b = _dot(xy_m, velocity_m_s)
        c = np.minimum(_dot(xy_m, xy_m) - self.radius_m**2, 0.0)
        root = np.sqrt(b * b - a * c)
        leaving = b > 0
        after_s = np.where(leaving, -c / np.where(leaving, b + root, 1.0), (root - b) / a)
        return np.where(square > _AT_REST_M_S, after_s, math.inf)

    def normal(self, xy_m: Array, velocity_m_s: Array) -> Array:
        return xy_m / np.sqrt(_dot(xy_m, xy_m))[:, None]

    def clipped_m(self, xy_m: Array) -> Array:
        distance_m = np.sqrt(_dot(xy_m, xy_m))
        return xy_m * (self.radius_m / np.maximum(distance_m, self.radius_m))[:, None]

    def mean_distance_m(self) -> float:
        return 128 * self.radius_m / (45 * math.pi)

    def diameter_m(self) -> float:
        return 2 * self.radius_m


class BoxRegion(Region):
    """A rectangle centred at the base station: |x| <= width_m / 2 and |y| <= length_m / 2."""

    kind = "box"
    width_m: float = Field(gt=0)
    """Extent in the x direction, in m."""
    length_m: float = Field(gt=0)
    """Extent in the y direction, in m."""

    def _half_m(self) -> Array:
        return np.array([self.width_m, self.length_m]) / 2

    def holds(self, xy_m: Array) -> Mask:
        return np.asarray(np.all(np.abs(xy_m) <= self._half_m() * (1 + _SLACK), axis=1))

    def points_m(self, first: Array, second: Array) -> Array:
        return (np.stack([first, second], axis=1) * 2 - 1) * self._half_m()

    def exit_s(self, xy_m: Array, velocity_m_s: Array) -> Array:
        speed_m_s = np.abs(velocity_m_s)
        gap_m = self._gap_m(xy_m, velocity_m_s)
        after_s: Array = np.divide(gap_m, speed_m_s, out=np.full_like(gap_m, math.inf), where=speed_m_s > _AT_REST_M_S)
        return np.asarray(after_s.min(axis=1))

    def normal(self, xy_m: Array, velocity_m_s: Array) -> Array:
        # a corner counts as two walls, reached one after the other
        moving_gap_m = np.where(velocity_m_s != 0, self._gap_m(xy_m, velocity_m_s), math.inf)
        across = moving_gap_m[:, 0] <= moving_gap_m[:, 1]
        return np.where(np.stack([across, ~across], axis=1), np.sign(velocity_m_s), 0.0)

    def _gap_m(self, xy_m: Array, velocity_m_s: Array) -> Array:
        return self._half_m() - xy_m * np.sign(velocity_m_s)

    def clipped_m(self, xy_m: Array) -> Array:
        half_m = self._half_m()
        return np.clip(xy_m, -half_m, half_m)

    def mean_distance_m(self) -> float:
        # mean line length of a rectangle (Ghosh, 1951; Santalo, Integral Geometry, chapter 4)
        a, b = self.width_m, self.length_m
        d = math.hypot(a, b)
        polynomial = a**3 / b**2 + b**3 / a**2 + d * (3 - (a / b) ** 2 - (b / a) ** 2)
        return polynomial / 15 + (b**2 / a * math.asinh(a / b) + a**2 / b * math.asinh(b / a)) / 6

    def diameter_m(self) -> float:
        return math.hypot(self.width_m, self.length_m)


def reflected(vector: Array, normal: Array) -> Array:
    """Return the vectors [k, 2] reflected at walls with the unit normals `normal` [k, 2]."""
    return vector - (2 * _dot(vector, normal))[:, None] * normal


def bounced(velocity_m_s: Array, normal: Array) -> Array:
    """Return velocities [k, 2] reflected at walls, with an angle of at least 0.06 degrees between velocity and wall."""
    outward_m_s = _dot(velocity_m_s, normal)
    back_m_s = np.maximum(outward_m_s, _GRAZING * np.sqrt(_dot(velocity_m_s, velocity_m_s)))
    return velocity_m_s - (outward_m_s + back_m_s)[:, None] * normal


def check_inside(region: Region, xy_m: Array) -> None:
    """Raise a `ScenarioError` if a device at the coordinates `xy_m` [devices, 2] in m is outside the region."""
    outside = np.flatnonzero(~region.holds(xy_m))
    if len(outside):
        x_m, y_m = xy_m[outside[0]]
        size = ", ".join(f"{name} {value:g}" for name, value in region.model_dump().items())
        raise ScenarioError(
            f"devices.mobility: dev-{outside[0]} is placed outside the region it roams, got ({x_m:g}, {y_m:g}) m and a "
            f"{region.kind} of {size}; enlarge the region or move the device"
        )


def _dot(a: Array, b: Array) -> Array:
    # written out, because the sum must not depend on the number of rows
    return a[:, 0] * b[:, 0] + a[:, 1] * b[:, 1]


REGIONS: dict[str, type[Region]] = kinds(DiscRegion, BoxRegion)
AnyRegion = Annotated[Region, Slot("region", REGIONS)]
