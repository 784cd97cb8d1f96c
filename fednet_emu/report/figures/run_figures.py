"""Draw all figures of one or more runs, and save them as files."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from fednet_emu.errors import DataError, FednetError, did_you_mean
from fednet_emu.report.figures.curves import (
    EVALUATION_COLUMNS,
    ROUND_COLUMNS,
    latency_figure,
    progress_figure,
    progress_figures,
)
from fednet_emu.report.figures.papers.series import SERIES_FIGURES, series_figures
from fednet_emu.report.figures.study_curves import METRICS, STUDY_COSTS
from fednet_emu.report.figures.timeline import Panel, timeline_figure
from fednet_emu.report.style import paper_style
from fednet_emu.report.views.activity import (
    COMPUTE_COLUMNS,
    RECEPTION_COLUMNS,
    TRANSFER_COLUMNS,
    activity_bars,
    first_rounds_end_s,
)
from fednet_emu.report.views.run import RunView, distinct_labels

RESOLUTION_DPI = 300
UNDATED = {"png": {"Software": None}, "pdf": {"CreationDate": None}, "svg": {"Date": None}}
"""Metadata that is left out of each file format, so that equal figures give equal files."""


def figures(runs: Sequence[RunView], *, until_s: float | None = None) -> dict[str, Figure]:
    """Draw all figures that the runs have data for, and return them by name; several runs are overlaid.

    These are `accuracy-time`, `accuracy-bits` and `accuracy-energy` (`loss-...` if a run was evaluated without
    accuracy); `round-latency`, the cumulative distribution of round lengths; `timeline`, what each device did at which
    time; and one for each additional series that an algorithm recorded.

    Args:
        runs: the runs; each has the same line style in all figures.
        until_s: end of the timeline in simulated seconds, at most the end of the last run; by default the end of each
            run's third round.

    Raises:
        FednetError: `until_s` is not above 0.
        DataError: a table of a run is missing or unreadable.
    """
    if until_s is not None and not until_s > 0:
        raise FednetError(f"until_s: the timeline must end after it starts, got {until_s:g}; give seconds above 0")
    if until_s is not None:
        until_s = min(until_s, max((_last_end_s(run) for run in runs), default=0.0))
    labels = distinct_labels(runs)
    evaluations = [run.table("evaluations", EVALUATION_COLUMNS) for run in runs]
    rounds = [run.table("rounds", ROUND_COLUMNS) for run in runs]
    panels = [_panel(label, run, until_s) for label, run in zip(labels, runs, strict=True)]
    with paper_style():
        drawn = {
            **progress_figures(list(zip(labels, evaluations, strict=True))),
            "round-latency": latency_figure(list(zip(labels, rounds, strict=True))),
            "timeline": timeline_figure(panels),
            **series_figures(runs, labels, SERIES_FIGURES),
        }
    return {name: figure for name, figure in drawn.items() if figure is not None}


def one_figure(
    runs: Sequence[RunView], what: str | None = None, *, against: str | None = None, until_s: float | None = None
) -> Figure:
    """Draw one figure of the runs: a measure against a cost, or one of `figures` by its name.

    Args:
        runs: the runs, which are overlaid.
        what: a measure: `accuracy`, `loss`, `worst_accuracy`, ...; or a figure: `timeline`, `round-latency`, or the
            name of a series. The default is the accuracy, or the loss if no accuracy was measured.
        against: for a measure, the cost: `time` (the default), `bits`, `energy` or `rounds`.
        until_s: end of the timeline in simulated seconds.

    Raises:
        FednetError: there is no such figure, or the runs did not measure it.
    """
    tables = [run.table("evaluations") for run in runs]
    measured = [name for name in METRICS if any(np.isfinite(table[name]).any() for table in tables)]
    what = what or next(iter(measured), "accuracy")
    if what not in METRICS:
        drawn = figures(runs, until_s=until_s)
        if what not in drawn:
            known = [*METRICS, *(name for name in drawn if name.partition("-")[0] not in METRICS)]
            raise FednetError(f"plot: no such figure, got '{what}'{did_you_mean(what, known) or _known(known)}")
        if against is not None:
            raise FednetError(f"against: '{what}' is not drawn against a cost, got '{against}'; leave it out")
        return drawn[what]
    cost = STUDY_COSTS.get(against or "time")
    if cost is None:
        hint = did_you_mean(str(against), STUDY_COSTS) or _known(STUDY_COSTS)
        raise FednetError(f"against: no such cost, got '{against}'{hint}")
    if what not in measured:
        raise FednetError(f"plot: '{what}' was not measured, got no figure{_known(dict.fromkeys(measured))}")
    rows = [table[np.isfinite(table[what])] for table in tables]
    with paper_style():
        return progress_figure(list(zip(distinct_labels(runs), rows, strict=True)), what, cost, METRICS[what])


def _known(names: Iterable[str]) -> str:
    return f"; choose from {', '.join(names) or 'none'}"


def save(figures: Mapping[str, Figure], folder: Path, formats: Sequence[str] = ("png", "pdf")) -> list[Path]:
    """Write each figure as `<name>.<format>`; files are written atomically, and equal figures give equal files.

    Args:
        figures: figures by name, as `figures()` returns them.
        folder: the folder for the files; created if it does not exist.
        formats: any of `png` (300 dpi), `pdf` and `svg`; the last two contain text as text, not as shapes.

    Returns:
        The files written.

    Raises:
        FednetError: there is no such format.
        DataError: the folder cannot be written.
    """
    for picture in formats:
        if picture not in UNDATED:
            raise FednetError(f"formats: no such picture format, got {picture!r}; choose from {', '.join(UNDATED)}")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with paper_style():
            return [
                _save_one(figure, folder / f"{name}.{picture}", picture)
                for name, figure in figures.items()
                for picture in formats
            ]
    except OSError as error:
        raise DataError(str(folder), f"cannot be written ({error.strerror})", "choose another --out") from error


def _panel(label: str, run: RunView, until_s: float | None) -> Panel:
    transfers = run.table("transfers", TRANSFER_COLUMNS)
    computes = run.table("computes", COMPUTE_COLUMNS)
    rounds = run.table("rounds", ROUND_COLUMNS)
    end_s = first_rounds_end_s(rounds, transfers, computes) if until_s is None else until_s
    bars = activity_bars(transfers, run.table("receptions", RECEPTION_COLUMNS), computes, end_s)
    round_ends_s = rounds["ended_s"].to_numpy(np.float64)
    return Panel(label, bars, round_ends_s[round_ends_s <= end_s], end_s)


def _last_end_s(run: RunView) -> float:
    ends_s = pd.concat([run.table(name, ["ended_s"]) for name in ("transfers", "computes", "rounds")])["ended_s"]
    return float(ends_s.max()) if ends_s.notna().any() else 0.0


def _save_one(figure: Figure, path: Path, picture: str) -> Path:
    unfinished = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        figure.savefig(unfinished, format=picture, dpi=RESOLUTION_DPI, metadata=UNDATED[picture])
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)
    return path
