"""Schedulers: how a band is divided into orthogonal parts."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from fednet_emu.arrays import Array, IntArray, Mask, bisected, exp, log
from fednet_emu.radio.rates.base import RateLaw

_LOWEST_SINR, _HIGHEST_SINR, _GRID = 1e-6, 1e14, 8192
_WIDE_HZ = 2.0**40  # a power of two rounds nothing, and in so wide a band a narrowed law has parts of any width
_HALVINGS = 60
_TIE, _SAME = 1 - 1e-12, 1e-12


def best_of_each_block(signal: Array, mean: Array, first_leg: IntArray) -> IntArray:
    """Return for each block [blocks] the burst with the best gain relative to its own mean; the first in a tie.

    The gain of a broadcast is the smallest of its receivers' relative gains. Gains that differ by rounding alone tie:
    two bursts on one link that moved between their starts have the same fading over different means.

    Args:
        signal: [legs, blocks] SNR (linear) of each leg in each block.
        mean: [legs] SNR (linear) of each leg, averaged over fading.
        first_leg: [bursts] index of the first leg of each burst.
    """
    relative = np.divide(signal, mean[:, None], out=np.zeros_like(signal), where=mean[:, None] > 0)
    gain = np.minimum.reduceat(relative, first_leg, axis=0)
    winner: IntArray = (gain >= gain.max(axis=0) * _TIE).argmax(axis=0)
    return winner


def equal_finish_shares(snr: Array, left_bit: Array, law: RateLaw, bandwidth_hz: float) -> Array:
    """Return shares [n] of a band, with a sum of at most 1, with which n links finish at the same time.

    This is the shortest time in which all can finish. A weak link, whose SINR a wider part would take below the lowest
    rate, keeps the widest part that helps it and finishes later; the others finish together on the rest of the band.
    Ignored here: fading, and SINRs above 140 dB. With a rate that does not depend on the bandwidth all parts are equal.

    Args:
        left_bit: [n] bits that each link has to carry.
        law: the rate law, from SINR and bandwidth to bit/s.
        bandwidth_hz: width of the band.
    """
    count = len(snr)
    shares, open_ = np.full(count, 1.0 / count), (snr > 0) & (left_bit > 0)
    if not law.PER_HERTZ or not open_.any():
        return shares
    narrowing = _narrowing(law)
    budget, shares = 1.0, np.where(open_, 0.0, _LEAST_SHARE)
    work = np.divide(left_bit, snr * bandwidth_hz, out=np.zeros(count), where=open_)
    while open_.any():
        parts, at_limit = _least_time(narrowing, work[open_], snr[open_], budget)
        who = np.flatnonzero(open_)
        shares[who] = parts
        if not at_limit.any() or at_limit.all():
            break
        open_[who[at_limit]] = False
        budget -= float(parts[at_limit].sum())
    return np.asarray(shares / max(shares.sum(), 1.0))


_LEAST_SHARE = 1e-9
"""Share of the band of a link that has nothing to send or no signal, so that no share is zero."""


def _narrowing(law: RateLaw) -> tuple[float, Callable[[Array], Array]]:
    """Rate of a link on a part of the band over its SNR, e(x) / x at the SINR x: its maximum, and its inverse.

    The rate on a share a is a B e(s / a) = s B e(x) / x with x = s / a. Laws that jump make it jump up as x grows; the
    envelope takes the narrowest part that reaches a rate. The inverse gives the highest SINR (linear) at which a ratio
    of rate to SNR is reached.
    """
    lowest = max(law.min_sinr * (1.0 + 1e-12), _LOWEST_SINR)
    log_sinr = np.linspace(log(lowest), log(_HIGHEST_SINR), _GRID)
    sinr = exp(log_sinr)
    envelope = np.maximum.accumulate((np.maximum(law.rates_bps(sinr, _WIDE_HZ) / _WIDE_HZ, 0.0) / sinr)[::-1])
    rises = np.diff(envelope, prepend=0.0) > _SAME * envelope  # only the narrowest part of a plateau
    log_rate, log_sinr = log(envelope[rises]), log_sinr[::-1][rises]
    return float(envelope[-1]), lambda per_snr: np.asarray(exp(np.interp(log(per_snr), log_rate, log_sinr)))


def _least_time(
    narrowing: tuple[float, Callable[[Array], Array]], work: Array, snr: Array, budget: float
) -> tuple[Array, Mask]:
    """Return shares of sum `budget` at most that finish together, and a mask of links at their widest useful part.

    A link that needs the rate y = work / T over its SNR takes the share snr / x(y), which falls as T grows: bisection.
    """
    most, sinr = narrowing
    low = float(np.max(work)) / most
    parts = snr / sinr(work / low)
    if parts.sum() <= budget:
        return parts, work >= work.max() * (1.0 - 1e-9)
    high = 2.0 * low

    def is_short(time: float) -> bool:
        return bool((snr / sinr(work / time)).sum() > budget)

    while is_short(high):
        high *= 2.0
    _, high = bisected(is_short, low, high, _HALVINGS)
    return snr / sinr(work / high), np.zeros(len(work), np.bool_)
