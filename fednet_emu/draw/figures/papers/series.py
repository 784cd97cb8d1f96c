"""Figures of the series that algorithms record in addition to the standard tables, and of batteries, by their names."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure

from fednet_emu.analysis.run import RunRecords
from fednet_emu.draw.figures.charges import charge_figure
from fednet_emu.draw.figures.papers.aspire import aspire_figure
from fednet_emu.draw.figures.papers.clusters import weights_figure, write_weights_animation
from fednet_emu.draw.figures.papers.cyclic import bound_figure, cycle_figure
from fednet_emu.draw.figures.papers.d2d import clusters_figure, connectivity_figure, write_clusters_animation
from fednet_emu.draw.figures.papers.fedul import fedul_figure

Drawing = Callable[[Sequence[tuple[str, pd.DataFrame]]], Figure]
"""Function that draws one figure from the tables of a series, each given with the label of its run."""

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
"""The function that draws each series; a series without an entry has no figure."""

SERIES_ANIMATIONS: dict[str, Callable[[pd.DataFrame, Path], None]] = {
    "d2d_clusters": write_clusters_animation,
    "weights": write_weights_animation,
}
"""The function that writes a series of one run as an animated GIF."""


def series_figures(
    runs: Sequence[RunRecords], labels: Sequence[str], drawings: Mapping[str, Drawing]
) -> dict[str, Figure]:
    """Draw the series that at least one run has recorded, and return the figures by the name of the series.

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
    """Write an animated GIF of each series for which `SERIES_ANIMATIONS` has an entry, and return the files.

    With several runs, each file name ends with the number of the run, counted from 1.

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
