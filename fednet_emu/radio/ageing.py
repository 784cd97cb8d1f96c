"""Link adaptation with outdated channel reports: the mean rate if the fading has changed since the measurement."""

from __future__ import annotations

import math
from functools import cached_property, lru_cache

import numpy as np
import scipy

from fednet_emu.arrays import Array, bisected, exp10, log, log10
from fednet_emu.radio.fading import BlockFading, Fading, Nakagami, Rayleigh, Rician
from fednet_emu.radio.nr.blocks import NrBlocks
from fednet_emu.radio.rates.ergodic import HIGH_DB, LOW_DB, STEP_DB, ErgodicRate, Means
from fednet_emu.units import db_to_linear

_PAIRS = 8192
_COARSE = 25
_FAR_DB = 100.0
_HALVINGS = 24
_NOTHING_BPS_HZ = 1e-9
_PRIMES = np.array([[2.0], [3.0], [5.0], [7.0], [11.0]])


class AgedRate(ErgodicRate):
    """The mean rate of transport blocks over fading with outdated reports, as a function of the mean SINR.

    A report is used for `report_s`, starting `delay_s` after its measurement, so its age tau is uniform between delay_s
    and delay_s + report_s. The gains at the measurement and at the block have the correlation J0(2 pi f_D tau) of
    Clarke's model, with the Doppler frequency f_D = 0.423 / coherence time (`coherence_time_s`). The sender uses the
    fastest scheme for the reported SINR minus an offset. The outer loop maintains the offset at which a share
    `target_bler` of first transmissions fails. The rate is E[TBS_m (1 - BLER_m(SINR))] per slot, where m is the chosen
    scheme, TBS_m its transport block size and BLER_m its block error rate. If repetition is faster, the lowest scheme
    is used with a fixed integer number of copies, at most `max_repetitions`, regardless of the reports. The mean is
    taken over 8192 fixed pairs of gains, on a grid of 0.5 dB; it is within 1 % of the integral.
    Ignored here: adaptation of the outer loop within a fade (the offset moves by less than 0.1 dB per block, too slowly
    to follow a fade), measurement errors and quantisation of reports, combining of the copies of a block
    (retransmissions fail in the same fade), and changes of the phase of the line of sight over time.
    """

    law: NrBlocks
    """The rate model of one transport block, which also has the settings of the channel reports."""

    @property
    def peaks(self) -> Array:
        log_rate = self._means.log_rates[0]
        place_db = LOW_DB + STEP_DB * np.arange(len(log_rate))
        rise = np.diff(np.nan_to_num(log_rate - place_db / 10.0 * math.log(10.0), neginf=-1e3))
        return exp10(place_db[1:-1][(rise[:-1] > 0.0) & (rise[1:] <= 0.0)] / 10.0)

    @cached_property
    def _means(self) -> Means:
        return _tabulated(self.law, self.fading)


@lru_cache(maxsize=16)
def _tabulated(law: NrBlocks, fading: Fading) -> Means:
    before, now = aged_gains(fading, law.delay_s, law.report_s)
    step_db = _COARSE * STEP_DB
    coarse_db = LOW_DB + step_db * np.arange(round((HIGH_DB - LOW_DB) / step_db) + 1)
    heard = coarse_db > law.thresholds_db[0] - 10.0 * math.log10(now.max() * law.max_repetitions)
    mean_bps_hz = np.zeros(len(coarse_db))
    mean_bps_hz[heard] = [
        max(aged_efficiency(law, level_db, before, now)[0], law.always_repeated_bps_hz(level_db + 10.0 * log10(now)))
        for level_db in coarse_db[heard].tolist()
    ]
    mean_bps_hz = np.maximum.accumulate(mean_bps_hz)
    fine_db = LOW_DB + STEP_DB * np.arange(round((HIGH_DB - LOW_DB) / STEP_DB) + 1)
    log_rate = np.interp(fine_db, coarse_db, log(np.maximum(mean_bps_hz, _NOTHING_BPS_HZ)))
    log_rate[: int(np.argmax(mean_bps_hz > _NOTHING_BPS_HZ)) * _COARSE] = -math.inf
    return Means(log_rate[None], np.zeros(1))


