"""Figures of a study with one row per setting: final scores, differences, the ranking, and costs to reach the target.

Each point is a run. Larger markers are means, with 95 % intervals. An interval that exceeds the range of possible
values ends in an arrow. Costs to reach the target are bars.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from fednet_emu.analysis.quantities import Unit
from fednet_emu.analysis.ranked import Ranked, RankedSettings
from fednet_emu.analysis.scales import Cost, limits_text
from fednet_emu.analysis.settings import Names, is_bare_number
from fednet_emu.analysis.statistics import Interval, cost_interval, mean_interval, sign_test
from fednet_emu.analysis.study import Levels, StudyRecords, combinations, rows_of, target_text
from fednet_emu.arrays import Array
from fednet_emu.draw.figures.study_curves import Layout
from fednet_emu.draw.palette import BLUE, GREY, LINE_COLOURS, VERMILLION
from fednet_emu.draw.style import (
    SMALL_PT,
    PaperFigure,
    add_legend,
    finish_axes,
    line_style,
    new_axes,
    new_figure,
    round_ticks,
    wrapped,
)

LINE: dict[str, Any] = {"color": "0.25", "linewidth": 0.8}
DOT: dict[str, Any] = {"marker": ".", "markersize": 3.5, "alpha": 0.5, "linestyle": "", "markeredgewidth": 0.0}
MEAN: dict[str, Any] = {"marker": "D", "markersize": 3.2, "linestyle": "", "markeredgewidth": 0.0}
CROSS: dict[str, Any] = {"marker": "x", "markersize": 3.2, "markeredgewidth": 0.9, "color": VERMILLION, "linestyle": ""}
"""Styles of intervals, runs, means, and runs that missed the target."""
FAN, FINE, MOST_FAN = 0.14, 200, 0.3
"""`FAN` and `MOST_FAN` are the vertical distance between the points of runs with nearly equal values, and the maximum
offset from the middle of the row, both relative to the row height. `FINE` is the number of steps into which the range
from zero to the largest value is divided. Values at the same step count as nearly equal."""
ARROW = 3.5
"""Size in points of the arrow head at a clipped end of an interval."""
ROW_IN, LOW_ROW_IN, TITLE_IN = 0.2, 0.17, 0.28
"""Heights of a row, of a row in a figure with several panels, and of a panel's title, in inches."""
LABEL_IN = 2.2
"""Width in inches of an axis label below rows, next to the names of the settings."""
OF_DEVICES = {
    "worst_accuracy": "Accuracy of the\nworst device",
    "std_accuracy": "Spread over\ndevices",
    "attack_success": "Success of the\nattack",
}
"""Axis labels of the columns of the table of runs that summarise the scores of individual devices."""


def final_figure(view: StudyRecords, names: Names) -> Figure | None:
    """Plot the accuracy of the worst device, the spread of the accuracy over devices, and an attack's success rate.

    Each point is the final score of a run. Intervals are clipped to the possible values, 0 to 1. A clipped end is
    marked by an arrow head.

    Returns:
        The figure, or None if devices were not evaluated individually.
    """
    measured = [name for name in OF_DEVICES if np.isfinite(view.runs.get(name, np.nan)).any()]
    if not measured:
        return None
    lines = combinations(view, list(view.axes))
    figure = new_figure(0.65 + ROW_IN * len(lines))
    panels = figure.subplots(1, len(measured), squeeze=False, sharey=True)[0]
    cut, numbers = False, []
    for name, axes in zip(measured, panels, strict=True):
        for row, line in enumerate(lines):
            values = rows_of(view.runs, line)[name].dropna().to_numpy(np.float64)
            interval = mean_interval(values)
            colour = line_style(row)["color"] if len(lines) <= len(LINE_COLOURS) else BLUE
            cut |= draw_runs(axes, values, row, colour, interval, least=0.0, most=1.0)
            numbers.append({**line, "score": name, "runs": len(values), **interval._asdict()})
        axes.set_xlabel(OF_DEVICES[name])
        round_ticks(axes.xaxis, 3)
        finish_axes(axes)
    name_rows(panels[0], lines, names)
    add_legend(figure, _runs_entries("run", numbers, cut=cut), handle_em=1.6)
    figure.numbers = pd.DataFrame(numbers)
    return figure


