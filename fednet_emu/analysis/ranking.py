"""Rank the settings of a study by what reaching the target costs them, within limits of what a run may spend.

A run that did not reach the target is not left out, as its setting would then look cheap. Costs are restricted: each
counts as the smaller of what the target cost and a horizon, up to which it is known of every run whether it had got
there, and one that never got there counts as the horizon (restricted means: Royston, Parmar, "Restricted mean survival
time: an alternative to the hazard ratio for the design and analysis of randomized trials with a time-to-event outcome",
BMC Medical Research Methodology 13, 2013).

A run whose budget was used up, or that diverged, would never have got there. One that ended with budget left might have
got there later; the first of those to end sets the horizon, unless there is a smaller limit of the cost itself.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from fednet_emu.analysis.confidence_set import confidence_set, seeds_needed
from fednet_emu.analysis.ranked import DIVERGED, ENDED, Ranked, RankedSettings
from fednet_emu.analysis.scales import limits_text
from fednet_emu.analysis.settings import Setting, settings_of
from fednet_emu.analysis.statistics import mean_interval, paired_difference
from fednet_emu.analysis.study import Condition, StudyRecords, Within, conditions, limits_of, target_text
from fednet_emu.arrays import Array
from fednet_emu.errors import FednetError


@dataclass(frozen=True)
class Course:
    """How far one run came."""

    cost: float
    """What reaching the target within the limits had cost; infinite if it did not."""
    watched: float
    """Up to which cost it was watched: the cost of reaching the target, or of its last evaluation within the limits."""
    stopped_by: tuple[str, ...]
    """The costs whose limits were exceeded first, `ended`, or `diverged`; none if it reached the target."""
    score: float
    """The best score within the limits."""


def rank(view: StudyRecords, minimised: str = "time", limits: Mapping[str, float] | None = None) -> RankedSettings:
    """Rank the settings of a study that has a target by one cost of `COSTS`, within the largest amounts of others.

    Raises:
        FednetError: there is no such cost or no target, settings learn different data or have no seed in common, or no
            run reaches the target within the limits.
    """
    limits = limits or {}
    spent = {cost: view.spent(cost) for cost in dict.fromkeys([minimised, *limits])}
    measure, level = _target(view)
    settings = [setting for setting in settings_of(view) if len(setting.cells)]
    seeds = _common_seeds(view, settings)
    evaluations = view.evaluations.assign(**{f"spent {cost}": amounts for cost, amounts in spent.items()})
    tables = dict(list(evaluations.groupby("cell", sort=False)))
    courses = [
        [
            course_of(tables.get(row["cell"], evaluations[:0]), row["status"], measure, level, minimised, limits)
            for _, row in setting.cells.set_index("seed").loc[seeds].iterrows()
        ]
        for setting in settings
    ]
    costs = np.array([[run.cost for run in runs] for runs in courses]).T
    if not np.isfinite(costs).any():
        raise FednetError(_nobody(view, settings, seeds, courses, limits))
    horizon, first = _horizon(courses, limits.get(minimised, math.inf))
    return RankedSettings(
        view.name,
        view.target,
        minimised,
        limits,
        seeds,
        _ranked(settings, courses, np.minimum(costs, horizon)),
        horizon,
        None if first is None else (settings[first[0]].label, seeds[first[1]]),
        int((np.isfinite(costs) & (costs > horizon)).sum()),
        [setting.label for setting in settings_of(view) if not len(setting.cells)],
        len({seed for setting in settings for seed in setting.cells["seed"]}) - len(seeds),
    )


def _ranked(settings: Sequence[Setting], courses: Sequence[Sequence[Course]], costs: Array) -> list[Ranked]:
    """The settings by their mean restricted costs [seeds, settings]; of equal ones those that got there more often."""
    got_there = np.array([[math.isfinite(run.cost) for run in runs] for runs in courses]).T
    order = np.lexsort((-got_there.sum(axis=0), costs.mean(axis=0)))
    best, (may_be_best, p) = costs[:, order[0]], confidence_set(costs[:, order])
    return [
        Ranked(
            settings[place],
            costs[:, place],
            got_there[:, place],
            mean_interval(costs[:, place]),
            paired_difference(best, costs[:, place]),
            float(p[position]),
            bool(may_be_best[position]),
            seeds_needed(costs[:, place] - best),
            Counter(cause for run in courses[place] for cause in run.stopped_by),
        )
        for position, place in enumerate(order)
    ]


def course_of(
    rows: pd.DataFrame, status: str, measure: str, level: float, minimised: str, limits: Mapping[str, float]
) -> Course:
    """How far a run came, from its evaluations with the columns `spent COST`."""
    scores, spent = rows[measure].to_numpy(np.float64), rows[f"spent {minimised}"].to_numpy(np.float64)
    beyond = {cost: rows[f"spent {cost}"].to_numpy(np.float64) > most for cost, most in limits.items()}
    within = ~np.any([*beyond.values(), np.zeros(len(rows), np.bool_)], axis=0)
    last = int(np.argmin(within)) if not within.all() else len(rows)
    good = scores[:last] >= level if measure == "accuracy" else scores[:last] <= level
    known = scores[:last][np.isfinite(scores[:last])]
    score = float(known.max() if measure == "accuracy" else known.min()) if len(known) else math.nan
    watched = float(spent[last - 1]) if last else 0.0
    if status == "diverged":
        return Course(math.inf, watched, (DIVERGED,), score)
    if good.any():
        cost = float(spent[int(np.argmax(good))])
        return Course(cost, cost, (), score)
    if last < len(rows):
        return Course(math.inf, watched, tuple(cost for cost, over in beyond.items() if over[last]), score)
    return Course(math.inf, watched, (ENDED,), score)


def _horizon(courses: Sequence[Sequence[Course]], limit: float) -> tuple[float, tuple[int, int] | None]:
    """The largest cost that counts, and the positions of the setting and the seed of the run that set it by its end."""
    runs = {(place, seed): run for place, its in enumerate(courses) for seed, run in enumerate(its)}
    open_ended = {where: run.watched for where, run in runs.items() if ENDED in run.stopped_by}
    if open_ended:
        first = min(open_ended, key=lambda where: open_ended[where])
        return (open_ended[first], first) if open_ended[first] < limit else (limit, None)
    longest = max(run.watched for run in runs.values())
    return (limit if math.isfinite(limit) else longest), None


def _target(view: StudyRecords) -> tuple[str, float]:
    found = [(measure, level) for measure, level in view.target.items() if math.isfinite(level)]
    if not found:
        raise FednetError(f"{view.name}: best: needs a target, got none; say which with --accuracy 0.9 or --loss 0.3")
    measure, level = found[0]
    if measure not in view.evaluations or not view.evaluations[measure].notna().any():
        raise FednetError(
            f"{view.name}: {measure}: was not measured, got no score; finish cells that learn and measure it"
        )
    return measure, float(level)


def _common_seeds(view: StudyRecords, settings: Sequence[Setting]) -> list[int]:
    """The seeds that all settings have, in order, or a FednetError: there is none, or they learn different data."""
    if not settings:
        raise FednetError(f"{view.name}: best: needs finished runs, got none; sweep it first")
    kinds = dict.fromkeys(setting.data_set for setting in settings)
    if len(kinds) > 1:
        raise FednetError(
            f"{view.name}: best: settings have to learn the same data, got {', '.join(kinds)}; "
            f"choose levels with --where, for example of the axis {list(view.axes)[-1]}"
        )
    common = set.intersection(*({int(seed) for seed in setting.cells["seed"]} for setting in settings))
    if not common:
        raise FednetError(f"{view.name}: best: needs a seed that all settings have, got none; finish the sweep")
    return sorted(common)


def _nobody(
    view: StudyRecords,
    settings: Sequence[Setting],
    seeds: Sequence[int],
    courses: Sequence[Sequence[Course]],
    limits: Mapping[str, float],
) -> str:
    """That no run reached the target within the limits, how far the best one came, and what to do."""
    measure, _ = _target(view)
    sign, easier = (1, "lower") if measure == "accuracy" else (-1, "raise")
    known = {
        (place, seed): sign * run.score
        for place, runs in enumerate(courses)
        for seed, run in enumerate(runs)
        if math.isfinite(run.score)
    }
    text = f"{view.name}: no run reaches {target_text(view.target)}{limits_text(limits)}"
    if known:
        place, seed = max(known, key=lambda where: known[where])
        score = sign * known[place, seed]
        text += f", got {measure} {score:.3g} at best, by {settings[place].label} with seed {seeds[seed]}"
    free = int(view.cells["time_to_target_s"].notna().sum())
    if limits and free:
        return f"{text}; without limits {free} of {len(view.cells)} do: raise a limit, or {easier} the target"
    return f"{text}; {easier} the target, or let the runs go on for longer"


def best(
    study: StudyRecords,
    *,
    accuracy: float | None = None,
    loss: float | None = None,
    within: Within = (),
    minimise: str = "time",
    where: Condition | None = None,
) -> RankedSettings:
    """Rank the settings of a study as users ask for it; see `Study.best`.

    Raises:
        FednetError: a limit is no positive number or is given twice, or see `rank` and `StudyRecords.aiming_at`.
    """
    limits: dict[str, float] = {}
    for cost, most in limits_of(within):
        if cost in limits:
            raise FednetError(f"--within: {cost} is limited twice, got {limits[cost]:g} and {most:g}; limit it once")
        if not (most > 0 and math.isfinite(most)):
            raise FednetError(
                f"--within: a limit must be a number above 0, got {cost}={most:g}; for example time=60 or bits=2e8"
            )
        limits[cost] = most
    part = study.where(conditions(where or {}, "where"))
    return rank(part.aiming_at(accuracy, loss), minimise, limits)
