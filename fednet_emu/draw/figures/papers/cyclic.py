"""Figures of cyclic participation: cycle times, and the distance from the optimum with its theoretical bound."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter, ScalarFormatter

from fednet_emu.analysis.quantities import LONG_TIMES, Unit, axis_unit
from fednet_emu.analysis.statistics import mean_interval
from fednet_emu.analysis.study import StudyRecords, cycle_times, target_text
from fednet_emu.draw.style import (
    CURVE_HEIGHT_IN,
    add_legend,
    add_line_legend,
    finish_axes,
    fit_scale,
    line_style,
    new_figure,
)

Tables = Sequence[tuple[str, pd.DataFrame]]
PANEL_IN, SPAN = 1.7, 10.0
"""Height of a panel in inches; ratio of maximum to minimum time above which the time axis is logarithmic."""


def cycle_figure(tables: Tables) -> Figure:
    """Plot the mean cycle time against the number of groups, one line per grouping and access scheme.

    Runs with the same grouping, access scheme and number of groups are averaged, such as runs that differ in the seed.
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
    """Plot the excess loss F - F* at the start of each cycle, and its theoretical bound as a dashed line."""
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


def groups_figure(view: StudyRecords) -> Figure | None:
    """Plot the cycle time and the time to the target against the number of groups, one line per kind of grouping.

    Each point is one setting of the study, as the mean over seeds with a 95 % interval. Seeds that missed the target
    are omitted.

    Returns:
        The figure, or None if no run recorded `cyclic_turns`, or if no kind of grouping has runs with different numbers
        of groups.
    """
    if "groups_formed" not in view.cells:
        return None
    ways = {
        str(way): [setting for _, setting in cells.groupby(list(view.axes), sort=False)]
        for way, cells in view.cells.dropna(subset=["groups_formed"]).groupby("grouping", sort=False)
    }
    if max((len({_groups(setting) for setting in settings}) for settings in ways.values()), default=0) < 2:
        return None
    titles = {"cycle_s": "Cycle time"}
    if view.cells["time_to_target_s"].notna().any():
        titles["time_to_target_s"] = f"Time to {target_text(view.target)}"
    figure = new_figure(PANEL_IN * len(titles))
    panels = figure.subplots(len(titles), 1, squeeze=False, sharex=True)[:, 0]
    for axes, (column, title) in zip(panels, titles.items(), strict=True):
        unit = axis_unit(float(view.cells[column].max()), LONG_TIMES)
        for index, settings in enumerate(ways.values()):
            _draw_groups(axes, sorted(settings, key=_groups), column, unit, index)
        axes.set_ylabel(f"{title} ({unit.symbol})")
        if view.cells[column].max() > SPAN * view.cells[column].min():
            axes.set_yscale("log")
            axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
            axes.yaxis.set_major_formatter(ScalarFormatter())
            axes.yaxis.set_minor_formatter(NullFormatter())
        finish_axes(axes)
    fit_scale(panels[-1], "x")
    panels[-1].set_xlabel("Groups")
    add_legend(figure, [panels[0].plot([], [], **line_style(index))[0] for index in range(len(ways))], list(ways))
    return figure


def _draw_groups(axes: Axes, settings: list[pd.DataFrame], column: str, unit: Unit, index: int) -> None:
    means = [mean_interval(setting[column].dropna().to_numpy(np.float64) / unit.size) for setting in settings]
    groups, style = [_groups(setting) for setting in settings], line_style(index)
    axes.plot(groups, [mean.mean for mean in means], **style)
    for place, mean in zip(groups, means, strict=True):
        axes.plot([place, place], [mean.low, mean.high], color=style["color"], linewidth=0.7)


def _groups(setting: pd.DataFrame) -> float:
    return float(setting["groups_formed"].mean())