def aged_efficiency(law: NrBlocks, mean_db: float, before: Array, now: Array) -> tuple[float, float]:
    """Return the mean efficiency in bit/s/Hz of link adaptation with an outer loop, and the loop's SINR offset in dB.

    `mean_db` is the mean SINR in dB. `before` [pairs] has the power gains at the measurements, with mean 1, in
    increasing order; `now` [pairs] has the gains of the blocks that use the reports. If even the lowest scheme fails
    too often, or even the highest scheme fails too rarely, the loop always uses that scheme, and the offset is at a
    bound.
    """
    snr_db = mean_db + 10.0 * log10(now)
    failing = law.block_errors(snr_db)
    efficiency_bps_hz = np.array([curve.efficiency_bps_hz for curve in law.curves])
    pairs, lower = len(now), np.arange(len(law.curves))
    failed = np.concatenate([np.zeros((len(lower), 1)), np.cumsum(failing, axis=1)], axis=1) / pairs
    reported_db = mean_db + 10.0 * log10(before)

    def cuts(offset_db: float) -> tuple[Array, Array]:
        """Return, for each scheme, the share of pairs that choose it and the share of pairs that choose it and fail."""
        firsts = np.searchsorted(reported_db, law.thresholds_db[1:] + offset_db, side="left")
        edges = np.concatenate([[0], firsts, [pairs]])
        lost = failed[lower, edges[1:]] - failed[lower, edges[:-1]]
        return np.diff(edges) / pairs, lost

    _, offset_db = bisected(lambda db: float(cuts(db)[1].sum()) > law.target_bler, -_FAR_DB, _FAR_DB, _HALVINGS)
    chosen, lost = cuts(offset_db)
    return float(efficiency_bps_hz @ (chosen - lost)), offset_db


def aged_gains(fading: Fading, delay_s: float, report_s: float) -> tuple[Array, Array]:
    """Return pairs of power gains of one fading link, at a measurement and at a later block; each gain has mean 1.

    The earlier gains [pairs] are in increasing order, and the later gains [pairs] are in the order of their pairs. The
    age of the earlier gain is uniform from `delay_s` to `delay_s` + `report_s`. With m antennas, or the shape m of
    Nakagami fading, the amplitudes consist of a line of sight A and of Gaussian components. The component x is in phase
    with the line of sight, and all other components have the total power R. Let rho be the correlation, y a new draw of
    x, and R' a new draw of R. Given the earlier components, the later gain is
    (|A + rho x + i rho R^1/2| + (1 - rho^2)^1/2 y)^2 + (1 - rho^2) R'.
    """
    if not ages(fading):
        raise ValueError(f"aged reports need fading whose course is known, got {fading.kind}; choose rayleigh")
    assert isinstance(fading, BlockFading)
    m, k = (fading.degrees / 2, db_to_linear(fading.k_db)) if isinstance(fading, Rician) else (fading.shape, 0.0)
    # evenly spread points of the unit cube: multiples of the roots of primes, modulo 1 (Kronecker)
    uniform = (0.5 + np.sqrt(_PRIMES) * np.arange(1.0, _PAIRS + 1.0)) % 1.0
    doppler_hz = 0.423 / fading.coherence_s
    rho = scipy.special.j0(2.0 * math.pi * doppler_hz * (delay_s + report_s * uniform[0]))
    scattered, sight = 1.0 / (k + 1.0), math.sqrt(m * k / (k + 1.0))
    x, y = (math.sqrt(scattered / 2.0) * scipy.special.ndtri(uniform[row]) for row in (1, 2))
    rest, fresh = (scattered * scipy.special.gammaincinv(max(m - 0.5, 1e-9), uniform[row]) for row in (3, 4))
    before = (sight + x) ** 2 + rest
    mean = np.sqrt((sight + rho * x) ** 2 + rho**2 * rest)
    now = (mean + np.sqrt(1.0 - rho**2) * y) ** 2 + (1.0 - rho**2) * fresh
    order = np.argsort(before, kind="stable")
    return before[order] / m, now[order] / m


def ages(fading: Fading) -> bool:
    """Return True if the correlation over time of `fading` is known, as for Rayleigh, Rician and Nakagami fading."""
    return isinstance(fading, Rayleigh | Rician | Nakagami)
