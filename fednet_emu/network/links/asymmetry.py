"""Differences between the two directions of a device-to-device link, due to radios and obstacles."""

from __future__ import annotations

from functools import cached_property

import numpy as np
import scipy
from pydantic import Field

from fednet_emu.arrays import Array, IntArray
from fednet_emu.component.component import Component
from fednet_emu.kernel.streams import Streams, mixes, uniforms
from fednet_emu.units import db_to_linear


class Asymmetry(Component):
    """Random differences between the radios of devices, and obstacles that weaken only one direction of a link.

    Ignored here: the positions of obstacles; whether a link is obstructed is drawn for each ordered pair of devices.
    """

    tx_power_sigma_db: float = Field(0.0, ge=0)
    """Standard deviation in dB of the devices' radiated powers, which are Gaussian in dB around the channel's value."""

    noise_figure_sigma_db: float = Field(0.0, ge=0)
    """Standard deviation in dB of the devices' noise powers, which are Gaussian in dB around the channel's value. The
    differences can also represent interference that only some receivers experience."""

    obstacle_probability: float = Field(0.0, ge=0, le=1)
    """Probability that one direction of a link is obstructed, drawn for each ordered pair of devices."""

    obstacle_loss_db: float = Field(20.0, ge=0)
    """Additional loss in dB of an obstructed direction."""


class OneWay:
    """Factors, drawn once, by which the SNR of each direction of a link differs from that of a symmetric link."""

    def __init__(self, law: Asymmetry, count: int, streams: Streams) -> None:
        self._law, self._count, self._streams = law, count, streams
        self._obstacles = streams.key("asymmetry", "obstacle")

    @cached_property
    def tx(self) -> Array:
        """Radiated power of each device relative to the power that the channel states, linear [devices]."""
        return self._spread("power", self._law.tx_power_sigma_db)

    @cached_property
    def rx(self) -> Array:
        """Noise power that the channel states, relative to the noise power of each device, linear [devices]."""
        return self._spread("noise", self._law.noise_figure_sigma_db)

    def _spread(self, what: str, sigma_db: float) -> Array:
        draws = uniforms(self._streams.key("asymmetry", what), np.arange(self._count))
        return db_to_linear(sigma_db * np.asarray(scipy.special.ndtri(draws)))

    def factors(self, sender: IntArray, receiver: IntArray) -> Array:
        """SNR from each sender to its receiver, divided by that of a symmetric link (linear); arguments broadcast."""
        factor = self.tx[sender] * self.rx[receiver]
        if self._law.obstacle_probability:
            hit = uniforms(mixes(self._obstacles, sender), receiver) < self._law.obstacle_probability
            factor = np.where(hit, factor * db_to_linear(-self._law.obstacle_loss_db), factor)
        return factor
