"""Epsilon of rounds with Poisson sampling by the privacy loss distribution, a tighter bound than Renyi divergences.

The loss of a round is ln(p / q), where the noisy sum has density p with a device and q without the device, or vice
versa. The losses of rounds add up, so that the distribution of the sum is a convolution. Koskela, Jälkö and Honkela,
"Computing Tight Differential Privacy Guarantees Using FFT", AISTATS 2020, https://arxiv.org/abs/1906.03049. Losses are
rounded to a grid: the masses of p and q between two grid points are moved to these points such that both sums are
preserved, which can only increase epsilon: Doroshenko, Ghazi, Kamath, Kumar and Manurangsi, "Connect the Dots: Tighter
Discrete Approximations of Privacy Loss Distributions", PoPETs 2022, https://arxiv.org/abs/2207.04380.

Two effects are neglected: noise beyond ten standard deviations (probability 1e-23), and rounding errors of the Fourier
transform (below 1e-10).
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from scipy.fft import irfft, next_fast_len, rfft
from scipy.special import logsumexp, ndtr

from fednet_emu.arrays import Array

STEP = 1e-4
"""Distance between the points of the grid of privacy losses; it is increased if the grid would have too many points."""
LEAST_DELTA = 1e-9
"""Smallest delta for which rounding errors of the Fourier transform do not matter."""
_MOST, _REACH, _BEYOND = 2**20, 10.0, 1e-6
_ORDERS = 2.0 ** np.arange(-8, 10)


class Losses(NamedTuple):
    """Distribution of the privacy loss of a round: `mass` [n] holds the probability of a loss (`first` + i) `step`."""

    mass: Array
    first: int
    step: float


def epsilon(noise_multiplier: float, *, delta: float, rounds: int, rate: float) -> float:
    """Return epsilon after `rounds` rounds, for 0 < `rate` < 1; see `accountant.epsilon` for the arguments."""
    low, high = _ends(noise_multiplier, rate)
    step = max(STEP, (high - low) / _MOST)
    while True:
        both = [losses(noise_multiplier, rate, step, adding=adding) for adding in (False, True)]
        reached = [_reach(own, rounds, _BEYOND * delta) for own in both]
        if max(map(sum, reached)) <= _MOST:
            return max(_of(own, rounds, delta, *reach) for own, reach in zip(both, reached, strict=True))
        step *= 2


@lru_cache(8)
def losses(noise_multiplier: float, rate: float, step: float, *, adding: bool) -> Losses:
    """Return the distribution of the privacy loss of a round, ln(p / q) under p or, if `adding`, ln(q / p) under q.

    Here p and q are the densities of the noisy sum of updates with and without a given device.
    """
    z, q = noise_multiplier, rate
    low, high = _ends(z, q)
    grid = np.arange(math.floor(low / step), math.ceil(high / step) + 1)
    with np.errstate(divide="ignore"):  # x: the noisy sum at which the loss has the value of the grid point
        x = z * z * (grid * step - math.log(q) + np.log(-np.expm1(np.minimum(math.log1p(-q) - grid * step, 0)))) + 0.5
    without = _masses(x / z)
    masses = (1 - q) * without + q * _masses((x - 1) / z), without
    if adding:
        grid, masses = -grid[::-1], (masses[1][::-1], masses[0][::-1])
    p, other = masses
    with np.errstate(divide="ignore"):
        likelier = p - np.exp(grid[:-1] * step + np.log(other))
    above = np.clip(likelier / -math.expm1(-step), 0, p)
    mass = np.append(p - above, 0.0)
    mass[1:] += above
    return Losses(mass, int(grid[0]), step)


def _ends(z: float, q: float) -> tuple[float, float]:
    """Return the privacy losses at two noisy sums: ten standard deviations below 0, and as many above 1."""
    low, high = (
        np.logaddexp(math.log1p(-q), math.log(q) + (2 * x - 1) / (2 * z * z)) for x in (-_REACH * z, 1 + _REACH * z)
    )
    return float(low), float(high)


def _masses(x: Array) -> Array:
    """Return the standard normal probability [n - 1] between neighbours in `x` [n], accurate in both tails."""
    low, high = ndtr(x), ndtr(-x)
    return np.asarray(np.where(x[:-1] > 0, high[:-1] - high[1:], low[1:] - low[:-1]))


def _centred(own: Losses) -> tuple[int, Array]:
    """Return the index of the grid point nearest to the mean loss, and the losses [n] minus the loss of this point."""
    at: Array = own.first + np.arange(len(own.mass), dtype=np.float64)
    middle = round(float(own.mass @ at))
    return middle, (at - middle) * own.step


def _reach(own: Losses, rounds: int, tail: float) -> tuple[int, int]:
    """Return the distances above and below the mean, in grid points, that the sum of losses rarely exceeds.

    The sum is over the losses of all `rounds` rounds, and exceeds each distance with probability at most `tail`. The
    distances follow from the Chernoff bound, minimised over a fixed set of orders.
    """
    _, value = _centred(own)
    with np.errstate(divide="ignore"):
        log_mass = np.log(own.mass)
    found = []
    for sign in (1, -1):
        moments = np.array([logsumexp(log_mass + sign * order * value) for order in _ORDERS])
        found.append(math.ceil(float(np.min((rounds * moments - math.log(tail)) / _ORDERS)) / own.step) + 1)
    return found[0], found[1]


def _of(own: Losses, rounds: int, delta: float, above: int, below: int) -> float:
    """Return the epsilon at `delta` for the sum of the losses of `rounds` rounds with the loss distribution `own`.

    Except with probability `_BEYOND` * `delta`, the sum is at most `above` grid points above its mean and at most
    `below` points below its mean.
    """
    from scipy.optimize import brentq

    middle, _ = _centred(own)
    n = next_fast_len(max(above + below + 1, len(own.mass)), real=True)
    folded = np.zeros(n)
    np.add.at(folded, (own.first - middle + np.arange(len(own.mass))) % n, own.mass)
    total = np.maximum(irfft(rfft(folded) ** rounds, n), 0)
    total = np.roll(total, below)  # the first point is now `below` points below the mean
    value = (rounds * middle - below + np.arange(n)) * own.step
    left = delta * (1 - 2 * _BEYOND)

    def excess(eps: float) -> float:
        far = value > eps
        return float(total[far] @ -np.expm1(eps - value[far])) - left

    if excess(0.0) <= 0:
        return 0.0
    return float(brentq(excess, 0.0, float(value[-1]), xtol=1e-9))
