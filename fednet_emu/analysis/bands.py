"""Several runs as one line with its 95 % band, and which of many points no other beats."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from fednet_emu.analysis.statistics import mean_intervals
from fednet_emu.arrays import Array, Mask

Steps = tuple[Array, Array]
"""A run as a step function: its costs [n], ascending, and its scores [n] from each cost on."""


class Band(NamedTuple):
    """Mean and 95 % band of several runs over a grid of costs, all arrays [points].

    Attributes:
        spent: the costs.
        mean: the mean of all runs; those that have ended keep their last value.
        low: lower limit of the band; NaN for a single run.
        high: its upper limit.
        runs: how many runs have not ended.
    """

    spent: Array
    mean: Array
    low: Array
    high: Array
    runs: Array


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
    """Evaluate a step function at the points of a grid.

    Args:
        cost: positions [n] of the steps, ascending.
        score: values [n] from each position on.
        grid: positions [points] at which to evaluate.

    Returns:
        Values [points]; NaN before the first step.
    """
    last = np.searchsorted(cost, grid, side="right") - 1
    return np.where(last >= 0, score[np.maximum(last, 0)], np.nan)


def on_front(first: Array, second: Array) -> Mask:
    """Find the Pareto front: the points [n] that no other point beats; a lower value is better in both.

    A point beats another if it is not higher in either and lower in one; equal points do not beat each other.
    """
    order = np.lexsort((second, first))
    a, b = first[order], second[order]
    lowest_before = np.concatenate([[np.inf], np.minimum.accumulate(b)[:-1]])
    begins = np.concatenate([[True], a[1:] > a[:-1]])
    group = np.cumsum(begins) - 1
    lowest_of_less, lowest_of_same = lowest_before[begins][group], b[begins][group]
    mask = np.empty(len(a), bool)
    mask[order] = (b < lowest_of_less) & (b == lowest_of_same)
    return mask
