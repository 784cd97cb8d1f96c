"""Reference results: choose library studies that fit into a given host time, and write their tables and figures."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path

from matplotlib.figure import Figure

from fednet_emu.analysis.study import StudyRecords
from fednet_emu.draw.figures.run_figures import save
from fednet_emu.errors import FednetError
from fednet_emu.files.writing import csv_text, write_text
from fednet_emu.scenario.library import STUDIES, names
from fednet_emu.study.file import StudyFile

LEFT_OUT = ("-rounds",)
"""File-name suffixes of figures plotted against the number of rounds. Such figures are left out of the reference
results, because the number of rounds is not a cost."""
DIGITS = 6
"""Number of significant digits in tables; any further digits could differ between hosts."""


def fitting_studies(minutes: float) -> dict[str, float]:
    """Choose studies of the library with a known host time, shortest first, while the total is at most `minutes`.

    Returns:
        The host time of each chosen study, in minutes, by the name of the study; at least one study.

    Raises:
        FednetError: no study fits into `minutes`.
    """
    studies = {name: StudyFile.read(name) for name in names(STUDIES)}
    swept = {name: study.minutes for name, study in studies.items() if study.search is None}
    known = sorted((cost, name) for name, cost in swept.items() if cost is not None)
    if not known or not known[0][0] <= minutes:
        least = f"the cheapest, {known[0][1]}, takes {known[0][0]:g}" if known else "none states its costs"
        raise FednetError(f"minutes: no study of the library fits, got {minutes:g}; {least}")
    totals = itertools.accumulate(cost for cost, _ in known)
    return {name: cost for (cost, name), total in zip(known, totals, strict=True) if total <= minutes}


def write_reference(
    view: StudyRecords, figures: Mapping[str, Figure], folder: Path, wanted: Sequence[str] | None = None
) -> list[Path]:
    """Write the table of runs (`runs.csv`) and the reference figures, and return the paths of the files."""
    chosen = {name: figure for name, figure in figures.items() if is_reference(name, wanted)}
    return [write_runs(view, folder), *save(chosen, folder, ["png"])]


def is_reference(name: str, wanted: Sequence[str] | None) -> bool:
    """Return True if a figure belongs to the reference results.

    `wanted` lists the figures that the study file names. If it is None, all figures belong to the results except those
    plotted against the number of rounds.
    """
    return not name.endswith(LEFT_OUT) if wanted is None else name in wanted


def write_runs(view: StudyRecords, folder: Path) -> Path:
    """Write `runs.csv`, with one row per finished run and without empty columns; return the path of the file."""
    folder.mkdir(parents=True, exist_ok=True)
    runs = view.runs.drop(columns=["run", "status", "reason"], errors="ignore")
    table = runs.loc[:, (runs.notna() & (runs != "")).any()]
    write_text(folder / "runs.csv", csv_text(table, DIGITS))
    return folder / "runs.csv"
