"""Figures of one or more runs: curves against cost, latency of rounds, timelines and series; writing to files."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from matplotlib import rc_context
from matplotlib.figure import Figure

from fednet_emu.analysis.activity import (
    COMPUTE_COLUMNS,
    RECEPTION_COLUMNS,
    WHOLE,
    Window,
    activity_bars,
    first_rounds_end_s,
)
from fednet_emu.analysis.quantities import LONG_TIMES, axis_unit
from fednet_emu.analysis.run import RunRecords, distinct_labels
from fednet_emu.analysis.scales import METRICS, RECORDED, TRADED, Cost, measured
from fednet_emu.draw.figures import tex
from fednet_emu.draw.figures.page import DIGITS, latex_text, numbers_of
from fednet_emu.draw.figures.series import SERIES_FIGURES, Tables, series_figures
from fednet_emu.draw.figures.timeline import Panel, timeline_figure
from fednet_emu.draw.style import (
    CURVE_HEIGHT_IN,
    TARGET_LINE,
    finish_lines,
    fit_scale,
    fit_share_scale,
    line_style,
    new_axes,
    paper_style,
)
from fednet_emu.errors import FednetError, did_you_mean, require_known
from fednet_emu.files.writing import csv_text, file_errors, write_text

MARKERS_PER_CURVE = 8
EVALUATION_COLUMNS = ("simulated_s", "uplink_bit", "downlink_bit", "sidelink_bit", "energy_j", "loss", "accuracy")
SHARES = ("accuracy", "worst_accuracy", "attack_success")
ROUND_COLUMNS = ("started_s", "ended_s")


def progress_figures(evaluations: Tables, target: float | None = None) -> dict[str, Figure]:
    """Plot the accuracy against time, bits and energy, and the loss against time.

    If a run has no accuracy, only the loss is plotted.

    Args:
        target: an accuracy, marked by a horizontal line.

    Returns:
        The figures by name. A cost that is zero in all runs has no figure. If no run has evaluations, there are no
        figures.
    """
    evaluated = [rows for _, rows in evaluations if len(rows)]
    measure = "accuracy" if all(np.isfinite(rows["accuracy"]).any() for rows in evaluated) else "loss"
    wanted = [(measure, name) for name in TRADED]
    if measure == "accuracy" and all(np.isfinite(rows["loss"]).any() for rows in evaluated):
        wanted.append(("loss", "time"))
    drawn = {}
    for what, name in wanted:
        known, cost = [(label, rows[np.isfinite(rows[what])]) for label, rows in evaluations], TRADED[name]
        if any((cost.of(rows) > 0).any() for _, rows in known):
            level = target if what == "accuracy" else None
            drawn[f"{what}-{name}"] = progress_figure(known, what, cost, target=level)
    return drawn


def latency_figure(rounds: Tables) -> Figure | None:
    """Plot the cumulative distribution of round durations, one curve per run. Return None if no round has ended."""
    latencies = [(label, (rows["ended_s"] - rows["started_s"]).dropna().to_numpy()) for label, rows in rounds]
    together_s = np.concatenate([latency_s for _, latency_s in latencies]) if latencies else np.empty(0)
    if not together_s.size:
        return None
    unit = axis_unit(float(np.median(together_s)), LONG_TIMES)  # the maximum may be an outlier
    figure, axes = new_axes(CURVE_HEIGHT_IN)
    for index, (label, latency_s) in enumerate(latencies):
        if latency_s.size:
            axes.ecdf(latency_s / unit.size, label=label, **line_style(index) | {"marker": "none"})
    fit_scale(axes, "x")
    axes.set(xlabel=f"Round latency ({unit.symbol})", ylabel="Share of rounds", ylim=(0.0, 1.02))
    finish_lines(figure, axes)
    return figure


def progress_figure(curves: Tables, measure: str, cost: Cost, title: str = "", target: float | None = None) -> Figure:
    """Plot a score against a cost, with one line for each run. If there are several lines, they have markers.

    Args:
        measure: a column of the evaluations.
        title: label of the vertical axis; by default the capitalized `measure`.
        target: a value of the score, marked by a horizontal line.
    """
    unit = cost.unit(max(float(cost.of(rows).max()) for _, rows in curves if len(rows)))
    figure, axes = new_axes(CURVE_HEIGHT_IN)
    for index, (label, rows) in enumerate(curves):
        if len(rows):
            every = max(1, len(rows) // MARKERS_PER_CURVE)
            style = line_style(index) if len(curves) > 1 else line_style(index) | {"marker": "none"}
            axes.plot(cost.of(rows) / unit.size, rows[measure], label=label, markevery=every, **style)
    fit_scale(axes, "x")
    if target is not None:
        axes.axhline(target, label=f"target {target:g}", **TARGET_LINE)
    if measure in SHARES:
        fit_share_scale(axes)
    else:
        fit_scale(axes, "y")
    axes.set(xlabel=cost.label(unit), ylabel=title or measure.capitalize())
    finish_lines(figure, axes)
    return figure


RESOLUTION_DPI = 300
UNDATED = {"png": {"Software": None}, "pdf": {"CreationDate": None}, "svg": {"Date": None}}
"""Metadata that is omitted from files of each format, so that the same figure always gives the same file."""
FORMATS = (*UNDATED, "pgf")
TEX = ("lualatex", "xelatex", "pdflatex")
"""LaTeX programs, of which the first installed one measures the text of PGF figures."""


def figures(runs: Sequence[RunRecords], shown: Window = WHOLE) -> dict[str, Figure]:
    """Plot all figures of one or more runs, and return the figures by name. Several runs are overlaid.

    The learning curves `accuracy-time`, `accuracy-bits`, `accuracy-energy` and `loss-time` have a line at the target
    accuracy. If a run has no accuracy, all of them show the loss. The figure `round-latency` is the cumulative
    distribution of round durations, and `timeline` shows the activities of devices. Each figure of a recorded series
    has the name of the series.

    Args:
        runs: the runs. A run has the same line style in all figures.

    Raises:
        FednetError: the timeline would be empty.
        DataError: a table of a run is missing or unreadable.
    """
    shown.check(runs)
    labels = distinct_labels(runs)
    evaluations = [run.table("evaluations", EVALUATION_COLUMNS) for run in runs]
    rounds = [run.table("rounds", ROUND_COLUMNS) for run in runs]
    panels = _panels(runs, labels, shown)
    with paper_style():
        drawn = {
            **progress_figures(list(zip(labels, evaluations, strict=True)), _target(runs)),
            "round-latency": latency_figure(list(zip(labels, rounds, strict=True))),
            "timeline": timeline_figure(panels),
            **series_figures(runs, labels, SERIES_FIGURES),
        }
    return {name: figure for name, figure in drawn.items() if figure is not None}


def one_figure(
    runs: Sequence[RunRecords], what: str | None = None, *, against: str | None = None, shown: Window = WHOLE
) -> Figure:
    """Plot a score against a cost, or plot one of the figures of `figures` by its name.

    Args:
        what: a score (`accuracy`, `loss`, `worst_accuracy`, ...) or a figure (`timeline`, `round-latency`, or the name
            of a series). The default is the accuracy, or the loss if no accuracy was measured.
        against: the cost on the horizontal axis if `what` is a score: `time` (the default), `bits`, `energy` or
            `rounds`.

    Raises:
        FednetError: the figure does not exist, or the runs did not measure the quantity.
    """
    tables = [run.table("evaluations") for run in runs]
    known = measured(tables)
    what = what or next(iter(known), "accuracy")
    if what not in METRICS:
        drawn = figures(runs, shown)
        if what not in drawn:
            names = [*METRICS, *(name for name in drawn if name.partition("-")[0] not in METRICS)]
            raise FednetError(f"plot: no such figure, got '{what}'{did_you_mean(what, names, 'choose from')}")
        if against is not None:
            raise FednetError(f"against: '{what}' is not drawn against a cost, got '{against}'; leave it out")
        return drawn[what]
    require_known("against: no such cost", against or None, RECORDED)
    cost = RECORDED[against or "time"]
    if what not in known:
        choices = ", ".join(known) or "none"
        raise FednetError(f"plot: '{what}' was not measured, got no figure; choose from {choices}")
    rows = [table[np.isfinite(table[what])] for table in tables]
    with paper_style():
        target = _target(runs) if what == "accuracy" else None
        return progress_figure(list(zip(distinct_labels(runs), rows, strict=True)), what, cost, METRICS[what], target)


def save(
    figures: Mapping[str, Figure],
    folder: Path,
    formats: Sequence[str] = ("png",),
    *,
    csv: bool = False,
    latex: bool = False,
) -> list[Path]:
    """Write each figure atomically to the file `<name>.<format>`. The same figure always gives the same file.

    Args:
        folder: the folder for the files; created if it does not exist.
        formats: any of `png` (300 dpi), `pdf`, `svg` and `pgf`. All formats except `png` store text as text, not as
            shapes.
        csv: True to write the plotted numbers of each figure as `<name>.csv`.
        latex: True to write the plotted numbers of each figure as a LaTeX table, `<name>.tex`.

    Returns:
        The written files.

    Raises:
        FednetError: the format does not exist, or PGF is requested without LaTeX.
        DataError: the folder cannot be written.
    """
    settings = _settings(formats)
    as_csv = partial(csv_text, digits=DIGITS)
    texts = [(ending, text) for ending, text, wanted in (("csv", as_csv, csv), ("tex", latex_text, latex)) if wanted]
    written = []
    with file_errors(folder, "written", "choose another --out"):
        folder.mkdir(parents=True, exist_ok=True)
        with paper_style(), rc_context(settings):  # type: ignore[arg-type]
            for name, figure in figures.items():
                for picture in formats:
                    written += _save_one(figure, folder / f"{name}.{picture}", picture)
                for ending, text in texts:
                    write_text(folder / f"{name}.{ending}", text(numbers_of(figure)))
                    written.append(folder / f"{name}.{ending}")
    return written


def _settings(formats: Sequence[str]) -> dict[str, Any]:
    for picture in formats:
        if picture not in FORMATS:
            raise FednetError(f"formats: no such picture format, got {picture!r}; choose from {', '.join(FORMATS)}")
    if "pgf" not in formats:
        return {}
    found = [program for program in TEX if shutil.which(program)]
    if not found:
        raise FednetError(f"formats: pgf needs LaTeX for its text, got no {', '.join(TEX)}; install it, or take svg")
    return {"pgf.texsystem": found[0]}


TIMELINE: dict[str, Sequence[str] | None] = {
    "transfers": None,  # phases have columns in some runs only
    "receptions": RECEPTION_COLUMNS,
    "computes": COMPUTE_COLUMNS,
    "rounds": ROUND_COLUMNS,
}
"""Tables and columns of a run that are needed for its timeline, in the order of `_Recorded`."""


class _Recorded(NamedTuple):
    transfers: pd.DataFrame
    receptions: pd.DataFrame
    computes: pd.DataFrame
    rounds: pd.DataFrame

    @property
    def end_s(self) -> float:
        ends_s = pd.concat([self.transfers["ended_s"], self.computes["ended_s"], self.rounds["ended_s"]])
        return float(ends_s.max()) if ends_s.notna().any() else 0.0


def _panels(runs: Sequence[RunRecords], labels: Sequence[str], shown: Window) -> list[Panel]:
    recorded = [_Recorded(*(run.table(*each) for each in TIMELINE.items())) for run in runs]
    until_s = _end_s(recorded, shown)
    return [_panel(*each, shown, until_s) for each in zip(labels, runs, recorded, strict=True)]


def _end_s(recorded: Sequence[_Recorded], shown: Window) -> float:
    if shown.until_s is None and shown.from_s == 0.0:
        return max((first_rounds_end_s(its.rounds, its.transfers, its.computes) for its in recorded), default=0.0)
    last_s = max((its.end_s for its in recorded), default=0.0)
    if shown.from_s >= last_s > 0.0:
        raise FednetError(f"from_s: the last run ends at {last_s:g} s, got {shown.from_s:g} s; give an earlier time")
    return min(np.inf if shown.until_s is None else shown.until_s, last_s)


def _panel(label: str, run: RunRecords, its: _Recorded, shown: Window, end_s: float) -> Panel:
    bars = activity_bars(its.transfers, its.receptions, its.computes, end_s, shown.from_s)
    count = run.devices
    if shown.devices is not None:
        bars, count = bars[bars["device"].isin(shown.devices)], len(set(shown.devices))
    round_ends_s = its.rounds["ended_s"].to_numpy(np.float64)
    inside = (round_ends_s >= shown.from_s) & (round_ends_s <= end_s)
    return Panel(label, bars, round_ends_s[inside], end_s, shown.from_s, count, shown.sort, its.end_s)


def _target(runs: Sequence[RunRecords]) -> float | None:
    ends = {float(stop["accuracy"]) for run in runs if (stop := run.settings.get("stop") or {}).get("accuracy")}
    return ends.pop() if len(ends) == 1 else None


def _save_one(figure: Figure, path: Path, picture: str) -> list[Path]:
    """Write a figure to a file, and return the paths of all written files.

    A PGF figure that contains images results in several files, because each image has its own file.
    """
    with TemporaryDirectory(prefix=f".{path.name}.", dir=path.parent) as unfinished:
        target = Path(unfinished, path.name)
        if picture == "pgf":
            with tex.measured(path.name):
                figure.savefig(target, format=picture, dpi=RESOLUTION_DPI, backend=f"module://{tex.__name__}")
        else:
            figure.savefig(target, format=picture, dpi=RESOLUTION_DPI, metadata=UNDATED[picture])
        return [made.replace(path.with_name(made.name)) for made in sorted(target.parent.iterdir(), reverse=True)]
