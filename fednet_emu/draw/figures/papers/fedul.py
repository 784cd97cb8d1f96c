"""The figure of FedUL's own records: validation errors and losses over rounds."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd
from matplotlib.figure import Figure

from fednet_emu.draw.style import (
    add_line_legend,
    finish_axes,
    fit_scale,
    line_style,
    new_figure,
)

PANEL_HEIGHT_IN = 1.5
PANELS = {
    "validation_error": "Validation error",
    "surrogate_loss": "Surrogate loss",
    "supervised_loss": "Supervised loss",
}
"""Columns of the series `fedul`, and their names in the figure."""


def fedul_figure(tables: Sequence[tuple[str, pd.DataFrame]]) -> Figure:
    """Draw each measure that some run has against the round, in a panel of its own, with a line for each run."""
    measures = [name for name in PANELS if any(table[name].notna().any() for _, table in tables)]
    figure = new_figure(max(len(measures), 1) * PANEL_HEIGHT_IN)
    panels = figure.subplots(max(len(measures), 1), sharex=True, squeeze=False)[:, 0]
    for name, axes in zip(measures, panels, strict=False):
        for index, (label, table) in enumerate(tables):
            axes.plot(table["round"], table[name], label=label, **line_style(index) | {"marker": "none"})
        if name == "validation_error" and axes.dataLim.ymin > 0:
            axes.set_yscale("log")
        else:
            fit_scale(axes, "y")
        axes.set_ylabel(PANELS[name])
        finish_axes(axes)
    panels[-1].set_xlabel("Round")
    add_line_legend(figure, panels[0])
    return figure
