"""The base class of planners, and the inputs of a plan at the start of a round."""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from pydantic import Field

from fednet_emu.arrays import Array, Mask, log1p
from fednet_emu.component.component import Component
from fednet_emu.network.air.transfer import Grant
from fednet_emu.network.planning.closed_forms import LN_2
from fednet_emu.radio.rates.base import RateLaw
from fednet_emu.radio.rates.narrowing import Narrowed
from fednet_emu.radio.rates.shannon import Shannon
from fednet_emu.units import db_to_linear

_INSIDE = 1e-9
"""Relative margin by which planned efficiencies exceed the minimum efficiency of the rate law, below which no bits are
carried."""


@dataclass(frozen=True)
class Round:
    """Inputs of the plan for one round in one cell, with arrays [n] whose entry k is for the k-th participating device.

    Attributes:
        ready_s: [n] times at which devices have received the model, in s from the start of the round.
        compute_s: [n] computing times in s at full clock frequency.
        compute_j: [n] computing energies in J at full clock frequency. At the fraction x of the full frequency,
            computing takes 1/x of the time and x^2 of the energy.
        min_clock: [n] minimum clock frequencies, as fractions of the full frequency in (0, 1].
        size_bit: number of bits of an upload.
        snr: [n] SNRs (linear) of the uplinks at full power on the whole band, averaged over fading.
        power_w: [n] full transmit powers in W.
        amplifier_efficiency: [n] radiated power of each device divided by the power that its amplifier consumes; a
            single number applies to all devices.
        circuit_w: [n] power in W that the rest of a transmitter consumes while it sends; a single number applies to all
            devices.
        weight: [n] weights of the updates: the number of samples of each device.
        bandwidth_hz: width of the band in Hz.
        law: the rate law of a fading block: `shannon`, which a narrowing rule may restrict to a part of the band.
        bits_j: energy in J of an upload that depends only on the number of bits, not on the transmit power.
        rng: random generator for the plan of the round.
    """

    ready_s: Array
    compute_s: Array
    compute_j: Array
    min_clock: Array
    size_bit: float
    snr: Array
    power_w: Array
    amplifier_efficiency: Array | float
    circuit_w: Array | float
    weight: Array
    bandwidth_hz: float
    law: RateLaw
    bits_j: float = 0.0
    rng: np.random.Generator | None = None

    def only(self, who: Mask) -> Round:
        """Return the round with only the devices in the mask `who` [n]."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        chosen: dict[str, Any] = {name: its[who] for name, its in values.items() if isinstance(its, np.ndarray)}
        return replace(self, **chosen)

    @property
    def shannon(self) -> Shannon:
        """The Shannon rate law without restriction to a part of the band; closed forms exist only for this law."""
        law = self.law.law if isinstance(self.law, Narrowed) else self.law
        assert isinstance(law, Shannon), "a scenario with planned access has this law"
        return law

    @cached_property
    def gamma(self) -> Array:
        """SNRs [n] (linear) of the uplinks at full power, divided by the SNR gap of the rate law."""
        return np.asarray(self.snr / db_to_linear(self.shannon.gap_db))

    @property
    def need_s(self) -> float:
        """Time in s for an upload on the whole band at 1 nat/s/Hz: s ln 2 / B, for s bits and a band of B Hz."""
        return self.size_bit * LN_2 / self.bandwidth_hz

    @property
    def lowest(self) -> float:
        """Minimum spectral efficiency in nat/s/Hz of plans.

        It is slightly above the efficiency below which the rate law carries no bits.
        """
        return self.shannon.min_efficiency_bps_hz * LN_2 * (1 + _INSIDE)

    @property
    def highest(self) -> float:
        """Maximum spectral efficiency of the rate law in nat/s/Hz; infinite if the law has no maximum."""
        return (self.shannon.max_efficiency_bps_hz or np.inf) * LN_2

    @cached_property
    def widest(self) -> Array:
        """Share [n] of the band on which each device has its highest rate at full power; below 1 for weak signals."""
        return np.minimum(1.0, self.gamma / math.expm1(self.lowest)) if self.lowest > 0 else np.ones(len(self.gamma))

    @cached_property
    def shortest_s(self) -> Array:
        """Minimum airtime [n] in s of each device's upload, at full power and on the band share `widest`."""
        with np.errstate(divide="ignore"):
            widest = self.widest
            efficiency = np.minimum(
                log1p(np.divide(self.gamma, widest, where=widest > 0, out=widest * 0)), self.highest
            )
            return np.asarray(self.need_s / (widest * efficiency))


class Planner(Component):
    """Rule that assigns band shares, transmit powers and clock frequencies to the devices of a round."""

    IN_TURNS: ClassVar[bool] = False
    """True if devices take turns, each on the whole band."""
    loses: ClassVar[bool] = False
    """True if plans may lose uploads."""

    margin_db: float = Field(0.0, ge=0)
    """Fading margin in dB: plans assume that each link's SNR is lower than its mean by this amount."""

    @property
    def draws(self) -> bool:
        """True if plans are random. In this case, a round is planned only once, even if the plan leaves out devices."""
        return False

    @abstractmethod
    def plan(self, round_: Round) -> Grant[Array]:
        """Return the grants (planned resources) of all devices in a round with at least one device and no SNR of 0."""
