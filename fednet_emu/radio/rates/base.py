"""What every rate law offers: bit/s from SINR and bandwidth, one by one or vectorised."""

from __future__ import annotations

from abc import abstractmethod
from functools import cached_property
from typing import ClassVar

import numpy as np
from pydantic import Field

from fednet_emu.arrays import Array
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
        """SINR (linear) below which a fading block loses the whole transmission; 0 if transmissions are never lost.

        By default they are not: a sender adapts, and sends nothing or sends again.
        """
        return 0.0

    @property
    @abstractmethod
    def min_sinr(self) -> float:
        """The lowest SINR at which anything gets through; 0 when every SINR above 0 carries some bits."""

    @property
    def jumps(self) -> Array:
        """SINRs at which the rate jumps; averages over fading are exact only when all are named."""
        return np.array([self.min_sinr]) if self.min_sinr > 0 else np.empty(0)

    @property
    def peaks(self) -> Array:
        """SINRs in rising order at which the rate over the SINR, bits per joule on part of a band, is highest nearby.

        Below these a sender does better on part of its band (`narrowing`). By default all jumps: between them that
        ratio falls where the rate is concave.
        """
        return self.jumps

    def narrowest_part(self, bandwidth_hz: Array | float) -> Array | float:
        """Narrowest part of a band that a sender may put its whole power on: 1, the band itself, if not narrowed."""
        return 1.0


class Repeating(RateLaw):
    """A law with a least efficiency, below whose SINR a sender repeats its blocks.

    The receiver adds up the copies, and so their SINRs (chase combining): at the part x of the SINR of the least
    efficiency the law carries the part x of that efficiency, down to 1 / `repetitions`, and nothing below.
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
        """The SINR of the least efficiency over the largest number of repetitions."""
        return self.lowest[0] / self.repetitions

    @cached_property
    def _repeats(self) -> tuple[float, float, float]:
        """The lowest SINR with and without repetition, and the efficiency per unit of SINR between them."""
        sinr, efficiency_bps_hz = self.lowest
        return sinr / self.repetitions, sinr, efficiency_bps_hz / sinr if sinr > 0.0 else 0.0

    def repeated_bps_hz(self, sinr: Array) -> Array:
        """Efficiencies in bit/s/Hz with repetition at SINRs below `lowest`; zero elsewhere."""
        least, enough, slope = self._repeats
        return np.where((sinr >= least) & (sinr < enough), slope * sinr, 0.0)


class OfLaw(RateLaw):
    """Another law whose sender uses its band, or its power, in another way."""

    law: RateLaw
    """The other law."""

    @property
    def outage_sinr(self) -> float:
        """That of the law."""
        return self.law.outage_sinr

    @property
    def min_sinr(self) -> float:
        """That of the law, on the part of the band that is used."""
        return self.law.min_sinr

    @property
    def jumps(self) -> Array:
        """Those of the law."""
        return self.law.jumps
