"""Inputs of a planner at the start of a round, and its grants: parts of the band, powers and clocks."""

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
"""Plans stay this far (relative) inside the lowest efficiency of the rate law, below which nothing is carried."""


@dataclass(frozen=True)
class Round:
    """One round of one cell: entry k of every array [n] is about the k-th device that takes part.

    Attributes:
        ready_s: when each device has received the model, from the start of the round.
        compute_s: time of its computation at its full clock.
        compute_j: energy of that; at the share x of the clock it takes 1/x of the time and x^2 of the energy.
        least_clock: the lowest share of the full clock at which each can compute, in (0, 1].
        size_bit: bits of an upload.
        snr: SNR (linear) of each uplink at full power on the whole band, averaged over fading.
        power_w: the full transmit power.
        amplifier_efficiency: radiated over drawn power, or one number for all.
        circuit_w: power that the rest of each transmitter draws while it sends, or of all alike.
        weight: weight of the update of each, its number of samples.
        bandwidth_hz: width of the band.
        law: the rate law of a block: `shannon`, narrowed or not.
        bits_j: energy of the bits of an upload, at any power.
        rng: random numbers of the plan of this round.
    """

    ready_s: Array
    compute_s: Array
    compute_j: Array
    least_clock: Array
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
        """The round of some of its devices."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        chosen: dict[str, Any] = {name: its[who] for name, its in values.items() if isinstance(its, np.ndarray)}
        return replace(self, **chosen)

    @property
    def shannon(self) -> Shannon:
        """The rate law of a part of the band, with known closed forms."""
        law = self.law.law if isinstance(self.law, Narrowed) else self.law
        assert isinstance(law, Shannon), "a scenario with planned access has this law"
        return law

    @cached_property
    def gamma(self) -> Array:
        """SNRs [n] over the gap of the rate law."""
        return np.asarray(self.snr / db_to_linear(self.shannon.gap_db))

    @property
    def need_s(self) -> float:
        """Time in s that an upload takes on the whole band at 1 nat/s/Hz: s ln 2 / B."""
        return self.size_bit * LN_2 / self.bandwidth_hz

    @property
    def lowest(self) -> float:
        """The lowest efficiency of the rate law in nat/s/Hz."""
        return self.shannon.min_efficiency_bps_hz * LN_2 * (1 + _INSIDE)

    @property
    def highest(self) -> float:
        """The highest efficiency of the rate law in nat/s/Hz."""
        return (self.shannon.max_efficiency_bps_hz or np.inf) * LN_2

    @cached_property
    def widest(self) -> Array:
        """The part of the band [n] with the highest rate, at full power: less than 1 for weak signals."""
        return np.minimum(1.0, self.gamma / math.expm1(self.lowest)) if self.lowest > 0 else np.ones(len(self.gamma))

    @cached_property
    def shortest_s(self) -> Array:
        """Shortest time on the air [n]: full power, and the part of the band with the highest rate."""
        with np.errstate(divide="ignore"):
            widest = self.widest
            efficiency = np.minimum(
                log1p(np.divide(self.gamma, widest, where=widest > 0, out=widest * 0)), self.highest
            )
            return np.asarray(self.need_s / (widest * efficiency))


class Planner(Component):
    """How the band, the powers and the clocks of a round are divided."""

    IN_TURNS: ClassVar[bool] = False
    """Whether devices send one after the other, each on the whole band."""

    margin_db: float = Field(0.0, ge=0)
    """How far below its mean SNR each link is planned for, in dB: a reserve against fading."""

    @property
    def loses(self) -> bool:
        """Whether plans may lose uploads."""
        return False

    @property
    def draws(self) -> bool:
        """Whether plans are random, so that a round is planned once, without its devices that are left out."""
        return False

    @abstractmethod
    def plan(self, round_: Round) -> Grant[Array]:
        """Divide band, powers and clocks among the devices of a round, at least one, all with a link (SNR above 0)."""
