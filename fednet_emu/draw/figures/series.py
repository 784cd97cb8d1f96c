"""Figures and animations of series, which are additional tables that algorithms and batteries record."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.animation import PillowWriter
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from matplotlib.lines import Line2D
from matplotlib.patches import FancyArrowPatch
from matplotlib.ticker import LogLocator, MaxNLocator, NullFormatter, ScalarFormatter

from fednet_emu.analysis.activity import spread
from fednet_emu.analysis.quantities import ENERGIES, LONG_TIMES, Unit, axis_unit
from fednet_emu.analysis.run import RunRecords
from fednet_emu.analysis.statistics import mean_interval
from fednet_emu.analysis.study import StudyRecords, cycle_times, target_text
from fednet_emu.arrays import Array
from fednet_emu.draw.palette import BLACK
from fednet_emu.draw.style import (
    CURVE_HEIGHT_IN,
    SMALL_PT,
    WIDTH_IN,
    add_legend,
    add_line_legend,
    finish_axes,
    finish_lines,
    fit_scale,
    line_style,
    new_axes,
    new_figure,
    paper_style,
    round_ticks,
    wrapped,
)

Tables = Sequence[tuple[str, pd.DataFrame]]
"""Pairs (label, table), one for each run. The position of a pair determines its line style."""

SNAPSHOTS = 4
"""Number of heat maps for each run. They show the first, the last and evenly spaced recorded rounds between these."""
TIED = 0.5
RESOLUTION_DPI = 150


def weights_figure(weights: Tables) -> Figure:
    """Plot the weights of all pairs of devices in up to four rounds, as one row of heat maps for each run.

    Args:
        weights: label and series `weights` of each run, with the columns round, i, j and weight. The series has one row
            for each pair (i, j) of devices and each recorded round.
    """
    panel_in = WIDTH_IN / SNAPSHOTS
    figure = new_figure(len(weights) * (panel_in + 0.25) + 0.3)
    rows = figure.subplots(len(weights), SNAPSHOTS, squeeze=False)
    for axes, (label, table) in zip(rows, weights, strict=True):
        rounds, matrices = weight_matrices(table)
        for one, place in zip_longest(axes, spread(range(len(rounds)), SNAPSHOTS)):
            if place is None:
                one.set_axis_off()
            else:
                image = _draw_weights(one, matrices[place], rounds[place])
        axes[0].set_ylabel(wrapped(label) if len(weights) > 1 else "Device", fontsize=SMALL_PT)
    bar = figure.colorbar(image, ax=rows, location="bottom", fraction=0.06, pad=0.04, aspect=40)
    bar.set_label("Weight of a pair", fontsize=SMALL_PT)
    bar.ax.tick_params(labelsize=SMALL_PT)
    return figure


def write_weights_animation(weights: pd.DataFrame, path: Path) -> None:
    """Write an animated GIF of the series `weights` of one run, with one frame for each recorded round."""
    rounds, matrices = weight_matrices(weights)
    with paper_style():
        (figure, axes), writer = new_axes(WIDTH_IN), PillowWriter(fps=4)
        image = _draw_weights(axes, matrices[0], rounds[0])
        axes.set(xlabel="Device", ylabel="Device")
        with writer.saving(figure, path, RESOLUTION_DPI):
            for number, matrix in zip(rounds, matrices, strict=True):
                image.set_data(matrix)
                axes.set_title(f"Round {number}")
                writer.grab_frame()


def weight_matrices(weights: pd.DataFrame) -> tuple[list[int], Array]:
    """Return the recorded rounds, and the symmetric weights [rounds, devices, devices] after these rounds.

    Devices are ordered by their clusters in the last recorded round, so clusters are blocks on the diagonal.
    """
    devices = np.union1d(weights["i"], weights["j"])
    rounds, record = np.unique(weights["round"], return_inverse=True)
    i, j = (np.searchsorted(devices, weights[side]) for side in "ij")
    matrices = np.tile(np.eye(len(devices)), (len(rounds), 1, 1))
    matrices[record, i, j] = matrices[record, j, i] = weights["weight"]
    order = np.argsort((matrices[-1] > TIED).argmax(1), kind="stable")
    return [int(number) for number in rounds], matrices[:, order][:, :, order]


def _draw_weights(axes: Axes, matrix: Array, number: int) -> AxesImage:
    axes.set(xticks=[], yticks=[])
    axes.set_title(f"Round {number}", fontsize=SMALL_PT)
    return axes.imshow(matrix, vmin=0.0, vmax=1.0, cmap="viridis", interpolation="nearest")


PANEL_IN, SPAN = 1.7, 10.0
"""Height of a panel in inches; ratio of maximum to minimum time above which the time axis is logarithmic."""


def cycle_figure(tables: Tables) -> Figure:
    """Plot the mean cycle time against the number of groups, with one line for each grouping and access scheme.

    A cycle is a sequence of turns in which each group of devices has one turn. Runs with the same grouping, access
    scheme and number of groups (for example runs that differ in the seed) are averaged.
    """
    runs = cycle_times([table for _, table in tables])
    unit = axis_unit(float(runs["cycle_s"].max()), LONG_TIMES)
    figure, axes = new_axes(CURVE_HEIGHT_IN)
    for index, (way, rows) in enumerate(runs.groupby("grouping", sort=False)):
        mean = rows.groupby("groups_formed")["cycle_s"].mean() / unit.size
        axes.plot(mean.index, mean, label=str(way), **line_style(index))
    axes.set(xlabel="Groups", ylabel=f"Cycle time ({unit.symbol})", ylim=(0.0, None))
    fit_scale(axes, "x")
    finish_lines(figure, axes)
    return figure


def bound_figure(tables: Tables) -> Figure:
    """Plot the excess loss F - F* (loss minus its minimum) at the start of each cycle of device groups.

    The theoretical bound of the excess loss is a dashed line.
    """
    figure, axes = new_axes(CURVE_HEIGHT_IN)
    for index, (label, rows) in enumerate(tables):
        style = _plain(index)
        name = f"{label}, " if len(tables) > 1 else ""
        axes.plot(rows["cycle"], rows["gap"], label=f"{name}measured", **style | {"linestyle": "-"})
        bound = rows["bound"].where(np.isfinite(rows["bound"]))
        axes.plot(rows["cycle"], bound, label=f"{name}bound", **style | {"linestyle": (0, (4, 1.5))})
    axes.set(xlabel="Cycle", ylabel="$F - F^*$", yscale="log")
    finish_lines(figure, axes)
    return figure


def groups_figure(view: StudyRecords) -> Figure | None:
    """Plot the cycle time and the time to the target against the number of groups, one line per kind of grouping.

    Each point is the mean over the seeds of a setting of the study, with a 95 % interval. Runs that missed the target
    are omitted.

    Returns:
        The figure, or None if no run recorded `cyclic_turns`, or if no kind of grouping has runs with different numbers
        of groups.
    """
    if "groups_formed" not in view.runs:
        return None
    ways = {
        str(way): [setting for _, setting in runs.groupby(list(view.axes), sort=False)]
        for way, runs in view.runs.dropna(subset=["groups_formed"]).groupby("grouping", sort=False)
    }
    if max((len({_groups(setting) for setting in settings}) for settings in ways.values()), default=0) < 2:
        return None
    titles = {"cycle_s": "Cycle time"}
    if view.runs["time_to_target_s"].notna().any():
        titles["time_to_target_s"] = f"Time to {target_text(view.target)}"
    figure = new_figure(PANEL_IN * len(titles))
    panels = figure.subplots(len(titles), 1, squeeze=False, sharex=True)[:, 0]
    for axes, (column, title) in zip(panels, titles.items(), strict=True):
        unit = axis_unit(float(view.runs[column].max()), LONG_TIMES)
        for index, settings in enumerate(ways.values()):
            _draw_groups(axes, sorted(settings, key=_groups), column, unit, index)
        axes.set_ylabel(f"{title} ({unit.symbol})")
        if view.runs[column].max() > SPAN * view.runs[column].min():
            axes.set_yscale("log")
            axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
            axes.yaxis.set_major_formatter(ScalarFormatter())
            axes.yaxis.set_minor_formatter(NullFormatter())
        finish_axes(axes)
    fit_scale(panels[-1], "x")
    panels[-1].set_xlabel("Groups")
    add_legend(figure, [Line2D([], [], label=way, **line_style(index)) for index, way in enumerate(ways)])
    return figure


def _draw_groups(axes: Axes, settings: list[pd.DataFrame], column: str, unit: Unit, index: int) -> None:
    means = [mean_interval(setting[column].dropna().to_numpy(np.float64) / unit.size) for setting in settings]
    groups, style = [_groups(setting) for setting in settings], line_style(index)
    axes.plot(groups, [mean.mean for mean in means], **style)
    for place, mean in zip(groups, means, strict=True):
        axes.plot([place, place], [mean.low, mean.high], color=style["color"], linewidth=0.7)


def _groups(setting: pd.DataFrame) -> float:
    return float(setting["groups_formed"].mean())


PANELS = 3
ANIMATION_DPI = 110
LINK_PT, ARROW_PT = 0.35, 0.7
"""Line widths of two-way links and of arrows for one-way links, in points."""
BOUND: dict[str, Any] = {"linestyle": ":", "linewidth": 0.9}
LIMIT: dict[str, Any] = {"color": BLACK, "linewidth": 0.5}


def connectivity_figure(tables: Tables) -> Figure:
    """Plot the number of requested uploads over rounds and, below it, the connectivity factor of device clusters.

    The measured connectivity factor is a solid line, its theoretical bound is a dotted line, and the upper limit that
    is set for it is a horizontal line.
    """
    figure = new_figure(1.7 * CURVE_HEIGHT_IN)
    above, below = figure.subplots(2, 1, sharex=True)
    for index, (label, rows) in enumerate(tables):
        style = _plain(index) | {"linestyle": "-"}
        above.plot(rows["round"], rows["sampled"], label=label, **style)
        below.plot(rows["round"], rows["phi"], label=f"{label}, measured", **style)
        below.plot(rows["round"], rows["psi"], label=f"{label}, bound", **style | BOUND)
        below.axhline(float(rows["phi_max"].iloc[0]), label=f"{label}, limit", **LIMIT)
    above.set(ylabel="Requested uploads", ylim=(0.0, None))
    below.set(xlabel="Round", ylabel="Connectivity factor", ylim=(0.0, None))
    for axes in (above, below):
        finish_axes(axes)
    several = len(tables) > 1
    colour = "0.3" if several else above.get_lines()[0].get_color()
    looks: dict[str, dict[str, Any]] = {"measured": {"color": colour, "linewidth": 1.2}}
    if any(rows["psi"].notna().any() for _, rows in tables):
        looks["bound"] = {"color": colour, **BOUND}
    looks["limit"] = LIMIT
    factors = [Line2D([], [], label=f"factor: {name}", **look) for name, look in looks.items()]
    add_legend(figure, [*(above.get_lines() if several else ()), *factors])
    return figure


def clusters_figure(tables: Tables) -> Figure:
    """Plot the clusters of devices in the first, middle and last recorded round of the first run.

    All rounds have the same axes. If devices are plotted at their positions, the axes are in metres.
    """
    rows = tables[0][1]
    shown = spread(rows["round"].unique().tolist(), PANELS)
    figure = new_figure(WIDTH_IN / len(shown) + 0.35)
    panels = figure.subplots(1, len(shown), squeeze=False, sharex=True, sharey=True)[0]
    for axes, number in zip(panels, shown, strict=True):
        draw_round(axes, rows, number)
    if true_places(rows):
        panels[0].set_ylabel("y (m)", fontsize=SMALL_PT)
        for axes in panels:
            axes.set_xlabel("x (m)", fontsize=SMALL_PT)
    add_legend(figure, _entries(), handle_em=1.6)
    return figure


def write_clusters_animation(rows: pd.DataFrame, path: Path) -> None:
    """Write the series `d2d_clusters` of one run as a looping GIF, with one frame for each recorded round.

    All frames have the same axes.
    """
    with paper_style():
        figure = new_figure(WIDTH_IN)
        add_legend(figure, _entries(), handle_em=1.6)
        axes, writer = figure.subplots(), PillowWriter(fps=2)
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
    """Plot the devices and links of a round, with one colour for each cluster.

    Devices that upload are filled circles, and one-way links are arrows. Devices are plotted at their positions if
    links are short compared with the extent of all devices over all rounds. Otherwise the devices of each cluster are
    arranged on a circle.
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


