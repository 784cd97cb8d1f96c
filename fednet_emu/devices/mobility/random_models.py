"""Random mobility models: random direction, random waypoint and Gauss-Markov.

A path is a sequence of straight segments, called legs. Only the current leg of each device is stored, and the next leg
is computed when needed.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import scipy
from pydantic import Field, field_validator

from fednet_emu.arrays import Array, IntArray, Keys, cos, log1p, power, sin
from fednet_emu.devices.mobility.base import Mobility
from fednet_emu.devices.mobility.regions import Region, bounced, check_inside, reflected
from fednet_emu.kernel.streams import Streams, mixes, uniforms

_MOVING = 1.0
_DRAWS = np.arange(5)[:, None]


@dataclass(slots=True, eq=False)
class Legs:
    """One straight segment (leg) of the path of each of k devices."""

    device: IntArray  # devices, [k]
    number: IntArray  # index of the draw of the leg's heading, [k]; -1 before the first draw
    start_s: Array  # time of the start of the leg, [k]
    end_s: Array  # time of the end of the leg at a wall or a turn, [k]
    turn_s: Array  # time of the next change of heading, [k]; later than `end_s` if a wall is reached first
    xy_m: Array  # starting point, [k, 2]
    velocity_m_s: Array  # constant velocity, [k, 2]
    memory: Array  # state that the mobility model passes from leg to leg, [k, columns]

    @classmethod
    def none_yet(cls, xy_m: Array, columns: int = 0) -> Legs:
        """Return legs of zero duration at time 0 at the initial positions `xy_m` [devices, 2] in m."""
        count = len(xy_m)
        start_s, end_s, turn_s = np.zeros((3, count))
        places_m = np.array(xy_m, dtype=np.float64)
        velocity_m_s, memory = np.zeros((count, 2)), np.zeros((count, columns))
        return cls(np.arange(count), np.full(count, -1), start_s, end_s, turn_s, places_m, velocity_m_s, memory)

    def take(self, rows: IntArray) -> Legs:
        return Legs(*(getattr(self, name)[rows] for name in self.__slots__))

    def put(self, rows: IntArray, legs: Legs) -> None:
        for name in self.__slots__:
            getattr(self, name)[rows] = getattr(legs, name)

    def at_m(self, time_s: float | Array) -> Array:
        return self.xy_m + self.velocity_m_s * np.reshape(time_s - self.start_s, (-1, 1))


Following = Callable[[Legs], Legs]
"""Function that returns the next straight segment (leg) of each device after the given ones. Random numbers depend only
on the device and the index of the leg, so a path that is computed again is identical."""


class LegPaths:
    """Paths that are sequences of straight segments (legs).

    Only the current leg of each device is stored. A query at a later time computes all legs up to that time, one
    vectorised step per leg. A query before the start of the stored leg computes the path again from time 0.
    """

    def __init__(self, first: Legs, following: Following, speed_m_s: float) -> None:
        self.speed_m_s = speed_m_s
        self._first = first
        self._present = first.take(first.device)
        self._following = following

    def positions_m(self, devices: IntArray, time_s: float) -> Array:
        if len(devices) == 1:
            return self._one_m(int(devices[0]), time_s)
        present = self._present
        moved = (time_s < present.start_s[devices]) | (time_s >= present.end_s[devices])
        if moved.any():
            self._move(np.asarray(devices)[moved], time_s)
        elapsed_s = time_s - present.start_s[devices]
        return np.asarray(present.xy_m[devices] + present.velocity_m_s[devices] * elapsed_s[:, None])

    def _one_m(self, device: int, time_s: float) -> Array:
        present = self._present
        if not present.start_s.item(device) <= time_s < present.end_s.item(device):
            self._move(np.array([device]), time_s)
        elapsed_s = time_s - present.start_s.item(device)
        x_m = present.xy_m.item(device, 0) + present.velocity_m_s.item(device, 0) * elapsed_s
        y_m = present.xy_m.item(device, 1) + present.velocity_m_s.item(device, 1) * elapsed_s
        return np.array([[x_m, y_m]])

    def _move(self, devices: IntArray, time_s: float) -> None:
        legs = self._present.take(devices)
        too_late = np.flatnonzero(time_s < legs.start_s)
        legs.put(too_late, self._first.take(devices[too_late]))
        due = np.flatnonzero(time_s >= legs.end_s)
        while len(due):
            following = self._following(legs.take(due))
            legs.put(due, following)
            due = due[time_s >= following.end_s]
        self._present.put(devices, legs)


def bouncing(region: Region, turned: Following, mirrored: Callable[[Legs, Array], None] | None = None) -> Following:
    """Return a function that computes the next segments (legs) of paths that are reflected at the walls of `region`.

    At the time `turn_s` of a leg, the function `turned` sets a new heading: `number`, `velocity_m_s` and `turn_s` of
    the next leg. At a wall, the velocity is reflected, and the function `mirrored` reflects the `memory` of the legs at
    walls with the given unit normals [k, 2]; if it is None, the memory is kept.
    """

    def following(legs: Legs) -> Legs:
        turning = legs.end_s >= legs.turn_s
        legs.xy_m, legs.start_s = region.clipped_m(legs.at_m(legs.end_s)), legs.end_s
        turns, walls = np.flatnonzero(turning), np.flatnonzero(~turning)
        if len(turns):
            legs.put(turns, turned(legs.take(turns)))
        if len(walls):
            hit = legs.take(walls)
            normal = region.normal(hit.xy_m, hit.velocity_m_s)
            hit.velocity_m_s = bounced(hit.velocity_m_s, normal)
            if mirrored is not None:
                mirrored(hit, normal)
            legs.put(walls, hit)
        legs.end_s = np.minimum(legs.turn_s, legs.start_s + region.exit_s(legs.xy_m, legs.velocity_m_s))
        return legs

    return following


def heading(uniform: Array) -> Array:
    """Return unit vectors [k, 2] with the angles 2 pi `uniform` [k], where `uniform` are random numbers from 0 to 1."""
    angle = 2 * math.pi * uniform
    return np.stack([cos(angle), sin(angle)], axis=1)


class _SpeedRange(Mobility):
    """Base class of mobility models with speeds between a minimum and a maximum in m/s."""

    min_speed_m_s: float
    max_speed_m_s: float

    def _check(self) -> None:
        if self.min_speed_m_s > self.max_speed_m_s:
            raise ValueError(
                f"min_speed_m_s must not be above max_speed_m_s, got {self.min_speed_m_s:g} and {self.max_speed_m_s:g}"
            )


class RandomDirection(_SpeedRange):
    """Devices walk with a random speed and direction for an exponentially distributed time, and repeat; walls reflect.

    In the stationary state, positions and directions are uniformly distributed, for any distribution of speed and
    duration (Nain, Towsley, Liu and Liu, "Properties of random direction models", INFOCOM 2005).
    """

    min_speed_m_s: float = Field(0.5, ge=0)
    """Minimum speed, in m/s."""
    max_speed_m_s: float = Field(1.5, gt=0)
    """Maximum speed, in m/s; speeds are uniform between minimum and maximum. The defaults are speeds of pedestrians."""
    mean_leg_s: float = Field(60.0, gt=0)
    """Mean time in s until a device draws a new direction and speed."""

    def paths(self, initial_xy_m: Array, region: Region, streams: Streams, data_dir: Path | None = None) -> LegPaths:
        check_inside(region, initial_xy_m)
        keys = mixes(streams.key("mobility"), np.arange(len(initial_xy_m)))
        span_m_s = self.max_speed_m_s - self.min_speed_m_s

        def turned(legs: Legs) -> Legs:
            legs.number = legs.number + 1
            direction, quick, long = uniforms(keys[legs.device], 4 * legs.number + _DRAWS[:3])
            legs.velocity_m_s = heading(direction) * (self.min_speed_m_s + span_m_s * quick)[:, None]
            legs.turn_s = legs.start_s - self.mean_leg_s * log1p(-long)
            return legs

        speed_m_s = (self.min_speed_m_s + self.max_speed_m_s) / 2
        return LegPaths(Legs.none_yet(initial_xy_m), bouncing(region, turned), speed_m_s)


class RandomWaypoint(_SpeedRange):
    """Devices move straight to a uniformly random point at a uniformly random speed, pause there, and repeat.

    At a random time, the speed v of a moving device has a density proportional to 1 / v, with mean (max - min) / ln(max
    / min). At a random time, the current trip of a device is also longer on average than a typical trip, and devices
    concentrate in the middle of the region. With `start: stationary`, trip, position, speed and pause at time 0 are
    drawn from these distributions (Navidi and Camp, "Stationary distributions for the random waypoint mobility model",
    IEEE Trans. Mobile Computing, 2004).
    """

    min_speed_m_s: float = 0.5
    """Minimum speed, in m/s."""
    max_speed_m_s: float = 1.5
    """Maximum speed, in m/s; the speed of each trip is uniform between minimum and maximum."""
    pause_s: float = Field(0.0, ge=0)
    """Time in s for which a device stays at each waypoint."""
    start: Literal["stationary", "placement"] = "stationary"
    """Initial state of devices. With `stationary`, it is drawn from the stationary distribution; with `placement`, each
    device starts a trip at its placement."""

    @field_validator("min_speed_m_s")
    @classmethod
    def _never_at_rest_on_a_trip(cls, value: float) -> float:
        if value <= 0:
            raise ValueError(
                f"must be above 0, got {value:g}: with 0 the mean speed decays for ever, as ever more devices are on "
                f"endless slow trips"
            )
        return value

    def mean_speed_m_s(self) -> float:
        """Return the mean over time of the speed of moving devices in m/s: (max - min) / ln(max / min)."""
        ratio = self.max_speed_m_s / self.min_speed_m_s
        return self.min_speed_m_s * (1.0 if ratio == 1 else (ratio - 1) / math.log(ratio))

    def paths(self, initial_xy_m: Array, region: Region, streams: Streams, data_dir: Path | None = None) -> LegPaths:
        devices = np.arange(len(initial_xy_m))
        keys = mixes(streams.key("mobility"), devices)
        span_m_s = self.max_speed_m_s - self.min_speed_m_s
        if self.start == "stationary":
            first = self._stationary(region, streams, devices)
        else:
            check_inside(region, initial_xy_m)
            first = Legs.none_yet(initial_xy_m, columns=1)

        def following(legs: Legs) -> Legs:
            arrived = (legs.memory[:, 0] == _MOVING) & (self.pause_s > 0)
            legs.xy_m, legs.start_s = region.clipped_m(legs.at_m(legs.end_s)), legs.end_s
            legs.number = np.where(arrived, legs.number, legs.number + 1)
            one, two, quick = uniforms(keys[legs.device], 4 * np.maximum(legs.number, 0) + _DRAWS[:3])
            trip_m = region.points_m(one, two) - legs.xy_m
            trip_s, velocity_m_s = _trip(trip_m, self.min_speed_m_s + span_m_s * quick)
            legs.turn_s = legs.start_s + np.where(arrived, self.pause_s, trip_s)
            legs.end_s = legs.turn_s
            legs.velocity_m_s = np.where(arrived[:, None], 0.0, velocity_m_s)
            legs.memory = np.where(arrived, 0.0, _MOVING)[:, None]
            return legs

        return LegPaths(first, following, self.mean_speed_m_s())

    def _stationary(self, region: Region, streams: Streams, devices: IntArray) -> Legs:
        """Return the state of the devices at time 0: each is at a random point of a trip, or pauses."""
        keys = mixes(streams.key("mobility", "start"), devices)
        trip_s = region.mean_distance_m() / self.mean_speed_m_s()
        moving, along, quick = uniforms(keys, _DRAWS[:3])
        pausing = moving < self.pause_s / (self.pause_s + trip_s)
        from_m, to_m = _long_trips(region, mixes(streams.key("mobility", "first trip"), devices))
        here_m = from_m + along[:, None] * (to_m - from_m)
        speed_m_s = self.min_speed_m_s * power(self.max_speed_m_s / self.min_speed_m_s, quick)
        left_s, velocity_m_s = _trip(to_m - here_m, speed_m_s)
        legs = Legs.none_yet(np.where(pausing[:, None], from_m, here_m), columns=1)
        if pausing.any():
            legs.xy_m = np.where(pausing[:, None], region.points_m(*uniforms(keys, _DRAWS[:2] + 4)), here_m)
        legs.end_s = np.where(pausing, along * self.pause_s, left_s)
        legs.turn_s = legs.end_s.copy()
        legs.velocity_m_s = np.where(pausing[:, None], 0.0, velocity_m_s)
        legs.memory = np.where(pausing, 0.0, _MOVING)[:, None]
        return legs


def _trip(trip_m: Array, speed_m_s: Array) -> tuple[Array, Array]:
    distance_m = np.maximum(np.sqrt(trip_m[:, 0] ** 2 + trip_m[:, 1] ** 2), 1e-12)
    return distance_m / speed_m_s, trip_m * (speed_m_s / distance_m)[:, None]


def _long_trips(region: Region, keys: Keys) -> tuple[Array, Array]:
    """Return end points [k, 2] of random trips with a density proportional to their length, by rejection sampling."""
    from_m, to_m = np.empty((len(keys), 2)), np.empty((len(keys), 2))
    waiting, attempt = np.arange(len(keys)), 0
    while len(waiting):
        a, b, c, d, accept = uniforms(keys[waiting], 8 * attempt + _DRAWS)
        from_m[waiting], to_m[waiting] = region.points_m(a, b), region.points_m(c, d)
        trip_m = to_m[waiting] - from_m[waiting]
        rejected = accept * region.diameter_m() > np.sqrt(trip_m[:, 0] ** 2 + trip_m[:, 1] ** 2)
        waiting, attempt = waiting[rejected], attempt + 1
    return from_m, to_m


class GaussMarkov(Mobility):
    """Speed and heading of a device are first-order autoregressive around a mean speed and the device's mean heading.

    At each step the speed is v' = a v + (1 - a) mean + sqrt(1 - a^2) sigma w, where a is `alpha` and w is standard
    normal; the heading follows the same rule (Liang and Haas, INFOCOM 1999, in the form of Camp, Boleng and Davies,
    2002). Speed and heading start from their stationary distributions; a negative speed counts as 0. Mean headings are
    uniform. Walls reflect the mean heading together with the heading, so the distribution of positions stays uniform. A
    query takes one vectorised step for each `step_s` since the last query.
    """

    alpha: float = Field(0.85, ge=0, lt=1)
    """Correlation between successive steps: 0 for independent steps; 1, a straight line, is not allowed."""
    mean_speed_m_s: float = Field(1.0, gt=0)
    """Mean speed of every device, in m/s."""
    speed_sigma_m_s: float = Field(0.2, ge=0)
    """Standard deviation of the speed, in m/s."""
    heading_sigma_rad: float = Field(0.5, ge=0)
    """Standard deviation of the heading around the device's mean heading, in rad."""
    step_s: float = Field(10.0, gt=0)
    """Time between changes of speed and heading, in s; the correlation time is -`step_s` / ln(`alpha`), by default
    about a minute."""

    def paths(self, initial_xy_m: Array, region: Region, streams: Streams, data_dir: Path | None = None) -> LegPaths:
        check_inside(region, initial_xy_m)
        devices = np.arange(len(initial_xy_m))
        keys = mixes(streams.key("mobility"), devices)
        fresh = math.sqrt(1 - self.alpha**2)

        def turned(legs: Legs) -> Legs:
            legs.number = legs.number + 1
            legs.turn_s = (legs.number + 1).astype(np.float64) * self.step_s
            first = legs.number == 0
            news: Array = scipy.special.ndtri(uniforms(keys[legs.device], 2 * legs.number + _DRAWS[:2]))
            kept, added = np.where(first, 0.0, self.alpha), np.where(first, 1.0, fresh)
            legs.memory[:, 2:] = (kept * legs.memory[:, 2:].T + added * news).T
            legs.velocity_m_s = self._velocity_m_s(legs.memory)
            return legs

        start = Legs.none_yet(initial_xy_m, columns=4)
        start.memory[:, :2] = heading(uniforms(streams.key("mobility", "heading"), devices))
        return LegPaths(start, bouncing(region, turned, _mirrored), self.mean_speed_m_s)

    def _velocity_m_s(self, memory: Array) -> Array:
        """Return velocities [k, 2] in m/s; `memory` [k, 4] is the unit mean heading, standardised speed and heading."""
        speed_m_s = np.maximum(self.mean_speed_m_s + self.speed_sigma_m_s * memory[:, 2], 0.0)
        turn = self.heading_sigma_rad * memory[:, 3]
        along, across = speed_m_s * cos(turn), speed_m_s * sin(turn)
        mean_x, mean_y = memory[:, 0], memory[:, 1]
        return np.stack([mean_x * along - mean_y * across, mean_x * across + mean_y * along], axis=1)


def _mirrored(legs: Legs, normal: Array) -> None:
    """Reflect the mean heading at a wall, and change the sign of the difference between heading and mean heading."""
    legs.memory[:, :2] = reflected(legs.memory[:, :2], normal)
    legs.memory[:, 3] *= -1
