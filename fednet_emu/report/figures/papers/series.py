"""Figures of the series that algorithms record of themselves, by the name of the series."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure

from fednet_emu.report.figures.papers.aspire import aspire_figure
from fednet_emu.report.figures.papers.clusters import weights_figure, write_weights_animation
from fednet_emu.report.figures.papers.cyclic import bound_figure, cycle_figure
from fednet_emu.report.figures.papers.d2d import clusters_figure, connectivity_figure, write_clusters_animation
from fednet_emu.report.figures.papers.fedul import fedul_figure
from fednet_emu.report.views.run import RunView

Drawing = Callable[[Sequence[tuple[str, pd.DataFrame]]], Figure]
"""Makes one figure of a series' tables, each with the label of its run."""

SERIES_FIGURES: dict[str, Drawing] = {
    "aspire": aspire_figure,
    "connectivity": connectivity_figure,
    "cyclic_bound": bound_figure,
    "cyclic_turns": cycle_figure,
    "d2d_clusters": clusters_figure,
    "fedul": fedul_figure,
    "weights": weights_figure,
}
"""How each series is drawn; a series without a line here stays a table."""

SERIES_ANIMATIONS: dict[str, Callable[[pd.DataFrame, Path], None]] = {
    "d2d_clusters": write_clusters_animation,
    "weights": write_weights_animation,
}
"""How a series of one run becomes an animated GIF."""


def series_figures(
    runs: Sequence[RunView], labels: Sequence[str], drawings: Mapping[str, Drawing]
) -> dict[str, Figure]:
    """The figures of those series that at least one run has recorded, by name of the series.

    Raises:
        DataError: a table of a run is unreadable.
    """
    drawn = {}
    for name, draw in drawings.items():
        tables = [(label, run.table(name)) for label, run in zip(labels, runs, strict=True) if run.has(name)]
        if tables:
            drawn[name] = draw(tables)
    return drawn


def save_animations(runs: Sequence[RunView], folder: Path) -> list[Path]:
    """Write an animated GIF of every series that has one, and return the files.

    With several runs, each name is completed by the place of the run, from 1.

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
