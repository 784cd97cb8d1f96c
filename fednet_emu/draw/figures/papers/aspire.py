"""The figure of ASPIRE's own records: numbers of workers that it waits for and of cutting planes, over time."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from fednet_emu.draw.style import CURVE_HEIGHT_IN, add_line_legend, finish_axes, line_style, new_figure

PANELS = {"active": "Active workers", "planes": "Planes"}
"""Columns of the series `aspire`, and their names in the figure."""


def aspire_figure(tables: Sequence[tuple[str, pd.DataFrame]]) -> Figure:
    """Draw the number of active workers S(t), and below it the number of planes, over simulated time, for each run.

    A number that never changes, in any run, has no panel: the axis of the other one says it.
    """
    told = {name: {float(v) for _, table in tables for v in table[name].dropna().unique()} for name in PANELS}
    varied = [name for name in PANELS if len(told[name]) > 1] or ["planes"]
    constant = [f"{PANELS[name].lower()}: {told[name].copy().pop():g}" for name in PANELS
                if name not in varied and told[name]]  # fmt: skip
    figure = new_figure(len(varied) * CURVE_HEIGHT_IN)
    panels = figure.subplots(len(varied), sharex=True, squeeze=False)[:, 0]
    for column, axes in zip(varied, panels, strict=True):
        for index, (label, table) in enumerate(tables):
            style = line_style(index) | {"marker": "none"}
            axes.step(table["simulated_s"], table[column], where="pre", label=label, **style)
        axes.set_ylim(bottom=0)
        axes.yaxis.set_major_locator(MaxNLocator(nbins=5, integer=True))
        axes.set_ylabel(PANELS[column])
        finish_axes(axes)
    panels[-1].set_xlabel("Time (s)" + "".join(f"\n({each} throughout)" for each in constant))
    add_line_legend(figure, panels[0])
    return figure
