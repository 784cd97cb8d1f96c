"""Final scores over the devices of a study: accuracy of the worst one, spread, and the success of an attack."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fednet_emu.report.figures.study_curves import Levels, combinations, levels_text, rows_of
from fednet_emu.report.style import add_grid, finish_axes, line_style, new_figure, round_ticks, wrapped
from fednet_emu.report.views.statistics import mean_interval
from fednet_emu.report.views.study import StudyView

ROW_IN, FRAME_IN = 0.2, 0.65
OF_DEVICES = {
    "worst_accuracy": "Accuracy of the\nworst device",
    "std_accuracy": "Spread over\ndevices",
    "attack_success": "Success of the\nattack",
}
"""Columns of the table of cells, and their names in the figure."""


def final_figure(view: StudyView) -> Figure | None:
    """Draw the final scores of every run as points, and their means with 95 % intervals, in a row for each setting.

    Returns:
        None if devices were not evaluated one by one.
    """
    measured = [name for name in OF_DEVICES if np.isfinite(view.cells.get(name, np.nan)).any()]
    if not measured:
        return None
    lines = combinations(view, list(view.axes))
    figure = new_figure(FRAME_IN + ROW_IN * len(lines))
    for name, axes in zip(measured, figure.subplots(1, len(measured), squeeze=False, sharey=True)[0], strict=True):
        _draw(axes, view, name, lines)
    axes = figure.axes[0]
    axes.set_yticks(range(len(lines)), [wrapped(levels_text(line, names=False)) or "all" for line in lines])
    axes.set_ylim(len(lines) - 0.4, -0.6)
    return figure


def _draw(axes: Axes, view: StudyView, column: str, lines: Sequence[Levels]) -> None:
    for index, line in enumerate(lines):
        values = rows_of(view.cells, line)[column].dropna().to_numpy(np.float64)
        style = line_style(index)
        axes.plot(values, np.full(len(values), index), ".", color=style["color"], alpha=0.4, markersize=3)
        interval = mean_interval(values)
        axes.plot(
            np.clip([interval.low, interval.high], 0.0, 1.0), [index, index], color="0.25", linewidth=1.2, zorder=3
        )
        axes.plot(interval.mean, index, marker=style["marker"], color=style["color"], markersize=3)
    axes.set_xlabel(OF_DEVICES[column])
    round_ticks(axes.xaxis, 3)
    add_grid(axes)
    finish_axes(axes)
