"""Default timeouts of transfers, which follow from the size of a transfer and the mean rate of its link.

Rates are averaged over fading. All links of a band use one table of rates, which has steps of 0.5 dB in the mean SNR.
"""

from __future__ import annotations

import math
from functools import cached_property, lru_cache
from typing import final

import numpy as np

from fednet_emu.arrays import Array, Mask
from fednet_emu.kernel.clock import NS_PER_S
from fednet_emu.network.air.band import Band
from fednet_emu.radio.fading import RARE
from fednet_emu.units import db_to_linear

TIMES = 20.0
"""Ratio of the timeout to the expected duration."""
LEAST_S, MOST_S = 60.0, 3600.0
"""Shortest and longest timeout in s. A transfer whose expected duration exceeds the longest timeout is not started."""

NOTICE_S = 1.0
"""Time in s after which a sender detects that its receiver is out of reach, unless the timeout is shorter. The value is
the default of the timers T300 and T310 of 5G NR, after which a connection has failed (TS 38.331). The sender sends
nothing during this time. The time must be above 0, because otherwise a sender that retries immediately would retry
endlessly at one instant."""

_LOW_DB, _HIGH_DB, _STEP_DB = -60.0, 80.0, 0.5
_LEVELS = round((_HIGH_DB - _LOW_DB) / _STEP_DB) + 1
_QUANTILES = 40
"""Number of sample points of the fading distribution in each decade of its upper tail."""
_DIGITS = 64


Pace = tuple[Array, Array]
"""Mean rate in bit/s at each SNR level [levels], and mean time in s until the first fading block that carries bits."""


def _expected_s(pace: Pace, size_bit: float) -> Array:
    """Return the expected duration in s of a message at each SNR level [levels]; infinity at levels with rate 0."""
    with np.errstate(divide="ignore"):
        return np.asarray(size_bit / pace[0] + pace[1])


