"""Bar charts of a study, which show the cost to reach the target for each setting, with 95 % intervals over seeds."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fednet_emu.analysis.quantities import Unit
from fednet_emu.analysis.scales import Cost
from fednet_emu.analysis.statistics import cost_interval
from fednet_emu.analysis.study import Levels, StudyRecords, rows_of, target_text
from fednet_emu.arrays import Array
from fednet_emu.draw.figures.study_curves import Layout
from fednet_emu.draw.figures.study_rows import (
    CROSS,
    draw_interval,
    entry,
    finish_rows,
    interval_entry,
    write_beside,
)
from fednet_emu.draw.palette import BLUE, LINE_COLOURS, VERMILLION
from fednet_emu.draw.style import SMALL_PT, add_legend, line_style, new_figure

BAR_IN, PANEL_IN, FRAME_IN = 0.16, 0.28, 0.45
ROOM, FAILED_ROOM = 1.1, 1.5
"""Length of the cost axis relative to the longest bar, if all runs reached the target, and if some runs missed it."""
MOST_CROSSES, CROSS_SHARE = 5, 0.028
"""Maximum number of a setting's missed targets that are plotted as individual crosses, and spacing between crosses
relative to the width of the axes."""


def bar_figure(view: StudyRecords, cost: Cost, layout: Layout) -> Figure | None:
    """Plot the mean cost to reach the target, one bar per setting.

    The mean is over the runs that reached the target. Each run that missed the target is a cross at the right, and text
    beside the bar states the number of successful runs. Bars have the colours of the curves if there are enough
    colours.

    Args:
        view: the study.
        cost: the cost.
        layout: the settings that bars and panels represent.

    Returns:
        The figure, or None if the study has no target, or no run reached the target.
    """
    known = view.cells[cost.to_target].dropna()
    if not len(known):
        return None
    unit = cost.unit(float(known.max()))
    panels: list[Levels] = [panel for row in layout.panels for panel in row]
    figure = new_figure(len(panels) * (PANEL_IN + BAR_IN * len(layout.lines)) + FRAME_IN)
    grid = figure.subplots(len(panels), 1, squeeze=False, sharex=True)[:, 0]
    needed = [
        [
            rows_of(view.cells, {**panel, **line})[cost.to_target].to_numpy(np.float64) / unit.size
            for line in layout.lines
        ]
        for panel in panels
    ]
    cut = [_draw(axes, panel, layout, values) for axes, panel, values in zip(grid, panels, needed, strict=True)]
    failed = any(np.isnan(values).any() for panel in needed for values in panel)
    right = _widest(needed) * (FAILED_ROOM if failed else ROOM)
    grid[0].set_xlim(0.0, right)
    for axes, values in zip(grid, needed, strict=True):
        _cross(axes, values, right)
    grid[-1].set_xlabel(cost.label(unit, target_text(view.target)))
    handles = [interval_entry(cut=any(cut))] if any(len(v) > 1 for values in needed for v in values) else []
    if failed:
        handles.append(entry("run that never got there", CROSS))
    add_legend(figure, handles, handle_em=1.6)
    figure.numbers = pd.DataFrame(
        [
            {**panel, **line, **_numbers(values[place], unit)}
            for panel, values in zip(panels, needed, strict=True)
            for place, line in enumerate(layout.lines)
        ]
    )
    return figure


def _numbers(needed: Array, unit: Unit) -> dict[str, Any]:
    reached = needed[np.isfinite(needed)]
    interval = cost_interval(reached)
    named = {f"{name} ({unit.symbol})": value for name, value in interval._asdict().items()}
    return {"runs": len(needed), "reached": len(reached), **named}


def _widest(needed: list[list[Array]]) -> float:
    intervals = [cost_interval(values[np.isfinite(values)]) for panel in needed for values in panel]
    return float(np.nanmax([[interval.mean, interval.high] for interval in intervals]))


def _draw(axes: Axes, panel: Levels, layout: Layout, needed: list[Array]) -> bool:
    """Plot the bars of a panel. Return True if an interval was clipped at zero."""
    cut = False
    several = len(layout.lines) > len(LINE_COLOURS)
    for index, values in enumerate(needed):
        reached = values[np.isfinite(values)]
        interval = cost_interval(reached)
        end = 0.0
        if len(reached):
            colour = BLUE if several else line_style(index)["color"]
            axes.barh(index, interval.mean, height=0.7, color=colour, alpha=0.75, linewidth=0)
            cut = draw_interval(axes, interval, index, least=0.0) or cut
            end = np.nanmax([interval.mean, interval.high])
        if len(reached) < len(values) or not len(values) or interval.mean == 0:
            every = "0" if len(reached) else "no runs"
            text = f"{len(reached)} of {len(values)} runs" if len(reached) < len(values) else every
            write_beside(axes, text, (end, index))
    finish_rows(axes, layout.lines, layout.names, panel, grid=False)
    return cut


def _cross(axes: Axes, needed: list[Array], right: float) -> None:
    """Plot a cross at the right for each run that missed the target."""
    for index, values in enumerate(needed):
        failed = int(np.isnan(values).sum())
        shown = failed if failed <= MOST_CROSSES else 1
        if failed:
            places = right * (1.0 - CROSS_SHARE * (0.5 + np.arange(shown)))
            axes.plot(places, np.full(shown, index), **CROSS, clip_on=False, label=f"{failed} failed")
        if failed > MOST_CROSSES:
            place = (right * (1.0 - 2 * CROSS_SHARE), index)
            axes.annotate(f"{failed}", place, va="center", ha="right", fontsize=SMALL_PT - 1, color=VERMILLION)
