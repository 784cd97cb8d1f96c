"""Learning curves of a study for its page: the mean over seeds with its 95 % band, to the end of the longest run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from fednet_emu.analysis.bands import band, even_costs
from fednet_emu.analysis.scales import METRICS, STUDY_COSTS
from fednet_emu.analysis.settings import Setting
from fednet_emu.analysis.study import StudyView, rows_of

POINTS, FEWEST_POINTS, ALL_POINTS = 120, 40, 40_000
"""Most and fewest points of a line, and of all lines of a page together, if these are not too many for that."""


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
                steps = [(cost.of(run).to_numpy(np.float64), run[metric].to_numpy(np.float64)) for run in runs]
                if max(float(spent[-1]) for spent, _ in steps) > 0:
                    found = band(steps, even_costs(steps, points))
                    yield {"setting": place, "metric": metric, "cost": name, "seeds": len(runs), **found._asdict()}
