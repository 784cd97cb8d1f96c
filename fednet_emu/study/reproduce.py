"""Reference results: the studies of the library that fit into the time given, their small tables and figures."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from matplotlib.figure import Figure

from fednet_emu.records.store import write_text
from fednet_emu.report.figures import save
from fednet_emu.report.study import StudyView
from fednet_emu.scenario.search import STUDIES, names
from fednet_emu.study.cells import LoadedStudy, load_study

DIGITS = 6
"""Significant digits of the tables: hosts may differ in the last ones."""


def fitting_studies(minutes: float) -> Iterator[LoadedStudy]:
    """The studies of the library that say what they cost, the cheapest first, as long as they fit together."""
    known = [load_study(name) for name in names(STUDIES)]
    left = minutes
    for loaded in sorted(known, key=lambda loaded: loaded.study.minutes or float("inf")):
        cost = loaded.study.minutes
        if cost is None or cost > left:
            return
        left -= cost
        yield loaded


def write_reference(view: StudyView, figures: Mapping[str, Figure], folder: Path) -> list[Path]:
    """Write `cells.csv`, one row for each run, and the figures; nothing in them depends on the host's speed."""
    folder.mkdir(parents=True, exist_ok=True)
    table = view.cells.drop(columns=["cell", "status", "reason"]).dropna(axis="columns", how="all")
    write_text(folder / "cells.csv", table.to_csv(index=False, float_format=f"%.{DIGITS}g", lineterminator="\n"))
    return [folder / "cells.csv", *save(figures, folder)]
