"""Rate laws of schemes that each need a SINR: a staircase."""

from __future__ import annotations

from abc import abstractmethod
from bisect import bisect_right

import numpy as np

from fednet_emu.arrays import Array, IntArray
from fednet_emu.radio.rates.base import RateLaw


class Staircase(RateLaw):
    """The rate per hertz of the last scheme whose threshold the SINR reaches; below the first one nothing is sent."""

    @property
    @abstractmethod
    def stairs(self) -> tuple[list[float], list[float]]:
        """Thresholds (linear) in rising order, and the bit/s/Hz of each scheme."""

    @property
    def min_sinr(self) -> float:
        """The lowest threshold."""
        return self.stairs[0][0]

    @property
    def jumps(self) -> Array:
        """Every threshold."""
        return np.array(self.stairs[0])

    def rate_bps(self, sinr: float, bandwidth_hz: float) -> float:
        """Rate of one transmission in bit/s."""
        thresholds, rates_bps_hz = self.stairs
        scheme = bisect_right(thresholds, sinr) - 1
        return bandwidth_hz * rates_bps_hz[scheme] if scheme >= 0 else 0.0

    def rates_bps(self, sinr: Array, bandwidth_hz: Array | float) -> Array:
        """Rates of many transmissions in bit/s, in the broadcast shape."""
        return bandwidth_hz * np.array([*self.stairs[1], 0.0])[self.scheme(sinr)]

    def scheme(self, sinr: Array) -> IntArray:
        """Number of the scheme at each SINR, in its shape; -1 below the lowest threshold."""
        return np.searchsorted(self.stairs[0], sinr, side="right") - 1
