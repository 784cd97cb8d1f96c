"""Final scores over the devices of a study: accuracy of the worst one, spread, and the success of an attack."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fednet_emu.analysis.settings import Names
from fednet_emu.analysis.statistics import mean_interval
from fednet_emu.analysis.study import Levels, StudyRecords, combinations, rows_of
from fednet_emu.draw.figures.intervals import draw_runs, runs_entries
from fednet_emu.draw.figures.study_curves import name_rows
from fednet_emu.draw.palette import BLUE, LINE_COLOURS
from fednet_emu.draw.style import add_grid, add_legend, finish_axes, line_style, new_figure, round_ticks

ROW_IN, FRAME_IN = 0.2, 0.65
OF_DEVICES = {
    "worst_accuracy": "Accuracy of the\nworst device",
    "std_accuracy": "Spread over\ndevices",
    "attack_success": "Success of the\nattack",
}
"""Columns of the table of cells, and their names in the figure."""


def final_figure(view: StudyRecords, names: Names) -> Figure | None:
    """Draw the final scores of every run as points, and their means with 95 % intervals, in a row for each setting.

    An interval that reaches beyond the possible values, 0 to 1, ends there with an arrow head.

    Returns:
        None if devices were not evaluated one by one.
    """
    measured = [name for name in OF_DEVICES if np.isfinite(view.cells.get(name, np.nan)).any()]
    if not measured:
        return None
    lines = combinations(view, list(view.axes))
    figure = new_figure(FRAME_IN + ROW_IN * len(lines))
    panels = figure.subplots(1, len(measured), squeeze=False, sharey=True)[0]
    cut = [_draw(axes, view, name, lines) for name, axes in zip(measured, panels, strict=True)]
    name_rows(panels[0], lines, names)
    handles = runs_entries("run", cut=any(cut))
    add_legend(figure, handles, [str(handle.get_label()) for handle in handles], handle_em=1.6)
    figure.numbers = pd.DataFrame(
        [
            {**line, "score": name, "runs": len(values), **mean_interval(values)._asdict()}
            for name in measured
            for line in lines
            for values in [rows_of(view.cells, line)[name].dropna().to_numpy(np.float64)]
        ]
    )
    return figure


def _draw(axes: Axes, view: StudyRecords, column: str, lines: Sequence[Levels]) -> bool:
    cut = False
    for index, line in enumerate(lines):
        values = rows_of(view.cells, line)[column].dropna().to_numpy(np.float64)
        colour = line_style(index)["color"] if len(lines) <= len(LINE_COLOURS) else BLUE
        cut = draw_runs(axes, values, index, colour, "runs", least=0.0, most=1.0) or cut
    axes.set_xlabel(OF_DEVICES[column])
    round_ticks(axes.xaxis, 3)
    add_grid(axes)
    finish_axes(axes)
    return cut
