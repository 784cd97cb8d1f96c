"""Curves of a study: a metric against a cost, as the mean over seeds with a 95 % band, in a grid of panels."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from fednet_emu.analysis.scales import RANGES, RECORDED
from fednet_emu.analysis.settings import Names
from fednet_emu.analysis.statistics import Band, band_of, marks
from fednet_emu.analysis.study import Levels, StudyRecords, combinations, rows_of
from fednet_emu.arrays import Array
from fednet_emu.draw.style import (
    PAGE_WIDTH_IN,
    SMALL_PT,
    TARGET_LINE,
    WIDTH_IN,
    add_legend,
    finish_axes,
    line_style,
    new_figure,
    round_ticks,
)
from fednet_emu.errors import FednetError, require_known

POINTS, MARKERS, SETTLED = 200, 5, 6
"""`POINTS` and `MARKERS` are the numbers of points and markers of a line. The first 1 / `SETTLED` of the points of a
line are ignored when the range of the vertical axis is chosen."""
COINCIDE, APART = 0.01, (0.09, 0.13)
"""`COINCIDE`: maximum distance between lines that count as coinciding, relative to the range of all lines of the panel.
`APART`: minimum horizontal and vertical distance between labels on lines, relative to the lengths of the axes."""
CARRIED: dict[str, Any] = {"linewidth": 0.6, "alpha": 0.8, "marker": "none"}
"""Style of a setting's line beyond the cost at which the first of its runs has ended."""
FALL: dict[str, Any] = {"linestyle": "", "marker": "|", "markersize": 3.5, "markeredgewidth": 0.7}
"""Style of the tick that marks the end of a run on the line of its setting."""
DIVERGED: dict[str, Any] = {"linestyle": "", "marker": "x", "markersize": 4, "markeredgewidth": 0.9}
"""Style of the cross that marks the divergence of a run on the line of its setting."""
COLUMNS, PANEL_IN, LONE_PANEL_IN = 3, 1.45, 2.2
TITLE_LENGTH = 22
BAND_INK = 0.72
"""Sum of the opacities of all bands of a panel. A single band has at most a quarter of this sum."""


@dataclass(frozen=True)
class Layout:
    """The arrangement of the settings of a study in a figure, as panels and as lines within each panel.

    Attributes:
        lines: the levels of each line (or bar), as a mapping from axes of the study to levels. Every panel has all
            lines.
        panels: the levels of each panel, by row and column of the grid of panels.
        names: display names of axes and levels.
    """

    lines: Sequence[Levels]
    panels: Sequence[Sequence[Levels]]
    names: Names

    @staticmethod
    def of(view: StudyRecords, panel_axes: Sequence[str] | None, rename: Mapping[str, str] | None = None) -> Layout:
        """Arrange the settings of a study in panels and lines.

        There is one panel for each combination of levels of the panel axes. Each panel has one line for each
        combination of levels of the other axes.

        Args:
            panel_axes: at most two axes, whose levels have a panel each; None for the second and third axis.
            rename: display names of axes, levels and metrics; see `Names`.

        Raises:
            FednetError: an axis, level or metric does not exist, or more than two axes are given.
        """
        names, called = list(view.axes), Names.of(view.axes, rename)
        chosen = names[1:3] if panel_axes is None else list(dict.fromkeys(panel_axes))
        if len(chosen) > 2:
            raise FednetError(f"--panels: at most two axes can be panels, got {', '.join(chosen)}; leave some to lines")
        for name in chosen:
            require_known("--panels: no such axis", name, names, "its axes:")
        lines = combinations(view, [name for name in names if name not in chosen])
        if len(chosen) == 2:
            rows, columns = (combinations(view, [name]) for name in chosen)
            return Layout(lines, [[{**row, **column} for column in columns] for row in rows], called)
        panels = combinations(view, chosen)
        width = math.ceil(len(panels) / math.ceil(len(panels) / COLUMNS))
        return Layout(lines, [panels[start : start + width] for start in range(0, len(panels), width)], called)