def difference_figure(view: StudyRecords, metric: str, layout: Layout) -> Figure | None:
    """Plot how much the final score of each setting differs from that of the first setting, paired by seed.

    Each point is the difference for one seed. Effects that a seed has on both settings, such as its channels and data,
    cancel in the difference. The 95 % intervals are those of a sign-change test; fewer than six seeds have no interval.

    Args:
        metric: a key of `METRICS`.
        layout: the settings of rows and panels. The first row is the reference.

    Returns:
        The figure, or None if there is only one setting, no pair of runs with the same seed, or no difference.
    """
    panels, (base, *lines) = [panel for row in layout.panels for panel in row], layout.lines
    found = [[_differences(view.runs, metric, panel, base, line) for line in lines] for panel in panels]
    every = [values for panel in found for values in panel]
    if not any(len(values) > 1 for values in every) or not any(values.any() for values in every):
        return None
    figure = new_figure(len(panels) * (TITLE_IN + LOW_ROW_IN * len(lines)) + 0.45)
    grid = figure.subplots(len(panels), 1, squeeze=False, sharex=True)[:, 0]
    numbers = []
    for axes, panel, differences in zip(grid, panels, found, strict=True):
        axes.axvline(0.0, color="0.35", linewidth=0.7, label="no difference")
        for row, (line, values) in enumerate(zip(lines, differences, strict=True)):
            colour = line_style(row + 1)["color"] if len(layout.lines) <= len(LINE_COLOURS) else "0.3"
            paired = sign_test(values)
            draw_runs(axes, values, row, colour, Interval(*paired[:3]))
            numbers.append({**panel, **line, "pairs": len(values), **paired._asdict()})
        finish_rows(axes, lines, layout.names, panel)
    label = f"{layout.names.metric(metric)} at the end, minus that of {layout.names.text(base)}"
    grid[-1].set_xlabel(wrapped(label, LABEL_IN))
    add_legend(figure, _runs_entries("seed", numbers, cut=False), handle_em=1.6)
    figure.numbers = pd.DataFrame(numbers)
    return figure


def best_figure(ranking: RankedSettings, rename: Mapping[str, str] | None = None) -> PaperFigure:
    """Plot the cost to reach the target of each run, one row per setting, in ascending order of mean cost.

    Settings that may be the best are blue. Settings that are not the best, or that are not ranked, are grey. A run that
    missed the target is a cross at its final cost. The row of a setting with such runs shows the number of successful
    runs instead of a mean. The row of a setting whose costs are lower bounds has the note "at least".

    Raises:
        FednetError: `rename` contains an unknown axis or level.
    """
    settings = ranking.settings
    unit = ranking.cost.unit(max(float(its.costs.max()) for its in settings))
    figure, axes = new_axes(0.55 + ROW_IN * len(settings))
    cut = [_draw_ranked(axes, its, row, unit) for row, its in enumerate(settings)]
    levels = [its.setting.levels for its in settings]
    known = {axis: list(dict.fromkeys(each[axis] for each in levels)) for axis in levels[0]}
    axes.set_xlim(left=0.0)
    label = ranking.cost.label(unit, target_text(ranking.target)), limits_text(ranking.limits).strip()
    axes.set_xlabel("\n".join(wrapped(text, LABEL_IN) for text in label if text))
    finish_rows(axes, levels, Names.of(known, rename))
    handles = [entry("run", DOT), entry("mean, may be the best", MEAN, BLUE)]
    if not all(its.may_be_best for its in settings):
        handles.append(entry("mean, not the best or not ranked", MEAN, GREY))
    if not all(its.got_there.all() for its in settings):
        handles.append(entry("run that never got there", CROSS))
    if any(np.isfinite(its.cost.low) for its in settings):
        handles.append(interval_entry(cut=any(cut)))
    add_legend(figure, handles, handle_em=1.6)
    figure.numbers = ranking.frame
    return figure


def _differences(runs: pd.DataFrame, metric: str, panel: Levels, base: Levels, line: Levels) -> Array:
    if metric not in runs:
        return np.empty(0)
    first, second = (rows_of(runs, {**panel, **its}).set_index("seed")[metric] for its in (base, line))
    return (second - first).dropna().to_numpy(np.float64)


def _draw_ranked(axes: Axes, its: Ranked, row: int, unit: Unit) -> bool:
    costs, colour = its.costs / unit.size, BLUE if its.may_be_best else GREY
    reached, failed = costs[its.got_there], costs[~its.got_there]
    interval = mean_interval(reached) if math.isfinite(its.cost.low) else Interval(its.cost.mean / unit.size)
    if interval.high == interval.low:
        interval = interval._replace(low=math.nan)
    axes.plot(failed, row + fanned(failed), **CROSS, zorder=3, label="failed")
    notes = [f"{len(reached)} of {len(costs)}"] if len(failed) else []
    notes += ["at least"] if its.lower_bounds else []
    if notes:
        write_beside(axes, ", ".join(notes), (1.0, row), xycoords=axes.get_yaxis_transform())
    return draw_runs(axes, reached, row, colour, interval, least=0.0)


