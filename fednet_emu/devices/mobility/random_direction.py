"""Random direction with reflection: devices spread uniformly over the region stay uniform for ever."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from pydantic import Field, model_validator

from fednet_emu.arrays import Array, log1p
from fednet_emu.devices.mobility.base import Mobility
from fednet_emu.devices.mobility.legs import LegPaths, Legs, bouncing, heading
from fednet_emu.devices.mobility.regions import Region, check_inside
from fednet_emu.kernel.streams import Streams, mixes, uniforms

_DRAWS = np.arange(3)[:, None]


class RandomDirection(Mobility):
    """Walk at a constant speed in a random direction for an exponential time, reflected by walls; then draw again.

    Uniform positions with directions uniform on the circle are its stationary law, for any law of speed and duration
    (Nain, Towsley, Liu and Liu, "Properties of random direction models", INFOCOM 2005).
    """

    min_speed_m_s: float = Field(0.5, ge=0)
    """Lowest speed in m/s."""
    max_speed_m_s: float = Field(1.5, gt=0)
    """Highest speed in m/s; speeds are uniform between the two bounds, whose defaults are those of pedestrians."""
    mean_leg_s: float = Field(60.0, gt=0)
    """Mean time from one draw of direction and speed to the next."""

    @model_validator(mode="after")
    def _speeds_in_order(self) -> RandomDirection:
        if self.min_speed_m_s > self.max_speed_m_s:
            raise ValueError(
                f"min_speed_m_s must not be above max_speed_m_s, got {self.min_speed_m_s:g} and {self.max_speed_m_s:g}"
            )
        return self

    def paths(self, initial_xy_m: Array, region: Region, streams: Streams, data_dir: Path | None = None) -> LegPaths:
        check_inside(region, initial_xy_m)
        keys = mixes(streams.key("mobility"), np.arange(len(initial_xy_m)))
        span_m_s = self.max_speed_m_s - self.min_speed_m_s

        def turned(legs: Legs) -> Legs:
            legs.number = legs.number + 1
            direction, quick, long = uniforms(keys[legs.device], 4 * legs.number + _DRAWS)
            legs.velocity_m_s = heading(direction) * (self.min_speed_m_s + span_m_s * quick)[:, None]
            legs.turn_s = legs.start_s - self.mean_leg_s * log1p(-long)
            return legs

        speed_m_s = (self.min_speed_m_s + self.max_speed_m_s) / 2
        return LegPaths(Legs.none_yet(initial_xy_m), bouncing(region, turned), speed_m_s)
