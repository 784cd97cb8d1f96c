"""The Pareto fronts of a study: which settings give the most accuracy for their time, their bits, or their energy."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from fednet_emu.arrays import Mask
from fednet_emu.report.figures.study_curves import fitted
from fednet_emu.report.quantities import BITS, ENERGIES, LONG_TIMES, Unit, axis_unit
from fednet_emu.report.style import SMALL_PT, add_grid, add_legend, finish_axes, line_style, new_figure, round_ticks
from fednet_emu.report.views.bands import on_front
from fednet_emu.report.views.settings import Names
from fednet_emu.report.views.study import Levels, StudyView, combinations, rows_of

HEIGHT_IN = 1.75
LEARNT = 0.1
"""Part of the way from an untrained model to the best one after which something has been learnt."""
DOMINATED: dict[str, Any] = {
    "color": "0.8",
    "marker": "o",
    "markersize": 1.5,
    "linestyle": "none",
    "markeredgewidth": 0.0,
}


class Spent(NamedTuple):
    """A cost of learning: its column, its title, and the units of its axis."""

    column: str
    title: str
    units: tuple[Unit, ...]


COSTS = (
    Spent("simulated_s", "Time", LONG_TIMES),
    Spent("total_bit", "Data", BITS),
    Spent("energy_j", "Energy", ENERGIES),
)


class Group(NamedTuple):
    """Settings with equal data, which alone can be compared: their name, and the mean progress of each.

    The points have the columns `setting` (its place among all), `round`, the costs, `accuracy`, and `untrained`, the
    highest accuracy of a model that has not been trained, or, where none was evaluated, the lowest first one.
    """

    name: str
    points: pd.DataFrame


def mean_progress(evaluations: pd.DataFrame) -> pd.DataFrame:
    """Return the means over seeds of the costs and of accuracy, for each round that was evaluated with every seed."""
    rounds = evaluations.groupby("round")
    means = rounds[[*(cost.column for cost in COSTS), "accuracy"]].mean()
    return means[rounds["seed"].nunique() == evaluations["seed"].nunique()]


def pareto_figure(view: StudyView, names: Names | None = None) -> Figure | None:
    """Draw accuracy against time, bits and energy for all evaluated rounds, and mark the Pareto front of each panel.

    A point is on the front of its panel if no other is as accurate for less. Settings with different data have rows of
    their own. Models that have not come a tenth of the way from an untrained one to the best have learnt nothing: they
    cost little, and are not on a front.

    Returns:
        None if no accuracy was measured.
    """
    settings, names = combinations(view, list(view.axes)), names or Names.of(view.axes)
    groups = list(_groups(view, settings, names))
    together = pd.concat([group.points for group in groups]) if groups else pd.DataFrame()
    if not len(together):
        return None
    costs = [cost for cost in COSTS if (together[cost.column] > 0).any()]
    figure = new_figure(HEIGHT_IN * len(groups) + 0.1)
    grid = figure.subplots(len(groups), len(costs), squeeze=False, sharey="row", sharex="col")
    parts = []
    for group, row in zip(groups, grid, strict=True):
        for cost, axes in zip(costs, row, strict=True):
            unit = axis_unit(float(together[cost.column].max()), cost.units)
            front = group.points[_front(group.points, cost.column)]
            _draw(axes, group.points, front, cost, unit)
            parts.append(front.assign(front=cost.title.lower(), data=group.name))
            if axes in grid[-1]:
                axes.set_xlabel(f"{cost.title} ({unit.symbol})")
        if group.name:
            row[0].set_title(fitted(group.name), fontsize=SMALL_PT, loc="left")
        row[0].set_ylabel(names.metric("accuracy"))
    fronts = pd.concat(parts, ignore_index=True)
    shown = sorted(set(fronts["setting"]))
    handles = [Line2D([], [], **{**line_style(setting), "linestyle": "none"}) for setting in shown]
    labels = [names.text(settings[setting]) or view.name for setting in shown]
    add_legend(figure, [*handles, Line2D([], [], **DOMINATED)], [*labels, "not on the front"], handle_em=1.2)
    levels = pd.DataFrame([settings[setting] for setting in fronts["setting"]], index=fronts.index)
    kept = [name for name in ("data",) if fronts[name].any() and name not in levels]
    figure.numbers = pd.concat(
        [fronts[["front", *kept]], levels, fronts[["round", *(cost.column for cost in COSTS), "accuracy"]]], axis=1
    )
    return figure


def _groups(view: StudyView, settings: Sequence[Levels], names: Names) -> Iterator[Group]:
    """The settings of a study with something learnt, those with equal data together."""
    known = view.evaluations[np.isfinite(view.evaluations["accuracy"])]
    members: dict[str, list[int]] = {}
    for place, levels in enumerate(settings):
        cells = rows_of(view.cells, levels)["cell"]
        members.setdefault(view.data_sets.get(str(cells.iloc[0]), "") if len(cells) else "", []).append(place)
    for places in members.values():
        tables = {place: rows_of(known, settings[place]) for place in places}
        parts = {place: mean_progress(rows[rows["simulated_s"] > 0]) for place, rows in tables.items() if len(rows)}
        if not any(len(part) for part in parts.values()):
            continue
        points = pd.concat(parts, names=["setting"]).reset_index()
        start = pd.concat(list(tables.values()))
        untrained = start.loc[start["simulated_s"] <= 0, "accuracy"].max()
        if np.isnan(untrained):
            untrained = min(part["accuracy"].iloc[0] for part in parts.values() if len(part))
        name = _common(view, [settings[place] for place in places], names) if len(members) > 1 else ""
        yield Group(name, points.assign(untrained=untrained))


def _common(view: StudyView, settings: Sequence[Levels], names: Names) -> str:
    """The levels that all these settings share, of axes that have several."""
    shared = {
        name: level
        for name, level in settings[0].items()
        if len(view.axes[name]) > 1 and all(other[name] == level for other in settings)
    }
    return names.text(shared)


def _front(points: pd.DataFrame, column: str) -> Mask:
    """Mask of the points on the front of accuracy against a cost, among those that have learnt something."""
    gained = points["accuracy"] - points["untrained"]
    learnt = (gained > LEARNT * gained.max()).to_numpy()
    mask = np.zeros(len(points), bool)
    cost, accuracy = points.loc[learnt, [column, "accuracy"]].to_numpy(np.float64).T
    mask[learnt] = on_front(cost, -accuracy)
    return mask


def _draw(axes: Axes, points: pd.DataFrame, front: pd.DataFrame, cost: Spent, unit: Unit) -> None:
    axes.plot(points[cost.column] / unit.size, points["accuracy"], **DOMINATED)
    for setting, part in front.groupby("setting"):
        style = {**line_style(int(str(setting))), "linestyle": "none"}
        axes.plot(part[cost.column] / unit.size, part["accuracy"], **style)
    round_ticks(axes.xaxis, 3)
    add_grid(axes)
    finish_axes(axes)
