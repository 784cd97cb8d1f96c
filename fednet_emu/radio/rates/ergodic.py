"""The ergodic rate: the mean rate of a link over fading, for transmissions that last for very many fading blocks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from fednet_emu.arrays import Array, IntArray, exp, log, log10
from fednet_emu.radio.fading import AnyFading, Fading
from fednet_emu.radio.rates.base import RateLaw
from fednet_emu.radio.rates.narrowing import Narrowed
from fednet_emu.units import db_to_linear

LOW_DB, HIGH_DB, STEP_DB = -60.0, 80.0, 0.02
_TAIL_DB = 40.0
_NOTHING_BPS_HZ = 1e-9
_ANY_HZ = 1e-30


class ErgodicRate(RateLaw):
    """The mean over fading of the rate of another rate model, as a function of the mean SINR.

    The mean E[R] of the rate R is the integral of P(gain > s / SINR) dR(s) over the SINR s. Jumps of R are integrated
    exactly, and the smooth part of R on a grid of 0.02 dB. The mean is tabulated on the same grid from -60 to 80 dB,
    and its logarithm is interpolated. It is within 1e-4 of the exact mean if at least one block in 10^6 carries bits.
    Means below 1e-9 bit/s/Hz, and at SINRs below -60 dB, count as 0. Above 80 dB, the rate is extrapolated linearly in
    dB.
    Ignored here: the fading of interferers (their mean power counts), and the variation over a finite number of blocks.
    """

    kind = "ergodic"
    law: RateLaw
    """The rate model of one block."""
    fading: AnyFading
    """The fading of one block."""

    def _check(self) -> None:
        require_mean(self.law, self.fading)

    @property
    def min_sinr(self) -> float:
        return self._means.min_sinr(0)

    def rate_bps(self, sinr: float, bandwidth_hz: float) -> float:
        return float(self.rates_bps(np.array(sinr), bandwidth_hz))

    def rates_bps(self, sinr: Array, bandwidth_hz: Array | float) -> Array:
        if self.law.PER_HERTZ:
            return self._means.at(0, sinr) * bandwidth_hz
        return self._means.at(0, np.broadcast_arrays(sinr, bandwidth_hz)[0])

    @cached_property
    def _means(self) -> Means:
        return Means.of([self.law], self.fading)


class NarrowedErgodicRate(ErgodicRate):
    """The mean of a narrowed rate over fading, as a function of the mean SINR and the bandwidth.

    If the minimum part is a fraction b of the band, a block with the SINR s has the rate r(s) - b (r(s / b) - e(s / b))
    bit/s/Hz. Here, e is the rate on the whole band, and r is the narrowed rate if the used part of the band may have
    any width. The mean is therefore computed from the means of r and e at two SINRs. It is within 1e-4 of the exact
    mean if at least one block in 10^5 carries bits.
    Ignored here: the same effects as in `ErgodicRate`.
    """

    law: Narrowed
    """The narrowed rate model of one block."""

    @property
    def min_sinr(self) -> float:
        return self._means.min_sinr(1)

    def narrowest_part(self, bandwidth_hz: Array | float) -> Array | float:
        return self.law.narrowest_part(bandwidth_hz)

    def rates_bps(self, sinr: Array, bandwidth_hz: Array | float) -> Array:
        part = self.law.narrowest_part(bandwidth_hz)
        sinr, on_one_block = np.broadcast_arrays(sinr, sinr / part)
        laws = np.array([0, 0, 1]).reshape(-1, *[1] * sinr.ndim)
        best, too_narrow, one_block = self._means.at(laws, np.stack([sinr, on_one_block, on_one_block]))
        mean_bps_hz = best - part * (too_narrow - one_block)
        return bandwidth_hz * np.where(mean_bps_hz > _NOTHING_BPS_HZ, mean_bps_hz, 0.0)

    @cached_property
    def _means(self) -> Means:
        """Tables of mean rates on a band of 1 Hz: if any part of the band may be used, and if the whole is used."""
        any_width, none = (Narrowed(law=self.law.law, narrowest_hz=width_hz) for width_hz in (_ANY_HZ, 1.0))
        return Means.of([any_width, none], self.fading)


def averaged(law: RateLaw, fading: AnyFading) -> RateLaw:
    """Return the rate model that averages the rate model `law` over fading; its rate is a function of the mean SINR.

    Raises:
        ValueError: the rate model has no mean rate over this fading.
    """
    if isinstance(law, Narrowed):
        return NarrowedErgodicRate(law=law, fading=fading)
    return ErgodicRate(law=law, fading=fading)


@dataclass(frozen=True, slots=True, eq=False)
class Means:
    """Table of mean rates over fading in bit/s, for several rate models (laws) on a band of 1 Hz."""

    log_rates: Array  # [laws, points] natural logarithms of the mean rates on the grid, minus infinity for a rate of 0
    rise: Array  # [laws] growth of the rate per grid step at the upper end, where fading no longer matters

    @classmethod
    def of(cls, laws: Sequence[RateLaw], fading: Fading) -> Means:
        before, last = db_to_linear(HIGH_DB - STEP_DB), db_to_linear(HIGH_DB)
        rise = [law.rate_bps(last, 1.0) - law.rate_bps(before, 1.0) for law in laws]
        return cls(np.stack([_log_means(law, fading) for law in laws]), np.array(rise))

    def min_sinr(self, law: int) -> float:
        """Return the minimum mean SINR on the grid at which the rate model with index `law` has a rate above 0."""
        first = int(np.argmax(np.isfinite(self.log_rates[law])))
        return db_to_linear(LOW_DB + first * STEP_DB)

    def at(self, law: IntArray | int, sinr: Array) -> Array:
        """Return the mean rates in bit/s of the rate models with indices `law` at the mean SINRs `sinr`."""
        points = self.log_rates.shape[1]
        with np.errstate(divide="ignore"):
            place = (10.0 * log10(sinr) - LOW_DB) / STEP_DB
        below = np.maximum(np.minimum(place, points - 2), 0).astype(np.int64)
        share = np.maximum(np.minimum(place - below, 1.0), 0.0)
        with np.errstate(invalid="ignore"):  # minus infinity times zero, if the rate is 0
            log_rate = (1.0 - share) * self.log_rates[law, below] + share * self.log_rates[law, below + 1]
        counts = (log_rate > -np.inf) & (place >= 0.0)
        rate = np.where(counts, exp(np.where(counts, log_rate, 0.0)), 0.0)
        return np.asarray(rate + np.maximum(place - (points - 1), 0.0) * self.rise[law])


def _log_means(law: RateLaw, fading: Fading) -> Array:
    snr_db = _grid_db(LOW_DB, HIGH_DB)
    edges = db_to_linear(_grid_db(LOW_DB - _TAIL_DB, HIGH_DB + _TAIL_DB))
    grid = law.rates_bps(edges, 1.0)
    smooth = np.diff(grid)
    mean: Array = np.zeros_like(snr_db)
    for sinr in law.jumps:
        rise = law.rate_bps(sinr * (1 + 1e-12), 1.0) - law.rate_bps(sinr * (1 - 1e-12), 1.0)
        mean += rise * (1.0 - fading.cdf(sinr / db_to_linear(snr_db)))
        cell = np.searchsorted(edges, sinr) - 1
        if 0 <= cell < len(smooth):
            smooth[cell] -= rise
    # P(gain > s / SINR) as a function of the difference in dB between the centre of a cell of s and an SINR of the grid
    first_db = -_TAIL_DB + 0.5 * STEP_DB - (len(snr_db) - 1) * STEP_DB
    gain_db = _grid_db(first_db, first_db + (len(smooth) + len(snr_db) - 2) * STEP_DB)
    survival = 1.0 - fading.cdf(db_to_linear(gain_db))
    # the sum over cells j of smooth[j] survival[j - i + points - 1] for each point i, by fast Fourier transform
    length = 1 << math.ceil(math.log2(len(survival) + len(smooth)))
    product = np.fft.rfft(survival, length) * np.conj(np.fft.rfft(smooth, length))
    shifted = np.fft.irfft(product, length)[: len(snr_db)]
    mean += np.maximum(shifted[::-1], 0.0) + grid[0]
    with np.errstate(divide="ignore"):
        logs: Array = log(np.where(mean > _NOTHING_BPS_HZ, mean, 0.0))
    return logs


def _grid_db(low_db: float, high_db: float) -> Array:
    return np.asarray(low_db + STEP_DB * np.arange(round((high_db - low_db) / STEP_DB) + 1), np.float64)


def require_mean(law: RateLaw, fading: Fading) -> None:
    """Raise a `ValueError` if the rate model has no meaningful mean over this fading."""
    if law.outage_sinr > 0:
        raise ValueError(
            "a rate law that loses transmissions in outage has no ergodic rate, got on_outage: lose; "
            "set on_outage: stall, or fading_model: per-block"
        )
    if fading.kind == "by-line-of-sight":
        raise ValueError(
            "one average cannot hold for links with and without line of sight, got fading by-line-of-sight; "
            "choose rician or rayleigh, or fading_model: per-block"
        )