def _entries() -> list[Line2D]:
    dot: dict[str, Any] = {
        "linestyle": "",
        "marker": "o",
        "markersize": 3,
        "markeredgewidth": 0.6,
        "markeredgecolor": "0.3",
    }
    return [
        Line2D([], [], markerfacecolor="0.3", **dot, label="uploads"),
        Line2D([], [], markerfacecolor="white", **dot, label="does not"),
        Line2D([], [], color="0.3", linewidth=LINK_PT, label="both ways"),
        Line2D([], [], color="0.3", linewidth=ARROW_PT, marker=">", markersize=3, label="one way"),
    ]


def one_way(edges: set[tuple[int, int]]) -> set[tuple[int, int]]:
    """Return the directed edges whose reverse edge is not in `edges`."""
    return {(j, i) for j, i in edges if (i, j) not in edges}


def true_places(rows: pd.DataFrame) -> bool:
    """Return True if, over all recorded rounds, links are short compared with the extent of all device positions."""
    lengths_m, apart_m = [], []
    for _, mine in rows.groupby("round"):
        true, xy_m = _positions(mine)
        pairs = zip(np.concatenate([*mine["sender"]]), np.concatenate([*mine["receiver"]]), strict=True)
        lengths_m += [float(np.linalg.norm(true[int(j)] - true[int(i)])) for j, i in pairs]
        apart_m += np.linalg.norm(xy_m - xy_m.mean(axis=0), axis=1).tolist()
    return bool(lengths_m and np.median(lengths_m) < np.median(apart_m))


