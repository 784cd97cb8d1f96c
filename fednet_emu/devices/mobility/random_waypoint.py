"""Random waypoint with a stationary start: no warm-up in which speeds decay and devices drift to the middle."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Literal

import numpy as np
from pydantic import Field, field_validator, model_validator

from fednet_emu.arrays import Array, IntArray, Keys, power
from fednet_emu.devices.mobility.base import Mobility
from fednet_emu.devices.mobility.legs import LegPaths, Legs
from fednet_emu.devices.mobility.regions import Region, check_inside
from fednet_emu.kernel.streams import Streams, mixes, uniforms

_MOVING = 1.0
_DRAWS = np.arange(3)[:, None]
_TRIP_DRAWS = np.arange(5)[:, None]


class RandomWaypoint(Mobility):
    """Go straight to a uniform point at a uniform speed, pause there, and so on.

    Seen at a random time, a moving device's speed has density proportional to 1 / v, of mean
    (max - min) / ln(max / min), its trip is longer than a typical one, and devices crowd in the middle. The stationary
    start draws trip, place, speed and pause from these laws (Navidi and Camp, "Stationary distributions for the random
    waypoint mobility model", IEEE Trans. Mobile Computing, 2004).
    """

    min_speed_m_s: float = 0.5
    """Lowest speed in m/s."""
    max_speed_m_s: float = 1.5
    """Highest speed in m/s; the speed of each trip is uniform between the two bounds."""
    pause_s: float = Field(0.0, ge=0)
    """Time in s that a device stays at each waypoint."""
    start: Literal["stationary", "placement"] = "stationary"
    """Whether devices start from the stationary law, wherever they were placed, or with a trip from their place."""

    @field_validator("min_speed_m_s")
    @classmethod
    def _never_at_rest_on_a_trip(cls, value: float) -> float:
        if value <= 0:
            raise ValueError(
                f"must be above 0, got {value:g}: with 0 the mean speed decays for ever, as ever more devices are on "
                f"endless slow trips"
            )
        return value

    @model_validator(mode="after")
    def _speeds_in_order(self) -> RandomWaypoint:
        if self.min_speed_m_s > self.max_speed_m_s:
            raise ValueError(
                f"min_speed_m_s must not be above max_speed_m_s, got {self.min_speed_m_s:g} and {self.max_speed_m_s:g}"
            )
        return self

    def mean_speed_m_s(self) -> float:
        """Mean speed of moving devices over time: (max - min) / ln(max / min)."""
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
            one, two, quick = uniforms(keys[legs.device], 4 * np.maximum(legs.number, 0) + _DRAWS)
            trip_m = region.points_m(one, two) - legs.xy_m
            trip_s, velocity_m_s = _trip(trip_m, self.min_speed_m_s + span_m_s * quick)
            legs.turn_s = legs.start_s + np.where(arrived, self.pause_s, trip_s)
            legs.end_s = legs.turn_s
            legs.velocity_m_s = np.where(arrived[:, None], 0.0, velocity_m_s)
            legs.memory = np.where(arrived, 0.0, _MOVING)[:, None]
            return legs

        return LegPaths(first, following, self.mean_speed_m_s())

    def _stationary(self, region: Region, streams: Streams, devices: IntArray) -> Legs:
        """The legs that devices are on at time 0, each at a random point of a trip or pause."""
        keys = mixes(streams.key("mobility", "start"), devices)
        trip_s = region.mean_distance_m() / self.mean_speed_m_s()
        moving, along, quick = uniforms(keys, _DRAWS)
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
    """Duration [k] and velocity [k, 2] of straight trips [k, 2]."""
    distance_m = np.maximum(np.sqrt(trip_m[:, 0] ** 2 + trip_m[:, 1] ** 2), 1e-12)
    return distance_m / speed_m_s, trip_m * (speed_m_s / distance_m)[:, None]


def _long_trips(region: Region, keys: Keys) -> tuple[Array, Array]:
    """Ends [k, 2] of trips whose density is proportional to their length, by rejection."""
    from_m, to_m = np.empty((len(keys), 2)), np.empty((len(keys), 2))
    waiting, attempt = np.arange(len(keys)), 0
    while len(waiting):
        a, b, c, d, accept = uniforms(keys[waiting], 8 * attempt + _TRIP_DRAWS)
        from_m[waiting], to_m[waiting] = region.points_m(a, b), region.points_m(c, d)
        trip_m = to_m[waiting] - from_m[waiting]
        rejected = accept * region.diameter_m() > np.sqrt(trip_m[:, 0] ** 2 + trip_m[:, 1] ** 2)
        waiting, attempt = waiting[rejected], attempt + 1
    return from_m, to_m
