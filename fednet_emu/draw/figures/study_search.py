"""The figure of a search: the cost of each trial in order, or two costs of each trial plotted against each other."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from fednet_emu.analysis.quantities import Unit
from fednet_emu.analysis.scales import COSTS
from fednet_emu.analysis.searched import SearchRecords
from fednet_emu.analysis.study import target_text
from fednet_emu.draw.figures.study_rows import CROSS, DOT, MEAN, entry
from fednet_emu.draw.palette import BLUE, GREY
from fednet_emu.draw.style import PaperFigure, add_legend, finish_axes, new_axes, round_ticks

HEIGHT_IN = 2.4
WIDE = 30.0
"""Ratio of maximum to minimum cost above which the cost axis is logarithmic."""
TRIAL: dict[str, Any] = DOT | {"alpha": 0.9, "color": GREY}
FINALIST: dict[str, Any] = MEAN | {"color": BLUE}
_STEPS: dict[str, Any] = {"color": BLUE, "linewidth": 1.0, "drawstyle": "steps-post"}


def search_figure(view: SearchRecords) -> PaperFigure:
    """Plot the cost of each trial, the best cost so far, and the means of the finalists over all their seeds.

    Trials that missed the target are plotted at the upper edge of the figure. If several costs are minimised, the first
    two costs of each trial are plotted against each other.
    """
    figure, axes = new_axes(HEIGHT_IN)
    handles = _front(axes, view) if len(view.columns) > 1 else _course(axes, view)
    finish_axes(axes)
    add_legend(figure, handles, handle_em=1.6)
    figure.numbers = view.trials
    return figure


def _course(axes: Axes, view: SearchRecords) -> list[Line2D]:
    column, numbers = view.columns[0], view.trials["trial"].to_numpy()
    unit, title = _unit(view, column)
    costs = view.trials[column].to_numpy(np.float64) / unit.size
    known, sign = np.isfinite(costs), 1.0 if view.costs else -1.0
    axes.plot(numbers[known], costs[known], **TRIAL, label="trial")
    if known.any():
        best = sign * np.fmin.accumulate(np.where(known, sign * costs, np.inf))
        begun = np.isfinite(best)
        axes.plot(numbers[begun], best[begun], **_STEPS, label="best so far")
        if view.costs and costs[known].max() > WIDE * costs[known].min() > 0:
            axes.set_yscale("log")
    edge = axes.get_xaxis_transform()
    axes.plot(numbers[~known], np.ones((~known).sum()), **CROSS, transform=edge, clip_on=False, label="not there")
    for number in view.finalists:
        mean = sign * float(np.nanmean(view.runs[number][:, 0])) / unit.size
        axes.plot(number, mean, **FINALIST, zorder=4, label="finalist")
    axes.xaxis.set_major_locator(MaxNLocator(nbins=8, integer=True))
    axes.set_xlabel("Trial")
    axes.set_ylabel(title)
    handles = [entry("trial", TRIAL), entry("best so far", {"linewidth": 1.0}, BLUE)]
    if view.finalists:
        handles.append(entry("finalist, mean over its seeds", FINALIST))
    if not known.all():
        handles.append(entry("did not get there", CROSS))
    return handles


def _front(axes: Axes, view: SearchRecords) -> list[Line2D]:
    first, second = view.columns[:2]
    units = [_unit(view, name) for name in (first, second)]
    costs = [
        view.trials[name].to_numpy(np.float64) / unit.size
        for name, (unit, _) in zip((first, second), units, strict=True)
    ]
    axes.plot(*costs, **TRIAL, label="trial")
    means = np.array([np.nanmean(view.runs[number], axis=0)[:2] for number in view.finalists]).reshape(-1, 2)
    means = means[np.argsort(means[:, 0])] / [unit.size for unit, _ in units]
    axes.plot(*means.T, **FINALIST | {"linestyle": "-", "linewidth": 0.8}, zorder=4, label="finalist")
    round_ticks(axes.xaxis)
    axes.set_xlabel(units[0][1])
    axes.set_ylabel(units[1][1])
    return [entry("trial", TRIAL), entry("finalist, mean over its seeds", FINALIST)]


def _unit(view: SearchRecords, column: str) -> tuple[Unit, str]:
    if column not in COSTS:
        return Unit(1.0, ""), "Accuracy within the limits"
    costs = view.trials[column].to_numpy(np.float64)
    unit = COSTS[column].unit(float(np.nanmax(costs)) if np.isfinite(costs).any() else 1.0)
    return unit, COSTS[column].label(unit, target_text(view.target))