@final
class Patience:
    """Timeouts of the transfers of a band.

    A timeout is `TIMES` times the expected duration, rounded up to whole seconds, but at least `LEAST_S` and at most
    `MOST_S`. If bursts split the band, the expected duration assumes the maximum number of simultaneous bursts. If
    bursts interfere with each other, their rates are not known beforehand and all timeouts are `MOST_S`. A transfer is
    not started if it would take more than `MOST_S` alone and without interference.

    Args:
        band: the band.
        min_share: fraction of the band for each burst (transmission) at the maximum number of simultaneous bursts; None
            for the fraction that a burst uses alone.
        disturbed: True if simultaneous bursts interfere with each other.

    Attributes:
        ample: the lowest mean SNR (linear) at which a transfer has the timeout `LEAST_S`, indexed by the number of
            binary digits of its size in bits; infinity until the SNR is computed.
    """

    def __init__(self, band: Band, min_share: float | None = None, *, disturbed: bool = False) -> None:
        self._band, self._disturbed = band, disturbed
        self._shares = sorted({band.share, band.share if min_share is None else min_share})
        self.ample = [math.inf] * (_DIGITS + 1)
        self._known: set[int] = set()
        self._limit_ns = lru_cache(maxsize=4096)(self._limit_of_step_ns)

    def limit_ns(self, size_bit: int, snr: float, *, los: bool) -> int:
        """Return the timeout in ns of a message at the mean SNR `snr` (linear); 0 if the message should not be sent."""
        if size_bit <= 0:
            return round(LEAST_S) * NS_PER_S
        digits = size_bit.bit_length()
        if digits not in self._known:
            self._known.add(digits)
            self.ample[digits] = self._ample(1 << digits)
        step = math.floor((10.0 * math.log10(snr) - _LOW_DB) / _STEP_DB) if snr > 0 else -1
        return self._limit_ns(size_bit, min(max(step, -1), _LEVELS - 2), los)

    def _limit_of_step_ns(self, size_bit: int, step: int, los: bool) -> int:
        """Return the timeout in ns at the level `step` of the SNR table; -1 means an SNR below the lowest level."""
        level = max(step, 0)
        near = slice(level, level + 2)
        expected_s = np.array([_expected_s((rate[near], wait[near]), size_bit) for rate, wait in self._paces[los]])
        if expected_s[:, 1].min() > MOST_S:
            return 0
        due_s = TIMES * expected_s[:, 0].max() if step >= 0 else math.inf
        limit_s = min(max(due_s, MOST_S if self._disturbed else LEAST_S), MOST_S)
        return math.ceil(limit_s) * NS_PER_S

    def expected_s(self, size_bit: int, snr: Array, *, los: bool) -> Array:
        """Return the expected duration in s of a message on each link [links], given the mean SNRs of the links.

        Each link is assumed to be alone in the band.
        """
        levels_s = _expected_s(self._paces[los][-1], size_bit)
        place = _place(snr)
        logs = np.interp(place, np.arange(_LEVELS), np.log(np.minimum(levels_s, 1e30)))
        return np.asarray(np.where(levels_s[np.ceil(place).astype(np.int64)] < 1e30, np.exp(logs), math.inf))

    def mean_bps(self, snr: Array, in_sight: Mask) -> Array:
        """Return the rate of each link [links] in bit/s, averaged over fading, given the mean SNRs of the links.

        Each link is assumed to be alone in the band.
        """
        rates = (np.interp(_place(snr), np.arange(_LEVELS), self._paces[los][-1][0]) for los in (True, False))
        return np.where(in_sight, *rates)

    def _ample(self, size_bit: int) -> float:
        """Return the lowest mean SNR (linear) at which a message of this size has the timeout `LEAST_S`.

        The SNR suffices both with and without line of sight.
        """
        expected_s = np.array([_expected_s(pace, size_bit) for of_state in self._paces for pace in of_state]).max(
            axis=0
        )
        (longer,) = np.nonzero(expected_s > (0.0 if self._disturbed else LEAST_S / TIMES))
        first = int(longer[-1]) + 1 if len(longer) else 0
        return 10.0 ** ((first * _STEP_DB + _LOW_DB) / 10.0) if first < _LEVELS else math.inf

    @cached_property
    def _paces(self) -> list[list[Pace]]:
        """`Pace` of links without and with line of sight, each for the smallest and the largest share of the band."""
        band = self._band
        fading = band.fading.combined(band.reception.branches(1))
        states = (False, True) if fading.peak(False) != fading.peak(True) else (False,)
        block_s = math.inf if band.constant else min(band.coherence_ns, band.slot_ns) / NS_PER_S
        plain = Band(band.bandwidth_hz, band.law, fading, band.coherence_ns, threshold=band.threshold)
        paces = [[_pace(plain, share, block_s, los) for share in self._shares] for los in states]
        return paces * (2 // len(paces))


def _place(snr: Array) -> Array:
    """Return the fractional index of each mean SNR (linear) [links] in the table of SNR levels."""
    with np.errstate(divide="ignore"):
        return np.clip((10.0 * np.log10(snr) - _LOW_DB) / _STEP_DB, 0.0, _LEVELS - 1.0)


@lru_cache(maxsize=256)
def _pace(band: Band, share: float, block_s: float, los: bool) -> Pace:
    """Return the mean rate in bit/s and the mean waiting time in s at each SNR level, for links on a share of a band.

    Args:
        band: the band, with the combined fading of all antennas.
        share: share of the band.
        block_s: time in s for which the fading gain is constant; infinity if the gain never changes.
        los: True if the links have line of sight.
    """
    snr = db_to_linear(_LOW_DB + _STEP_DB * np.arange(_LEVELS, dtype=np.float64))[:, None]
    if math.isinf(block_s):
        rates_bps = band.rates_bps(snr * band.fading.gain(0.5) / share, share)
        return rates_bps[:, 0], np.zeros(_LEVELS)
    decades = np.arange(round(-math.log10(RARE)) * _QUANTILES + 1) / _QUANTILES
    tail = np.append(db_to_linear(-10.0 * decades), 0.0)
    weight = tail[:-1] - tail[1:]
    gain = band.fading.gains(1.0 - (tail[:-1] + tail[1:]) / 2.0, los)
    rates_bps = band.rates_bps(snr * gain / share, share)
    with np.errstate(divide="ignore"):
        wait_s = (1.0 / np.minimum((rates_bps > 0) @ weight, 1.0) - 1.0) * block_s
    return rates_bps @ weight, wait_s
