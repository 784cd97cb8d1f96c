"""The Pareto fronts of a study: which settings give the most accuracy for their time, their bits, or their energy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from fednet_emu.analysis.fronts import WANTED, fronts, points_of
from fednet_emu.analysis.quantities import Unit
from fednet_emu.analysis.scales import TRADED, Cost
from fednet_emu.analysis.settings import Names, settings_of
from fednet_emu.analysis.study import Levels, StudyRecords
from fednet_emu.draw.figures.study_curves import fitted
from fednet_emu.draw.style import SMALL_PT, add_legend, finish_axes, line_style, new_figure, round_ticks

HEIGHT_IN = 1.75
DOMINATED: dict[str, Any] = {"color": "0.8", "marker": "o", "markersize": 1.5, "linestyle": "", "markeredgewidth": 0.0}


def pareto_figure(view: StudyRecords, names: Names | None = None) -> Figure | None:
    """Draw accuracy against time, bits and energy for all evaluated rounds, and mark the Pareto front of each panel.

    A point is on the front of its panel if no other is as accurate for less. Settings with different data have rows of
    their own. What has learnt nothing, and settings of which a run diverged, are on none; see `points_of`.

    Returns:
        None if no accuracy was measured.
    """
    settings, names = settings_of(view), names or Names.of(view.axes)
    points = points_of(view, settings)
    if not len(points):
        return None
    costs = [cost for cost in TRADED.values() if (points[cost.column] > 0).any()]
    found = fronts(points, [(cost.column, "accuracy") for cost in costs])
    groups = {name: points["data_set"] == name for name in dict.fromkeys(points["data_set"])}
    figure = new_figure(HEIGHT_IN * len(groups) + 0.1)
    grid = figure.subplots(len(groups), len(costs), squeeze=False, sharey="row", sharex="col")
    parts = []
    for its, row in zip(groups.values(), grid, strict=True):
        members = [settings[place].levels for place in dict.fromkeys(points["setting"][its])]
        name = _common(view, members, names) if len(groups) > 1 else ""
        for cost, axes in zip(costs, row, strict=True):
            unit = cost.unit(float(points[cost.column].max()))
            front = points[its & found[f"{cost.column}:accuracy"]]
            _draw(axes, points[its], front, cost, unit)
            parts.append(front.assign(front=cost.name, data=name))
            if axes in grid[-1]:
                axes.set_xlabel(cost.label(unit))
        if name:
            row[0].set_title(fitted(name), fontsize=SMALL_PT, loc="left")
        row[0].set_ylabel(names.metric("accuracy"))
    marked = pd.concat(parts, ignore_index=True)
    shown = sorted(set(marked["setting"]))
    handles = [Line2D([], [], **{**line_style(setting), "linestyle": "none"}) for setting in shown]
    heading, labels = names.legend([settings[setting].levels for setting in shown])
    entries = [label or view.name for label in labels] + ["not on the front"]
    add_legend(figure, [*handles, Line2D([], [], **DOMINATED)], entries, handle_em=1.2, heading=heading)
    levels = pd.DataFrame([settings[setting].levels for setting in marked["setting"]], index=marked.index)
    kept = [name for name in ("data",) if marked[name].any() and name not in levels]
    figure.numbers = pd.concat([marked[["front", *kept]], levels, marked[["round", *WANTED]]], axis=1)
    return figure


def _common(view: StudyRecords, settings: Sequence[Levels], names: Names) -> str:
    """The levels that all these settings share, of axes that have several."""
    shared = {
        name: level
        for name, level in settings[0].items()
        if len(view.axes[name]) > 1 and all(other[name] == level for other in settings)
    }
    return names.text(shared)


def _draw(axes: Axes, points: pd.DataFrame, front: pd.DataFrame, cost: Cost, unit: Unit) -> None:
    axes.plot(points[cost.column] / unit.size, points["accuracy"], **DOMINATED)
    for setting, part in front.groupby("setting"):
        style = {**line_style(int(str(setting))), "linestyle": "none"}
        axes.plot(part[cost.column] / unit.size, part["accuracy"], **style)
    round_ticks(axes.xaxis, 3)
    finish_axes(axes)
