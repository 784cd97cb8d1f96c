"""Three rate models: Shannon's capacity with an SNR gap, a fixed rate, and the normal approximation of short blocks.

Short blocks: Polyanskiy, Poor and Verdu (IEEE Trans. Inf. Theory 2010).
"""

from __future__ import annotations

import math
from functools import cached_property, lru_cache
from typing import ClassVar, Literal

import numpy as np
import scipy
from pydantic import Field

from fednet_emu.arrays import Array, bisected, expm1, least, log1p
from fednet_emu.radio.rates.base import RateLaw, Repeating
from fednet_emu.units import db_to_linear

CQI_1_BPS_HZ = 0.1523
"""Spectral efficiency in bit/s/Hz of the lowest CQI, QPSK at code rate 78/1024 (TS 38.214 Table 5.2.2.1-2)."""

CQI_15_BPS_HZ = 5.5547
"""Spectral efficiency in bit/s/Hz of the highest CQI, 64QAM at code rate 948/1024 (TS 38.214 Table 5.2.2.1-2)."""

_LN_2 = math.log(2.0)
_linear = lru_cache(db_to_linear)
_HALVINGS = 100


class Shannon(Repeating):
    """Adaptive rate B log2(1 + SINR / gap), limited to the efficiencies of a modulation table.

    Below the minimum efficiency, blocks are repeated. The transmitter has perfect knowledge of the SINR of every block
    and adapts its rate, so it pauses instead of losing data. The default gap of 2 dB is close to 5G NR LDPC codes of
    about 2000 bit (1.5 to 1.8 dB measured). With `gap_db: 0`, `max_efficiency_bps_hz: null` and `min_efficiency_bps_hz:
    0`, the rate is the capacity of the channel.
    Ignored here: the steps of the table, retransmissions, pilots and control overhead, finite block length.
    """

    gap_db: float = Field(default=2.0, ge=0)
    """SINR in dB that the code needs in addition to that of Shannon's limit. For uncoded M-QAM with bit error rate b,
    the gap is the linear ratio -ln(5 b) / 1.5."""
    max_efficiency_bps_hz: float | None = Field(default=CQI_15_BPS_HZ, gt=0)
    """Maximum efficiency in bit/s/Hz, of the highest modulation and code; null for no upper limit."""
    min_efficiency_bps_hz: float = Field(default=CQI_1_BPS_HZ, ge=0)
    """Minimum efficiency in bit/s/Hz, of the lowest modulation and code; at lower SINRs, blocks are repeated."""

    def _check(self) -> None:
        if self.max_efficiency_bps_hz is not None and self.min_efficiency_bps_hz > self.max_efficiency_bps_hz:
            raise ValueError(
                f"min_efficiency_bps_hz is above max_efficiency_bps_hz, got {self.min_efficiency_bps_hz} and "
                f"{self.max_efficiency_bps_hz}; the lowest modulation must not exceed the highest"
            )

    @property
    def lowest(self) -> tuple[float, float]:
        efficiency_bps_hz = self.min_efficiency_bps_hz
        return db_to_linear(self.gap_db) * math.expm1(efficiency_bps_hz * _LN_2), efficiency_bps_hz

    @cached_property
    def _terms(self) -> tuple[float, float, float, float, float]:
        return _linear(self.gap_db), self.max_efficiency_bps_hz or math.inf, *self._repeats

    def rate_bps(self, sinr: float, bandwidth_hz: float) -> float:
        gap, highest_bps_hz, lowest, enough, slope = self._terms
        if sinr < enough:
            return bandwidth_hz * slope * sinr if sinr >= lowest else 0.0
        efficiency_bps_hz = math.log1p(sinr / gap) / _LN_2
        return bandwidth_hz * (efficiency_bps_hz if efficiency_bps_hz < highest_bps_hz else highest_bps_hz)

    def rates_bps(self, sinr: Array, bandwidth_hz: Array | float) -> Array:
        gap, highest_bps_hz, lowest, enough, slope = self._terms
        efficiency_bps_hz = log1p(sinr / gap)
        efficiency_bps_hz /= _LN_2
        capped_bps_hz = np.minimum(efficiency_bps_hz, highest_bps_hz)
        if least(sinr, None, initial=math.inf) < enough:
            repeated_bps_hz = np.where(sinr >= lowest, slope * sinr, 0.0)
            capped_bps_hz = np.where(sinr < enough, repeated_bps_hz, capped_bps_hz)
        return bandwidth_hz * capped_bps_hz


class FixedRate(RateLaw):
    """One rate on all channels, that of a fixed modulation and code; blocks below an SINR threshold are in outage.

    A transmission has this rate on any share of the band.
    Ignored here: bandwidth, adaptation, and bit errors above the threshold.
    """

    PER_HERTZ: ClassVar[bool] = False

    kind = "fixed"
    bit_rate_bps: float = Field(gt=0, le=1e18)
    """Rate of every transmission in bit/s."""
    threshold_db: float | None = None
    """SINR in dB below which a fading block is in outage; null for no outage at any SINR."""
    on_outage: Literal["lose", "stall"] = "lose"
    """With `lose`, one block in outage loses the whole transmission; with `stall`, only the block in outage carries no
    data."""

    @property
    def outage_sinr(self) -> float:
        return self.min_sinr if self.on_outage == "lose" else 0.0

    @property
    def min_sinr(self) -> float:
        return 0.0 if self.threshold_db is None else db_to_linear(self.threshold_db)

    def rate_bps(self, sinr: float, bandwidth_hz: float) -> float:
        return 0.0 if self.on_outage == "stall" and sinr < self.min_sinr else self.bit_rate_bps

    def rates_bps(self, sinr: Array, bandwidth_hz: Array | float) -> Array:
        sinrs, _ = np.broadcast_arrays(sinr, bandwidth_hz)
        threshold = self.min_sinr if self.on_outage == "stall" else 0.0
        return np.where(sinrs < threshold, 0.0, self.bit_rate_bps)


class FiniteBlocklength(RateLaw):
    """Highest rate C - sqrt(V / n) Q^-1(e) per symbol at which blocks of n symbols fail with probability e.

    C = log2(1 + SINR) is the capacity and V = (1 - (1 + SINR)^-2) / ln(2)^2 the dispersion under complex Gaussian
    noise; Q^-1 is the inverse of the tail probability of a standard normal variable. Failed blocks are sent again, so
    the rate of delivered bits is 1 - e times this rate. If the formula is negative, the rate is 0.
    Ignored here: the term log2(n) / (2 n) (0.02 bit at n = 200), the gap of real codes to this rate, and the delay of
    retransmissions.
    """

    block_symbols: int = Field(ge=100)
    """Number n of complex symbols per block; the approximation is accurate from about 100 symbols."""
    error_rate: float = Field(gt=0, lt=0.5)
    """Probability e that a block fails."""

    @property
    def min_sinr(self) -> float:
        return self._zero_sinr

    @property
    def peaks(self) -> Array:
        """The SINR [1] at which the tangent to the curve of the rate over the SINR goes through the origin."""
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
