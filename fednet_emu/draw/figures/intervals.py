"""Draw runs as points, with their mean and its 95 % interval, which says when it goes on beyond what is shown."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from fednet_emu.analysis.statistics import Interval, mean_interval
from fednet_emu.arrays import Array

LOOK: dict[str, Any] = {"color": "0.25", "linewidth": 0.8}
DOT: dict[str, Any] = {"marker": ".", "markersize": 3.5, "alpha": 0.5, "linestyle": "", "markeredgewidth": 0.0}
MEAN: dict[str, Any] = {"marker": "D", "markersize": 3.2, "linestyle": "", "markeredgewidth": 0.0}
ARROW = 3.5
"""Size of the arrow head at an end that was cut, in points."""


def draw_runs(
    axes: Axes, values: Array, row: float, colour: str, label: str, least: float = -math.inf, most: float = math.inf
) -> bool:
    """Draw the values of runs [runs] as points in a row, with their mean and its interval; return whether this was cut.

    Args:
        axes: where to draw.
        values: the values.
        row: their vertical position.
        colour: the colour of points and mean.
        label: what a point is.
        least: smallest possible value, where the interval ends at the latest.
        most: largest possible value.
    """
    axes.plot(values, np.full(len(values), row), **DOT, color=colour, label=label)
    interval = mean_interval(values)
    cut = draw_interval(axes, interval, row, least, most)
    axes.plot(interval.mean, row, **MEAN, color=colour, zorder=4, label="mean")
    return cut


def runs_entries(label: str, *, cut: bool) -> list[Line2D]:
    """The entries of a legend for points, means and intervals."""
    dot, mean = Line2D([], [], **DOT, color="0.4", label=label), Line2D([], [], **MEAN, color="0.4", label="mean")
    return [dot, mean, interval_entry(cut=cut)]


def draw_interval(
    axes: Axes, interval: Interval, row: float, least: float = -math.inf, most: float = math.inf, **look: Any
) -> bool:
    """Draw an interval as a horizontal line, with caps, or with an arrow head where it goes on beyond the possible.

    Args:
        axes: where to draw.
        interval: the interval; without limits nothing is drawn.
        row: its vertical position.
        least: smallest possible value, where the line ends at the latest.
        most: largest possible value.
        look: properties of the line that differ from the usual ones.

    Returns:
        Whether an end was cut.
    """
    if not math.isfinite(interval.low):
        return False
    low, high = max(interval.low, least), min(interval.high, most)
    style = {**LOOK, **look}
    axes.plot([low, high], [row, row], **style, zorder=3, label="95 % interval")
    for end, cut, arrow in ((low, low > interval.low, "<"), (high, high < interval.high, ">")):
        marker: dict[str, Any] = {
            "marker": arrow if cut else "|",
            "markersize": ARROW,
            "markeredgewidth": 0.0 if cut else 0.8,
        }
        axes.plot(end, row, **style, **marker, zorder=3, clip_on=False, label="cut" if cut else "end")
    return low > interval.low or high < interval.high


def interval_entry(*, cut: bool) -> Line2D:
    """The entry of a legend for intervals, some of which were cut."""
    label = "95 % interval over seeds" + (" (arrow: goes on)" if cut else "")
    return Line2D([], [], **LOOK, marker="|", markersize=ARROW, markeredgewidth=0.8, label=label)
