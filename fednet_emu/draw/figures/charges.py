"""The figure of the batteries: how much energy is in each of them over time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure

from fednet_emu.analysis.quantities import ENERGIES, LONG_TIMES, axis_unit
from fednet_emu.arrays import Array
from fednet_emu.draw.style import CURVE_HEIGHT_IN, add_line_legend, finish_axes, line_style, new_figure

INSTANTS = 1000
"""Instants at which charges are drawn, when many batteries make lines with a point for each row too heavy."""
FEW = 8
"""Most devices whose lines have names; more are thin lines around their median."""


def charge_figure(tables: Sequence[tuple[str, pd.DataFrame]]) -> Figure:
    """Draw the charge of each battery over time, in a panel for each run; charges are straight lines between rows."""
    end_s = max(float(rows["simulated_s"].max()) for _, rows in tables)
    most_j = max(float(rows["charge_j"].max()) for _, rows in tables)
    time, energy = axis_unit(end_s, LONG_TIMES), axis_unit(most_j, ENERGIES)
    figure = new_figure(CURVE_HEIGHT_IN * len(tables))
    panels = figure.subplots(len(tables), sharex=True, sharey=True, squeeze=False)[:, 0]
    for axes, (label, rows) in zip(panels, tables, strict=True):
        _draw(axes, rows.assign(simulated_s=rows["simulated_s"] / time.size, charge_j=rows["charge_j"] / energy.size))
        if len(tables) > 1:
            axes.set_title(label, loc="left")
        axes.set_ylim(0.0, 1.04 * most_j / energy.size)
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
    charges = np.array([_charges(own, at_s) for own in curves])
    thin = [np.column_stack([at_s, charge]) for charge in charges]
    axes.add_collection(LineCollection(thin, colors="0.75", linewidths=0.3))
    axes.plot(at_s, np.median(charges, axis=0), label=f"median of {len(curves)} devices", **_plain(0))


def _charges(rows: pd.DataFrame, at_s: Array) -> Array:
    return np.asarray(np.interp(at_s, rows["simulated_s"], rows["charge_j"]), np.float64)


def _plain(index: int) -> dict[str, Any]:
    return line_style(index) | {"marker": "none"}
