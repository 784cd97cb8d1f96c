"""Schedulers, which divide a band into orthogonal parts."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from fednet_emu.arrays import Array, IntArray, Mask, bisected, exp, log
from fednet_emu.radio.rates.base import RateLaw

_LOWEST_SINR, _HIGHEST_SINR, _GRID = 1e-6, 1e14, 8192
_WIDE_HZ = 2.0**40  # a power of two, for no rounding errors; so wide that `narrowest_hz` of a rate law is negligible
_HALVINGS = 60
_TIE, _SAME = 1 - 1e-12, 1e-12


def best_of_each_block(signal: Array, mean: Array, first_leg: IntArray) -> Array:
    """Return 1 for the burst with the highest ratio of gain to mean gain in a block, else 0 [bursts, blocks].

    The ratio of a broadcast is the smallest ratio among its receivers. If ratios differ only by rounding errors, the
    first burst is selected. Such ties occur, for example, between two bursts of one device that moved between their
    starts.

    Args:
        signal: [legs, blocks] SNR (linear) of each leg (transfer to one receiver) in each block.
        mean: [legs] SNR (linear) of each leg, averaged over fading.
        first_leg: [bursts] index of the first leg of each burst.
    """
    relative = np.divide(signal, mean[:, None], out=np.zeros_like(signal), where=mean[:, None] > 0)
    gain = np.minimum.reduceat(relative, first_leg, axis=0)
    won = np.zeros(gain.shape)
    won[(gain >= gain.max(axis=0) * _TIE).argmax(axis=0), np.arange(gain.shape[1])] = 1.0
    return won


def equal_finish_shares(snr: Array, left_bit: Array, law: RateLaw, bandwidth_hz: float) -> Array:
    """Return band shares [n] with which n links finish at the same time; the shares sum to at most 1.

    These shares minimise the time until all links have finished. On too wide a part of the band, the SINR of a weak
    link would be below the minimum SINR of the rate law. Such a link gets its widest useful part and finishes later;
    all other links divide the remaining band and finish together. If rates do not depend on the bandwidth, all parts
    are equal.
    Ignored here: fading, and SINRs above 140 dB.

    Args:
        snr: [n] SNR (linear) of each link on the whole band.
        left_bit: [n] remaining bits of each link.
        law: the rate law, which maps SINR and bandwidth in Hz to bit/s.
        bandwidth_hz: width of the band in Hz.
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
"""Small share of the band for a link without bits to send or without signal, because no share may be zero."""


def _narrowing(law: RateLaw) -> tuple[float, Callable[[Array], Array]]:
    """Return the maximum of e(x) / x and the inverse of this ratio; e(x) is the spectral efficiency at the SINR x.

    Let s be the SNR of a link on the whole band of B Hz. On the share a of the band, its rate is a B e(s / a), which
    equals s B e(x) / x with x = s / a. With a rate law that has steps, the ratio jumps up as x grows, so its monotone
    envelope is used: it selects the narrowest part of the band for each rate. The inverse function returns the highest
    SINR (linear) at which a given ratio is reached.
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
    """Return band shares [n] with which links finish together, and a mask [n] of links on their widest useful share.

    The shares sum to at most `budget`. To finish within the time T, a link needs the share snr / x(work / T), where x
    is the inverse function in `narrowing`. This share decreases as T grows, so that bisection finds the smallest T for
    which the shares fit into `budget`.
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
