"""Curves of a study: a metric against a cost, as mean and 95 % band over seeds, in a grid of panels."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fednet_emu.arrays import Array
from fednet_emu.errors import FednetError, did_you_mean
from fednet_emu.report.figures.curves import COSTS, Cost
from fednet_emu.report.quantities import Unit, axis_unit
from fednet_emu.report.style import (
    PAGE_WIDTH_IN,
    WIDTH_IN,
    add_grid,
    add_legend,
    finish_axes,
    line_style,
    new_figure,
    round_ticks,
)
from fednet_emu.report.views.statistics import mean_intervals
from fednet_emu.report.views.study import StudyView, level_text

POINTS, MARKERS, SETTLED = 200, 5, 6
"""Number of points of a line; number of markers on it; and n, where the first 1/n of a line counts as its start."""
COLUMNS, PANEL_IN, LONE_PANEL_IN = 3, 1.45, 2.2
TITLE_LENGTH, NAME_LENGTH = 22, 16
BAND_INK = 0.72
"""Sum of the opacities of all bands of a panel; a single band has at most a quarter of it."""
STUDY_COSTS = {**COSTS, "rounds": Cost("Rounds", (Unit(1.0, ""),), lambda rows: rows["round"])}
METRICS = {
    "accuracy": "Accuracy",
    "loss": "Loss",
    "worst_accuracy": "Accuracy of the worst device",
    "std_accuracy": "Spread of accuracy over devices",
    "worst_train_loss": "Largest training loss",
    "attack_success": "Success of the attack",
}

Levels = Mapping[str, Any]


@dataclass(frozen=True)
class Layout:
    """The arrangement of a study's settings in a figure.

    Attributes:
        lines: the levels of each line (or bar); every panel has all of them.
        panels: the levels of each panel, by row and column.
    """

    lines: Sequence[Levels]
    panels: Sequence[Sequence[Levels]]

    @staticmethod
    def of(view: StudyView, panel_axes: Sequence[str] | None) -> Layout:
        """Arrange a study: one panel for each level of the panel axes, and one line for each level of the others.

        Args:
            view: the study.
            panel_axes: at most two axes; None takes the second and third axis of the study.

        Raises:
            FednetError: there is no such axis, or more than two are given.
        """
        names = list(view.axes)
        chosen = names[1:3] if panel_axes is None else list(dict.fromkeys(panel_axes))
        if len(chosen) > 2:
            raise FednetError(f"--panels: at most two axes can be panels, got {', '.join(chosen)}; leave some to lines")
        for name in chosen:
            if name not in names:
                close = did_you_mean(name, names) or f"; its axes: {', '.join(names) or 'none'}"
                raise FednetError(f"--panels: no such axis, got '{name}'{close}")
        lines = combinations(view, [name for name in names if name not in chosen])
        if len(chosen) == 2:
            rows, columns = (combinations(view, [name]) for name in chosen)
            return Layout(lines, [[{**row, **column} for column in columns] for row in rows])
        panels = combinations(view, chosen)
        width = math.ceil(len(panels) / math.ceil(len(panels) / COLUMNS))
        return Layout(lines, [panels[start : start + width] for start in range(0, len(panels), width)])


def combinations(view: StudyView, names: Sequence[str]) -> list[Levels]:
    """Return all combinations of the levels of some axes; a single empty combination if there are no axes."""
    return [dict(zip(names, levels, strict=True)) for levels in itertools.product(*(view.axes[name] for name in names))]


def rows_of(table: pd.DataFrame, levels: Levels) -> pd.DataFrame:
    """Return the rows of a table that have these levels."""
    chosen = np.ones(len(table), bool)
    for name, level in levels.items():
        chosen &= (table[name] == level).to_numpy()
    return table[chosen]


def levels_text(levels: Levels, *, names: bool) -> str:
    """Return levels as text, with or without the names of their axes; long names are shortened to their last part."""
    return ", ".join(_level_text(name, level) if names else level_text(level) for name, level in levels.items())


def _level_text(name: str, level: Any) -> str:
    whole = f"{name} = {level_text(level)}"
    return whole if len(whole) <= NAME_LENGTH else f"{name.rsplit('.', maxsplit=1)[-1]} = {level_text(level)}"


def curve_figure(view: StudyView, metric: str, against: str, layout: Layout) -> Figure | None:
    """Draw a metric against a cost, with a line and its 95 % band for each setting in the panels of the layout.

    Runs with different seeds are evaluated at different costs, so each run is a step function that keeps its last
    value until the next evaluation. A line ends where the first of its seeds ends. Bands are clipped to the possible
    values of the metric, which intervals of few seeds may exceed. The range of the vertical axis ignores the first part
    of each line, where all settings look alike.

    Args:
        view: the study.
        metric: a key of `METRICS`.
        against: a key of `STUDY_COSTS`.
        layout: the settings of lines and panels.

    Returns:
        None if no run has this metric, or nothing was spent.
    """
    cost, known = STUDY_COSTS[against], view.evaluations[np.isfinite(view.evaluations[metric])]
    spent = cost.of(known)
    if not (spent > 0).any():
        return None
    unit = axis_unit(float(spent.max()), cost.units) if against != "rounds" else cost.units[0]
    rows, columns = len(layout.panels), max(map(len, layout.panels))
    alone = rows == columns == 1
    width_in = WIDTH_IN if columns <= COLUMNS else PAGE_WIDTH_IN
    figure = new_figure(LONE_PANEL_IN if alone else PANEL_IN * rows + 0.2, width_in)
    grid = figure.subplots(rows, columns, squeeze=False, sharex=True, sharey=True)
    settled: list[Array] = []
    for row, (panels, places) in enumerate(zip(layout.panels, grid, strict=True)):
        for place, axes in enumerate(places):
            if place < len(panels):
                settled += _draw(axes, known, metric, cost, unit, panels[place], layout.lines)
            else:
                axes.set_axis_off()
                grid[row - 1, place].tick_params(labelbottom=True)
    _fit_scores(grid[0, 0], settled)
    figure.supxlabel(f"{cost.title} ({unit.symbol})" if unit.symbol else cost.title, fontsize=8)
    figure.supylabel(METRICS[metric], fontsize=8)
    if len(layout.lines) > 1:
        label_lines(figure, grid[0, 0], layout.lines)
    return figure


def label_lines(figure: Figure, axes: Axes, lines: Sequence[Levels]) -> None:
    """Add a legend of the settings; numeric levels are shown with the names of their axes."""
    handles = [axes.plot([], [], **line_style(index))[0] for index in range(len(lines))]
    numeric = any(isinstance(level, int | float) for line in lines for level in line.values())
    add_legend(figure, handles, [levels_text(line, names=numeric) for line in lines])


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


def band(runs: Sequence[tuple[Array, Array]]) -> tuple[Array, Array, Array, Array]:
    """Return the mean and the 95 % band of several runs, each given by its costs [n] and scores [n].

    Returns:
        Grid, mean, lower and upper limit, each [POINTS]; the grid goes from the last start to the first end of a run.
    """
    start, end = max(float(cost[0]) for cost, _ in runs), min(float(cost[-1]) for cost, _ in runs)
    grid = np.linspace(start, max(start, end), POINTS)
    return grid, *mean_intervals(np.stack([step_values(cost, score, grid) for cost, score in runs]))


def _draw(
    axes: Axes, table: pd.DataFrame, metric: str, cost: Cost, unit: Unit, panel: Levels, lines: Sequence[Levels]
) -> list[Array]:
    """Draw a panel, and return the values of its means and bands without the start of each line."""
    settled: list[Array] = []
    for index, line in enumerate(lines):
        rows = rows_of(table, {**panel, **line})
        if not len(rows):
            continue
        runs = [
            (cost.of(run).to_numpy(np.float64) / unit.size, run[metric].to_numpy(np.float64))
            for _, run in rows.groupby("seed")
        ]
        grid, mean, low, high = band(runs)
        low, high = (np.clip(limit, 0.0, None if metric.endswith("loss") else 1.0) for limit in (low, high))
        style = line_style(index)
        axes.plot(grid, mean, markevery=(index * 4, POINTS // MARKERS), **style)
        ink = BAND_INK / max(4, len(lines))
        axes.fill_between(grid, low, high, color=style["color"], alpha=ink, linewidth=0)
        settled += [values[POINTS // SETTLED :] for values in (mean, low, high)]
    if panel:
        axes.set_title(fitted(levels_text(panel, names=True)), pad=3.0)
    round_ticks(axes.xaxis, 4 if panel else 6)
    add_grid(axes)
    finish_axes(axes)
    return settled


def _fit_scores(axes: Axes, settled: Sequence[Array]) -> None:
    values = np.concatenate([*settled, np.empty(0)])
    values = values[np.isfinite(values)]
    if len(values) and np.ptp(values) > 0:
        margin = 0.05 * float(np.ptp(values))
        axes.set_ylim(float(values.min()) - margin, float(values.max()) + margin)


def fitted(text: str) -> str:
    """Return a title, broken into lines after commas if it is too long for a panel."""
    return text if len(text) <= TITLE_LENGTH else text.replace(", ", "\n")
