"""Narrowing: a sender that is too weak for its whole band puts all its power on part of the band."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable
from functools import cached_property
from typing import NamedTuple

import numpy as np
from pydantic import Field

from fednet_emu.arrays import Array, least
from fednet_emu.radio.rates.base import OfLaw, RateLaw

_JUST_ABOVE = 1 + 1e-14


class _Ramps(NamedTuple):
    """Peaks of rate / SINR, below which narrowing increases the rate, and the best efficiencies per unit of SINR."""

    peaks: list[float]  # [n] linear SINRs in increasing order
    slopes: list[float]  # [n + 1] best efficiency in bit/s/Hz per SINR at this or a higher peak; 0 after the last peak


class Narrowed(OfLaw):
    """Rate of another rate model on the best part of the band.

    If the SINR on the whole band of width B is s, a fraction x of the band has the SINR s / x and the rate x B e(s /
    x), where e is the efficiency of the original model. Above the highest peak of e(s) / s, the whole band is best.
    Below the SINR s_min of the minimum efficiency e_0, the fraction s / s_min is best, with the rate B e_0 s / s_min.
    No part is narrower than `narrowest_hz`: weaker signals use a part of this width, and a band narrower than
    `narrowest_hz` is used as a whole. With a staircase of schemes, a sender just below a step uses slightly less of the
    band to reach the step, and below the lowest step it uses the scheme with the most bits per joule. As a consequence,
    more power never lowers the rate, and neither does a wider band (from `narrowest_hz` on) with the same power.
    Ignored here: that parts consist of whole resource blocks, and that in a frequency-selective band, some parts are
    better than others.
    """

    law: RateLaw
    """The original rate model, which gives the rate on a given part of the band."""
    narrowest_hz: float = Field(gt=0)
    """Minimum width in Hz of the part of the band that is used."""

    def narrowest_part(self, bandwidth_hz: Array | float) -> Array | float:
        return np.minimum(self.narrowest_hz / bandwidth_hz, 1.0)

    def rate_bps(self, sinr: float, bandwidth_hz: float) -> float:
        highest_peak, rate_bps, _ = self._whole_band
        if sinr >= highest_peak:
            return rate_bps(sinr, bandwidth_hz)
        peaks, slopes = self._ramps
        ramp = bisect_right(peaks, sinr)
        if ramp:
            return max(rate_bps(sinr, bandwidth_hz), bandwidth_hz * sinr * slopes[ramp])
        narrow_hz = min(bandwidth_hz, self.narrowest_hz)
        on_one_block = sinr * (bandwidth_hz / narrow_hz)
        return bandwidth_hz * sinr * slopes[0] if on_one_block >= peaks[0] else rate_bps(on_one_block, narrow_hz)

    def rates_bps(self, sinr: Array, bandwidth_hz: Array | float) -> Array:
        highest_peak, _, rates_bps = self._whole_band
        whole_bps = rates_bps(sinr, bandwidth_hz)
        if least(sinr, None, initial=math.inf) >= highest_peak:
            return whole_bps
        peaks, slopes = self._ramps
        ramp = np.searchsorted(peaks, sinr, side="right")
        best_bps = np.maximum(whole_bps, bandwidth_hz * sinr * np.array(slopes)[ramp])
        narrow_hz = np.minimum(bandwidth_hz, self.narrowest_hz)
        on_one_block = sinr * (bandwidth_hz / narrow_hz)
        too_weak = (ramp == 0) & (on_one_block < peaks[0])
        return np.where(too_weak, rates_bps(on_one_block, narrow_hz), best_bps)

    @cached_property
    def _whole_band(self) -> tuple[float, Callable[[float, float], float], Callable[[Array, Array | float], Array]]:
        """Minimum SINR at which the whole band is best, and the two rate functions of `law`, cached for speed."""
        return self._ramps.peaks[-1], self.law.rate_bps, self.law.rates_bps

    @cached_property
    def _ramps(self) -> _Ramps:
        peaks = self.law.peaks.tolist()
        per_sinr = [self.law.rate_bps(peak * _JUST_ABOVE, 1.0) / peak for peak in peaks]
        return _Ramps(peaks, [*np.maximum.accumulate(per_sinr[::-1])[::-1].tolist(), 0.0])


def narrowed(law: RateLaw, narrowest_hz: float) -> RateLaw:
    """Return the rate model of a sender that may use part of its band; `law` itself if this never helps.

    Narrowing never helps if the rate does not depend on the bandwidth, if the sender does not adapt and loses
    transmissions in outage, or if the rate model has no minimum SINR.
    """
    adapts = law.PER_HERTZ and law.outage_sinr == 0
    return Narrowed(law=law, narrowest_hz=narrowest_hz) if adapts and len(law.peaks) else law
