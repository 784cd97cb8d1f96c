"""Figures of device-to-device learning: the clusters over time, and the number of devices that upload in each round."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.animation import PillowWriter
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import FancyArrowPatch

from fednet_emu.arrays import Array
from fednet_emu.draw.palette import BLACK
from fednet_emu.draw.style import (
    CURVE_HEIGHT_IN,
    SMALL_PT,
    WIDTH_IN,
    add_legend,
    finish_axes,
    line_style,
    new_figure,
    paper_style,
    round_ticks,
)

Labelled = Sequence[tuple[str, pd.DataFrame]]

PANELS = 3
FRAMES_PER_S = 2
ANIMATION_DPI = 110
LINK_PT, ARROW_PT = 0.35, 0.7
"""Line widths of two-way links and of arrows for one-way links, in points."""
BOUND: dict[str, Any] = {"linestyle": ":", "linewidth": 0.9}
LIMIT: dict[str, Any] = {"color": BLACK, "linewidth": 0.5}


def connectivity_figure(tables: Labelled) -> Figure:
    """Plot the number of requested uploads over rounds, and below it the connectivity factor.

    The measured connectivity factor is drawn as a solid line, its theoretical bound as a dotted line, and its upper
    limit as a horizontal line.
    """
    figure = new_figure(1.7 * CURVE_HEIGHT_IN)
    above, below = figure.subplots(2, 1, sharex=True)
    for index, (label, rows) in enumerate(tables):
        style = line_style(index) | {"marker": "none", "linestyle": "-"}
        above.plot(rows["round"], rows["sampled"], label=label, **style)
        below.plot(rows["round"], rows["phi"], label=f"{label}, measured", **style)
        below.plot(rows["round"], rows["psi"], label=f"{label}, bound", **style | BOUND)
        below.axhline(float(rows["phi_max"].iloc[0]), label=f"{label}, limit", **LIMIT)
    above.set(ylabel="Requested uploads", ylim=(0.0, None))
    below.set(xlabel="Round", ylabel="Connectivity factor", ylim=(0.0, None))
    for axes in (above, below):
        finish_axes(axes)
    entries: list[tuple[Artist, str]] = list(zip(above.get_lines(), [label for label, _ in tables], strict=True))
    colour = "0.3" if len(tables) > 1 else above.get_lines()[0].get_color()
    looks: tuple[tuple[str, dict[str, Any]], ...] = (
        ("measured", {"color": colour, "linewidth": 1.2}),
        ("bound", {"color": colour, **BOUND}),
        ("limit", LIMIT),
    )
    bounded = any(rows["psi"].notna().any() for _, rows in tables)
    explained = [(Line2D([], [], **look), f"factor: {name}") for name, look in looks if bounded or name != "bound"]
    known = [*(entries if len(tables) > 1 else []), *explained]
    add_legend(figure, [handle for handle, _ in known], [name for _, name in known])
    return figure


def clusters_figure(tables: Labelled) -> Figure:
    """Plot the clusters of the first run in the first, middle and last recorded round.

    All rounds have the same axes. The axes are in metres if devices are plotted at their positions.
    """
    rows = tables[0][1]
    rounds = rows["round"].unique()
    shown = rounds[np.unique(np.linspace(0, len(rounds) - 1, PANELS).round().astype(np.int64))]
    figure = new_figure(WIDTH_IN / len(shown) + 0.35)
    panels = figure.subplots(1, len(shown), squeeze=False, sharex=True, sharey=True)[0]
    for axes, number in zip(panels, shown, strict=True):
        draw_round(axes, rows, int(number))
    if true_places(rows):
        panels[0].set_ylabel("y (m)", fontsize=SMALL_PT)
        for axes in panels:
            axes.set_xlabel("x (m)", fontsize=SMALL_PT)
    add_legend(figure, *_entries(), handle_em=1.6)
    return figure


def write_clusters_animation(rows: pd.DataFrame, path: Path) -> None:
    """Write the recorded rounds as a looping GIF, one frame per round; all frames have the same axes.

    Args:
        rows: series `d2d_clusters` of one run.
        path: the GIF file, whose name ends in .gif.
    """
    with paper_style():
        figure = new_figure(WIDTH_IN)
        add_legend(figure, *_entries(), handle_em=1.6)
        axes, writer = figure.subplots(), PillowWriter(fps=FRAMES_PER_S)
        limits = _limits(rows)
        with writer.saving(figure, path, ANIMATION_DPI):
            for number in rows["round"].unique().tolist():
                axes.clear()
                draw_round(axes, rows, number)
                axes.set(xlim=limits[0], ylim=limits[1])
                if true_places(rows):
                    axes.set(xlabel="x (m)", ylabel="y (m)")
                writer.grab_frame()


def draw_round(axes: Axes, rows: pd.DataFrame, number: int) -> None:
    """Plot the devices and links of a round, with one colour per cluster.

    Devices that upload are filled circles. One-way links are arrows.

    Devices are plotted at their positions if, over all rounds, links are short compared with the extent of all devices;
    otherwise each cluster is a circle of devices.
    """
    mine = rows[rows["round"] == number]
    true = true_places(rows)
    places = places_of(mine, true=true)
    for cluster, row in zip(mine["cluster"], mine.to_dict("records"), strict=True):
        colour = str(line_style(int(cluster))["color"]) if len(row["devices"]) > 1 else BLACK
        edges = set(zip(row["sender"], row["receiver"], strict=True))
        single = one_way(edges)
        both = [(places[j], places[i]) for j, i in sorted(edges - single) if j < i]
        axes.add_collection(LineCollection(both, colors=[colour], linewidths=LINK_PT, zorder=1))
        for j, i in sorted(single):
            look: dict[str, Any] = {"arrowstyle": "-|>", "mutation_scale": 5, "linewidth": ARROW_PT, "color": colour}
            axes.add_patch(
                FancyArrowPatch(tuple(places[j]), tuple(places[i]), shrinkA=1.5, shrinkB=1.5, zorder=1.5, **look)
            )
        xy = np.array([places[k] for k in row["devices"]])
        uploads = np.isin(row["devices"], row["sampled"])
        for chosen, face in ((uploads, colour), (~uploads, "white")):
            axes.scatter(
                xy[chosen, 0], xy[chosen, 1], s=9, facecolors=face, edgecolors=colour, linewidths=0.6, zorder=2
            )
    axes.set_title(f"round {number}, {mine['simulated_s'].iloc[0]:.3g} s", fontsize=SMALL_PT)
    axes.set_aspect("equal")
    axes.margins(0.06)
    if true:
        finish_axes(axes, grid=False)
        round_ticks(axes.xaxis, 3)
        round_ticks(axes.yaxis, 3)
    else:
        axes.set(xticks=[], yticks=[])
        axes.spines[:].set_visible(False)


def _entries() -> tuple[list[Artist], list[str]]:
    dot: dict[str, Any] = {
        "linestyle": "",
        "marker": "o",
        "markersize": 3,
        "markeredgewidth": 0.6,
        "markeredgecolor": "0.3",
    }
    known: list[tuple[Artist, str]] = [
        (Line2D([], [], markerfacecolor="0.3", **dot), "uploads"),
        (Line2D([], [], markerfacecolor="white", **dot), "does not"),
        (Line2D([], [], color="0.3", linewidth=LINK_PT), "both ways"),
        (Line2D([], [], color="0.3", linewidth=ARROW_PT, marker=">", markersize=3), "one way"),
    ]
    return [handle for handle, _ in known], [name for _, name in known]


def one_way(edges: set[tuple[int, int]]) -> set[tuple[int, int]]:
    """Return the edges whose reverse edge does not exist."""
    return {(j, i) for j, i in edges if (i, j) not in edges}


def true_places(rows: pd.DataFrame) -> bool:
    """Return True if links are short compared with the extent of all devices, over all recorded rounds."""
    lengths_m, apart_m = [], []
    for _, mine in rows.groupby("round"):
        true, xy_m = _positions(mine)
        pairs = zip(np.concatenate([*mine["sender"]]), np.concatenate([*mine["receiver"]]), strict=True)
        lengths_m += [float(np.linalg.norm(true[int(j)] - true[int(i)])) for j, i in pairs]
        apart_m += np.linalg.norm(xy_m - xy_m.mean(axis=0), axis=1).tolist()
    return bool(lengths_m and np.median(lengths_m) < np.median(apart_m))


def places_of(rows: pd.DataFrame, *, true: bool) -> dict[int, Array]:
    """Return the plotted position [2] of each device of a round, by device number."""
    return _positions(rows)[0] if true else circles([list(members) for members in rows["devices"]])


def _positions(rows: pd.DataFrame) -> tuple[dict[int, Array], Array]:
    """Return the positions of the devices of a round, in metres, by device number and as an array [devices, 2]."""
    devices = np.concatenate([*rows["devices"]]).astype(np.int64)
    xy_m = np.stack([np.concatenate([*rows["x_m"]]), np.concatenate([*rows["y_m"]])], axis=1)
    return dict(zip(devices.tolist(), xy_m, strict=True)), xy_m


def _limits(rows: pd.DataFrame) -> tuple[tuple[float, float], tuple[float, float]]:
    """Return the horizontal and the vertical range of all device positions in all rounds."""
    true = true_places(rows)
    xy = np.array([place for _, mine in rows.groupby("round") for place in places_of(mine, true=true).values()])
    low, high = xy.min(axis=0), xy.max(axis=0)
    margin = 0.06 * float((high - low).max()) or 1.0
    left, right = (float(low[0]) - margin, float(high[0]) + margin), (float(low[1]) - margin, float(high[1]) + margin)
    return left, right


def circles(clusters: Sequence[Sequence[int]]) -> dict[int, Array]:
    """Place the devices of each cluster on a circle, and the circles in rows; return the position [2] of each."""
    columns = int(np.ceil(np.sqrt(len(clusters))))
    places: dict[int, Array] = {}
    for number, members in enumerate(clusters):
        centre = np.array([number % columns, -(number // columns)], np.float64)
        angle = 2 * np.pi * np.arange(len(members)) / len(members)
        ring = centre + 0.38 * (len(members) > 1) * np.stack([np.sin(angle), np.cos(angle)], axis=1)
        places |= dict(zip(members, ring, strict=True))
    return places
