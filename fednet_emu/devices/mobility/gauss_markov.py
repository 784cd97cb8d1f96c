"""Gauss-Markov mobility: speed and heading change a little at each step, with a memory."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import scipy
from pydantic import Field

from fednet_emu.arrays import Array, cos, sin
from fednet_emu.devices.mobility.base import Mobility
from fednet_emu.devices.mobility.legs import LegPaths, Legs, bouncing, heading
from fednet_emu.devices.mobility.regions import Region, check_inside, reflected
from fednet_emu.kernel.streams import Streams, mixes, uniforms

_DRAWS = np.arange(2)[:, None]


class GaussMarkov(Mobility):
    """First-order autoregressive speed and heading around a mean speed and a mean heading of each device's own.

    At each step v' = a v + (1 - a) mean + sqrt(1 - a^2) sigma w, and the same for the heading (Liang and Haas, INFOCOM
    1999, in the form of Camp, Boleng and Davies, 2002). Both start from their stationary law; a speed below 0 counts as
    standing still. Mean headings are uniform, and walls reflect them together with the heading, so uniform positions
    stay uniform. Time between two questions costs one vectorised step of work per `step_s`.
    """

    alpha: float = Field(0.85, ge=0, lt=1)
    """Memory from step to step: 0 has none, 1 would be a straight line and is not allowed."""
    mean_speed_m_s: float = Field(1.0, gt=0)
    """Mean speed of every device."""
    speed_sigma_m_s: float = Field(0.2, ge=0)
    """Standard deviation of the speed."""
    heading_sigma_rad: float = Field(0.5, ge=0)
    """Standard deviation of the heading around the device's mean heading."""
    step_s: float = Field(10.0, gt=0)
    """Time between changes; speed and heading are forgotten after about -step_s / ln(alpha), here a minute."""

    def paths(self, initial_xy_m: Array, region: Region, streams: Streams, data_dir: Path | None = None) -> LegPaths:
        check_inside(region, initial_xy_m)
        devices = np.arange(len(initial_xy_m))
        keys = mixes(streams.key("mobility"), devices)
        fresh = math.sqrt(1 - self.alpha**2)

        def turned(legs: Legs) -> Legs:
            legs.number = legs.number + 1
            legs.turn_s = (legs.number + 1).astype(np.float64) * self.step_s
            first = legs.number == 0
            news: Array = scipy.special.ndtri(uniforms(keys[legs.device], 2 * legs.number + _DRAWS))
            kept, added = np.where(first, 0.0, self.alpha), np.where(first, 1.0, fresh)
            legs.memory[:, 2:] = (kept * legs.memory[:, 2:].T + added * news).T
            legs.velocity_m_s = self._velocity_m_s(legs.memory)
            return legs

        start = Legs.none_yet(initial_xy_m, columns=4)
        start.memory[:, :2] = heading(uniforms(streams.key("mobility", "heading"), devices))
        return LegPaths(start, bouncing(region, turned, _mirrored), self.mean_speed_m_s)

    def _velocity_m_s(self, memory: Array) -> Array:
        """Velocity [k, 2] from mean heading (unit vector), and standardised deviations of speed and heading [k, 4]."""
        speed_m_s = np.maximum(self.mean_speed_m_s + self.speed_sigma_m_s * memory[:, 2], 0.0)
        turn = self.heading_sigma_rad * memory[:, 3]
        along, across = speed_m_s * cos(turn), speed_m_s * sin(turn)
        mean_x, mean_y = memory[:, 0], memory[:, 1]
        return np.stack([mean_x * along - mean_y * across, mean_x * across + mean_y * along], axis=1)


def _mirrored(legs: Legs, normal: Array) -> None:
    """A mirror turns left deviations from the mean heading into right ones."""
    legs.memory[:, :2] = reflected(legs.memory[:, :2], normal)
    legs.memory[:, 3] *= -1