def curve_figure(view: StudyRecords, metric: str, against: str, layout: Layout) -> Figure | None:
    """Plot a metric against a cost, with one line and its 95 % band for each setting.

    Runs with different seeds are evaluated at different costs. Each run is therefore treated as a step function that
    keeps its last value until the next evaluation. After the end of the run it keeps the final value. All lines
    continue to the end of the longest run, unless all runs of the line diverged. A line becomes thin where the first of
    its runs ends, and the number of remaining runs is written beside the line. A cross marks a run that diverged. The
    vertical axis shows possible values only, and its range ignores the first sixth of each line. The legend states
    whether bands are clipped. A note marks panels whose lines coincide.

    Args:
        metric: a key of `METRICS`.
        against: a key of `RECORDED`.

    Returns:
        The figure, or None if no run has this metric, or if the cost is zero in all runs.
    """
    cost, known = RECORDED[against], view.evaluations[np.isfinite(view.evaluations[metric])]
    spent = cost.of(known)
    if not (spent > 0).any():
        return None
    unit, longest, lost = cost.unit(float(spent.max())), float(spent.max()), set(view.diverged)
    rows, columns = len(layout.panels), max(map(len, layout.panels))
    alone = rows == columns == 1
    width_in = WIDTH_IN if columns <= COLUMNS else PAGE_WIDTH_IN
    figure = new_figure(LONE_PANEL_IN if alone else PANEL_IN * rows + 0.2, width_in)
    grid = figure.subplots(rows, columns, squeeze=False, sharex=True, sharey=True)
    drawn: list[Drawn] = []
    for row, (panels, places) in enumerate(zip(layout.panels, grid, strict=True)):
        for place, axes in enumerate(places):
            if place < len(panels):
                own = [
                    Drawn(axes, index, panels[place], line, scaled, (ends / unit.size, means))
                    for index, line in enumerate(layout.lines)
                    for rows in [rows_of(known, {**panels[place], **line})]
                    for until in [None if lost.issuperset(rows["run"]) else longest]
                    if (found := band_of(rows, metric, cost, POINTS, until)) is not None
                    for scaled in [found._replace(spent=found.spent / unit.size)]
                    for ends, means in [marks(rows, lost, cost, found)]
                ]
                _draw(axes, own, layout.names.text(panels[place]), len(layout.lines))
                drawn += own
            else:
                axes.set_axis_off()
                grid[row - 1, place].tick_params(labelbottom=True)
    target = view.target.get(metric)
    _fit_scores(grid[0, 0], [its.band for its in drawn], metric, target)
    _finish_panels(drawn, target)
    label = cost.label(unit)
    figure.supxlabel(label, fontsize=8)
    figure.supylabel(layout.names.metric(metric), fontsize=8)
    _add_legend(figure, layout, drawn, target)
    figure.numbers = pd.concat([its.numbers(label, metric) for its in drawn], ignore_index=True)
    return figure


def _add_legend(figure: Figure, layout: Layout, drawn: Sequence[Drawn], target: float | None) -> None:
    handles: list[Artist] = []
    heading, bands = "", [its.band for its in drawn]
    if len(layout.lines) > 1:
        heading, names = layout.names.legend(layout.lines)
        handles += [Line2D([], [], label=name, **line_style(index)) for index, name in enumerate(names)]
    if any(np.isfinite(its.low).any() for its in bands):
        label = "95 %, clipped to axes" if any(its.cut for its in bands) else "95 % interval"
        handles.append(Patch(facecolor="0.5", alpha=0.3, linewidth=0, label=label))
    if target is not None:
        handles.append(Line2D([], [], label=f"target {target:g}", **TARGET_LINE))
    if any((its.runs < its.runs[0]).any() for its in bands):
        handles.append(Line2D([], [], color="0.3", label="after a run's end", **CARRIED))
    if any(len(its.diverged[0]) for its in drawn):
        handles.append(Line2D([], [], color="0.3", label="run diverged", **DIVERGED))
    if any(_falls(its) for its in bands):
        digit: dict[str, Any] = {"linestyle": "", "marker": "$3$", "markersize": 4, "markeredgewidth": 0.0}
        handles.append(Line2D([], [], color="0.3", label="runs still going", **digit))
    if handles:
        add_legend(figure, handles, heading=heading)


class Drawn(NamedTuple):
    """The mean curve of a setting with its band, as plotted in a panel of a figure."""

    axes: Axes
    number: int
    """Number of the line in its panel, which determines the style of the line."""
    panel: Levels
    line: Levels
    band: Band
    diverged: tuple[Array, Array]
    """Costs of the last evaluations of the runs that diverged, and the heights of the line at these costs."""

    def numbers(self, cost: str, metric: str) -> pd.DataFrame:
        """Return the line as a table, one row per point."""
        its = self.band
        columns = {cost: its.spent, metric: its.mean, "low": its.low, "high": its.high, "remaining runs": its.runs}
        levels = {name: [level] * len(its.spent) for name, level in ({**self.panel, **self.line}).items()}
        return pd.DataFrame({**levels, **columns})


