"""Base classes of rate laws: bit/s from SINR and bandwidth, for one transmission or for arrays."""

from __future__ import annotations

from abc import abstractmethod
from bisect import bisect_right
from functools import cached_property
from typing import ClassVar

import numpy as np
from pydantic import Field

from fednet_emu.arrays import Array, IntArray
from fednet_emu.component.component import Component

REPETITIONS = 8
"""Largest slot aggregation factor of a data channel in 5G NR, Release 15 (TS 38.331, pusch-AggregationFactor)."""


class RateLaw(Component):
    """The law from SINR (linear, never dB) and bandwidth to a rate; the rate never falls as the SINR grows."""

    PER_HERTZ: ClassVar[bool] = True
    """Whether the rate is proportional to the bandwidth."""

    @abstractmethod
    def rate_bps(self, sinr: float, bandwidth_hz: float) -> float:
        """Rate of one transmission in bit/s."""

    @abstractmethod
    def rates_bps(self, sinr: Array, bandwidth_hz: Array | float) -> Array:
        """Rates of many transmissions in bit/s, the same law as `rate_bps` in the broadcast shape."""

    @property
    def outage_sinr(self) -> float:
        """SINR (linear) below which one fading block loses the whole transmission; 0 for adaptive senders (default).

        Below the least SINR an adaptive sender pauses or sends again, so no transmission is lost.
        """
        return 0.0

    @property
    @abstractmethod
    def min_sinr(self) -> float:
        """The lowest SINR (linear) with a rate above 0; 0 when every SINR above 0 has one."""

    @property
    def jumps(self) -> Array:
        """SINRs at which the rate jumps; averages over fading are exact only if the list is complete."""
        return np.array([self.min_sinr]) if self.min_sinr > 0 else np.empty(0)

    @property
    def peaks(self) -> Array:
        """SINRs in rising order at which rate over SINR, the bits per joule on part of a band, has a local maximum.

        Below such a peak a sender gains by using part of its band (`narrowing`). By default the peaks are the jumps: a
        concave rate has a falling ratio between them.
        """
        return self.jumps

    def narrowest_part(self, bandwidth_hz: Array | float) -> Array | float:
        """Narrowest share of a band that a sender may put its whole power on; 1, the whole band, without narrowing."""
        return 1.0


class Repeating(RateLaw):
    """A law with a least efficiency; at lower SINRs the sender repeats its blocks.

    The receiver adds up the copies and thereby their SINRs (chase combining). At a fraction x of the SINR of the least
    efficiency the rate is the fraction x of the least efficiency, down to x = 1 / `repetitions`; below, it is 0.
    Links repeat by rate matching, slot aggregation and HARQ (TS 38.214 clauses 5.1.2.1 and 6.1.2.1: 2 to 16 slots).
    The number of copies is a real number here, an idealisation: with whole numbers the rate is up to 1/2 lower.
    """

    repetitions: int = Field(default=REPETITIONS, ge=1, le=128)
    """Largest number of copies of a block that a receiver adds up below the least efficiency; 1 for none."""

    @property
    @abstractmethod
    def lowest(self) -> tuple[float, float]:
        """The least efficiency without repetition: its SINR (linear) and the efficiency in bit/s/Hz."""

    @property
    def min_sinr(self) -> float:
        return self.lowest[0] / self.repetitions

    @cached_property
    def _repeats(self) -> tuple[float, float, float]:
        """Lowest SINR with repetition, lowest SINR without, and the efficiency per unit of SINR between the two."""
        sinr, efficiency_bps_hz = self.lowest
        return sinr / self.repetitions, sinr, efficiency_bps_hz / sinr if sinr > 0.0 else 0.0

    def repeated_bps_hz(self, sinr: Array) -> Array:
        """Efficiencies in bit/s/Hz of repeated blocks, at SINRs below `lowest`; zero at higher SINRs."""
        least, enough, slope = self._repeats
        return np.where((sinr >= least) & (sinr < enough), slope * sinr, 0.0)


class Staircase(RateLaw):
    """The rate per hertz of the last scheme whose SINR threshold is reached, and 0 below the lowest threshold."""

    @property
    @abstractmethod
    def stairs(self) -> tuple[list[float], list[float]]:
        """Thresholds (linear) in rising order, and the efficiency in bit/s/Hz of each scheme."""

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
        """Index of the scheme at each SINR, in the shape of `sinr`; -1 below the lowest threshold."""
        return np.searchsorted(self.stairs[0], sinr, side="right") - 1


class OfLaw(RateLaw):
    """A law derived from another one, whose sender uses its band or its power differently."""

    law: RateLaw
    """The law that this one is derived from."""

    @property
    def outage_sinr(self) -> float:
        return self.law.outage_sinr

    @property
    def min_sinr(self) -> float:
        return self.law.min_sinr

    @property
    def jumps(self) -> Array:
        return self.law.jumps
