"""Collect the content of the page of a study, and write the page."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fednet_emu.analysis.activity import spread
from fednet_emu.analysis.comparison import ALL_PAIRS, EVERYWHERE, MOST, compared_axes, differences
from fednet_emu.analysis.fronts import WANTED, ends_of, fronts, points_of
from fednet_emu.analysis.quantities import counted
from fednet_emu.analysis.ranked import RankedSettings, left_out_text
from fednet_emu.analysis.ranking import rank
from fednet_emu.analysis.scales import COSTS, RECORDED, TRADED
from fednet_emu.analysis.searched import SearchRecords
from fednet_emu.analysis.settings import Setting, costs_to_target, settings_of
from fednet_emu.analysis.statistics import band_of, cost_interval, marks, mean_interval
from fednet_emu.analysis.study import StudyRecords, level_text, rows_of, target_text
from fednet_emu.draw.page.document import TITLES, columns_of, write_page
from fednet_emu.errors import FednetError

SCRIPTS = ("lines.js", "study.js", "search.js", "fronts.js")
MEANS = dict.fromkeys(("accuracy", "loss"), mean_interval) | {its.column: cost_interval for its in TRADED.values()}
"""Columns of the table of runs whose means over seeds are shown for each setting. The value is the function that
computes the mean and its 95 % interval."""
FIRST = ("time", "bits", "energy")
"""Costs for which the introduction of the page names the best setting."""
POINTS, FEWEST_POINTS, ALL_POINTS = 120, 40, 40_000
"""Maximum and minimum number of points of a line, and maximum total number of points of all lines of a page."""
MOST_POINTS = 250
"""Maximum number of points of a setting in a plot of Pareto fronts. If there are more points, only evenly spaced points
and the points on fronts are plotted."""
TRIALS = {
    "trial": ("Trial", "count"),
    "setting": ("Setting", "text"),
    "runs": ("Runs", "count"),
    "reached": ("Got there", "count"),
    "score": ("Score", "score"),
    "why_not": ("Why not", "text"),
}
"""Title and kind of each column of the table of trials, except the columns of parameters and costs."""


def write_study_page(view: StudyRecords, path: Path, search: SearchRecords | None = None) -> Path:
    """Write the page of a study, and of its search if there is one, to a file and return the path of the file.

    Raises:
        DataError: the file cannot be written.
    """
    return write_page(path, view.name, study_document(view, search), SCRIPTS)


def study_document(view: StudyRecords, search: SearchRecords | None = None) -> dict[str, Any]:
    """Return the content of the page of a study. Values are in s, bits and J, and unknown values are NaN."""
    settings = settings_of(view)
    needed = list(costs_to_target(settings)) if view.target else []
    compared, ranked = list(differences(view)), list(rankings(view))
    return {
        "name": view.name,
        "axes": [{"name": name, "levels": [level_text(level) for level in view.axes[name]]} for name in view.axes],
        "target": target_text(view.target),
        "words": [*words(view, settings, ranked), *telling(view, settings, compared)],
        "search": None if search is None else search_section(search),
        "settings": [
            {
                "label": setting.label,
                "levels": {name: level_text(level) for name, level in setting.levels.items()},
                "data_set": setting.data_set,
            }
            for setting in settings
        ],
        "runs": columns_of(runs_table(view)),
        "means": means_columns(settings, needed),
        "metrics": view.metrics,
        "costs": {name: cost.title for name, cost in RECORDED.items()},
        "curves": list(curves(view, settings)),
        "needed": needed,
        "best": ranked,
        "differences": compared,
        "left_out": left_out(view),
        "pareto": pareto(view, settings),
    }


def runs_table(view: StudyRecords) -> pd.DataFrame:
    """Return a table with one row for each finished or unfinished run of a study. Empty columns are omitted."""
    rows = pd.concat([view.runs, view.missing], ignore_index=True) if len(view.missing) else view.runs
    told = [name for name in ("reason",) if name in rows and (rows[name].fillna("") != "").any()]
    first = [*view.axes, "seed", "status", *told]
    others = rows.columns.difference([*first, "reason", "run"], sort=False)
    measured = [name for name in others if rows[name].notna().any()]
    return rows[[*first, *measured, "run"]].fillna(dict.fromkeys(told, ""))


def means_columns(settings: Sequence[Setting], needed: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the columns of the table of settings: label, number of runs, and mean scores and costs with intervals."""
    table: dict[str, list[Any]] = {"Setting": [setting.label for setting in settings]}
    table["Runs"] = [float(len(setting.runs)) for setting in settings]
    for name, interval in MEANS.items():
        found = [interval(setting.runs[name].dropna().to_numpy()) for setting in settings]
        table |= {name: [its.mean for its in found], f"{name} low": [its.low for its in found]}
        table[f"{name} high"] = [its.high for its in found]
    if needed:
        table["Reached"] = [float(its["reached"]) for its in needed]
        for column in needed[0]["costs"]:
            table[column] = [its["costs"][column]["mean"] for its in needed]
        table["Failures"] = [its["failures"] for its in needed]
    limits = {
        f"{name} {end}": (word, TITLES[name][1]) for name in MEANS for end, word in (("low", "from"), ("high", "to"))
    }
    return columns_of(pd.DataFrame(table).dropna(axis="columns", how="all"), {**TITLES, **limits})


