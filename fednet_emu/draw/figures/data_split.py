"""Plot how samples are distributed over devices: their labels or targets, and the number of samples per device."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from fednet_emu.analysis.data_split import DataSplit, Part
from fednet_emu.arrays import Array, IntArray
from fednet_emu.draw.palette import BLUE, VERMILLION
from fednet_emu.draw.style import (
    POINTS_PER_IN,
    SMALL_PT,
    WIDTH_IN,
    PaperFigure,
    add_legend,
    finish_axes,
    new_figure,
    paper_style,
)

MOST_BUBBLES = 40
"""Maximum number of devices that are plotted individually, with one column or bar each."""
MOST_LABELS_NAMED = 12
BARS_IN, MAP_IN = 0.75, 1.75
"""Height of the bar chart of sample counts, and minimum height of the plot of labels or targets below it, in inches."""
ROW_IN, HIGHEST_MAP_IN = 0.16, 4.0
LABELS_IN = 0.55
"""Width of the tick labels and title of the vertical axis, in inches."""
SHARP_ROWS = 200
"""Minimum number of pixel rows of a shaded map. Matplotlib would blur the narrow columns of a smaller image."""
LIGHT = "#9ecbe8"
SHARES = LinearSegmentedColormap.from_list("shares", ["white", LIGHT, BLUE, "#00263d"])


def split_figures(split: DataSplit) -> dict[str, Figure]:
    """Plot the distribution of samples over devices.

    The figure `data` shows training samples. The figure `data-test` shows test samples; it exists only if devices have
    test samples.

    The upper plot shows the number of samples per device. The lower plot shows labels or targets. For up to 40 devices,
    the area of a bubble is proportional to the number of a device's samples with a label. For more devices, the shade
    of a field is the fraction of the device's samples that have the label, and devices with similar training samples
    are adjacent in both figures. Regression targets are shown as their median with their 50 % and 90 % ranges.
    """
    order = split.train.order() if len(split.train.sizes) > MOST_BUBBLES else np.arange(len(split.train.sizes))
    drawn: dict[str, Figure] = {"data": _figure(split.train, order, "train")}
    if split.test.sizes.any():
        drawn["data-test"] = _figure(split.test, order, "test")
    return drawn


def _figure(part: Part, order: IntArray, which: str) -> PaperFigure:
    labels = 0 if part.counts is None else len(part.counts)
    map_in = min(max(MAP_IN, ROW_IN * labels), HIGHEST_MAP_IN)
    with paper_style():
        figure = new_figure(BARS_IN + map_in + 0.35)
        figure.numbers = part.frame(which)
        if part.counts is None and part.targets is None:
            last = figure.add_subplot()
            _sizes(last, part, order)
        else:
            above, last = figure.subplots(2, 1, sharex=True, height_ratios=[BARS_IN, map_in])
            _sizes(above, part, order)
            if part.targets is not None:
                _targets(figure, last, part.targets[:, order])
            elif part.counts is not None and len(order) <= MOST_BUBBLES:
                _bubbles(figure, last, part.counts, map_in)
            else:
                _shades(figure, (above, last), part, order)
            above.tick_params(axis="x", bottom=False, labelbottom=False)
        _name_devices(last, part, order)
    return figure


def _sizes(axes: Axes, part: Part, order: IntArray) -> None:
    """Plot the number of samples per device as bars, or as one filled area if bars would be too thin."""
    places, sizes = np.arange(len(order)), part.sizes[order]
    if len(order) <= MOST_BUBBLES:
        axes.bar(places, sizes, width=0.8, color=BLUE)
    else:
        axes.stairs(sizes, np.arange(len(order) + 1) - 0.5, fill=True, color=BLUE)
    axes.set(ylabel="Samples", xlim=(-0.6, len(order) - 0.4), ylim=(0, max(1.05 * sizes.max(), 1)))
    axes.yaxis.set_major_locator(MaxNLocator(nbins=3, integer=True))
    finish_axes(axes, grid=False)


def _bubbles(figure: Figure, axes: Axes, counts: IntArray, map_in: float) -> None:
    label, device = np.nonzero(counts)
    across_in, down_in = (WIDTH_IN - LABELS_IN) / counts.shape[1], map_in / len(counts)
    widest_pt, most = min(1.6 * across_in, 1.1 * down_in) * POINTS_PER_IN, int(counts.max())
    area = widest_pt**2 / most  # marker area per sample
    axes.scatter(device, label, s=counts[label, device] * area, color=BLUE, alpha=0.85, linewidths=0)
    _name_labels(axes, len(counts))
    shown = sorted({_round_down(most), _round_down(max(1, most // 8))})
    blob: dict[str, Any] = {"linestyle": "", "marker": "o", "markeredgewidth": 0, "color": BLUE}
    sizes = {f"{number:,} samples": math.sqrt(number * area) for number in shown}
    add_legend(figure, [Line2D([], [], markersize=size, label=name, **blob) for name, size in sizes.items()], 1.2)


def _shades(figure: Figure, axes: tuple[Axes, Axes], part: Part, order: IntArray) -> None:
    labels = len(part.shares)
    extent = (-0.5, len(order) - 0.5, labels - 0.5, -0.5)
    rows = np.repeat(part.shares[:, order], math.ceil(SHARP_ROWS / labels), axis=0)
    shown = axes[1].imshow(rows, cmap=SHARES, vmin=0, vmax=1, aspect="auto", extent=extent)
    bar = figure.colorbar(shown, ax=list(axes), fraction=0.05, pad=0.02, aspect=30)
    bar.set_label("Share of the device's samples", size=SMALL_PT)
    bar.ax.tick_params(labelsize=SMALL_PT, width=0.5, length=2.5)
    bar.outline.set_linewidth(0.5)
    _name_labels(axes[1], labels)


def _targets(figure: Figure, axes: Axes, targets: Array) -> None:
    places, (low, first, median, third, high) = np.arange(targets.shape[1]), targets
    if len(places) <= MOST_BUBBLES:
        most: Artist = axes.vlines(places, low, high, color=BLUE, linewidth=0.8)
        half: Artist = axes.vlines(places, first, third, color=BLUE, linewidth=3.0)
        (middle,) = axes.plot(places, median, linestyle="", marker="o", color=VERMILLION, markeredgewidth=0)
    else:
        most = axes.fill_between(places, low, high, color=LIGHT, linewidth=0)
        half = axes.fill_between(places, first, third, color=BLUE, linewidth=0)
        (middle,) = axes.plot(places, median, color=VERMILLION, linewidth=0.8)
    for artist, label in ((middle, "median"), (half, "half of its samples"), (most, "90 % of them")):
        artist.set_label(label)
    add_legend(figure, [middle, half, most], handle_em=1.4)
    axes.set_ylabel("Targets")
    finish_axes(axes, grid=False)


def _name_devices(axes: Axes, part: Part, order: IntArray) -> None:
    if len(order) <= MOST_BUBBLES:
        axes.set_xlabel("Device")
        axes.xaxis.set_major_locator(MaxNLocator(nbins=20, integer=True, steps=[1, 2, 5, 10]))
        return
    what = "most frequent label" if part.counts is not None else "median target" if part.targets is not None else "size"
    axes.set_xlabel(f"{len(order):,} devices, ordered by their {what}")


def _name_labels(axes: Axes, labels: int) -> None:
    axes.set(ylabel="Label", ylim=(labels - 0.4, -0.6))
    axes.yaxis.set_major_locator(MaxNLocator(nbins=MOST_LABELS_NAMED, integer=True, steps=[1, 2, 5, 10]))
    finish_axes(axes, grid=False)


def _round_down(number: int) -> int:
    """Return the largest of the numbers 1, 2, 5, 10, 20, 50, ... that is at most `number`, a positive integer."""
    power: int = 10 ** (len(str(number)) - 1)
    return max(step * power for step in (1, 2, 5) if step * power <= number)
