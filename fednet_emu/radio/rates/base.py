"""Base classes of rate models, which return the rate in bit/s for an SINR and a bandwidth, as scalars or arrays."""

from __future__ import annotations

from abc import abstractmethod
from bisect import bisect_right
from functools import cached_property
from typing import ClassVar

import numpy as np
from pydantic import Field

from fednet_emu.arrays import Array, IntArray
from fednet_emu.component.component import Component

MAX_REPETITIONS = 8
"""Maximum slot aggregation factor of a data channel in 5G NR, Release 15 (TS 38.331, pusch-AggregationFactor)."""


class RateLaw(Component):
    """Rate as a function of SINR (linear, never in dB) and bandwidth; a higher SINR never gives a lower rate."""

    PER_HERTZ: ClassVar[bool] = True
    """True if the rate is proportional to the bandwidth."""

    @abstractmethod
    def rate_bps(self, sinr: float, bandwidth_hz: float) -> float:
        """Return the rate in bit/s of one transmission at the linear SINR `sinr` over `bandwidth_hz` in Hz."""

    @abstractmethod
    def rates_bps(self, sinr: Array, bandwidth_hz: Array | float) -> Array:
        """Return the rates of many transmissions in bit/s, equal to `rate_bps`; the arguments are broadcast."""

    @property
    def outage_sinr(self) -> float:
        """Linear SINR below which a single fading block loses the whole transmission; 0 for adaptive senders.

        Below its minimum SINR, an adaptive sender pauses or sends again, so no transmission is lost.
        """
        return 0.0

    @property
    @abstractmethod
    def min_sinr(self) -> float:
        """Minimum linear SINR with a rate above 0; 0 if every SINR above 0 has a rate above 0."""

    @property
    def jumps(self) -> Array:
        """Linear SINRs at which the rate is discontinuous; averages over fading are exact only if all are listed."""
        return np.array([self.min_sinr]) if self.min_sinr > 0 else np.empty(0)

    @property
    def peaks(self) -> Array:
        """Linear SINRs, in increasing order, at which rate / SINR (the bits per joule of a sender) has local maxima.

        Below such a peak, a sender has a higher rate on part of its band (`narrowing`). By default, the peaks are the
        discontinuities of the rate, because the ratio falls between them if the rate is concave there.
        """
        return self.jumps

    def narrowest_part(self, bandwidth_hz: Array | float) -> Array | float:
        """Return the minimum share of a band on which a sender may put its whole power; by default 1 (the whole)."""
        return 1.0


class Repeating(RateLaw):
    """A rate model with a minimum efficiency; at lower SINRs the sender repeats its blocks.

    The receiver adds up the copies and thereby their SINRs (chase combining). At a fraction x of the SINR that the
    minimum efficiency needs, the rate per hertz is x times the minimum efficiency, down to x = 1 / `max_repetitions`.
    At lower SINRs, the rate is 0. Real links repeat blocks by rate matching, slot aggregation and HARQ (TS 38.214
    clauses 5.1.2.1 and 6.1.2.1: 2 to 16 slots). As an idealisation, the number of copies is a real number here; with
    integer numbers, the rate is up to one half lower.
    """

    max_repetitions: int = Field(default=MAX_REPETITIONS, ge=1, le=128)
    """Maximum number of copies of a block at SINRs below that of the minimum efficiency; 1 for no repetition."""

    @property
    @abstractmethod
    def lowest(self) -> tuple[float, float]:
        """The point of minimum efficiency without repetition: linear SINR, and efficiency in bit/s/Hz."""

    @property
    def min_sinr(self) -> float:
        return self.lowest[0] / self.max_repetitions

    @cached_property
    def _repeats(self) -> tuple[float, float, float]:
        """Minimum linear SINR with and without repetition, and efficiency per unit of SINR between these SINRs."""
        sinr, efficiency_bps_hz = self.lowest
        return sinr / self.max_repetitions, sinr, efficiency_bps_hz / sinr if sinr > 0.0 else 0.0

    def repeated_bps_hz(self, sinr: Array) -> Array:
        """Return the efficiency in bit/s/Hz of repeated blocks at each SINR; 0 at SINRs that need no repetition."""
        least, enough, slope = self._repeats
        return np.where((sinr >= least) & (sinr < enough), slope * sinr, 0.0)


class Staircase(RateLaw):
    """Rate model with modulation and coding schemes, which uses the highest scheme whose SINR threshold is reached.

    Below the lowest threshold, the rate is 0.
    """

    @property
    @abstractmethod
    def stairs(self) -> tuple[list[float], list[float]]:
        """Linear SINR thresholds of the schemes in increasing order, and the schemes' efficiencies in bit/s/Hz."""

    @property
    def min_sinr(self) -> float:
        return self.stairs[0][0]

    @property
    def jumps(self) -> Array:
        return np.array(self.stairs[0])

    def rate_bps(self, sinr: float, bandwidth_hz: float) -> float:
        thresholds, rates_bps_hz = self.stairs
        scheme = bisect_right(thresholds, sinr) - 1
        return bandwidth_hz * rates_bps_hz[scheme] if scheme >= 0 else 0.0

    def rates_bps(self, sinr: Array, bandwidth_hz: Array | float) -> Array:
        return bandwidth_hz * np.array([*self.stairs[1], 0.0])[self.scheme(sinr)]

    def scheme(self, sinr: Array) -> IntArray:
        """Return the index of the scheme used at each SINR, in the shape of `sinr`; -1 below the lowest threshold."""
        return np.searchsorted(self.stairs[0], sinr, side="right") - 1


class OfLaw(RateLaw):
    """A rate model derived from another rate model, for a sender that uses its band or its power differently."""

    law: RateLaw
    """The original rate model."""

    @property
    def outage_sinr(self) -> float:
        return self.law.outage_sinr

    @property
    def min_sinr(self) -> float:
        return self.law.min_sinr

    @property
    def jumps(self) -> Array:
        return self.law.jumps