def words(view: StudyRecords, settings: Sequence[Setting], ranked: Sequence[dict[str, Any]]) -> list[str]:
    """Return a few sentences about a study and its results. `ranked` contains the rankings of its settings."""
    axes = " x ".join(f"{len(levels)} {name}" for name, levels in view.axes.items())
    seeds = len({*view.runs["seed"], *view.missing.get("seed", ())})
    size = f"{counted(len(settings), 'setting')}{f' ({axes})' if axes else ''} with {counted(seeds, 'seed')}"
    lost = f", {len(view.missing)} not" if len(view.missing) else ""
    told = [f"{size}: {counted(len(view.runs), 'run')} finished{lost}."]
    unknown = [setting.label for setting in settings if not len(setting.runs)]
    if unknown and len(view.runs):
        told.append(left_out_text(unknown))
    if view.diverged and not view.target:
        told.append(f"{counted(len(view.diverged), 'run')} diverged.")
    if not view.target:
        return told
    sets = dict.fromkeys(setting.data_set for setting in settings if len(setting.runs))
    for name in sets:
        part = [setting for setting in settings if setting.data_set == name]
        best = dict.fromkeys(its["headline"] for its in ranked if its["data_set"] == name and its["cost"] in FIRST)
        found = [*best, _who_reached(view, part)]
        told += [f"On {name}: {text}" if len(sets) > 1 else text for text in found]
    return told


def telling(view: StudyRecords, settings: Sequence[Setting], compared: Sequence[dict[str, Any]]) -> list[str]:
    """Return for each axis a sentence that compares the first and the last level, averaged over the other axes.

    Sentences compare the time to the target, or the accuracy if the study has no target. Axes that change the data set
    are omitted, because scores on different data sets are not comparable, and so are averages over data sets.
    """
    asked = "time_to_target_s" if view.target else "accuracy"
    found = []
    for axis, levels in view.axes.items():
        known = {(str(its.levels | {axis: None}), its.data_set) for its in settings if len(its.runs)}
        if len({place for place, _ in known}) < len(known):
            continue
        ends = [level_text(levels[0]), level_text(levels[-1])]
        these = [its for its in compared if its["axis"] == axis and [its["a"], its["b"]] == ends]
        asked_for = [its for its in these if its["quantity"] == asked]
        found += [its["sentence"] for its in asked_for[-1:] if len(asked_for) == 1 or its["where"] == EVERYWHERE]
    return [f"{text[0].upper()}{text[1:]}." for text in found]


def _who_reached(view: StudyRecords, settings: Sequence[Setting]) -> str:
    target = target_text(view.target)
    reached = [len(setting.runs["time_to_target_s"].dropna()) for setting in settings]
    whole = sum(number == setting.of for number, setting in zip(reached, settings, strict=True))
    if whole == len(settings):
        return f"Every run reached {target}."
    never = reached.count(0)
    return f"{whole} of {counted(len(settings), 'setting')} reached {target} on every seed, {never} on none."


def left_out(view: StudyRecords) -> str:
    """Return a text about the comparisons of levels that the page omits; empty if no comparison is omitted."""
    told = []
    if any(len(levels) > ALL_PAIRS for levels in view.axes.values()):
        told.append(f"of more than {ALL_PAIRS} levels, each is compared with the first and the next")
    known = compared_axes(view)
    large = [name for name, levels in view.axes.items() if len(levels) > 1 and name not in known]
    if large:
        told.append(f"{', '.join(large)}: more than {MOST} comparisons; `fednet compare` makes them one by one")
    return "; ".join(told)


