"""Device-to-device learning: draw the changing clusters, and the number of devices that the server samples."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.animation import PillowWriter
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure

from fednet_emu.arrays import Array
from fednet_emu.report.style import (
    BLACK,
    CURVE_HEIGHT_IN,
    SMALL_PT,
    WIDTH_IN,
    PaperFigure,
    add_grid,
    add_legend,
    finish_axes,
    line_style,
    new_figure,
    paper_style,
)

Labelled = Sequence[tuple[str, pd.DataFrame]]

PANELS = 3
FRAMES_PER_S = 2
ANIMATION_DPI = 110
_ONE_WAY, _BOTH_WAYS = 0.7, 0.25


def connectivity_figure(tables: Labelled) -> Figure:
    """Draw the number of requested uploads over rounds, and below it the connectivity factor.

    The connectivity factor is drawn as measured (solid) and as its bound (dotted), with its limit as a horizontal line.
    """
    figure = new_figure(1.7 * CURVE_HEIGHT_IN)
    above, below = figure.subplots(2, 1, sharex=True)
    for index, (label, rows) in enumerate(tables):
        style = line_style(index) | {"marker": "none"}
        above.plot(rows["round"], rows["sampled"], label=label, **style)
        below.plot(rows["round"], rows["phi"], **style)
        below.plot(rows["round"], rows["psi"], **style | {"linestyle": ":", "linewidth": 0.9})
        below.axhline(float(rows["phi_max"].iloc[0]), color=BLACK, linewidth=0.5)
    above.set(ylabel="Uploads asked for", ylim=(0.0, None))
    below.set(xlabel="Round", ylabel="Connectivity factor", ylim=(0.0, None))
    for axes in (above, below):
        add_grid(axes)
        finish_axes(axes)
    if len(tables) > 1:
        add_legend(figure, above.get_lines(), [label for label, _ in tables])
    return figure


def clusters_figure(tables: Labelled) -> Figure:
    """Draw the clusters of the first run in the first, the middle and the last round that it recorded."""
    rows = tables[0][1]
    rounds = rows["round"].unique()
    shown = rounds[np.unique(np.linspace(0, len(rounds) - 1, PANELS).round().astype(np.int64))]
    figure = PaperFigure(figsize=(WIDTH_IN, WIDTH_IN / len(shown) + 0.25), layout="constrained")
    for axes, number in zip(figure.subplots(1, len(shown), squeeze=False)[0], shown, strict=True):
        draw_round(axes, rows, int(number))
    return figure


def write_clusters_animation(rows: pd.DataFrame, path: Path) -> None:
    """Write the recorded rounds as a looping GIF, one frame per round.

    Args:
        rows: series `d2d_clusters` of one run.
        path: the file, which ends in .gif.
    """
    with paper_style():
        figure = PaperFigure(figsize=(WIDTH_IN, WIDTH_IN))
        axes, writer = figure.subplots(), PillowWriter(fps=FRAMES_PER_S)
        with writer.saving(figure, path, ANIMATION_DPI):
            for number in rows["round"].unique().tolist():
                axes.clear()
                draw_round(axes, rows, number)
                writer.grab_frame()


def draw_round(axes: Axes, rows: pd.DataFrame, number: int) -> None:
    """Draw devices in the colours of their clusters, filled if they upload; one-way edges are bold.

    Devices are drawn at their true positions if the edges are short compared with the extent of all devices, else on a
    circle for each cluster.
    """
    mine = rows[rows["round"] == number]
    places = places_of(mine)
    for cluster, row in zip(mine["cluster"], mine.to_dict("records"), strict=True):
        colour = str(line_style(int(cluster))["color"]) if len(row["devices"]) > 1 else BLACK
        edges = set(zip(row["sender"], row["receiver"], strict=True))
        for lines, width in ((one_way(edges), _ONE_WAY), (edges - one_way(edges), _BOTH_WAYS)):
            ends = [(places[j], places[i]) for j, i in sorted(lines)]
            axes.add_collection(LineCollection(ends, colors=[colour], linewidths=width, zorder=1))
        xy = np.array([places[k] for k in row["devices"]])
        uploads = np.isin(row["devices"], row["sampled"])
        for chosen, face in ((uploads, colour), (~uploads, "white")):
            axes.scatter(
                xy[chosen, 0], xy[chosen, 1], s=9, facecolors=face, edgecolors=colour, linewidths=0.6, zorder=2
            )
    axes.set_title(f"round {number}, {mine['simulated_s'].iloc[0]:.3g} s", fontsize=SMALL_PT)
    axes.set(aspect="equal", xticks=[], yticks=[])
    axes.spines[:].set_visible(False)
    axes.margins(0.06)


def one_way(edges: set[tuple[int, int]]) -> set[tuple[int, int]]:
    """Return the edges whose reverse edge does not exist."""
    return {(j, i) for j, i in edges if (i, j) not in edges}


def places_of(rows: pd.DataFrame) -> dict[int, Array]:
    """Return the position [2] at which each device of a round is drawn, by device number."""
    devices = np.concatenate([*rows["devices"]]).astype(np.int64)
    xy_m = np.stack([np.concatenate([*rows["x_m"]]), np.concatenate([*rows["y_m"]])], axis=1)
    true = dict(zip(devices.tolist(), xy_m, strict=True))
    lengths_m = [
        float(np.linalg.norm(true[j] - true[i]))
        for senders, receivers in zip(rows["sender"], rows["receiver"], strict=True)
        for j, i in zip(senders, receivers, strict=True)
    ]
    apart_m = float(np.median(np.linalg.norm(xy_m - xy_m.mean(axis=0), axis=1)))
    if lengths_m and np.median(lengths_m) < apart_m:
        return true
    return circles([list(members) for members in rows["devices"]])


def circles(clusters: Sequence[Sequence[int]]) -> dict[int, Array]:
    """Place each cluster's devices on a circle, and the circles in rows; return the positions [2] by device number."""
    columns = int(np.ceil(np.sqrt(len(clusters))))
    places: dict[int, Array] = {}
    for number, members in enumerate(clusters):
        centre = np.array([number % columns, -(number // columns)], np.float64)
        angle = 2 * np.pi * np.arange(len(members)) / len(members)
        ring = centre + 0.38 * (len(members) > 1) * np.stack([np.sin(angle), np.cos(angle)], axis=1)
        places |= dict(zip(members, ring, strict=True))
    return places
