"""Pareto fronts of a study over any two of time, bits, energy and accuracy, each data set by itself."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pandas as pd

from fednet_emu.arrays import IntArray
from fednet_emu.report.views.bands import on_front
from fednet_emu.report.views.settings import Setting
from fednet_emu.report.views.study import StudyView, rows_of
from fednet_emu.report.views.targets import AT_TARGET

COSTS = ("simulated_s", "total_bit", "energy_j")
WANTED = {"simulated_s": -1.0, "total_bit": -1.0, "energy_j": -1.0, "accuracy": 1.0}
"""What is weighed against what, and whether less (-1) or more (1) of it is better."""
MOST = 250
"""Rounds of a setting that a page shows; of more, evenly spread ones and the last."""


def progress(view: StudyView, setting: Setting) -> pd.DataFrame:
    """Return the means over seeds of round, time, bits, energy and accuracy after each round that every seed evaluated.

    Left out are the initial model, which costs nothing, and models that are no better than it: what has learnt nothing
    is cheap, but no choice.
    """
    rows = rows_of(view.evaluations, setting.levels)
    rows = rows[np.isfinite(rows["accuracy"])]
    rounds = rows.groupby("round")
    means = rounds[list(WANTED)].mean()[rounds["seed"].nunique() == rows["seed"].nunique()].reset_index()
    start = means["accuracy"][means["simulated_s"] <= 0]
    learnt = means["accuracy"] > start.max() if len(start) else np.ones(len(means), bool)
    kept: pd.DataFrame = means[(means["simulated_s"] > 0) & learnt].reset_index(drop=True)
    return kept


def points_of(view: StudyView, settings: Sequence[Setting]) -> pd.DataFrame:
    """Return the points of the settings of which no run diverged.

    Returns:
        A table with `setting` (its position), `data_set`, `round` and the columns of `WANTED`.
    """
    parts = [
        _thinned(progress(view, setting)).assign(setting=place, data_set=setting.data_set)
        for place, setting in enumerate(settings)
        if setting.sound
    ]
    known = [part for part in parts if len(part)]
    columns = ["setting", "data_set", "round", *WANTED]
    return pd.concat(known, ignore_index=True)[columns] if known else pd.DataFrame(columns=columns)


def ends_of(view: StudyView, settings: Sequence[Setting]) -> pd.DataFrame:
    """Return one point for each setting, with the columns of `points_of`: the means over seeds of what it cost.

    With a target these are the costs of reaching it, of the settings whose every seed got there, and the accuracy is
    NaN; without one they are those of the whole runs.
    """
    columns = {name if view.target else cost: cost for name, cost in AT_TARGET.items() if cost in COSTS}
    rows = []
    for place, setting in enumerate(settings):
        cells = setting.cells
        if setting.sound and not len(setting.missing) and cells[list(columns)].notna().all(axis=None):
            means = {name: float(cells[column].mean()) for column, name in columns.items()}
            rows.append({"setting": place, "data_set": setting.data_set, "round": -1, **means, "accuracy": np.nan})
    return pd.DataFrame(rows, columns=["setting", "data_set", "round", *WANTED])


def fronts(points: pd.DataFrame, pairs: Iterable[tuple[str, str]]) -> dict[str, IntArray]:
    """Return for each pair of `WANTED`, named `one:other`, the positions of the points on the front of its data set."""
    found: dict[str, IntArray] = {}
    for one, other in pairs:
        on = np.zeros(len(points), bool)
        for where in points.groupby("data_set", sort=False).indices.values():
            costs = [-WANTED[name] * points[name].to_numpy(np.float64)[where] for name in (one, other)]
            on[where] = on_front(*costs)
        found[f"{one}:{other}"] = np.flatnonzero(on)
    return found


def pareto(view: StudyView, settings: Sequence[Setting]) -> dict[str, Any]:
    """Return the points and fronts of a study as a part of its page.

    Fronts with the accuracy are over all rounds; those of two costs over settings, by what reaching the target cost.
    """
    names = list(dict.fromkeys(setting.data_set for setting in settings))
    rounds, ends = points_of(view, settings), ends_of(view, settings)
    parts = {
        "rounds": (rounds, [(cost, "accuracy") for cost in COSTS]),
        "ends": (ends, itertools.combinations(COSTS, 2)),
    }
    return {
        "data_sets": names,
        **{
            part: {
                **{name: points[name].to_numpy(np.float64) for name in ("setting", "round", *WANTED)},
                "data_set": points["data_set"].map(names.index).to_numpy(np.float64),
                "fronts": fronts(points, pairs),
            }
            for part, (points, pairs) in parts.items()
        },
    }


def _thinned(points: pd.DataFrame) -> pd.DataFrame:
    if len(points) <= MOST:
        return points
    return points.iloc[np.unique(np.linspace(0, len(points) - 1, MOST).round().astype(int))]
