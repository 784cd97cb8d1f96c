"""Draw the rates of radio environments over distance."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from matplotlib.figure import Figure

from fednet_emu.arrays import Array
from fednet_emu.report.style import (
    CURVE_HEIGHT_IN,
    add_grid,
    add_legend,
    finish_axes,
    line_style,
    new_figure,
    paper_style,
)

MARKERS_PER_CURVE, MANY, TALL_IN = 6, 4, 3.0


@dataclass(frozen=True)
class RateCurve:
    """Quantiles of the uplink rate over distance; all arrays have the shape [distances].

    Attributes:
        distance_m: distances in metres.
        low_bps: rates in bit/s that 10 % of the links do not reach; NaN where a distance is out of range.
        median_bps: the same for 50 % of the links.
        high_bps: the same for 90 % of the links.
    """

    distance_m: Array
    low_bps: Array
    median_bps: Array
    high_bps: Array


def rate_figure(curves: Mapping[str, RateCurve]) -> Figure:
    """Draw the median rate of each environment over distance; a single one also gets its 10 % to 90 % band."""
    with paper_style():
        figure = new_figure(TALL_IN if len(curves) > MANY else CURVE_HEIGHT_IN)
        axes = figure.add_subplot()
        for place, (name, curve) in enumerate(curves.items()):
            every = max(1, len(curve.distance_m) // MARKERS_PER_CURVE)
            (line,) = axes.plot(
                curve.distance_m, _positive(curve.median_bps), label=name, markevery=every, **line_style(place)
            )
            if len(curves) == 1:
                band = (_positive(curve.low_bps), _positive(curve.high_bps))
                axes.fill_between(curve.distance_m, *band, alpha=0.2, color=line.get_color(), linewidth=0)
        axes.set(xlabel="Distance (m)", ylabel="Uplink rate (Mbit/s)", xscale="log", yscale="log")
        add_grid(axes)
        finish_axes(axes)
        if len(curves) > 1:
            add_legend(figure, *axes.get_legend_handles_labels())
    return figure


def _positive(rate_bps: Array) -> Array:
    """Convert rates to Mbit/s, with NaN for zero, which a logarithmic axis cannot show."""
    return np.where(rate_bps > 0, rate_bps / 1e6, np.nan)
