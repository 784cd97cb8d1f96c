"""Figures of cyclic participation: cycle times, and the distance from the optimum with its theoretical bound."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from fednet_emu.analysis.quantities import LONG_TIMES, axis_unit
from fednet_emu.analysis.study import cycle_times
from fednet_emu.draw.style import (
    CURVE_HEIGHT_IN,
    add_line_legend,
    finish_axes,
    fit_scale,
    line_style,
    new_figure,
)

Tables = Sequence[tuple[str, pd.DataFrame]]


def cycle_figure(tables: Tables) -> Figure:
    """Draw the mean cycle time against the number of groups, with a line for each grouping and access scheme.

    Runs with equal grouping, access scheme and number of groups, such as those of several seeds, are averaged.
    """
    runs = cycle_times([table for _, table in tables])
    unit = axis_unit(float(runs["cycle_s"].max()), LONG_TIMES)
    figure = new_figure(CURVE_HEIGHT_IN)
    axes = figure.add_subplot()
    for index, (way, rows) in enumerate(runs.groupby("grouping", sort=False)):
        mean = rows.groupby("groups_formed")["cycle_s"].mean() / unit.size
        axes.plot(mean.index, mean, label=str(way), **line_style(index))
    axes.set(xlabel="Groups", ylabel=f"Cycle time ({unit.symbol})", ylim=(0.0, None))
    fit_scale(axes, "x")
    return _finished(figure)


def bound_figure(tables: Tables) -> Figure:
    """Draw the distance from the optimum, F - F*, at the start of each cycle, and its bound in the same colour."""
    figure = new_figure(CURVE_HEIGHT_IN)
    axes = figure.add_subplot()
    for index, (label, rows) in enumerate(tables):
        style = line_style(index) | {"marker": "none"}
        name = f"{label}, " if len(tables) > 1 else ""
        axes.plot(rows["cycle"], rows["gap"], label=f"{name}measured", **style | {"linestyle": "-"})
        bound = rows["bound"].where(np.isfinite(rows["bound"]))
        axes.plot(rows["cycle"], bound, label=f"{name}bound", **style | {"linestyle": (0, (4, 1.5))})
    axes.set(xlabel="Cycle", ylabel="$F - F^*$", yscale="log")
    return _finished(figure)


def _finished(figure: Figure) -> Figure:
    (axes,) = figure.get_axes()
    finish_axes(axes)
    add_line_legend(figure, axes)
    return figure