def places_of(rows: pd.DataFrame, *, true: bool) -> dict[int, Array]:
    """Return the plotted position [2] of each device, by number.

    These are positions in m if `true` is set, otherwise schematic positions: a circle for each cluster.
    """
    return _positions(rows)[0] if true else circles([list(members) for members in rows["devices"]])


def _positions(rows: pd.DataFrame) -> tuple[dict[int, Array], Array]:
    """Return the positions of the devices of a round, in metres, by device number and as an array [devices, 2]."""
    devices = np.concatenate([*rows["devices"]]).astype(np.int64)
    xy_m = np.stack([np.concatenate([*rows["x_m"]]), np.concatenate([*rows["y_m"]])], axis=1)
    return dict(zip(devices.tolist(), xy_m, strict=True)), xy_m


def _limits(rows: pd.DataFrame) -> Array:
    """Return the limits of both axes [2, 2] within which the devices of all recorded rounds are plotted."""
    true = true_places(rows)
    xy = np.array([place for _, mine in rows.groupby("round") for place in places_of(mine, true=true).values()])
    low, high = xy.min(axis=0), xy.max(axis=0)
    margin = 0.06 * float((high - low).max()) or 1.0
    return np.stack([low - margin, high + margin], axis=1)


def circles(clusters: Sequence[Sequence[int]]) -> dict[int, Array]:
    """Return a position [2] for each device: devices of a cluster are on a circle, and circles are arranged in rows."""
    columns = int(np.ceil(np.sqrt(len(clusters))))
    places: dict[int, Array] = {}
    for number, members in enumerate(clusters):
        centre = np.array([number % columns, -(number // columns)], np.float64)
        angle = 2 * np.pi * np.arange(len(members)) / len(members)
        ring = centre + 0.38 * (len(members) > 1) * np.stack([np.sin(angle), np.cos(angle)], axis=1)
        places |= dict(zip(members, ring, strict=True))
    return places


ASPIRE_PANELS = {"active": "Active workers", "planes": "Planes"}
"""Columns of the series `aspire`, each with the label of its vertical axis."""
FEDUL_PANEL_IN = 1.5
FEDUL_PANELS = {
    "validation_error": "Validation error",
    "surrogate_loss": "Surrogate loss",
    "supervised_loss": "Supervised loss",
}
"""Columns of the series `fedul`, each with the label of its vertical axis."""
INSTANTS = 1000
"""Number of points of each charge curve if there are more than `FEW` batteries."""
FEW = 8
"""Maximum number of devices whose lines are labelled. If there are more devices, lines are thin, and only the median
line is labelled."""


def aspire_figure(tables: Tables) -> Figure:
    """Plot the number of active workers, and below it the number of cutting planes, against simulated time.

    A quantity that is constant in all runs has no panel. Its value is stated in the label of the time axis.
    """
    told = {name: {float(v) for _, table in tables for v in table[name].dropna().unique()} for name in ASPIRE_PANELS}
    varied = [name for name in ASPIRE_PANELS if len(told[name]) > 1] or ["planes"]
    constant = [f"{ASPIRE_PANELS[name].lower()}: {told[name].copy().pop():g}" for name in ASPIRE_PANELS
                if name not in varied and told[name]]  # fmt: skip
    figure = new_figure(len(varied) * CURVE_HEIGHT_IN)
    panels = figure.subplots(len(varied), sharex=True, squeeze=False)[:, 0]
    for column, axes in zip(varied, panels, strict=True):
        for index, (label, table) in enumerate(tables):
            style = _plain(index)
            axes.step(table["simulated_s"], table[column], where="pre", label=label, **style)
        axes.set_ylim(bottom=0)
        axes.yaxis.set_major_locator(MaxNLocator(nbins=5, integer=True))
        axes.set_ylabel(ASPIRE_PANELS[column])
        finish_axes(axes)
    panels[-1].set_xlabel("Time (s)" + "".join(f"\n({each} throughout)" for each in constant))
    add_line_legend(figure, panels[0])
    return figure


def fedul_figure(tables: Tables) -> Figure:
    """Plot validation error, surrogate loss and supervised loss of FedUL against the round.

    There is one panel for each quantity, and one line for each run.
    """
    measures = [name for name in FEDUL_PANELS if any(table[name].notna().any() for _, table in tables)]
    figure = new_figure(max(len(measures), 1) * FEDUL_PANEL_IN)
    panels = figure.subplots(max(len(measures), 1), sharex=True, squeeze=False)[:, 0]
    for name, axes in zip(measures, panels, strict=False):
        for index, (label, table) in enumerate(tables):
            axes.plot(table["round"], table[name], label=label, **_plain(index))
        if name == "validation_error" and axes.dataLim.ymin > 0:
            axes.set_yscale("log")
        else:
            fit_scale(axes, "y")
        axes.set_ylabel(FEDUL_PANELS[name])
        finish_axes(axes)
    panels[-1].set_xlabel("Round")
    add_line_legend(figure, panels[0])
    return figure


def charge_figure(tables: Tables) -> Figure:
    """Plot the charge of each battery over time, with one panel for each run. Charges are interpolated linearly."""
    end_s = max(float(rows["simulated_s"].max()) for _, rows in tables)
    max_j = max(float(rows["charge_j"].max()) for _, rows in tables)
    time, energy = axis_unit(end_s, LONG_TIMES), axis_unit(max_j, ENERGIES)
    figure = new_figure(CURVE_HEIGHT_IN * len(tables))
    panels = figure.subplots(len(tables), sharex=True, sharey=True, squeeze=False)[:, 0]
    for axes, (label, rows) in zip(panels, tables, strict=True):
        _draw_charges(
            axes, rows.assign(simulated_s=rows["simulated_s"] / time.size, charge_j=rows["charge_j"] / energy.size)
        )
        if len(tables) > 1:
            axes.set_title(label, loc="left")
        axes.set_ylim(0.0, 1.04 * max_j / energy.size)
        axes.set_ylabel(f"Charge ({energy.symbol})")
        finish_axes(axes)
    panels[-1].set_xlabel(f"Time ({time.symbol})")
    add_line_legend(figure, panels[0])
    return figure


def _draw_charges(axes: Axes, rows: pd.DataFrame) -> None:
    curves = [rows[rows["device"] == device] for device in np.unique(rows["device"])]
    if len(curves) <= FEW:
        for own in curves:
            device = int(own["device"].iloc[0])
            axes.plot(own["simulated_s"], own["charge_j"], label=f"dev-{device}", **_plain(device))
        return
    at_s = np.linspace(0.0, float(rows["simulated_s"].max()), INSTANTS)
    charges = np.array([np.interp(at_s, own["simulated_s"], own["charge_j"]) for own in curves])
    thin = [np.column_stack([at_s, charge]) for charge in charges]
    axes.add_collection(LineCollection(thin, colors="0.75", linewidths=0.3))
    axes.plot(at_s, np.median(charges, axis=0), label=f"median of {len(curves)} devices", **_plain(0))


def _plain(index: int) -> dict[str, Any]:
    return line_style(index) | {"marker": "none"}


Drawing = Callable[[Tables], Figure]
"""Function that plots one figure from the tables of a series."""

SERIES_FIGURES: dict[str, Drawing] = {
    "aspire": aspire_figure,
    "batteries": charge_figure,
    "connectivity": connectivity_figure,
    "cyclic_bound": bound_figure,
    "cyclic_turns": cycle_figure,
    "d2d_clusters": clusters_figure,
    "fedul": fedul_figure,
    "weights": weights_figure,
}
"""The plotting function of each series, by its name. A series without an entry has no figure."""

SERIES_ANIMATIONS: dict[str, Callable[[pd.DataFrame, Path], None]] = {
    "d2d_clusters": write_clusters_animation,
    "weights": write_weights_animation,
}
"""Functions that write a recorded series of a run as an animated GIF, by the name of the series."""


def series_figures(
    runs: Sequence[RunRecords], labels: Sequence[str], drawings: Mapping[str, Drawing]
) -> dict[str, Figure]:
    """Plot the recorded series of one or more runs, and return the figures by the name of the series.

    Raises:
        DataError: a table of a run is unreadable.
    """
    drawn = {}
    for name, draw in drawings.items():
        tables = [(label, run.table(name)) for label, run in zip(labels, runs, strict=True) if run.has(name)]
        if tables:
            drawn[name] = draw(tables)
    return drawn


def save_animations(runs: Sequence[RunRecords], folder: Path) -> list[Path]:
    """Write an animated GIF of each series in `SERIES_ANIMATIONS`, and return the files.

    If there are several runs, each file name ends with the position of the run, counted from 1.

    Raises:
        DataError: a table of a run is unreadable.
    """
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for place, run in enumerate(runs, start=1):
        for name in filter(run.has, SERIES_ANIMATIONS):
            path = folder / (f"{name}.gif" if len(runs) == 1 else f"{name}-{place}.gif")
            SERIES_ANIMATIONS[name](run.table(name), path)
            written.append(path)
    return written