def draw_runs(
    axes: Axes,
    values: Array,
    row: float,
    colour: str,
    interval: Interval,
    least: float = -math.inf,
    most: float = math.inf,
) -> bool:
    """Plot the values [runs] as points in a row, with their mean and its interval; return True if it was clipped.

    The interval is clipped at the possible values `least` and `most`.
    """
    axes.plot(values, row + fanned(values), **DOT, color=colour, label="runs")
    cut = draw_interval(axes, interval, row, least, most)
    if len(values):
        axes.plot(interval.mean, row, **MEAN, color=colour, zorder=4, label="mean")
    return cut


def fanned(values: Array) -> Array:
    """Return vertical offsets [runs] that separate the points of runs with nearly equal `values`."""
    groups = pd.Series(np.rint(FINE * values / max(float(np.abs(values).max(initial=0.0)), 1e-300)))
    by_group = groups.groupby(groups)
    middle = (by_group.transform("size") - 1) / 2
    offsets = (by_group.cumcount() - middle) * np.minimum(FAN, MOST_FAN / np.maximum(middle, 1))
    return offsets.to_numpy(np.float64)


def draw_interval(axes: Axes, interval: Interval, row: float, least: float = -math.inf, most: float = math.inf) -> bool:
    """Plot an interval as a horizontal line with caps, and return True if one of its ends was clipped.

    An end below `least` or above `most` is clipped and becomes an arrow head. If the limits of the interval are NaN, it
    is not plotted.
    """
    if not math.isfinite(interval.low):
        return False
    low, high = max(interval.low, least), min(interval.high, most)
    axes.plot([low, high], [row, row], **LINE, zorder=3, label="95 % interval")
    for end, cut, arrow in ((low, low > interval.low, "<"), (high, high < interval.high, ">")):
        head = {"marker": arrow if cut else "|", "markersize": ARROW, "markeredgewidth": 0.0 if cut else 0.8}
        axes.plot(end, row, **LINE | head, zorder=3, clip_on=False, label="cut" if cut else "end")
    return low > interval.low or high < interval.high


def entry(label: str, look: Mapping[str, Any], colour: str = "0.4") -> Line2D:
    """Return the legend entry for the style `look`; `colour` is used if the style has no colour."""
    return Line2D([], [], **{"color": colour, **look}, label=label)


def interval_entry(*, cut: bool) -> Line2D:
    """Return the legend entry of intervals; `cut` is True if some intervals were clipped."""
    label = "95 % interval over seeds" + (" (arrow: clipped)" if cut else "")
    return entry(label, {**LINE, "marker": "|", "markersize": ARROW, "markeredgewidth": 0.8})


def _runs_entries(label: str, numbers: Sequence[Mapping[str, Any]], *, cut: bool) -> list[Line2D]:
    known = any(math.isfinite(row["low"]) for row in numbers)
    return [entry(label, DOT), entry("mean", MEAN), *([interval_entry(cut=cut)] if known else [])]


def write_beside(axes: Axes, text: str, place: tuple[float, float], **options: Any) -> None:
    """Write small text to the right of a position."""
    look: dict[str, Any] = {"textcoords": "offset points", "va": "center", "fontsize": SMALL_PT - 1, **options}
    axes.annotate(text, place, (3, 0), **look)


def finish_rows(
    axes: Axes, lines: Sequence[Levels], names: Names, panel: Levels | None = None, *, grid: bool = True
) -> None:
    """Label the rows of a chart with the names of settings, and add the title of the panel if `panel` is not empty."""
    name_rows(axes, lines, names)
    if panel:
        axes.set_title(names.text(panel), loc="left", pad=2.0)
    round_ticks(axes.xaxis)
    finish_axes(axes, grid=grid)
    axes.tick_params(axis="y", length=0.0)


def name_rows(axes: Axes, lines: Sequence[Levels], names: Names) -> None:
    """Label the rows of a chart with the names of the settings `lines`.

    If the study has a single axis with numeric levels, the name of the axis is written once, next to all rows.
    """
    alone = {name for levels in lines for name in levels}
    numbers = all(is_bare_number(level) for levels in lines for level in levels.values())
    if len(alone) == 1 and numbers and len(lines) > 1:
        (axis,) = alone
        axes.set_ylabel(names.axis(axis))
        rows = [names.level(axis, levels[axis]) for levels in lines]
    else:
        rows = [wrapped(names.text(levels)) or "all" for levels in lines]
    axes.set_yticks(range(len(rows)), rows)
    axes.set_ylim(len(rows) - 0.4, -0.6)


