"""Rate of short blocks: the normal approximation of Polyanskiy, Poor and Verdu (IEEE Trans. Inf. Theory 2010)."""

from __future__ import annotations

import math
from functools import cached_property

import numpy as np
import scipy
from pydantic import Field

from fednet_emu.arrays import Array, bisected, expm1, log1p
from fednet_emu.radio.rates.base import RateLaw

_HALVINGS = 100


class FiniteBlocklength(RateLaw):
    """Highest rate C - sqrt(V / n) Q^-1(e) per symbol at which blocks of n symbols fail with probability e.

    C = log2(1 + SINR) is the capacity and V = (1 - (1 + SINR)^-2) / ln(2)^2 the dispersion under complex Gaussian
    noise; Q^-1 is the inverse of the tail probability of a standard normal variable. Failed blocks are sent again,
    which leaves a share 1 - e of the rate. If the formula is negative, the rate is 0.
    Ignored here: the term log2(n) / (2 n) (0.02 bit at n = 200), the gap of real codes to this rate, and the delay of
    retransmissions.
    """

    block_symbols: int = Field(ge=100)
    """Number n of complex symbols per block; the approximation is good from about 100."""
    error_rate: float = Field(gt=0, lt=0.5)
    """Probability e that a block fails."""

    @property
    def min_sinr(self) -> float:
        return self._zero_sinr

    @property
    def peaks(self) -> Array:
        """The SINR with the most bits per joule, where the tangent to the rate goes through the origin."""
        return np.array([self._best_sinr])

    def rate_bps(self, sinr: float, bandwidth_hz: float) -> float:
        if sinr <= self._zero_sinr:
            return 0.0
        penalty = self._penalty * math.sqrt(-math.expm1(-2.0 * math.log1p(sinr)))
        return bandwidth_hz * (1.0 - self.error_rate) * max(math.log1p(sinr) - penalty, 0.0) / math.log(2.0)

    def rates_bps(self, sinr: Array, bandwidth_hz: Array | float) -> Array:
        nats = log1p(sinr) - self._penalty * np.sqrt(-expm1(-2.0 * log1p(sinr)))
        efficiency_bps_hz = (1.0 - self.error_rate) * np.maximum(nats, 0.0) / math.log(2.0)
        return bandwidth_hz * np.where(sinr <= self._zero_sinr, 0.0, efficiency_bps_hz)

    @cached_property
    def _penalty(self) -> float:
        """Loss of rate Q^-1(e) / sqrt(n), in nats per unit of the square root of the dispersion."""
        return -float(scipy.special.ndtri(self.error_rate)) / math.sqrt(self.block_symbols)

    @cached_property
    def _zero_sinr(self) -> float:
        """SINR up to which the rate is 0: the root s of ln(1 + s) = `_penalty` sqrt(1 - (1 + s)^-2), by bisection."""
        penalty = self._penalty
        _, nats = bisected(lambda nats: nats < penalty * math.sqrt(-math.expm1(-2.0 * nats)), 0.0, penalty, _HALVINGS)
        return math.expm1(nats)

    @cached_property
    def _best_sinr(self) -> float:
        """SINR s with the most bits per joule: the root of the derivative of rate / s, by bisection in ln(1 + s)."""

        def rises(nats: float) -> bool:
            spread = math.sqrt(-math.expm1(-2.0 * nats))
            slope = 1.0 - self._penalty * math.exp(-2.0 * nats) / spread
            return slope * -math.expm1(-nats) > nats - self._penalty * spread

        _, nats = bisected(rises, math.log1p(self._zero_sinr), 1.0 + self._penalty, _HALVINGS)
        return math.expm1(nats)
