"""95 % intervals for means of few repetitions, and for differences of such means, paired and unpaired.

For eight values or more they are expanded percentile bootstrap intervals (Hesterberg, "What Teachers Should Know About
the Bootstrap", The American Statistician 69(4), 2015, section 4.3): quantiles of 10 000 resampled means, widened
according to Student's distribution and the factor n / (n - 1) of the variance. The random numbers of the resampling are
fixed, so that equal data give equal intervals. Fewer than eight values get Student's interval, because bootstrap
intervals never exceed the range of the values: five differences of the same sign, which occur by chance 6 % of the
time, would always exclude zero, and plain quantiles of five normal values cover 84 % instead of 95 %.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import pandas as pd
import scipy

from fednet_emu.analysis.scales import Cost
from fednet_emu.arrays import Array

LEVEL = 0.95
FEWEST, RESAMPLES = 8, 10_000
"""Smallest number of values that are resampled, and the number of resamples."""


class Interval(NamedTuple):
    """A mean and its 95 % interval; the limits are NaN for a single value, whose spread is unknown."""

    mean: float
    low: float
    high: float

    @property
    def excludes_zero(self) -> bool:
        """Whether the interval excludes zero; an unknown interval (NaN) does not."""
        return bool(self.low > 0 or self.high < 0)


def mean_interval(values: Array) -> Interval:
    """Return the mean of values [n] and its interval; NaN if there are no values."""
    mean, low, high = mean_intervals(np.asarray(values, np.float64)[:, None])
    return Interval(float(mean[0]), float(low[0]), float(high[0]))


def mean_intervals(values: Array) -> tuple[Array, Array, Array]:
    """Return the mean of each column of values [n, columns], and its lower and upper limit, each [columns]."""
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
    low, high = _quantiles(_first_times_drawn(n) @ values / n, n, n - 1)
    return mean, low, high


def paired_difference(first: Array, second: Array) -> Interval:
    """Return the mean of second - first and its interval; values [n] at the same position belong to the same seed."""
    return mean_interval(np.asarray(second, np.float64) - np.asarray(first, np.float64))


def unpaired_difference(first: Array, second: Array) -> Interval:
    """Return the mean of second [m] minus the mean of first [n] and its interval, as for independent samples.

    Both are resampled independently, with Welch's degrees of freedom; with fewer than eight values in one of them, it
    is Welch's interval.
    """
    first, second = np.asarray(first, np.float64), np.asarray(second, np.float64)
    fewest = min(len(first), len(second))
    if fewest < 2:
        difference = float(second.mean() - first.mean()) if fewest else np.nan
        return Interval(difference, np.nan, np.nan)
    difference, one, two = float(second.mean() - first.mean()), _variance_of_mean(first), _variance_of_mean(second)
    if one + two == 0:
        return Interval(difference, difference, difference)
    freedom = (one + two) ** 2 / (one**2 / (len(first) - 1) + two**2 / (len(second) - 1))
    if fewest < FEWEST:
        reach = _student(freedom) * float(np.sqrt(one + two))
        return Interval(difference, difference - reach, difference + reach)
    ways = _generator()
    means = [_times_drawn(len(values), ways) @ values[:, None] / len(values) for values in (first, second)]
    low, high = _quantiles(means[1] - means[0], fewest, freedom)
    return Interval(difference, float(low[0]), float(high[0]))


def _times_drawn(n: int, ways: np.random.Generator) -> Array:
    """Return how often each of n values is in each resample, as numbers [resamples, n]."""
    drawn = ways.integers(0, n, (RESAMPLES, n)) + n * np.arange(RESAMPLES)[:, None]
    return np.bincount(drawn.ravel(), minlength=RESAMPLES * n).reshape(RESAMPLES, n).astype(np.float64)


@lru_cache(maxsize=2)
def _first_times_drawn(n: int) -> Array:
    """The same with fresh random numbers; a study needs it for thousands of means of equally many seeds."""
    return _times_drawn(n, _generator())


def _quantiles(means: Array, n: int, freedom: float) -> tuple[Array, Array]:
    """Return the expanded 2.5 % and 97.5 % quantiles, each [columns], of resampled means [resamples, columns]."""
    tail = float(scipy.special.ndtr(-np.sqrt(n / (n - 1)) * _student(freedom)))
    low, high = np.quantile(means, [tail, 1 - tail], axis=0)
    return low, high


def _student(freedom: float) -> float:
    return float(scipy.special.stdtrit(freedom, (1 + LEVEL) / 2))


def _variance_of_mean(values: Array) -> float:
    return float(values.var(ddof=1)) / len(values) if np.ptp(values) > 0 else 0.0


def _generator() -> np.random.Generator:
    return np.random.Generator(np.random.PCG64(0))


Steps = tuple[Array, Array]
"""A run as a step function: its costs [n], ascending, and its scores [n] from each cost on."""


class Band(NamedTuple):
    """Mean and 95 % band of several runs over a grid of costs, all arrays [points]."""

    spent: Array
    """The costs."""
    mean: Array
    """The mean of all runs; those that have ended keep their last value."""
    low: Array
    """Lower limit of the band; NaN for a single run."""
    high: Array
    """Its upper limit."""
    runs: Array
    """How many runs have not ended."""


def band(runs: Sequence[Steps], spent: Array) -> Band:
    """Return the mean and the 95 % band of runs at given costs [points]."""
    ends = np.array([cost[-1] for cost, _ in runs])
    limits = mean_intervals(np.stack([step_values(cost, score, spent) for cost, score in runs]))
    return Band(spent, *limits, (ends[:, None] >= spent).sum(axis=0))


def even_costs(runs: Sequence[Steps], points: int) -> Array:
    """Return evenly spread costs [points] from where the last run begins to where the last one ends."""
    start, end = max(float(cost[0]) for cost, _ in runs), max(float(cost[-1]) for cost, _ in runs)
    return np.linspace(start, max(start, end), points)


def step_values(cost: Array, score: Array, grid: Array) -> Array:
    """Evaluate a step function of ascending positions [n] and values [n] on a grid [points]; NaN before it begins."""
    last = np.searchsorted(cost, grid, side="right") - 1
    return np.where(last >= 0, score[np.maximum(last, 0)], np.nan)


def band_of(rows: pd.DataFrame, metric: str, cost: Cost, points: int, until: float | None = None) -> Band | None:
    """Return the mean and the 95 % band of a metric against a cost over the seeds of a setting, drawn in many points.

    None if no run has the metric or none spent anything. The band begins where the last run begins, and ends with the
    longest run, or at the cost `until`. So many `points` are evenly spread; the ends of runs are points, too.

    """
    known = rows[np.isfinite(rows[metric])]
    runs = [(cost.of(run).to_numpy(np.float64), run[metric].to_numpy(np.float64)) for _, run in known.groupby("seed")]
    if not runs or max(spent[-1] for spent, _ in runs) <= 0:
        return None
    even = even_costs(runs, points)
    ends = [spent[-1] for spent, _ in runs if spent[-1] >= even[0]]
    return band(runs, np.unique([*even, *ends, *([] if until is None else [until])]))
