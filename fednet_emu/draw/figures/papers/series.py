"""Figures and animations of the series that algorithms and batteries record."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from fednet_emu.analysis.quantities import ENERGIES, LONG_TIMES, axis_unit
from fednet_emu.analysis.run import RunRecords
from fednet_emu.draw.figures.papers.clusters import weights_figure, write_weights_animation
from fednet_emu.draw.figures.papers.cyclic import bound_figure, cycle_figure
from fednet_emu.draw.figures.papers.d2d import clusters_figure, connectivity_figure, write_clusters_animation
from fednet_emu.draw.style import (
    CURVE_HEIGHT_IN,
    add_line_legend,
    finish_axes,
    fit_scale,
    line_style,
    new_figure,
)

Tables = Sequence[tuple[str, pd.DataFrame]]
"""The tables of one recorded series, one table per run, each with the label of its run."""

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
"""Maximum number of devices whose lines are labelled. With more devices, lines are thin, and only the median line is
labelled."""


def aspire_figure(tables: Tables) -> Figure:
    """Plot the number of active workers S(t), and below it the number of cutting planes, over simulated time.

    A quantity that is constant in all runs has no panel. Its value is written in the label of the time axis.
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
    """Plot each recorded quantity against the round, with one panel per quantity and one line per run."""
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
    """Plot the charge of each battery over time, one panel per run.

    Between records, charges are interpolated linearly.
    """
    end_s = max(float(rows["simulated_s"].max()) for _, rows in tables)
    max_j = max(float(rows["charge_j"].max()) for _, rows in tables)
    time, energy = axis_unit(end_s, LONG_TIMES), axis_unit(max_j, ENERGIES)
    figure = new_figure(CURVE_HEIGHT_IN * len(tables))
    panels = figure.subplots(len(tables), sharex=True, sharey=True, squeeze=False)[:, 0]
    for axes, (label, rows) in zip(panels, tables, strict=True):
        _draw(axes, rows.assign(simulated_s=rows["simulated_s"] / time.size, charge_j=rows["charge_j"] / energy.size))
        if len(tables) > 1:
            axes.set_title(label, loc="left")
        axes.set_ylim(0.0, 1.04 * max_j / energy.size)
        axes.set_ylabel(f"Charge ({energy.symbol})")
        finish_axes(axes)
    panels[-1].set_xlabel(f"Time ({time.symbol})")
    add_line_legend(figure, panels[0])
    return figure


def _draw(axes: Axes, rows: pd.DataFrame) -> None:
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
"""Functions that write a series of one run as an animated GIF, by the name of the series."""


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

    With several runs, each file name ends with the position of the run, counted from 1.

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
