"""Learning curves of a study for its page: the mean over seeds with its 95 % band, to the end of the longest run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from fednet_emu.arrays import Array
from fednet_emu.report.figures.study_curves import METRICS, STUDY_COSTS, rows_of, step_values
from fednet_emu.report.page.settings import Setting
from fednet_emu.report.views.statistics import mean_intervals
from fednet_emu.report.views.study import StudyView

POINTS, FEWEST_POINTS, ALL_POINTS = 120, 40, 40_000
"""Most and fewest points of a line, and of all lines of a page together, if these are not too many for that."""


class Band(NamedTuple):
    """A line with its band, all arrays [points].

    Attributes:
        spent: the costs.
        mean: the mean of all runs; those that have ended keep their last value.
        low: lower limit of the 95 % band; NaN for a single run.
        high: its upper limit.
        runs: how many runs have not ended.
    """

    spent: Array
    mean: Array
    low: Array
    high: Array
    runs: Array


def band(runs: Sequence[tuple[Array, Array]], points: int = POINTS) -> Band:
    """Return the mean and 95 % band of step functions, each given by its costs [n], ascending, and scores [n].

    The line goes from the last start to the last end of a run.
    """
    ends = np.array([cost[-1] for cost, _ in runs])
    start = max(float(cost[0]) for cost, _ in runs)
    grid = np.linspace(start, max(start, float(ends.max())), points)
    limits = mean_intervals(np.stack([step_values(cost, score, grid) for cost, score in runs]))
    return Band(grid, *limits, (ends[:, None] >= grid).sum(axis=0))


def measured_metrics(view: StudyView) -> dict[str, str]:
    """Return the metrics that were measured at least once, with their titles."""
    return {name: title for name, title in METRICS.items() if np.isfinite(view.evaluations.get(name, np.nan)).any()}


def curves(view: StudyView, settings: Sequence[Setting]) -> Iterator[dict[str, Any]]:
    """Yield the band of every metric against every cost for every setting that has both."""
    lines = len(settings) * len(measured_metrics(view)) * len(STUDY_COSTS)
    points = max(FEWEST_POINTS, min(POINTS, ALL_POINTS // max(1, lines)))
    for place, setting in enumerate(settings):
        rows = rows_of(view.evaluations, setting.levels)
        for metric in measured_metrics(view):
            known = rows[np.isfinite(rows[metric])]
            if not len(known):
                continue
            runs = [run for _, run in known.groupby("seed")]
            for name, cost in STUDY_COSTS.items():
                spent = [cost.of(run).to_numpy(np.float64) for run in runs]
                scores = [run[metric].to_numpy(np.float64) for run in runs]
                if max(float(values[-1]) for values in spent) > 0:
                    found = band(list(zip(spent, scores, strict=True)), points)
                    yield {"setting": place, "metric": metric, "cost": name, "seeds": len(runs), **found._asdict()}
