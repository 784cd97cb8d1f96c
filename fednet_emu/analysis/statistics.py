"""95 % intervals for means of few repetitions, and sign-change tests of paired differences with their intervals.

Means: eight or more values get expanded percentile bootstrap intervals (Hesterberg, "What Teachers Should Know About
the Bootstrap", The American Statistician 69(4), 2015, section 4.3). These are quantiles of 10 000 resampled means,
widened by Student's distribution and the factor n / (n - 1) of the variance. The random seed of the resampling is
fixed, so the same data always give the same interval. Fewer than eight values get Student's interval, because bootstrap
intervals never exceed the range of the values, and plain quantiles of five normal values cover 84 % instead of 95 %.

Paired differences: if two settings are equally good, the sign of each seed's difference is random. The p-value is the
share of all combinations of signs for which the mean is at least as far from zero. The interval contains all shifts
that the test does not exclude (Hartigan, "Using Subsample Values as Typical Values", JASA 64, 1969). The interval
therefore excludes zero if and only if p is at most 0.05. The smallest possible p-value for n differences is 2^(1-n).
Fewer than six differences therefore have no 95 % interval.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import pandas as pd
import scipy

from fednet_emu.analysis.scales import RANGES, Cost
from fednet_emu.arrays import Array

LEVEL = 0.95
ALPHA = 0.05
"""Significance level: the maximum p-value of a significant difference."""
FEWEST, RESAMPLES = 8, 10_000
"""Minimum number of values for which the interval of a mean is computed by a bootstrap, and number of resamples."""
EXACT, DRAWS = 20_000, 10_000
"""Maximum number of permutations for which a test is exact, and number of random permutations if there are more."""
SAME, ROUNDING = 1e-6, 1e-12
"""Maximum relative difference of two costs that count as equal, and relative rounding error of a mean."""


class Interval(NamedTuple):
    """A mean with the lower and upper limits of its 95 % confidence interval. The limits are NaN for a single value."""

    mean: float = math.nan
    low: float = math.nan
    high: float = math.nan


def mean_interval(values: Array) -> Interval:
    """Return the mean of `values` [n] and its 95 % confidence interval. The mean and limits are NaN if n is zero."""
    mean, low, high = mean_intervals(np.asarray(values, np.float64)[:, None])
    return Interval(float(mean[0]), float(low[0]), float(high[0]))


def mean_intervals(values: Array) -> tuple[Array, Array, Array]:
    """Return the mean, and the lower and upper limit of its 95 % interval, of each column of `values` [n, columns]."""
    n, columns = values.shape
    unknown = np.full(columns, np.nan)
    if n == 0:
        return unknown, unknown, unknown
    mean = values.mean(axis=0)
    if n == 1:
        return mean, unknown, unknown
    if n < FEWEST:
        reach = _student(n - 1) * values.std(axis=0, ddof=1) / np.sqrt(n)
        return mean, mean - reach, mean + reach
    low, high = _quantiles(_times_drawn(n) @ values / n, n)
    return mean, low, high


def cost_interval(values: Array) -> Interval:
    """Return the mean of costs [n] and its 95 % confidence interval. A negative lower limit is replaced by zero."""
    mean, low, high = mean_interval(values)
    return Interval(mean, max(low, 0.0), high)


class Paired(NamedTuple):
    """The mean of paired differences, its 95 % interval (NaN for fewer than six differences), and the p-value."""

    mean: float = math.nan
    low: float = math.nan
    high: float = math.nan
    p: float = math.nan

    @property
    def excludes_zero(self) -> bool:
        """True if the difference is significant: the p-value is at most 0.05, so the 95 % interval excludes zero."""
        return self.p <= ALPHA


def gaps(first: Array, second: Array) -> Array:
    """Return the elementwise differences `second` - `first` of two arrays of equal shape.

    A difference of at most a millionth of the larger absolute value is replaced by zero.
    """
    first, second = np.asarray(first, np.float64), np.asarray(second, np.float64)
    found = second - first
    return np.where(np.abs(found) <= SAME * np.maximum(np.abs(first), np.abs(second)), 0.0, found)


def paired_difference(first: Array, second: Array) -> Paired:
    """Return the mean of the paired differences `second` - `first`, its 95 % interval and the p-value.

    Elements of `first` [n] and `second` [n] with the same index belong to the same seed.
    """
    return sign_test(gaps(first, second))


def sign_test(differences: Array) -> Paired:
    """Return the mean of paired differences [n], its 95 % interval, and the p-value of the sign-change test."""
    n = len(differences)
    if not n:
        return Paired()
    flipped, drawn = _flipped(n), 2 ** (n - 1) > EXACT
    sums, total, ways = flipped @ differences, float(differences.sum()), len(flipped) + drawn
    least = abs(total) - ROUNDING * float(np.abs(differences).sum())
    p = 1.0 if least <= 0 else float((np.abs(total - 2 * sums) >= least).sum() + drawn) / ways
    if n < fewest_seeds():
        return Paired(total / n, p=p)
    count = flipped.sum(axis=1)
    with np.errstate(invalid="ignore", divide="ignore"):  # a part without differences has no mean
        means = np.stack([sums / count, (total - sums) / (n - count)])
    place = math.floor(ALPHA * ways) - drawn  # number of means outside the interval at each end
    highs = np.sort(np.where(np.isnan(means), np.inf, means).max(axis=0))
    lows = np.sort(np.where(np.isnan(means), -np.inf, means).min(axis=0))
    return Paired(total / n, float(lows[place]), float(highs[-1 - place]), p)


def smallest_p(settings: int, seeds: int) -> float:
    """Return the smallest possible p-value of a permutation test of `settings` settings with `seeds` seeds each."""
    return float(min(1.0, (settings * (settings - 1.0)) ** (1 - seeds)))


def fewest_seeds(settings: int = 2) -> int:
    """Return the smallest number of seeds with which a test of `settings` settings can be significant."""
    return next(seeds for seeds in itertools.count(1) if smallest_p(settings, seeds) <= ALPHA)


@lru_cache(maxsize=8)
def _flipped(n: int) -> Array:
    """Return combinations of sign changes of n differences, [combinations, n]. The value 1 stands for a changed sign.

    If at most 20 000 combinations leave the last sign unchanged, the result contains all of these combinations.
    Otherwise it contains 10 000 random combinations.
    """
    if 2 ** (n - 1) <= EXACT:
        return (np.arange(2 ** (n - 1))[:, None] >> np.arange(n) & 1).astype(np.float64)
    return _generator().integers(0, 2, (DRAWS, n)).astype(np.float64)


@lru_cache(maxsize=2)
def _times_drawn(n: int) -> Array:
    """Return how often each of n values occurs in each bootstrap resample, [resamples, n], for a fixed random seed.

    The result is cached because studies use it very often.
    """
    drawn = _generator().integers(0, n, (RESAMPLES, n)) + n * np.arange(RESAMPLES)[:, None]
    return np.bincount(drawn.ravel(), minlength=RESAMPLES * n).reshape(RESAMPLES, n).astype(np.float64)


def _quantiles(means: Array, n: int) -> tuple[Array, Array]:
    """Return the expanded 2.5 % and 97.5 % quantiles [columns] of bootstrap means [resamples, columns] of n values."""
    tail = float(scipy.special.ndtr(-np.sqrt(n / (n - 1)) * _student(n - 1)))
    low, high = np.quantile(means, [tail, 1 - tail], axis=0)
    return low, high


def _student(freedom: float) -> float:
    return float(scipy.special.stdtrit(freedom, (1 + LEVEL) / 2))


def _generator() -> np.random.Generator:
    return np.random.Generator(np.random.PCG64(0))


Steps = tuple[Array, Array]
"""A run as a step function: costs [n] in ascending order, and the score [n] from each cost up to the next."""


class Band(NamedTuple):
    """Mean score of several runs against the cost, with a pointwise 95 % confidence band. All arrays are [points]."""

    spent: Array
    """Costs at which the mean and the band are evaluated, in ascending order."""
    mean: Array
    """Mean score of all runs. A run that ended at a lower cost is included with its last score."""
    low: Array
    """Lower limit of the band; NaN for a single run."""
    high: Array
    """Upper limit of the band; NaN for a single run."""
    runs: Array
    """Number of runs that have not yet ended at each cost."""
    cut: bool = False
    """True if some limits were clipped to the range of possible scores."""


def band(runs: Sequence[Steps], spent: Array) -> Band:
    """Return the mean score of several runs, and its pointwise 95 % confidence band.

    `runs` are step functions of the cost. `spent` contains the costs [points] at which mean and band are evaluated.
    """
    ends = np.array([cost[-1] for cost, _ in runs])
    limits = mean_intervals(np.stack([step_values(cost, score, spent) for cost, score in runs]))
    return Band(spent, *limits, (ends[:, None] >= spent).sum(axis=0))


def even_costs(runs: Sequence[Steps], points: int) -> Array:
    """Return evenly spaced costs [points].

    The first is the lowest cost at which every run has been evaluated at least once. The last is the highest final cost
    of any run.
    """
    start, end = max(float(cost[0]) for cost, _ in runs), max(float(cost[-1]) for cost, _ in runs)
    return np.linspace(start, max(start, end), points)


def step_values(cost: Array, score: Array, grid: Array) -> Array:
    """Evaluate a step function with ascending positions [n] and values [n] on a grid [points]; NaN before its start."""
    last = np.searchsorted(cost, grid, side="right") - 1
    return np.where(last >= 0, score[np.maximum(last, 0)], np.nan)


def band_of(rows: pd.DataFrame, metric: str, cost: Cost, points: int, until: float | None = None) -> Band | None:
    """Return the mean of a metric over the seeds of a setting, and its 95 % confidence band, against a cost.

    `rows` are the evaluations of all runs of the setting. The result is None if no run has the metric or a positive
    cost. The band begins at the cost at which every run has been evaluated at least once. It ends at the highest final
    cost of any run, or at the cost `until` if that is higher. The grid consists of `points` evenly spaced costs and the
    final cost of each run. The limits of the band are clipped to the range of the metric.
    """
    known = rows[np.isfinite(rows[metric])]
    runs = [(cost.of(run).to_numpy(np.float64), run[metric].to_numpy(np.float64)) for _, run in known.groupby("seed")]
    if not runs or max(spent[-1] for spent, _ in runs) <= 0:
        return None
    even = even_costs(runs, points)
    ends = [spent[-1] for spent, _ in runs if spent[-1] >= even[0]]
    found = band(runs, np.unique([*even, *ends, *([] if until is None else [until])]))
    (least, most), limits = RANGES.get(metric, (0.0, 1.0)), np.stack([found.low, found.high])
    low, high = np.clip(limits, least, most)
    return found._replace(low=low, high=high, cut=bool(((limits < least) | (limits > most)).any()))


def marks(rows: pd.DataFrame, ended: Collection[str], cost: Cost, its: Band) -> tuple[Array, Array]:
    """Return the costs of the last evaluations of the runs `ended`, and the means of the band at these costs."""
    own = rows[rows["run"].isin(ended)]
    spent = cost.of(own).groupby(own["run"]).max().to_numpy(np.float64)
    return spent, np.interp(spent, its.spent, its.mean)
