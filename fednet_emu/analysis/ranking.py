"""Rank the settings of a study by the cost to reach a target, within upper limits of costs.

Runs that missed the target are included, because their omission would favour their setting. A run that ended before it
exceeded a limit is censored. It is compared with each other run of its seed, but only up to its end (restricted means:
Royston, Parmar, "Restricted mean survival time: an alternative to the hazard ratio for the design and analysis of
randomized trials with a time-to-event outcome", BMC Medical Research Methodology 13, 2013). A run that diverged or
exceeded a limit counts as never reaching the target. Its cost is the limit of the compared cost. If there is no such
limit, it is twice the highest cost of any run.

A cost of the whole run, such as the delay of other users, is not known up to a point in time. With such a cost, a run
that missed the target counts as twice the highest cost of any run, and no run is censored at its end. A delay that is a
lower bound, because files of other users were unfinished, is censored at this delay: runs are compared only up to it.

A setting is not ranked if all its runs diverged or exceeded limits of other costs, if all its runs ended before any run
of another setting reached the target, if its untrained model meets the target, if the cost of one of its runs is
unknown, or if its energy excludes the computing of a larger share of devices than the energy of another setting.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
import scipy

from fednet_emu.analysis.confidence_set import confidence_set, horizons, restricted, seeds_needed
from fednet_emu.analysis.quantities import counted
from fednet_emu.analysis.ranked import DIVERGED, ENDED, MISSED, UNKNOWN, Ranked, RankedSettings
from fednet_emu.analysis.scales import COSTS, OF_ENERGY, PER_RUN, limits_text
from fednet_emu.analysis.settings import Setting, settings_of
from fednet_emu.analysis.statistics import Interval, cost_interval, sign_test
from fednet_emu.analysis.study import UNCOUNTED, StudyRecords, Within, limit_like_energies, limits_of, target_text
from fednet_emu.arrays import Array, Mask
from fednet_emu.errors import FednetError


@dataclass(frozen=True)
class Course:
    """Outcome of one run: whether and at which cost it reached the target within the limits."""

    cost: float
    """Cost to reach the target within the limits. Infinite if the run missed the target, NaN if the cost is unknown."""
    watched: float
    """Cost up to which the run was observed. It is the cost at which the run reached the target. If the run missed the
    target, it is the cost of the last evaluation within the limits."""
    stopped_by: tuple[str, ...]
    """Reasons for which the run missed the target: the names of the costs whose limits were exceeded first, or `ended`,
    or `diverged`, `missed` or `unknown`. Empty if the run reached the target."""
    score: float
    """Best value of the target's metric over all evaluations within the limits; NaN if there is none."""
    is_lower_bound: bool = False
    """True if the run reached the target, and its cost is at least `cost`."""
    is_untrained: bool = False
    """True if the initial model, before any training, meets the target."""


