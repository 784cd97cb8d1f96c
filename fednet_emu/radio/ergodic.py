"""The ergodic rate: what a link carries on average over its fading, for transmissions of very many blocks."""

from __future__ import annotations

import math
from functools import cached_property
from typing import Literal, Self

import numpy as np
from pydantic import model_validator

from fednet_emu.arrays import Array
from fednet_emu.elementary import exp, log, log10
from fednet_emu.radio.fading import AnyFading, Fading
from fednet_emu.radio.rate import AnyRateLaw
from fednet_emu.radio.rate_law import RateLaw
from fednet_emu.units import db_to_linear

LOW_DB, HIGH_DB, STEP_DB = -60.0, 80.0, 0.02
_TAIL_DB = 40.0
_NOTHING_BPS_HZ = 1e-9


class ErgodicRate(RateLaw):
    """The mean of another law's rate over fading, as a law of the mean SINR.

    E[R] is the integral of P(gain > s / SINR) dR(s): jumps of R enter exactly, its smooth part on a grid of 0.02 dB.
    The result is kept on the same grid from -60 to 80 dB and interpolated in ln R, within 1e-4 of the exact mean where
    at least one block in 10^6 carries bits; means below 1e-9 of the law's unit, and SINRs below -60 dB, count as none.
    Above 80 dB the rate continues as a straight line over dB.
    Ignored here: the fading of interferers (they count with their mean), and the scatter that a finite number of
    blocks leaves.
    """

    kind: Literal["ergodic"] = "ergodic"

    law: AnyRateLaw
    """The law of one block."""

    fading: AnyFading
    """The law of the gain of one block."""

    @model_validator(mode="after")
    def _has_a_mean(self) -> Self:
        require_mean(self.law, self.fading)
        return self

    @property
    def outage_sinr(self) -> float:
        """Zero: the average over many blocks is never in outage."""
        return 0.0

    @property
    def min_sinr(self) -> float:
        """Lowest mean SINR at which the average counts."""
        first = int(np.argmax(np.isfinite(self._log_rates)))
        return db_to_linear(LOW_DB + first * STEP_DB)

    def rate_bps(self, sinr: float, bandwidth_hz: float) -> float:
        """Mean rate of one transmission in bit/s."""
        return float(self.rates_bps(np.array(sinr), bandwidth_hz))

    def rates_bps(self, sinr: Array, bandwidth_hz: Array | float) -> Array:
        """Mean rates of many transmissions in bit/s, in the broadcast shape."""
        sinr, _ = np.broadcast_arrays(sinr, bandwidth_hz)
        with np.errstate(divide="ignore"):
            place = (10.0 * log10(sinr) - LOW_DB) / STEP_DB
        below = np.clip(np.floor(place), 0, len(self._log_rates) - 2).astype(np.int64)
        share = np.clip(place - below, 0.0, 1.0)
        with np.errstate(invalid="ignore"):  # minus infinity times zero, where nothing gets through
            log_rate = (1.0 - share) * self._log_rates[below] + share * self._log_rates[below + 1]
        rate = np.where(np.isfinite(log_rate) & (place >= 0.0), exp(np.nan_to_num(log_rate, neginf=0.0)), 0.0)
        rate = rate + np.maximum(place - (len(self._log_rates) - 1), 0.0) * self._rise
        return rate * bandwidth_hz if self.law.PER_HERTZ else rate

    @cached_property
    def _rise(self) -> float:
        """Growth of the rate per step at the upper end of the grid, where fading no longer changes it."""
        before, last = (self.law.rate_bps(db_to_linear(level_db), 1.0) for level_db in (HIGH_DB - STEP_DB, HIGH_DB))
        return last - before

    @cached_property
    def _log_rates(self) -> Array:
        """Natural logarithm of the mean rate on the grid, minus infinity where nothing gets through."""
        snr_db = _grid_db(LOW_DB, HIGH_DB)
        edges = db_to_linear(_grid_db(LOW_DB - _TAIL_DB, HIGH_DB + _TAIL_DB))
        grid = self.law.rates_bps(edges, 1.0)
        smooth = np.diff(grid)
        mean: Array = np.zeros_like(snr_db)
        for sinr in self.law.jumps:
            rise = self.law.rate_bps(sinr * (1 + 1e-12), 1.0) - self.law.rate_bps(sinr * (1 - 1e-12), 1.0)
            mean += rise * (1.0 - self.fading.cdf(sinr / db_to_linear(snr_db)))
            cell = np.searchsorted(edges, sinr) - 1
            if 0 <= cell < len(smooth):
                smooth[cell] -= rise
        mean += _correlate(smooth, self._survival(len(smooth), len(snr_db)), len(snr_db)) + grid[0]
        with np.errstate(divide="ignore"):
            logs: Array = log(np.where(mean > _NOTHING_BPS_HZ, mean, 0.0))
        return logs

    def _survival(self, cells: int, points: int) -> Array:
        """P(gain > s / SINR) by the difference in dB of the middle of a cell of s and a point of SINR."""
        first_db = -_TAIL_DB + 0.5 * STEP_DB - (points - 1) * STEP_DB
        gain_db = _grid_db(first_db, first_db + (cells + points - 2) * STEP_DB)
        return 1.0 - self.fading.cdf(db_to_linear(gain_db))


def _grid_db(low_db: float, high_db: float) -> Array:
    return np.asarray(low_db + STEP_DB * np.arange(round((high_db - low_db) / STEP_DB) + 1), np.float64)


def _correlate(weight: Array, kernel: Array, points: int) -> Array:
    """Sum over cells j of weight[j] kernel[j - i + points - 1] for each point i, by fast Fourier transform."""
    length = 1 << math.ceil(math.log2(len(kernel) + len(weight)))
    product = np.fft.rfft(kernel, length) * np.conj(np.fft.rfft(weight, length))
    shifted = np.fft.irfft(product, length)[:points]
    return np.maximum(shifted[::-1], 0.0)


def require_mean(law: RateLaw, fading: Fading) -> None:
    """Refuse laws whose average over fading means nothing.

    Raises:
        ValueError: saying which, and what to choose instead.
    """
    if law.outage_sinr > 0:
        raise ValueError(
            "a rate law that loses transmissions in outage has no ergodic rate, got on_outage: lose; "
            "set on_outage: stall, or long_transfers: walk"
        )
    if getattr(fading, "kind", None) == "by-line-of-sight":
        raise ValueError(
            "one average cannot hold for links with and without line of sight, got fading by-line-of-sight; "
            "choose rician or rayleigh, or long_transfers: walk"
        )


def ergodic_rate_bps(law: RateLaw, fading: AnyFading, snr: Array, bandwidth_hz: Array | float) -> Array:
    """Mean rate over the fading distribution at each mean SNR, in the broadcast shape.

    Builds the table anew at each call (some 20 ms): keep an `ErgodicRate` for more than one.
    Ignored here: what `ErgodicRate` ignores.
    """
    return ErgodicRate(law=law, fading=fading).rates_bps(snr, bandwidth_hz)
