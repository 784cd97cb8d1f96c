"""Pareto fronts of a study: accuracy against time, bits and energy, and energy against time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from fednet_emu.analysis.fronts import WANTED, ends_of, fronts, points_of
from fednet_emu.analysis.quantities import Unit
from fednet_emu.analysis.scales import TRADED, Cost
from fednet_emu.analysis.settings import Names, Setting, settings_of
from fednet_emu.analysis.study import Levels, StudyRecords, target_text
from fednet_emu.arrays import Array
from fednet_emu.draw.figures.study_curves import fitted
from fednet_emu.draw.style import SMALL_PT, add_legend, finish_axes, line_style, new_axes, new_figure, round_ticks

HEIGHT_IN, LONE_HEIGHT_IN, FINE = 1.75, 2.2, 200
"""Height of a row of panels and height of a single panel, in inches. `FINE` is the number of steps into which each axis
is divided from zero to its maximum. Points at the same step count as coinciding."""
DOMINATED: dict[str, Any] = {"color": "0.8", "marker": "o", "markersize": 1.5, "linestyle": "", "markeredgewidth": 0.0}


def pareto_figure(view: StudyRecords, names: Names | None = None) -> Figure | None:
    """Plot accuracy against time, bits and energy for all evaluated rounds, and mark the Pareto front of each panel.

    A point is on the Pareto front if no other point has at least the same accuracy at a lower cost. Each data set has
    its own row of panels. Points with little gain over an untrained model, and settings with diverged runs, are on no
    front; see `points_of`.

    Returns:
        The figure, or None if no accuracy was measured.
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
    _add_legend(figure, view, settings, sorted(set(marked["setting"])), names)
    levels = pd.DataFrame([settings[setting].levels for setting in marked["setting"]], index=marked.index)
    kept = [name for name in ("data",) if marked[name].any() and name not in levels]
    figure.numbers = pd.concat([marked[["front", *kept]], levels, marked[["round", *WANTED]]], axis=1)
    return figure


def cost_front_figure(view: StudyRecords, names: Names | None = None) -> Figure | None:
    """Plot the energy against the time to reach the target, one point per setting, and the Pareto front as a line.

    Each point is the mean over the seeds of a setting. Settings with runs that missed the target have no point. If the
    study has no target, energy and time are those of whole runs. Each data set has its own front.

    Returns:
        The figure, or None if fewer than two settings have a point.
    """
    settings, names = settings_of(view), names or Names.of(view.axes)
    points = ends_of(view, settings)
    if len(points) < 2:
        return None
    time, energy = TRADED["time"], TRADED["energy"]
    units = {cost.column: cost.unit(float(points[cost.column].max())) for cost in (time, energy)}
    on = fronts(points, [(time.column, energy.column)])[f"{time.column}:{energy.column}"]
    figure, axes = new_axes(LONE_HEIGHT_IN)
    at = points[list(units)] / [unit.size for unit in units.values()]
    for _, members in points[on].groupby("data_set", sort=False):
        axes.plot(*at.loc[members.index].sort_values(time.column).to_numpy().T, color="0.6", linewidth=0.7, zorder=1)
    axes.plot(*at[~on].to_numpy().T, **DOMINATED | {"markersize": 3.0})
    _mark(axes, at[on].to_numpy(np.float64), points["setting"][on])
    aim = target_text(view.target)
    axes.set_xlabel(time.label(units[time.column], aim))
    axes.set_ylabel(energy.label(units[energy.column], aim))
    finish_axes(axes)
    _add_legend(figure, view, settings, list(points["setting"][on]), names)
    levels = pd.DataFrame([settings[place].levels for place in points["setting"]], index=points.index)
    figure.numbers = pd.concat([levels, points[list(units)].assign(front=on)], axis=1)
    return figure


def _add_legend(
    figure: Figure, view: StudyRecords, settings: Sequence[Setting], shown: Sequence[int], names: Names
) -> None:
    """Add a legend of the settings with the indices `shown`. A setting without levels has the name of the study."""
    heading, labels = names.legend([settings[place].levels for place in shown])
    handles = [
        Line2D([], [], **line_style(place) | {"linestyle": "none"}, label=label or view.name)
        for place, label in zip(shown, labels, strict=True)
    ]
    dominated = Line2D([], [], **DOMINATED, label="not on the front")
    add_legend(figure, [*handles, dominated], handle_em=1.2, heading=heading)


def _mark(axes: Axes, spots: Array, members: pd.Series[int]) -> None:
    """Plot points [points, 2] in the styles of their settings. A point that coincides with others becomes a ring."""
    largest = np.maximum(np.abs(spots).max(axis=0, initial=0.0), 1e-300)
    taken: Counter[tuple[float, ...]] = Counter()
    for spot, setting in zip(spots, members, strict=True):
        place = tuple(np.rint(FINE * spot / largest).tolist())
        ring, style = taken[place], {**line_style(int(setting)), "linestyle": "none"}
        around = {"fillstyle": "none", "markeredgewidth": 0.7, "markersize": 3.2 + 2.4 * ring} if ring else {}
        axes.plot(*spot, **style | around)
        taken[place] += 1


def _common(view: StudyRecords, settings: Sequence[Levels], names: Names) -> str:
    shared = {
        name: level
        for name, level in settings[0].items()
        if len(view.axes[name]) > 1 and all(other[name] == level for other in settings)
    }
    return names.text(shared)


def _draw(axes: Axes, points: pd.DataFrame, front: pd.DataFrame, cost: Cost, unit: Unit) -> None:
    axes.plot(points[cost.column] / unit.size, points["accuracy"], **DOMINATED)
    spots = np.stack([front[cost.column] / unit.size, front["accuracy"]], axis=1)
    _mark(axes, spots, front["setting"])
    round_ticks(axes.xaxis, 3)
    finish_axes(axes)