def rank(view: StudyRecords, minimised: str = "time", limits: Mapping[str, float] | None = None) -> RankedSettings:
    """Rank the settings of a study by the cost `minimised` (a key of `COSTS`) to reach the target of the study.

    `limits` are upper limits of costs, by name. A run that exceeds a limit before it reaches the target has missed it.

    Raises:
        FednetError: the cost or the target does not exist, settings use different data or have no common seed, no run
            reaches the target within the limits, the untrained model meets the target, or energy is limited and
            excludes the computing of more devices in some settings.
    """
    limits = limits or {}
    spent = {cost: view.spent(cost) for cost in dict.fromkeys([minimised, *limits])}
    measure, level = _target(view)
    settings = [setting for setting in settings_of(view) if len(setting.runs)]
    seeds = _common_seeds(view, settings)
    bounds = {f"at least {cost}": view.is_lower_bound(cost) for cost in spent}
    evaluations = view.evaluations.assign(**{f"spent {cost}": amounts for cost, amounts in spent.items()}, **bounds)
    tables = dict(list(evaluations.groupby("run", sort=False)))
    courses = [
        [
            course_of(tables.get(row["run"], evaluations[:0]), row["status"], measure, level, minimised, limits)
            for _, row in setting.runs.set_index("seed").loc[seeds].iterrows()
        ]
        for setting in settings
    ]
    shares = [float(setting.runs.get(UNCOUNTED, pd.Series([0.0])).max()) for setting in settings]
    limit_like_energies(shares, limits)
    if all(run.stopped_by for runs in courses for run in runs):
        raise FednetError(_nobody(view, settings, seeds, courses, limits))
    reasons = [_why_not(place, courses, view.target, minimised) for place in range(len(settings))]
    if minimised in OF_ENERGY:
        more = "the computing of a larger share of devices than other energies"
        why = f"its energy excludes {more}, as the power is unknown"
        reasons = [why if not its and share > min(shares) else its for its, share in zip(reasons, shares, strict=True)]
    kept = [place for place, reason in enumerate(reasons) if not reason]
    if not kept:
        raise FednetError(f"{view.name}: best: ranks nothing, got {settings[0].label}: {reasons[0]}")
    spent_most = max(run.watched for place in kept for run in courses[place] if math.isfinite(run.watched))
    most = limits.get(minimised, FAILED * spent_most)
    ended = [
        (settings[place].label, seed, run.watched)
        for place in kept
        for seed, run in zip(seeds, courses[place], strict=True)
        if ENDED in run.stopped_by
    ]
    ranked = _ranked([settings[place] for place in kept], [courses[place] for place in kept], most)
    return RankedSettings(
        view.name,
        view.target,
        minimised,
        limits,
        seeds,
        [*ranked, *(_unranked(settings[place], courses[place], most, why) for place, why in enumerate(reasons) if why)],
        most,
        min(ended, key=lambda its: its[2], default=None),
        [setting.label for setting in settings_of(view) if not len(setting.runs)],
        len({seed for setting in settings for seed in setting.runs["seed"]}) - len(seeds),
        min(shares) if set(OF_ENERGY) & {minimised, *limits} else 0.0,
    )


FAILED = 2.0
"""Cost of a run that never reaches the target, as a multiple of the highest cost of any run. With a multiple of 1, a
failed run would cost no more than the most expensive success. The mean of such costs is known as PAR2."""
LACKING = {"neighbours": ("no file of other users", "; run longer (`stop`)")}
"""Reason why a cost of a run is unknown, and advice, by the name of the cost."""


def _why_not(place: int, courses: Sequence[Sequence[Course]], target: Mapping[str, float], minimised: str) -> str:
    runs, aim, show = courses[place], target_text(target), COSTS[minimised].show
    diverged = sum(DIVERGED in run.stopped_by for run in runs)
    if diverged == len(runs):
        return f"diverged in {diverged} of {len(runs)}"
    untrained, harder = sum(run.is_untrained for run in runs), "raise" if "accuracy" in target else "lower"
    if untrained:
        return f"the untrained model meets {aim} in {untrained} of {counted(len(runs), 'run')}; {harder} the target"
    unknown = sum(math.isnan(run.cost) for run in runs)
    if unknown:
        lacking, more = LACKING.get(minimised, (f"{minimised} is not recorded", ""))
        return f"{lacking} in {unknown} of {counted(len(runs), 'run')}{more}"
    open_ended = set() if minimised in PER_RUN else {ENDED, minimised}  # the cost of a miss is at least known partly
    if all(run.stopped_by and not open_ended.intersection(run.stopped_by) for run in runs):
        limited = any(set(run.stopped_by) - {MISSED, DIVERGED} for run in runs)
        return f"no run reached {aim}{' within the limits' if limited else ''}"
    others = [run.cost for other, its in enumerate(courses) if other != place for run in its if not run.is_untrained]
    first, ends = min(others, default=math.inf), [run.watched for run in runs if ENDED in run.stopped_by]
    if minimised in PER_RUN or len(ends) + diverged < len(runs) or not max(ends) < first:
        return ""
    before = f"the first run of any setting reached {aim} ({show(first)})"
    before = before if math.isfinite(first) else f"any run reached {aim}"
    most = "at most " if len(set(ends)) > 1 else ""
    return f"ended after {most}{show(max(ends))}, before {before}; give it more (`stop`)"


