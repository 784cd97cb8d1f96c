"""Differences between the settings of a study: final scores against the first setting, paired by seed."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fednet_emu.analysis.statistics import mean_interval
from fednet_emu.analysis.study import Levels, StudyRecords, rows_of
from fednet_emu.arrays import Array
from fednet_emu.draw.figures.intervals import draw_runs, runs_entries
from fednet_emu.draw.figures.study_curves import Layout, name_rows
from fednet_emu.draw.palette import LINE_COLOURS
from fednet_emu.draw.style import add_grid, add_legend, finish_axes, line_style, new_figure, round_ticks, wrapped

ROW_IN, PANEL_IN, FRAME_IN = 0.17, 0.28, 0.45


def difference_figure(view: StudyRecords, metric: str, layout: Layout) -> Figure | None:
    """Draw how much each setting is above or below the first one at the end of the runs, seed by seed.

    Points are seeds, the larger mark is their mean, with its 95 % interval; zero is no difference. What seeds have in
    common, their channels and data, cancels out here, unlike in curves with bands.

    Args:
        view: the study.
        metric: a key of `METRICS`.
        layout: the settings of rows and panels; the first row is what the others are compared with.

    Returns:
        None if there is nothing to compare, too few seeds to pair, or no difference at all.
    """
    panels = [panel for row in layout.panels for panel in row]
    found = [[_differences(view.cells, metric, panel, layout.lines[0], line) for line in layout.lines[1:]]
             for panel in panels]  # fmt: skip
    if not any(len(values) > 1 for panel in found for values in panel) or not any(
        values.any() for panel in found for values in panel
    ):
        return None
    figure = new_figure(len(panels) * (PANEL_IN + ROW_IN * (len(layout.lines) - 1)) + FRAME_IN)
    grid = figure.subplots(len(panels), 1, squeeze=False, sharex=True)[:, 0]
    for axes, panel, differences in zip(grid, panels, found, strict=True):
        _draw(axes, panel, layout, differences)
    base = layout.names.text(layout.lines[0])
    grid[-1].set_xlabel(wrapped(f"{layout.names.metric(metric)} at the end, minus that of {base}"))
    handles = runs_entries("seed", cut=False)
    add_legend(figure, handles, [str(handle.get_label()) for handle in handles], handle_em=1.6)
    figure.numbers = pd.DataFrame(
        [
            {**panel, **line, "pairs": len(values), **mean_interval(values)._asdict()}
            for panel, differences in zip(panels, found, strict=True)
            for line, values in zip(layout.lines[1:], differences, strict=True)
        ]
    )
    return figure


def _differences(cells: pd.DataFrame, metric: str, panel: Levels, base: Levels, line: Levels) -> Array:
    """The differences of seeds that both settings have, [seeds]."""
    if metric not in cells:
        return np.empty(0)
    first, second = (rows_of(cells, {**panel, **its}).set_index("seed")[metric] for its in (base, line))
    return (second - first).dropna().to_numpy(np.float64)


def _draw(axes: Axes, panel: Levels, layout: Layout, differences: list[Array]) -> None:
    axes.axvline(0.0, color="0.35", linewidth=0.7, label="no difference")
    for row, values in enumerate(differences):
        colour = line_style(row + 1)["color"] if len(layout.lines) <= len(LINE_COLOURS) else "0.3"
        draw_runs(axes, values, row, colour, "seeds")
    name_rows(axes, layout.lines[1:], layout.names)
    if panel:
        axes.set_title(layout.names.text(panel), loc="left", pad=2.0)
    round_ticks(axes.xaxis)
    add_grid(axes)
    finish_axes(axes)
    axes.tick_params(axis="y", length=0.0)