def _draw(axes: Axes, drawn: Sequence[Drawn], panel: str, lines: int) -> None:
    for each in drawn:
        its, style = each.band, line_style(each.number)
        whole = its.runs == its.runs[0]
        every = max(1, int(whole.sum()) // MARKERS)
        axes.plot(its.spent[whole], its.mean[whole], markevery=(min(each.number * 4, every // 2), every), **style)
        after = ~whole | (np.append(~whole[1:], False))
        if (~whole).any():
            axes.plot(its.spent[after], its.mean[after], **style | CARRIED)
            falls = np.flatnonzero(np.diff(its.runs) < 0)
            axes.plot(its.spent[falls], its.mean[falls], color=style["color"], **FALL)
        if len(each.diverged[0]):
            axes.plot(*each.diverged, color=style["color"], **DIVERGED)
        ink = BAND_INK / max(4, lines)
        axes.fill_between(its.spent, its.low, its.high, color=style["color"], alpha=ink, linewidth=0)
    if panel:
        axes.set_title(fitted(panel), pad=3.0)
    round_ticks(axes.xaxis, 4 if panel else 6)
    finish_axes(axes)


def _falls(its: Band) -> list[int]:
    return [int(place) + 1 for place in np.flatnonzero(np.diff(its.runs) < 0) if its.runs[place + 1] > 0]


def _number_falls(axes: Axes, drawn: Sequence[Drawn]) -> None:
    """Write the number of runs that have not ended beside each line, at the points where this number decreases.

    Numbers that would overlap are omitted. The limits of the axes must be final.
    """
    taken: list[Array] = []
    for each in drawn:
        its, colour = each.band, line_style(each.number)["color"]
        for place in _falls(its):
            spot = np.array([its.spent[place], its.mean[place]])
            where = axes.transAxes.inverted().transform(axes.transData.transform(spot))
            if all((np.abs(where - other) > APART).any() for other in taken) and 0 <= where[1] <= 1:
                taken.append(where)
                about: dict[str, Any] = {"fontsize": SMALL_PT - 1, "ha": "center", "va": "bottom", "color": colour}
                axes.annotate(f"{its.runs[place]}", tuple(spot), (0, 1.5), textcoords="offset points", **about)


def _fit_scores(axes: Axes, bands: Sequence[Band], metric: str, target: float | None) -> None:
    least, most = RANGES.get(metric, (0.0, 1.0))
    parts = [values[len(its.spent) // SETTLED :] for its in bands for values in (its.mean, its.low, its.high)]
    values = np.concatenate([*parts, np.array([] if target is None else [target])])
    values = values[np.isfinite(values)]
    inside = np.clip(values, least, most)
    if len(values) and np.ptp(inside) > 0:
        margin = 0.05 * float(np.ptp(inside))
        axes.set_ylim(float(inside.min()) - margin, float(inside.max()) + margin)


def _finish_panels(drawn: Sequence[Drawn], target: float | None) -> None:
    for axes in dict.fromkeys(its.axes for its in drawn):
        if target is not None:
            axes.axhline(target, **TARGET_LINE)
        own = [its for its in drawn if its.axes is axes]
        _number_falls(axes, own)
        bands = [its.band for its in own]
        means = np.concatenate([its.mean[len(its.mean) // SETTLED :] for its in bands])
        if len(bands) > 1 and _apart(bands) <= COINCIDE * float(np.ptp(means)):
            look: dict[str, Any] = {"ha": "right", "va": "bottom", "fontsize": SMALL_PT - 1}
            axes.text(0.98, 0.04, "lines coincide", transform=axes.transAxes, **look)


def _apart(bands: Sequence[Band]) -> float:
    """Return the maximum vertical distance between the mean curves of `bands`, over the costs that all bands cover."""
    start, end = max(its.spent[0] for its in bands), min(its.spent[-1] for its in bands)
    grid = np.linspace(start, end, POINTS)
    means = np.stack([np.interp(grid, its.spent, its.mean) for its in bands])
    return float(np.nanmax(np.ptp(means, axis=0)))


def fitted(text: str) -> str:
    """Return the title of a panel, broken into lines after commas or between words if it is too long for one line."""
    lines = [text] if len(text) <= TITLE_LENGTH else text.split(", ")
    return "\n".join(part for line in lines for part in textwrap.wrap(line, TITLE_LENGTH, break_on_hyphens=False))