def _known(runs: Sequence[Course], most: float) -> tuple[Array, Mask, Mask, Mask]:
    """Return costs, and masks of runs that reached the target, that are censored, and whose costs are lower bounds."""
    bounds = np.array([run.is_lower_bound for run in runs])
    reached = np.array([not run.stopped_by for run in runs])
    ended = np.array([ENDED in run.stopped_by for run in runs])
    known = np.array([run.cost if got else run.watched for run, got in zip(runs, reached, strict=True)])
    return np.where(reached | ended, known, most), reached, ended | bounds, bounds


def _ranked(settings: Sequence[Setting], courses: Sequence[Sequence[Course]], most: float) -> list[Ranked]:
    """Return the settings in order of rank, in two groups: first the settings that may be the best, then the rest.

    Each group is sorted by the mean restricted cost, and ties by the number of runs that reached the target. Settings
    that may be the best only because more of their runs reached the target are last in the first group. `courses`
    contains the outcomes of the runs of each setting, and `most` is the cost of runs that never reach the target.
    """
    known = [_known(runs, most) for runs in courses]
    costs, reached, ended, bounds = (np.stack(part, axis=1) for part in zip(*known, strict=True))
    may_be_best, p = confidence_set(costs, ended, reached)
    apart, until = restricted(costs, ended), horizons(costs, ended)
    order = np.lexsort((-reached.sum(axis=0), apart.mean(axis=(0, 2)), np.isnan(p), ~may_be_best))
    first, found = int(order[0]), []
    for place in map(int, order):
        pairs, ends = apart[:, place, first], until[:, place, first]
        is_known = not bounds[:, [place, first]].any()
        compared = [float(np.minimum(costs[:, its], ends).mean()) for its in (place, first)]
        found.append(
            replace(
                _unranked(settings[place], courses[place], most),
                cost=_mean(costs[:, place], reached[:, place], bounds[:, place]),
                difference=sign_test(pairs),
                restricted=(compared[0], compared[1]),
                horizon=_range(ends),
                p=float(p[place]),
                may_be_best=bool(may_be_best[place]),
                seeds_needed=seeds_needed(pairs),
                is_same=is_known and bool(reached[:, [place, first]].all() and not pairs.any()),
                is_known=is_known,
            )
        )
    return found


def _mean(costs: Array, reached: Mask, bounds: Mask) -> Interval:
    """Return the mean cost with its interval. The mean of lower bounds has no interval, and missed targets no mean."""
    if not reached.all():
        return Interval()
    return Interval(float(costs.mean())) if bounds.any() else cost_interval(costs)


def _range(ends: Array) -> tuple[float, float]:
    known = ends[np.isfinite(ends)]
    return (float(known.min()), float(known.max())) if len(known) else (math.nan, math.nan)


def _unranked(setting: Setting, runs: Sequence[Course], most: float, why: str = "") -> Ranked:
    """Return a setting with the outcomes of its runs, without a comparison with other settings."""
    costs, reached, ended, bounds = _known(runs, most)
    causes = Counter(cause for run in runs for cause in run.stopped_by)
    median = _median(costs, reached & ~bounds, ended)
    return Ranked(setting, costs, reached, median, causes, int(bounds.sum()), not_ranked=why)


def _median(costs: Array, reached: Mask, ended: Mask) -> float:
    """Return the Kaplan-Meier median of the costs [seeds] to reach the target; NaN if a cost is unknown.

    `reached` and `ended` are masks [seeds] of the runs that reached the target at a known cost, and of the censored
    runs, which ended early or whose costs are lower bounds. The result is NaN unless `reached` has more than half of
    the runs.
    """
    if 2 * reached.sum() <= len(costs) or np.isnan(costs).any():
        return math.nan
    known_until = np.where(ended, costs, 2 * costs.max())  # other failed runs never reach the target
    known = scipy.stats.ecdf(scipy.stats.CensoredData(costs[reached], right=known_until[~reached])).sf
    return float(known.quantiles[np.argmax(known.probabilities <= 0.5)])


