"""Patience: how long a transfer may take if the scenario leaves that open, from its size and the mean rate of its link.

The rate is the mean over fading at the link's mean SNR, in steps of 1 dB, so that one table serves all links of a band.
"""

from __future__ import annotations

import math
from functools import cached_property
from typing import NamedTuple, final

import numpy as np

from fednet_emu.arrays import Array
from fednet_emu.kernel.clock import NS_PER_S
from fednet_emu.network.medium.band import Band
from fednet_emu.radio.fading import RARE

TIMES = 20.0
"""The timeout is so many times the expected duration."""
LEAST_S, MOST_S = 60.0, 3600.0
"""Shortest and longest timeout in s; what is expected to take more than the longest is not tried."""

_LOW_DB, _HIGH_DB = -120, 120
_QUANTILES = 40
"""Points of the fading law in each decade of its upper tail."""
_SIZES = 64


class Pace(NamedTuple):
    """What a link carries on average: rate in bit/s, and the wait in s for the first fading block that carries any."""

    rate_bps: Array
    wait_s: Array

    def expected_s(self, size_bit: float) -> Array:
        """Expected duration of a message at each level; infinity where nothing is carried."""
        with np.errstate(divide="ignore"):
            return np.asarray(size_bit / self.rate_bps + self.wait_s)


@final
class Patience:
    """Timeouts of the transfers of a band.

    A transfer gets `TIMES` its expected duration, from `LEAST_S` to `MOST_S`. Where bursts have parts of the band, that
    is with as many as may be on the air together. Where they disturb each other, nobody knows their rates before, and
    all have `MOST_S`. What is expected to take more than `MOST_S` even alone and undisturbed is not worth trying.

    Args:
        band: the band.
        crowd: largest number of bursts on the air at once.
        disturbed: whether the signals of others are noise.

    Attributes:
        ample: by the number of binary digits of the size in bits, the mean SNR from which on a transfer has `LEAST_S`;
            infinity as long as that is not known.
    """

    def __init__(self, band: Band, crowd: int, *, disturbed: bool) -> None:
        self._band, self._crowd, self._disturbed = band, crowd, disturbed
        self.ample = [math.inf] * (_SIZES + 1)
        self._known: set[int] = set()

    def limit_ns(self, size_bit: int, snr: float, *, los: bool) -> int:
        """Longest time on the air in ns of so many bits at a mean SNR; 0 if that is not worth trying."""
        if size_bit <= 0:
            return round(LEAST_S * NS_PER_S)
        digits = size_bit.bit_length()
        if digits not in self._known:
            self._known.add(digits)
            self.ample[digits] = self._ample(1 << digits)
        level_db = _LOW_DB if snr <= 0 else min(max(math.floor(10.0 * math.log10(snr)), _LOW_DB), _HIGH_DB - 1)
        low = level_db - _LOW_DB
        soonest_s, latest_s = self._expected_s(size_bit, los, low + 1).min(), self._expected_s(size_bit, los, low).max()
        return 0 if soonest_s > MOST_S else math.ceil(float(self._limits_s(latest_s)) * NS_PER_S)

    def expected_s(self, size_bit: int, snr: Array, *, los: bool) -> Array:
        """Expected durations in s [links] of so many bits, each alone in the band, at mean SNRs rounded up to 1 dB."""
        with np.errstate(divide="ignore"):
            levels = np.clip(np.floor(10.0 * np.log10(snr)) + 1 - _LOW_DB, 0, _HIGH_DB - _LOW_DB).astype(np.int64)
        return np.asarray(self._paces[los][-1].expected_s(size_bit)[levels])

    def _expected_s(self, size_bit: int, los: bool, level: int) -> Array:
        """Expected durations [shares] at a level of SNR."""
        return np.array([Pace(*(part[level] for part in pace)).expected_s(size_bit) for pace in self._paces[los]])

    def _limits_s(self, expected_s: Array) -> Array:
        return np.asarray(np.clip(TIMES * expected_s, MOST_S if self._disturbed else LEAST_S, MOST_S))

    def _ample(self, size_bit: int) -> float:
        """The mean SNR from which on so many bits have `LEAST_S`, with or without line of sight."""
        expected_s = np.array([pace.expected_s(size_bit) for of_state in self._paces for pace in of_state]).max(axis=0)
        above = np.flatnonzero(self._limits_s(expected_s) > LEAST_S)
        first = int(above[-1]) + 1 if len(above) else 0
        return 10.0 ** ((first + _LOW_DB) / 10.0) * (1 + 1e-9) if first < len(expected_s) else math.inf

    @cached_property
    def _paces(self) -> list[list[Pace]]:
        """The paces [levels] without and with line of sight, with the least and with the largest share of the band."""
        shares = sorted({self._band.access.share(1), self._band.access.share(self._crowd)})
        return [[_pace(self._band, share, los=los) for share in shares] for los in (False, True)]


def _pace(band: Band, share: float, *, los: bool) -> Pace:
    """What links with a share of the band carry on average, at each level of their mean SNR."""
    snr = 10.0 ** (np.arange(_LOW_DB, _HIGH_DB + 1)[:, None] / 10.0)
    if band.constant:
        rates_bps = band.rates_bps(snr * band.fading.gain(0.5) / share, share)
        return Pace(rates_bps[:, 0], np.zeros(len(snr)))
    tail = np.append(10.0 ** (-np.arange(round(-math.log10(RARE)) * _QUANTILES + 1) / _QUANTILES), 0.0)
    weight = tail[:-1] - tail[1:]
    gain = band.fading.combined(band.reception.branches(1)).gains(1.0 - (tail[:-1] + tail[1:]) / 2.0, los)
    rates_bps = band.rates_bps(snr * gain / share, share)
    carries = (rates_bps > 0) @ weight
    with np.errstate(divide="ignore"):
        wait_s = (1.0 / np.minimum(carries, 1.0) - 1.0) * min(band.coherence_ns, band.slot_ns) / NS_PER_S
    return Pace(rates_bps @ weight, wait_s)
