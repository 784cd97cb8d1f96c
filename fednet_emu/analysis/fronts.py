"""Pareto fronts of a study over any two of time, bits, energy and accuracy, separately for each data set."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import pandas as pd

from fednet_emu.analysis.scales import TRADED
from fednet_emu.analysis.settings import Setting, settings_of
from fednet_emu.analysis.study import StudyRecords, rows_of
from fednet_emu.arrays import Array, Mask
from fednet_emu.errors import FednetError, require_known

WANTED = {**{cost.column: -1.0 for cost in TRADED.values()}, "accuracy": 1.0}
"""Columns of Pareto fronts. The value is -1 if lower values of a quantity are better, and 1 if higher are better."""
COLUMNS = ("setting", "data_set", "round", *WANTED)
LEARNT = 0.1
"""A model counts as trained if its accuracy gain over an untrained model exceeds this share of the largest gain."""


def points_of(view: StudyRecords, settings: Sequence[Setting]) -> pd.DataFrame:
    """Return the costs and the accuracy of each setting after each round, as means over seeds.

    Only rounds that were evaluated with every seed have a row. Settings with diverged runs are omitted. The initial
    model is omitted because it costs nothing.

    Returns:
        One row for each setting and round, with the columns `COLUMNS` and `learnt`. `setting` is an index of
        `settings`. `learnt` is True if the accuracy gain over an untrained model exceeds a tenth of the largest gain on
        the same data set. Other points cannot be on a Pareto front.
    """
    known = view.evaluations[np.isfinite(view.evaluations["accuracy"])]
    parts = [
        mean_progress(rows_of(known, setting.levels)).assign(setting=place, data_set=setting.data_set)
        for place, setting in enumerate(settings)
        if setting.sound
    ]
    measured = [part for part in parts if len(part)]
    if not measured:
        return pd.DataFrame(columns=[*COLUMNS, "learnt"])
    points = pd.concat(measured).reset_index()
    untrained = points["simulated_s"] <= 0
    learnt = np.zeros(len(points), bool)
    for where in points.groupby("data_set", sort=False).indices.values():
        scores = points["accuracy"].to_numpy(np.float64)[where]
        start = scores[untrained.to_numpy()[where]]
        firsts = points.iloc[where].groupby("setting")["accuracy"].first()
        gained = scores - (start.max() if len(start) else firsts.min())
        learnt[where] = gained > LEARNT * gained.max()
    return points.assign(learnt=learnt)[[*COLUMNS, "learnt"]][~untrained].reset_index(drop=True)


def mean_progress(evaluations: pd.DataFrame) -> pd.DataFrame:
    """Return the costs and the accuracy, as means over seeds, after each round that was evaluated with every seed."""
    rounds = evaluations.groupby("round")
    return rounds[list(WANTED)].mean()[rounds["seed"].nunique() == evaluations["seed"].nunique()]


def ends_of(view: StudyRecords, settings: Sequence[Setting]) -> pd.DataFrame:
    """Return a table with the mean costs of each setting over its seeds; it has the columns of `points_of`.

    If the study has a target, the costs are those to reach the target, and settings that missed the target with any
    seed have no row. If there is no target, the costs are those of whole runs. The accuracy is NaN. Settings with
    diverged, failed or missing runs have no row.
    """
    columns = {cost.to_target if view.target else cost.column: cost.column for cost in TRADED.values()}
    rows = []
    for place, setting in enumerate(settings):
        runs = setting.runs
        if setting.sound and not len(setting.missing) and runs[list(columns)].notna().all(axis=None):
            means = {name: float(runs[column].mean()) for column, name in columns.items()}
            rows.append({"setting": place, "data_set": setting.data_set, "round": -1, **means, "accuracy": np.nan})
    return pd.DataFrame(rows, columns=[*COLUMNS]).assign(learnt=True)


def fronts(points: pd.DataFrame, pairs: Iterable[tuple[str, str]]) -> dict[str, Mask]:
    """Return for each pair of quantities a mask [points] of the points on the Pareto front of their data set.

    The key of a mask is `one:other`, the names of the two quantities. Points on different data sets are not compared.
    """
    found: dict[str, Mask] = {}
    chosen = np.flatnonzero(points["learnt"])
    for one, other in pairs:
        on = np.zeros(len(points), bool)
        for where in points.iloc[chosen].groupby("data_set", sort=False).indices.values():
            costs = [-WANTED[name] * points[name].to_numpy(np.float64)[chosen[where]] for name in (one, other)]
            on[chosen[where]] = on_front(*costs)
        found[f"{one}:{other}"] = on
    return found


def on_front(first: Array, second: Array) -> Mask:
    """Return a mask [n] of the points on the Pareto front, which are the points that no other point dominates.

    `first` and `second` [n] are two quantities of each point; lower values are better. A point dominates another point
    if it is lower in one quantity and not higher in the other quantity. Equal points do not dominate each other.
    """
    order = np.lexsort((second, first))
    a, b = first[order], second[order]
    lowest_before = np.concatenate([[np.inf], np.minimum.accumulate(b)[:-1]])
    begins = np.concatenate([[True], a[1:] > a[:-1]])
    group = np.cumsum(begins) - 1
    lowest_of_less, lowest_of_same = lowest_before[begins][group], b[begins][group]
    mask = np.empty(len(a), bool)
    mask[order] = (b < lowest_of_less) & (b == lowest_of_same)
    return mask


def front(study: StudyRecords, one: str = "time", other: str = "accuracy") -> pd.DataFrame:
    """Return the points of a study on the Pareto front of two quantities; see `Study.front`.

    Raises:
        FednetError: a quantity does not exist, or both quantities are the same.
    """
    columns = {**{name: cost.column for name, cost in TRADED.items()}, "accuracy": "accuracy"}
    for name in (one, other):
        require_known(f"{study.name}: no such quantity of a front", name, columns)
    if one == other:
        raise FednetError(f"{study.name}: a front weighs two quantities, got '{one}' twice; choose another one")
    settings = settings_of(study)
    points = (points_of if "accuracy" in (one, other) else ends_of)(study, settings)
    (on,) = fronts(points, [(columns[one], columns[other])]).values()
    found = points[on].drop(columns="learnt").reset_index(drop=True)
    levels = pd.DataFrame([settings[place].levels for place in found["setting"]], index=found.index)
    labels = found["setting"].map(lambda place: settings[place].label)
    return pd.concat([labels, levels, found.drop(columns="setting")], axis="columns")
