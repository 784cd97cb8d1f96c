"""Bar charts of a study: the cost of reaching the target for each setting, with 95 % intervals over seeds."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fednet_emu.report.figures.study_curves import Layout, Levels, levels_text, rows_of
from fednet_emu.report.quantities import BITS, ENERGIES, LONG_TIMES, Unit, axis_unit
from fednet_emu.report.style import SMALL_PT, finish_axes, line_style, new_figure, round_ticks, wrapped
from fednet_emu.report.views.statistics import mean_interval
from fednet_emu.report.views.study import StudyView, target_text

BAR_IN, PANEL_IN, FRAME_IN = 0.16, 0.28, 0.45
NEEDED = {
    "time_to_target_s": ("Time", LONG_TIMES),
    "bits_to_target": ("Data", BITS),
    "energy_to_target_j": ("Energy", ENERGIES),
}


def bar_figure(view: StudyView, column: str, layout: Layout) -> Figure | None:
    """Draw the mean cost of reaching the target, with a bar for each setting in the panels of the layout.

    The mean is taken over the runs that reached the target; if not all of them did, the bar is labelled with how many.

    Args:
        view: the study.
        column: the cost, a key of `NEEDED`.
        layout: the settings of bars and panels.

    Returns:
        None if the study has no target, or no run reached it.
    """
    known = view.cells[column].dropna()
    if not len(known):
        return None
    title, units = NEEDED[column]
    unit = axis_unit(float(known.max()), units)
    panels: list[Levels] = [panel for row in layout.panels for panel in row]
    height_in = len(panels) * (PANEL_IN + BAR_IN * len(layout.lines)) + FRAME_IN
    figure = new_figure(height_in)
    grid = figure.subplots(len(panels), 1, squeeze=False, sharex=True)[:, 0]
    for axes, panel in zip(grid, panels, strict=True):
        _draw(axes, view, column, unit, panel, layout.lines)
    grid[-1].set_xlabel(f"{title} to {target_text(view.target)} ({unit.symbol})")
    grid[0].set_xlim(0.0, grid[0].get_xlim()[1] * 1.12)
    return figure


def _draw(axes: Axes, view: StudyView, column: str, unit: Unit, panel: Levels, lines: Sequence[Levels]) -> None:
    for index, line in enumerate(lines):
        needed = rows_of(view.cells, {**panel, **line})[column].to_numpy(np.float64) / unit.size
        reached = needed[np.isfinite(needed)]
        interval = mean_interval(reached)
        end = 0.0
        if len(reached):
            axes.barh(index, interval.mean, height=0.7, color=line_style(index)["color"], linewidth=0)
            end = interval.mean
        if np.isfinite(interval.low):
            limits = [[interval.mean - max(interval.low, 0.0)], [interval.high - interval.mean]]
            axes.errorbar(interval.mean, index, xerr=limits, color="0.25", linewidth=0.7, capsize=1.5, capthick=0.7)
            end = interval.high
        if len(reached) < len(needed) or not len(needed):
            axes.annotate(
                f"{len(reached)} of {len(needed)} runs" if len(needed) else "no runs",
                (end, index),
                (3, 0),
                textcoords="offset points",
                va="center",
                fontsize=SMALL_PT - 1,
            )
    names = [wrapped(levels_text(line, names=False)) or "all" for line in lines]
    axes.set_yticks(range(len(lines)), names)
    axes.set_ylim(len(lines) - 0.4, -0.6)
    if panel:
        axes.set_title(levels_text(panel, names=True), loc="left", pad=2.0)
    round_ticks(axes.xaxis)
    finish_axes(axes)
    axes.tick_params(axis="y", length=0.0)
