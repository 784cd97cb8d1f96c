"""What makes a link between two devices differ from the one back: their radios, and obstacles that work one way."""

from __future__ import annotations

from functools import cached_property

import numpy as np
import scipy
from pydantic import Field

from fednet_emu.arrays import Array, IntArray
from fednet_emu.component import Component
from fednet_emu.kernel.streams import Streams, mixes, uniforms
from fednet_emu.units import db_to_linear


class Asymmetry(Component):
    """Spread of the devices' radios around the channel's, and obstacles that weaken one direction only.

    Ignored here: where obstacles are; each ordered pair has its own draw.
    """

    tx_power_sigma_db: float = Field(0.0, ge=0)
    """Standard deviation of the radiated power, Gaussian in dB."""

    noise_figure_sigma_db: float = Field(0.0, ge=0)
    """Standard deviation of the noise, Gaussian in dB; it stands for interference that only some receivers hear too."""

    obstacle_probability: float = Field(0.0, ge=0, le=1)
    """Probability that a direction of a link is obstructed, drawn for each ordered pair."""

    obstacle_loss_db: float = Field(20.0, ge=0)
    """Loss of an obstructed direction."""


class OneWay:
    """The factors of one run by which the SNR of a direction differs from that of the symmetric link."""

    def __init__(self, law: Asymmetry, count: int, streams: Streams) -> None:
        self._law, self._count, self._streams = law, count, streams
        self._obstacles = streams.key("asymmetry", "obstacle")

    @cached_property
    def tx(self) -> Array:
        """Radiated power of each device [devices], over the channel's."""
        return self._spread("power", self._law.tx_power_sigma_db)

    @cached_property
    def rx(self) -> Array:
        """The channel's noise over that of each device [devices]."""
        return self._spread("noise", self._law.noise_figure_sigma_db)

    def _spread(self, what: str, sigma_db: float) -> Array:
        draws = uniforms(self._streams.key("asymmetry", what), np.arange(self._count))
        return db_to_linear(sigma_db * np.asarray(scipy.special.ndtri(draws)))

    def factors(self, sender: IntArray, receiver: IntArray) -> Array:
        """By how much the SNR from sender to receiver exceeds that of the symmetric link, in their broadcast shape."""
        factor = self.tx[sender] * self.rx[receiver]
        if self._law.obstacle_probability:
            hit = uniforms(mixes(self._obstacles, sender), receiver) < self._law.obstacle_probability
            factor = np.where(hit, factor * db_to_linear(-self._law.obstacle_loss_db), factor)
        return factor