def course_of(
    rows: pd.DataFrame, status: str, measure: str, level: float, minimised: str, limits: Mapping[str, float]
) -> Course:
    """Return the outcome of a run with respect to a target (`measure` and `level`) and to upper limits of costs.

    `rows` are the evaluations of the run, with a column `spent NAME` for the cost `minimised` and each limited cost.
    """
    scores, spent = rows[measure].to_numpy(np.float64), rows[f"spent {minimised}"].to_numpy(np.float64)
    amounts = {cost: rows[f"spent {cost}"].to_numpy(np.float64) for cost in limits}
    bound = {
        cost: bool(rows[f"at least {cost}"].any()) if f"at least {cost}" in rows else False
        for cost in (minimised, *limits)
    }
    over = {cost: amounts[cost] > most for cost, most in limits.items()}
    unknown = {cost: np.isnan(amounts[cost]) | (bound[cost] & ~over[cost]) for cost in limits}
    beyond = {cost: over[cost] | unknown[cost] for cost in limits}  # an unknown cost is not within a limit
    within = ~np.any([*beyond.values(), np.zeros(len(rows), np.bool_)], axis=0)
    last = int(np.argmin(within)) if not within.all() else len(rows)
    good = scores[:last] >= level if measure == "accuracy" else scores[:last] <= level
    known = scores[:last][np.isfinite(scores[:last])]
    score = float(known.max() if measure == "accuracy" else known.min()) if len(known) else math.nan
    watched = float(spent[last - 1]) if last else 0.0
    if status == "diverged":
        return Course(math.inf, watched, (DIVERGED,), score)
    if good.any():
        first = int(np.argmax(good))
        cost = float(spent[first])
        return Course(
            cost, cost, (), score, bound[minimised], is_untrained=first == 0 and int(rows["round"].iloc[0]) == 0
        )
    if last < len(rows):
        causes = dict.fromkeys(UNKNOWN if unknown[cost][last] else cost for cost in limits if beyond[cost][last])
        return Course(math.inf, watched, tuple(causes), score)
    if minimised in PER_RUN:
        return Course(math.inf, watched, (MISSED,), score)
    used_up = watched >= limits.get(minimised, math.inf)
    return Course(math.inf, watched, (minimised if used_up else ENDED,), score)


def _target(view: StudyRecords) -> tuple[str, float]:
    found = [(measure, level) for measure, level in view.target.items() if math.isfinite(level)]
    if not len(view.evaluations):
        what = "nothing was evaluated, so no run has reached a target, got a timing-only study"
        raise FednetError(f"{view.name}: best: {what}; sweep it with training, or use `fednet compare`")
    if not found:
        raise FednetError(f"{view.name}: best: the target is missing; give --accuracy 0.9 or --loss 0.3")
    measure, level = found[0]
    if measure not in view.evaluations or not view.evaluations[measure].notna().any():
        raise FednetError(
            f"{view.name}: {measure}: was not measured, got no score; finish runs that learn and measure it"
        )
    return measure, float(level)


def _common_seeds(view: StudyRecords, settings: Sequence[Setting]) -> list[int]:
    """Return the seeds with which all settings were run, in ascending order.

    Raises:
        FednetError: there is no common seed, or settings learn different data.
    """
    if not settings:
        raise FednetError(f"{view.name}: best: needs finished runs, got none; sweep it first")
    kinds = dict.fromkeys(setting.data_set for setting in settings)
    if len(kinds) > 1:
        raise FednetError(
            f"{view.name}: best: settings have to learn the same data, got {', '.join(kinds)}; "
            f"choose levels with --where, for example of the axis {list(view.axes)[-1]}"
        )
    common = set.intersection(*({int(seed) for seed in setting.runs["seed"]} for setting in settings))
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
    """Return an error message for a study in which no run reached the target within the limits.

    The message states the best score and suggests a change.
    """
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
    free = int(view.runs["time_to_target_s"].notna().sum())
    if limits and free:
        return f"{text}; without limits {free} of {len(view.runs)} do: raise a limit, or {easier} the target"
    return f"{text}; {easier} the target, or give the runs more time"


def positive_limits(within: Within) -> dict[str, float]:
    """Return upper limits of costs as a mapping from costs to amounts.

    Raises:
        FednetError: a limit is malformed, is not a positive number, or is given twice.
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
    return limits
