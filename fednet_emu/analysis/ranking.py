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
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from fednet_emu.analysis.compare import TO_TARGET, Quantity
from fednet_emu.analysis.confidence_set import confidence_set, seeds_needed
from fednet_emu.analysis.settings import Setting, settings_of
from fednet_emu.analysis.statistics import Interval, mean_interval, paired_difference
from fednet_emu.analysis.study import DEVICE_ENERGY, StudyView, target_text
from fednet_emu.arrays import Array, Mask
from fednet_emu.errors import FednetError

_TIME, _BITS, _ENERGY, _ROUNDS = TO_TARGET
COSTS: Mapping[str, Quantity] = {
    "time": _TIME,
    "bits": _BITS,
    "energy": _ENERGY,
    DEVICE_ENERGY: replace(_ENERGY, column="device_energy_to_target_j", title="energy per device to target"),
    "rounds": _ROUNDS,
}
"""What can be minimised and limited."""
ENDED, DIVERGED = "ended", "diverged"
"""Why a run did not reach the target, beside the limit of a cost: it ended with budget left, or it diverged."""


@dataclass(frozen=True)
class Course:
    """How far one run came.

    Attributes:
        cost: what reaching the target within the limits had cost; infinite if it did not.
        watched: up to which cost it was watched: the cost of reaching the target, or of its last evaluation within the
            limits.
        stopped_by: the costs whose limits were exceeded first, `ended`, or `diverged`; none if it reached the target.
        score: the best score within the limits.
    """

    cost: float
    watched: float
    stopped_by: tuple[str, ...]
    score: float


@dataclass(frozen=True)
class Ranked:
    """A setting in its place.

    Attributes:
        setting: its levels and its label.
        costs: the restricted cost of each seed, [seeds].
        got_there: which seeds reached the target within the limits, [seeds].
        cost: mean of the costs, and its 95 % interval.
        difference: what it costs more than the cheapest setting, paired by seed, with its 95 % interval.
        p: the chance that all settings up to this one differ so much if they are equally good; the smallest level at
            which it is not the best.
        may_be_best: whether it may be the best of all settings.
        seeds_needed: how many seeds would drop it, or the cheapest, if these two differ as it seems.
        limited_by: how many runs did not get there for which reason.
    """

    setting: Setting
    costs: Array
    got_there: Mask
    cost: Interval
    difference: Interval
    p: float
    may_be_best: bool
    seeds_needed: float
    limited_by: Mapping[str, int]


@dataclass(frozen=True)
class Ranking:
    """The settings of a study, the cheapest first.

    Attributes:
        name: the study.
        target: measure and level that runs have to reach.
        minimised: the cost that is compared, a key of `COSTS`.
        limits: the largest amount of each limited cost.
        seeds: the seeds that all settings have.
        settings: the settings in their places.
        horizon: the largest cost that counts.
        first_ended: the setting and the seed of the run that set the horizon because it ended with budget left.
        late: how many runs reached the target beyond the horizon.
        left_out: labels of settings that have no finished run.
        more_seeds: how many seeds are left out, because some settings do not have them.
    """

    name: str
    target: Mapping[str, float]
    minimised: str
    limits: Mapping[str, float]
    seeds: Sequence[int]
    settings: Sequence[Ranked]
    horizon: float
    first_ended: tuple[str, int] | None
    late: int
    left_out: Sequence[str]
    more_seeds: int

    @property
    def quantity(self) -> Quantity:
        """The cost that is compared."""
        return COSTS[self.minimised]

    @property
    def best(self) -> Ranked:
        """The cheapest setting."""
        return self.settings[0]

    @property
    def rivals(self) -> list[Ranked]:
        """The settings that may be the best, without the cheapest."""
        return [its for its in self.settings[1:] if its.may_be_best]


def rank(view: StudyView, minimised: str = "time", limits: Mapping[str, float] | None = None) -> Ranking:
    """Rank the settings of a study that has a target.

    Args:
        view: the study, with its target.
        minimised: the cost to compare, a key of `COSTS`.
        limits: the largest amount of each limited cost that a run may have spent when it reaches the target.

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
    return Ranking(
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


def _target(view: StudyView) -> tuple[str, float]:
    found = [(measure, level) for measure, level in view.target.items() if math.isfinite(level)]
    if not found:
        raise FednetError(f"{view.name}: best: needs a target, got none; say which with --accuracy 0.9")
    measure, level = found[0]
    if measure not in view.evaluations or not view.evaluations[measure].notna().any():
        raise FednetError(
            f"{view.name}: {measure}: was not measured, got no score; finish cells that learn and measure it"
        )
    return measure, float(level)


def _common_seeds(view: StudyView, settings: Sequence[Setting]) -> list[int]:
    """The seeds that every setting has, in order.

    Raises:
        FednetError: there is none, no finished run, or the settings learn different data.
    """
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
    view: StudyView,
    settings: Sequence[Setting],
    seeds: Sequence[int],
    courses: Sequence[Sequence[Course]],
    limits: Mapping[str, float],
) -> str:
    """That no run reached the target within the limits, how far the best one came, and what to do."""
    measure, _ = _target(view)
    sign = 1 if measure == "accuracy" else -1
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
        return f"{text}; without limits {free} of {len(view.cells)} do: raise a limit, or lower the target"
    return f"{text}; lower the target, or let the runs go on for longer"


def limits_text(limits: Mapping[str, float]) -> str:
    """Return limits in words: ` within 4 J of energy and 20 Mbit`; empty without limits."""
    if not limits:
        return ""
    told = [f"{COSTS[cost].show(most)}{_OF.get(cost, '')}" for cost, most in limits.items()]
    return f" within {' and '.join(told)}"


_OF = {"energy": " of energy", DEVICE_ENERGY: " per device"}
