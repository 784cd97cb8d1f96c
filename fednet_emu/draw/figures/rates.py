"""Plot the uplink rate over distance for several radio environments."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fednet_emu.arrays import Array
from fednet_emu.draw.style import (
    CURVE_HEIGHT_IN,
    SMALL_PT,
    add_legend,
    finish_axes,
    line_style,
    new_axes,
    new_figure,
    paper_style,
)
from fednet_emu.radio.survey import Rates

MARKERS_PER_CURVE, MANY, PANEL_IN = 6, 4, 1.75
"""Number of markers on a curve, maximum number of curves in a panel, and height of each of several panels in inches."""
REACHED_BPS = 1e6


def rate_figure(distance_m: Array, curves: Mapping[str, Rates]) -> Figure:
    """Plot the median rate of each environment over the distances [distances] in metres.

    If there is a single environment, a band from the 10 % to the 90 % quantile is added. If there are more than four
    environments, they are divided into panels of at most four lines. Environments are sorted by the largest distance at
    which the median rate is 1 Mbit/s, longest first. All panels have the same axes, and each panel has its own legend.
    """
    with paper_style():
        if len(curves) <= MANY:
            figure, axes = new_axes(CURVE_HEIGHT_IN)
            _draw(axes, distance_m, curves)
            if len(curves) > 1:
                add_legend(figure, axes.get_lines())
            return figure
        ranked = sorted(curves, key=lambda name: -_reach_m(distance_m, curves[name]))
        count = math.ceil(len(ranked) / MANY)
        figure = new_figure(PANEL_IN * count)
        panels = figure.subplots(count, 1, sharex=True, sharey=True)
        for place, axes in enumerate(panels):
            names = ranked[place * MANY : (place + 1) * MANY]
            _draw(axes, distance_m, {name: curves[name] for name in names})
            axes.legend(loc="lower left", fontsize=SMALL_PT, borderaxespad=0.2)
            if axes is not panels[-1]:
                axes.set_xlabel("")
    return figure


def _reach_m(distance_m: Array, curve: Rates) -> float:
    """Return the largest distance in m at which the median rate is at least 1 Mbit/s; 0 if there is none."""
    reached = distance_m[np.nan_to_num(curve.median_bps) >= REACHED_BPS]
    return float(reached.max()) if len(reached) else 0.0


def _draw(axes: Axes, distance_m: Array, curves: Mapping[str, Rates]) -> None:
    every = max(1, len(distance_m) // MARKERS_PER_CURVE)
    for place, (name, curve) in enumerate(curves.items()):
        median = _positive(curve.median_bps)
        (line,) = axes.plot(distance_m, median, label=name, markevery=every, **line_style(place))
        if len(curves) == 1:
            band = (_positive(curve.low_bps), _positive(curve.high_bps))
            axes.fill_between(distance_m, *band, alpha=0.2, color=line.get_color(), linewidth=0)
    axes.set(xlabel="Distance (m)", ylabel="Uplink rate (Mbit/s)", xscale="log", yscale="log")
    finish_axes(axes)


def _positive(rate_bps: Array) -> Array:
    return np.where(rate_bps > 0, rate_bps / 1e6, np.nan)
