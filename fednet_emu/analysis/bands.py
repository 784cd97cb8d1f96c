"""Several runs as one line with its 95 % band."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd

from fednet_emu.analysis.scales import Cost
from fednet_emu.analysis.statistics import mean_intervals
from fednet_emu.arrays import Array

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


def band_of(rows: pd.DataFrame, metric: str, cost: Cost, points: int, until: float | None = None) -> Band | None:
    """Return the mean and the 95 % band of a metric against a cost over the seeds of a setting, drawn in many points.

    They begin where the last run begins; the ends of runs are points, too.

    Args:
        rows: the evaluations of the setting.
        metric: a column of them.
        cost: the cost.
        points: how many evenly spread points there are at least.
        until: the last point; None for the end of the longest run.

    Returns:
        None if no run has the metric, or none spent anything.
    """
    known = rows[np.isfinite(rows[metric])]
    runs = [(cost.of(run).to_numpy(np.float64), run[metric].to_numpy(np.float64)) for _, run in known.groupby("seed")]
    if not runs or max(spent[-1] for spent, _ in runs) <= 0:
        return None
    even = even_costs(runs, points)
    ends = [spent[-1] for spent, _ in runs if spent[-1] >= even[0]]
    return band(runs, np.unique([*even, *ends, *([] if until is None else [until])]))