BAR_IN, PANEL_IN, FRAME_IN = 0.16, 0.28, 0.45
ROOM, FAILED_ROOM = 1.1, 1.5
"""Length of the cost axis relative to the longest bar, if all runs reached the target, and if some runs missed it."""
MOST_CROSSES, CROSS_SHARE = 5, 0.028
"""Maximum number of runs of a setting that missed the target and are plotted as individual crosses, and spacing between
crosses relative to the width of the axes."""


def bar_figure(view: StudyRecords, cost: Cost, layout: Layout) -> Figure | None:
    """Plot the mean cost to reach the target, one bar per setting.

    The mean is over the runs that reached the target. Each run that missed the target is a cross at the right of the
    axis. A text beside the bar gives the number of successful runs. If there are enough colours, a setting has the
    same colour as in the figures of curves.

    Returns:
        The figure, or None if the study has no target, or no run reached the target.
    """
    known = view.runs[cost.to_target].dropna()
    if not len(known):
        return None
    unit = cost.unit(float(known.max()))
    panels: list[Levels] = [panel for row in layout.panels for panel in row]
    figure = new_figure(len(panels) * (PANEL_IN + BAR_IN * len(layout.lines)) + FRAME_IN)
    grid = figure.subplots(len(panels), 1, squeeze=False, sharex=True)[:, 0]
    cut, numbers = False, []
    for axes, panel in zip(grid, panels, strict=True):
        for row, line in enumerate(layout.lines):
            needed = rows_of(view.runs, {**panel, **line})[cost.to_target].to_numpy(np.float64) / unit.size
            reached = needed[np.isfinite(needed)]
            colour = line_style(row)["color"] if len(layout.lines) <= len(LINE_COLOURS) else BLUE
            cut |= _draw_bar(axes, row, colour, mean_interval(reached), len(reached), len(needed))
            named = {f"{name} ({unit.symbol})": value for name, value in cost_interval(reached)._asdict().items()}
            numbers.append({**panel, **line, "runs": len(needed), "reached": len(reached), **named})
        finish_rows(axes, layout.lines, layout.names, panel, grid=False)
    table = figure.numbers = pd.DataFrame(numbers)
    failed = (table["reached"] < table["runs"]).any()
    longest = float(np.nanmax(table[[f"{end} ({unit.symbol})" for end in ("mean", "high")]].to_numpy(np.float64)))
    grid[0].set_xlim(0.0, (longest or 1.0) * (FAILED_ROOM if failed else ROOM))
    grid[-1].set_xlabel(cost.label(unit, target_text(view.target)))
    handles = [interval_entry(cut=cut)] if (table["reached"] > 1).any() else []
    if failed:
        handles.append(entry("run that never got there", CROSS))
    add_legend(figure, handles, handle_em=1.6)
    return figure


def _draw_bar(axes: Axes, row: int, colour: str, interval: Interval, reached: int, runs: int) -> bool:
    """Plot a mean cost as a bar, and the runs that missed the target as crosses; return True if the interval is cut."""
    cut, end, failed = False, 0.0, runs - reached
    if reached:
        axes.barh(row, interval.mean, height=0.7, color=colour, alpha=0.75, linewidth=0)
        cut, end = draw_interval(axes, interval, row, least=0.0), np.nanmax([interval.mean, interval.high])
    if failed:
        write_beside(axes, f"{reached} of {runs} runs", (end, row))
        shown, across = failed if failed <= MOST_CROSSES else 1, axes.get_yaxis_transform()
        places = 1.0 + CROSS_SHARE * (0.5 + np.arange(shown))
        options: dict[str, Any] = {"clip_on": False, "transform": across, "label": f"{failed} failed"}
        axes.plot(places, np.full(shown, row), **CROSS, **options)
        if failed > MOST_CROSSES:
            look: dict[str, Any] = {"va": "center", "fontsize": SMALL_PT - 1, "color": VERMILLION}
            axes.annotate(f"{failed}", (1.0 + 2 * CROSS_SHARE, row), xycoords=across, **look)
    elif not runs or interval.mean == 0:
        write_beside(axes, "0" if runs else "no runs", (end, row))
    return cut
