"""Tables of study results for the documentation, calculated from the files in `results/reference`."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fednet_emu.analysis.statistics import mean_interval

ROOT = Path(__file__).parents[2]
REFERENCE = ROOT / "results/reference"
STATISTICS = {
    "mean": "Means over {seeds} seeds",
    "interval": "Means over {seeds} seeds, with 95 % intervals",
    "range": "Means over {seeds} seeds, with the smallest and the largest",
}
TITLES = {
    "rounds": "rounds",
    "simulated_s": "time",
    "uplink_bit": "uplink",
    "downlink_bit": "downlink",
    "sidelink_bit": "sidelink",
    "total_bit": "on the air",
    "energy_j": "energy",
    "backhaul_bit": "backhaul",
    "backhaul_j": "energy of the backhaul",
    "loss": "loss",
    "accuracy": "accuracy",
    "epsilon": "epsilon",
    "local_model_accuracy": "own models",
    "best_accuracy": "best accuracy",
    "worst_accuracy": "worst device",
    "std_accuracy": "deviation over devices",
    "worst_train_loss": "largest training loss",
    "attack_success": "attack succeeds",
    "time_to_target_s": "time to target",
    "bits_to_target": "bits to target",
    "energy_to_target_j": "energy to target",
    "rounds_to_target": "rounds to target",
    "cycle_s": "cycle",
    "gap": "distance from the optimum",
    "groups_formed": "groups",
    "min_weight_inside": "least weight inside a true group",
    "max_weight_across": "largest weight across",
    "largest_gradient_norm": "largest gradient norm",
    "ratio": "largest gradient norm, over that before training",
    "rand_index": "adjusted Rand index",
}
UNITS = {
    "s": (("s", 1.0), ("ms", 1e-3)),
    "bit": (("Gbit", 1e9), ("Mbit", 1e6)),
    "j": (("kJ", 1e3), ("J", 1.0), ("mJ", 1e-3)),
}
NOTES = {
    "before repetition": "times and energies are of version 1.0, before senders repeated blocks on weak links "
    "(`channel.rate.max_repetitions`)",
    "before narrowing": "measured before `channel.narrowing`, which makes weak uplinks faster, and with a default for "
    "the energy of computing where nothing stated one",
    "former quickstart": "measured on the former quickstart, with devices of 2e7 FLOP/s",
}
"""Phrases of `results/reference/README.md` about the age of results, and the note that a table then shows."""


def runs(study: str, where: str = "", file: str = "runs.csv", dtype: type | None = None) -> pd.DataFrame:
    """Return the rows of a file of a study that meet the conditions `where`; `runs.csv` has one row for each run.

    Raises:
        ValueError: the study or a column does not exist, or no row meets the conditions.
    """
    path = REFERENCE / study / file
    if not path.exists():
        raise ValueError(f"measured: no study '{study}' with {file} in results/reference")
    frame = pd.read_csv(path, dtype=dtype, keep_default_na=dtype is None)
    for part in filter(None, map(str.strip, where.split(";"))):
        key, _, value = part.partition("=")
        if key not in frame:
            raise ValueError(f"measured: '{study}' has no column '{key}'; it has {', '.join(frame)}")
        frame = frame[frame[key].astype(str).isin(value.split("|"))]
    if frame.empty:
        raise ValueError(f"measured: no row of '{study}' has {where}")
    return frame


def rows(
    frame: pd.DataFrame,
    by: list[str],
    columns: list[str],
    statistic: str = "mean",
    minus: str = "",
    published: pd.DataFrame | None = None,
) -> tuple[list[str], list[list[str]]]:
    """Return the header and the rows of a table with one row for each setting of a study, in the order of the study.

    Args:
        frame: one row for each run.
        by: the columns of `frame` whose values identify a setting.
        columns: the columns of `frame` that the table shows.
        statistic: the statistic over seeds, one of `STATISTICS`.
        minus: a value that identifies a setting; the table also shows the differences from this setting.
        published: published values of the same settings, as text: the columns `by`, and some of `columns`.

    Raises:
        ValueError: a column or the setting `minus` does not exist.
    """
    missing = [name for name in (*by, *columns) if name not in frame]
    if missing:
        raise ValueError(f"measured: no column {', '.join(missing)}; there are {', '.join(frame)}")
    units = {name: _unit(name, frame[name]) for name in columns}
    frame = frame if "seed" in frame else frame.assign(seed=0)
    groups = {_key(level): its.set_index("seed") for level, its in frame.groupby(by, sort=False)}
    printed = {} if published is None else published.astype(str).set_index(by).to_dict("index")
    base = next((its for level, its in groups.items() if minus and minus in level), None)
    if minus and base is None:
        raise ValueError(f"measured: no row '{minus}'; there are {', '.join(map(' '.join, groups))}")
    head = [*by]
    for name in columns:
        unit = units[name][0]
        head.append(f"{TITLES.get(name, name)}{f' ({unit})' if unit else ''}")
        head += [f"minus that of {minus}"] if minus else []
        head += ["published"] if published is not None and name in published else []
    shown = []
    for level, its in groups.items():
        row = list(level)
        for name in columns:
            row.append(_text(its[name], units[name], statistic))
            if base is not None:
                row.append("" if its is base else _text(its[name] - base[name], units[name], "interval"))
            if published is not None and name in published:
                row.append(printed.get(level if len(by) > 1 else level[0], {}).get(name, ""))
        shown.append(row)
    return head, shown


def intervals(frame: pd.DataFrame, by: list[str], across: list[str]) -> tuple[list[str], list[list[str]]]:
    """Return the header and the rows of a table of intervals, which are the rows (`mean`, `low`, `high`) of `frame`."""
    columns = list(dict.fromkeys(frame[across].astype(str).agg(", ".join, axis=1)))
    shown = []
    for level, its in frame.groupby(by, sort=False):
        known = dict(zip(its[across].astype(str).agg(", ".join, axis=1), its.itertuples(), strict=True))
        cells = [f"{known[name].mean:.2f} ({known[name].low:.2f} to {known[name].high:.2f})" for name in columns]
        shown.append([*_key(level), *cells])
    return [*by, *columns], shown


def _key(level: Any) -> tuple[str, ...]:
    return tuple(f"{part:g}" if isinstance(part, float) else str(part) for part in level)


def _unit(column: str, values: pd.Series) -> tuple[str, float]:
    ending = (
        column.removesuffix("_to_target").removesuffix("s") if column == "bits_to_target" else column.rpartition("_")[2]
    )
    typical = float(np.nanmedian(np.abs(values))) if values.notna().any() else 0.0
    choices = UNITS.get(ending, (("", 1.0),))
    return next(((name, size) for name, size in choices if typical >= size), choices[-1])


def _text(values: pd.Series, unit: tuple[str, float], statistic: str) -> str:
    known = values.dropna().to_numpy(np.float64) / unit[1]
    if known.size == 0:
        return "never"
    if len(values) == 1 and known[0] % 1 == 0:
        return f"{known[0]:,.0f}"
    few = f", {known.size} of {len(values)} runs" if known.size < len(values) else ""
    mean, low, high = mean_interval(known)
    if statistic == "range":
        low, high = known.min(), known.max()
    spread = "" if statistic == "mean" or known.size == 1 else f" ({_number(low)} to {_number(high)})"
    return f"{_number(mean)}{spread}{few}"


def _number(value: float) -> str:
    if value == 0:
        return "0"
    digits = max(0, min(4, 2 - int(np.floor(np.log10(abs(value))))))
    return f"{value:,.{digits}f}"


def source(study: str, statistic: str, seeds: int, file: str = "runs.csv") -> str:
    """Return the sentence below a table, which states the statistic, the file and the commit of the results."""
    lead = STATISTICS[statistic].format(seeds=seeds) if seeds > 1 else "One run each"
    age = "".join(f"; {note}" for note in _notes(study))
    return f"{lead}; [all runs](/../results/reference/{study}/{file}){_state(study, file)}{age}."


def _notes(study: str) -> Iterator[str]:
    intro = (REFERENCE / "README.md").read_text(encoding="utf-8").partition("| folder |")[0]
    for part in intro.split("\n\n"):
        if f"`{study}/`" in part:
            yield from (note for words, note in NOTES.items() if words in part)


def _state(study: str, file: str) -> str:
    """Return the commit and date of the latest change of a file with results; empty without a Git history."""
    command = ["git", "log", "-1", "--format=%h of %cs", "--", f"results/reference/{study}/{file}"]
    try:
        found = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False).stdout.strip()
    except OSError:
        return ""
    return f", measured for commit {found}" if found else ""
