"""What every rate law offers: bit/s from SINR and bandwidth, one by one or vectorised."""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar

import numpy as np

from fednet_emu.arrays import Array
from fednet_emu.component.component import Component


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
