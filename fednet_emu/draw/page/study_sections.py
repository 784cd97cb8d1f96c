"""Sections of a study's page that gather numbers of several settings: curves, rankings, Pareto fronts, and a search."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from fednet_emu.analysis.fronts import WANTED, ends_of, fronts, points_of
from fednet_emu.analysis.ranked import RankedSettings
from fednet_emu.analysis.ranking import rank
from fednet_emu.analysis.scales import COSTS, RECORDED, TRADED, measured
from fednet_emu.analysis.searched import SearchRecords
from fednet_emu.analysis.settings import Setting, settings_of
from fednet_emu.analysis.statistics import band_of
from fednet_emu.analysis.study import StudyRecords, rows_of
from fednet_emu.draw.page.columns import TITLES, columns_of
from fednet_emu.errors import FednetError

POINTS, FEWEST_POINTS, ALL_POINTS = 120, 40, 40_000
"""Most and fewest points of a line, and of all lines of a page together, if these are not too many for that."""
MOST_POINTS = 250
"""Points of a setting in a front; of more, evenly spread ones, the last, and those on a front are shown."""
TRIALS = {
    "trial": ("Trial", "count"),
    "setting": ("Setting", "text"),
    "runs": ("Runs", "count"),
    "reached": ("Got there", "count"),
    "score": ("Score", "score"),
    "why_not": ("Why not", "text"),
}
"""Titles and kinds of the columns of trials, beside parameters and costs."""


def curves(study: StudyRecords, settings: Sequence[Setting]) -> Iterator[dict[str, Any]]:
    """Yield the band of every metric against every cost for every setting that has both."""
    metrics = measured([study.evaluations])
    lines = len(settings) * len(metrics) * len(RECORDED)
    points = max(FEWEST_POINTS, min(POINTS, ALL_POINTS // max(1, lines)))
    for place, setting in enumerate(settings):
        rows = rows_of(study.evaluations, setting.levels)
        for metric, (name, cost) in itertools.product(metrics, RECORDED.items()):
            found = band_of(rows, metric, cost, points)
            if found is not None:
                seeds = int(rows["seed"][np.isfinite(rows[metric])].nunique())
                yield {"setting": place, "metric": metric, "cost": name, "seeds": seeds, **found._asdict()}


def rankings(study: StudyRecords) -> Iterator[dict[str, Any]]:
    """Yield the ranking by time, bits, energy and rounds of the settings of each data set, where it can be made."""
    settings = settings_of(study)
    if not study.target or len(settings) < 2:
        return
    data_sets = list(dict.fromkeys(its.data_set for its in settings if len(its.cells)))
    for data_set in data_sets:
        cells = {cell for its in settings if its.data_set == data_set for cell in its.cells["cell"]}
        part = replace(
            study,
            cells=study.cells[study.cells["cell"].isin(cells)],
            evaluations=study.evaluations[study.evaluations["cell"].isin(cells)],
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
        "p": [np.nan if place == 0 else float(f"{its.p:.2g}") for place, its in enumerate(settings)],
        "Against the best": ["" if place == 0 else ranking.against_best(its) for place, its in enumerate(settings)],
        "Limited by": [its.limits for its in settings],
    }
    ends = {"low": ("95 % from", kind), "high": ("to", kind), "p": ("p", "score")}
    return columns_of(pd.DataFrame(rows).dropna(axis="columns", how="all"), {**TITLES, **ends})


def pareto(study: StudyRecords, settings: Sequence[Setting]) -> dict[str, Any]:
    """Return the points and fronts of a study.

    Fronts with the accuracy are over all rounds; those of two costs over settings, by what reaching the target cost.
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
        kept[where[np.linspace(0, len(where) - 1, min(len(where), MOST_POINTS)).round().astype(int)]] = True
    kept |= np.any([*found.values(), kept], axis=0)
    shown = points[kept]
    return {
        **{name: shown[name].to_numpy(np.float64) for name in ("setting", "round", *WANTED)},
        "data_set": shown["data_set"].map(names.index).to_numpy(np.float64),
        "fronts": {pair: np.flatnonzero(on[kept]) for pair, on in found.items()},
    }


def search_section(search: SearchRecords) -> dict[str, Any]:
    """Return the words, the trials and the finalists of a search."""
    kinds = {name: COSTS[name].kind if name in COSTS else "score" for name in search.columns}
    costs = {name: (f"Mean {name}", kind) for name, kind in kinds.items()}
    return {
        "words": [line.strip() for line in search.lines()],
        "columns": columns_of(search.trials, {**TITLES, **costs, **TRIALS}),
        "costs": [{"name": name, "kind": kind} for name, kind in kinds.items()],
        "least": bool(search.costs),
        "finalists": list(search.finalists),
    }