def curves(study: StudyRecords, settings: Sequence[Setting]) -> Iterator[dict[str, Any]]:
    """Yield, for each setting, the mean curve and 95 % band of each recorded metric against each recorded cost."""
    metrics = study.metrics
    lines = len(settings) * len(metrics) * len(RECORDED)
    points = max(FEWEST_POINTS, min(POINTS, ALL_POINTS // max(1, lines)))
    for place, setting in enumerate(settings):
        rows = rows_of(study.evaluations, setting.levels)
        for metric, (name, cost) in itertools.product(metrics, RECORDED.items()):
            found = band_of(rows, metric, cost, points)
            if found is not None:
                seeds = int(rows["seed"][np.isfinite(rows[metric])].nunique())
                ends, means = marks(rows[np.isfinite(rows[metric])], study.diverged, cost, found)
                own = {"seeds": seeds, "diverged": {"spent": ends, "mean": means}}
                yield {"setting": place, "metric": metric, "cost": name, **own, **found._asdict()}


def rankings(study: StudyRecords) -> Iterator[dict[str, Any]]:
    """Yield the rankings of the settings by time, bits, energy and rounds, separately for each data set."""
    settings = settings_of(study)
    if not study.target or len(settings) < 2:
        return
    data_sets = list(dict.fromkeys(its.data_set for its in settings if len(its.runs)))
    for data_set in data_sets:
        runs = {name for its in settings if its.data_set == data_set for name in its.runs["run"]}
        part = replace(
            study,
            runs=study.runs[study.runs["run"].isin(runs)],
            evaluations=study.evaluations[study.evaluations["run"].isin(runs)],
            missing=study.missing[:0] if len(data_sets) > 1 else study.missing,
        )
        for cost in RECORDED:
            try:
                ranked = rank(part, cost)
            except FednetError as problem:
                its: dict[str, Any] = {"headline": f"{problem}.", "words": [f"{problem}."], "columns": []}
            else:
                its = {"headline": ranked.headline, "words": ranked.words, "columns": _ranking_columns(ranked)}
            yield {"cost": cost, "data_set": data_set, **its}


def _ranking_columns(ranking: RankedSettings) -> list[dict[str, Any]]:
    settings, kind = ranking.settings, ranking.cost.kind
    rows = {
        "Setting": [its.setting.label for its in settings],
        "Reached": [its.reached for its in settings],
        ranking.cost.to_target: [its.cost.mean for its in settings],
        "low": [its.cost.low for its in settings],
        "high": [its.cost.high for its in settings],
        "median": [its.median for its in settings],
        "p": [np.nan if place == 0 else float(f"{its.p:.2g}") for place, its in enumerate(settings)],
        "Against the first": ["" if place == 0 else ranking.against_best(its) for place, its in enumerate(settings)],
        "Limited by": [its.limits for its in settings],
    }
    ends = {"low": ("95 % from", kind), "high": ("to", kind), "median": ("Median", kind), "p": ("p", "score")}
    return columns_of(pd.DataFrame(rows).dropna(axis="columns", how="all"), {**TITLES, **ends})


def pareto(study: StudyRecords, settings: Sequence[Setting]) -> dict[str, Any]:
    """Return the points of a study for the plots of Pareto fronts, and the points on each front.

    Fronts of accuracy and a cost consist of points for individual rounds. Fronts of two costs consist of points for
    whole settings, with the costs to reach the target.
    """
    names = list(dict.fromkeys(setting.data_set for setting in settings))
    costs = [cost.column for cost in TRADED.values()]
    rounds = points_of(study, settings)
    return {
        "data_sets": names,
        "rounds": _points(rounds[rounds["learnt"].astype(bool)], [(cost, "accuracy") for cost in costs], names),
        "ends": _points(ends_of(study, settings), itertools.combinations(costs, 2), names),
    }


def _points(points: pd.DataFrame, pairs: Iterable[tuple[str, str]], names: Sequence[str]) -> dict[str, Any]:
    found = fronts(points, pairs)
    kept = np.zeros(len(points), bool)
    for where in points.groupby("setting", sort=False).indices.values():
        kept[spread([*where], MOST_POINTS)] = True
    kept |= np.any([*found.values(), kept], axis=0)
    shown = points[kept]
    return {
        **{name: shown[name].to_numpy(np.float64) for name in ("setting", "round", *WANTED)},
        "data_set": shown["data_set"].map(names.index).to_numpy(np.float64),
        "fronts": {pair: np.flatnonzero(on[kept]) for pair, on in found.items()},
    }


def search_section(search: SearchRecords) -> dict[str, Any]:
    """Return the description, trials and finalists of a search."""
    kinds = {name: COSTS[name].kind if name in COSTS else "score" for name in search.columns}
    costs = {name: (f"Mean {name}", kind) for name, kind in kinds.items()}
    return {
        "words": [line.strip() for line in search.lines()],
        "columns": columns_of(search.trials, {**TITLES, **costs, **TRIALS}),
        "costs": [{"name": name, "kind": kind} for name, kind in kinds.items()],
        "least": bool(search.costs),
        "finalists": list(search.finalists),
    }
