"""A search: settings are proposed, tried with few seeds, and the best of them race over the others.

The race drops a setting as soon as it cannot be the best (Maron, Moore, "Hoeffding Races", NIPS 1993;
Birattari, Stuetzle, Paquete, Varrentrapp, "A Racing Algorithm for Configuring Metaheuristics", GECCO 2002), by the
model confidence set of `fednet best` in place of the Friedman test. A trial ends when it has cost a multiple of what
the best setting needed with the same seed (adaptive capping: Hutter, Hoos, Leyton-Brown, Stuetzle, "ParamILS: An
Automatic Algorithm Configuration Framework", JAIR 36, 2009), and also, if asked for, when its accuracy stays behind
that of the settings before it (as the median stopping rule: Golovin et al., "Google Vizier", KDD 2017).

All of it follows from the study's file and from the outcomes of the runs, which are in their folders: a search that was
killed and is started again goes the same way, and what was finished is not run again.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fednet_emu.analysis.confidence_set import confidence_set
from fednet_emu.errors import FednetError, ScenarioError
from fednet_emu.scenario.model import Scenario
from fednet_emu.scenario.overrides import Setting
from fednet_emu.study.grid import Axis
from fednet_emu.study.model import Search
from fednet_emu.study.runners import Runner
from fednet_emu.study.runs import RunMaker, Sources, StudyRun
from fednet_emu.study.search.aim import Aim, costs_of, values_of
from fednet_emu.study.search.proposals import STARTUP, proposals, require_optuna
from fednet_emu.study.search.results import write_results
from fednet_emu.study.search.space import Parameter, corners, label_of, levels_at, space_of
from fednet_emu.study.search.trials import Dropped, Hurdle, Trial, Trials
from fednet_emu.study.sweep import Sweep, describe, known_tables, study_folder

PARTS = (0.25, 0.5, 0.75)
"""The parts of a cap at which the accuracy of a trial is looked at."""


@dataclass(frozen=True)
class LoadedSearch:
    """A search whose space has been checked.

    Attributes:
        sources: the study.
        told: what its file says under `search`.
        parameters: what is varied.
        common: settings of all runs.
        timing_only: whether runs leave out training.
        example: one of its scenarios.
    """

    sources: Sources
    told: Search
    parameters: tuple[Parameter, ...]
    common: tuple[Setting, ...]
    timing_only: bool
    example: Scenario

    @property
    def extent(self) -> str:
        """How much is tried of what: `40 trials of a, b; the ends of all are possible`."""
        names = ", ".join(parameter.name for parameter in self.parameters)
        return f"{self.told.trials} trials of {names}; the ends of all are possible"


def load_search(
    sources: Sources, overrides: Iterable[str | Setting] = (), *, trials: int | None = None, timing_only: bool = False
) -> LoadedSearch:
    """Check a study that is searched.

    Args:
        sources: the study.
        overrides: settings of every run; they must not be varied.
        trials: how many settings are tried; None for as many as the study says.
        timing_only: whether runs leave out training.

    Raises:
        ScenarioError: every problem of the study, and of the scenarios at the ends of its space.
        FednetError: Optuna is not installed.
    """
    told = sources.study.search
    if told is None:
        raise ScenarioError(f"{sources.name}: nothing is searched, got no 'search'; fednet sweep {sources.name}")
    require_optuna()
    if timing_only and (sources.study.target or told.maximise):
        raise FednetError(
            f"{sources.name}: search: a timing-only run learns nothing, got a target; leave out target and maximise"
        )
    parameters = space_of(sources.root.value["search"].value["space"])
    axes = [Axis(each.name, tuple(map(each.level, each.ends))) for each in parameters]
    common = sources.common(overrides, axes)
    maker, problems, seen = RunMaker(sources.base, common, timing_only), list[str](), list[StudyRun]()
    for point in corners(parameters):
        settings = [setting for level in levels_at(parameters, point) for setting in level.settings]
        try:
            seen += maker.runs(label_of(parameters, point), {}, settings, sources.study.all_seeds[:1])
        except ScenarioError as error:
            problems.extend(error.problems)
    if problems:
        raise ScenarioError(*dict.fromkeys(problems))
    told = told if trials is None else told.model_copy(update={"trials": trials})
    return LoadedSearch(sources, told, parameters, common, timing_only, seen[0].scenario)


def search(
    loaded: LoadedSearch,
    out: Path,
    runner: Runner,
    *,
    data_dir: Path | str | None = None,
    track: tuple[str, ...] = (),
    on_event: Callable[[Sweep], None] = lambda _sweep: None,
) -> Sweep:
    """Search, and leave the tables of the finalists, of all trials, and the best scenarios in a folder.

    Args:
        loaded: the search.
        out: the folder, made when it is not there.
        runner: runs the jobs.
        data_dir: where data sets are.
        track: names of the trackers that hear of every run.
        on_event: called when a run starts or ends.

    Raises:
        DataError: the folder holds something else, or another search or sweep writes to it.
    """
    study = loaded.sources.study
    name, timing_only = loaded.sources.name, loaded.timing_only
    swept = Sweep(name, out, study.limits, timing_only, runner, data_dir, track, on_event)
    maker = RunMaker(loaded.sources.base, loaded.common, loaded.timing_only)
    with study_folder(out, "search or sweep"):
        aim = Aim.of(study)
        seeds = study.all_seeds[: loaded.told.trial_seeds]
        trials = Trials(aim, loaded.parameters, maker, swept, seeds)
        describe(name, study, {}, timing_only, out, known_tables(out))
        finalists: list[Trial] = []
        dropped: list[Dropped] = []
        try:
            _explore(loaded, trials)
            finalists = finalists_of(loaded.told, trials)
            dropped = _race(finalists, study.all_seeds[loaded.told.trial_seeds :], trials)
        finally:
            write_results(out, loaded.sources, loaded.parameters, trials, finalists, dropped, timing_only)
    return swept


def _explore(loaded: LoadedSearch, trials: Trials) -> None:
    """Try settings, a batch at a time."""
    told = loaded.told
    while len(trials.all) < told.trials:
        values = values_of(trials.aim, [trials.tried(trial) for trial in trials.all])
        known = [(trial.point, value) for trial, value in zip(trials.all, values, strict=True)]
        count = min(told.batch, told.trials - len(trials.all))
        points = proposals(loaded.parameters, known, count, told.seed)
        if not points:
            return
        hurdles = _hurdles(told, trials)
        for point in points:
            trials.begin(point, hurdles, told.least_rounds)
        trials.sweep.finish()


def _hurdles(told: Search, trials: Trials) -> Mapping[int, Hurdle]:
    """What a trial has to keep up with by seed: a multiple of what the best setting needed, and most of the others."""
    ranked = _ranked(trials)
    if told.cap is None or not trials.aim.is_single or not ranked:
        return {}
    best = zip(trials.seeds, trials.tried(ranked[0]), strict=True)
    caps = {seed: told.cap * outcome.costs[0] for seed, outcome in best}
    return {seed: Hurdle(cap, _milestones(told.behind, cap, trials, seed)) for seed, cap in caps.items()}


def _milestones(behind: float | None, cap: float, trials: Trials, seed: int) -> dict[float, float]:
    """The quantile of the accuracies that the trials so far had with a seed, at some parts of a cap."""
    place = trials.seeds.index(seed)
    runs = [trials.tried(trial)[place] for trial in trials.all if trial.runs]
    if behind is None or len(runs) < STARTUP:
        return {}
    least = {part * cap: [its.score_at(part * cap) for its in runs] for part in PARTS}
    found = {amount: float(np.nanquantile(scores, behind, method="lower")) for amount, scores in least.items()}
    return {amount: score for amount, score in found.items() if score > 0}


def _ranked(trials: Trials) -> list[Trial]:
    """The trials all of whose runs reached the target, the best in the first cost first."""
    values = values_of(trials.aim, [trials.tried(trial) for trial in trials.all])
    whole = [trial for trial in trials.all if trial.runs and all(its.reached for its in trials.tried(trial))]
    return sorted(whole, key=lambda trial: values[trial.number])


def finalists_of(told: Search, trials: Trials) -> list[Trial]:
    """Return the trials that take part in the race: the cheapest ones.

    With several costs those that no other dominates, then those that only the first ones dominate, and so on (Deb,
    Pratap, Agarwal, Meyarivan, "A Fast and Elitist Multiobjective Genetic Algorithm: NSGA-II", IEEE Transactions on
    Evolutionary Computation 6(2), 2002); of too many on the last such front, some that are spread over it.
    """
    left, chosen = _ranked(trials), list[Trial]()
    if len(trials.aim.costs) < 2:
        return left[: told.finalists]
    every = values_of(trials.aim, [trials.tried(trial) for trial in trials.all])
    while left and len(chosen) < told.finalists:
        values = [every[trial.number] for trial in left]
        on_front = [not any(_dominates(other, own) for other in values) for own in values]
        front = [trial for trial, first in zip(left, on_front, strict=True) if first]
        places = np.linspace(0, len(front) - 1, min(told.finalists - len(chosen), len(front)))
        chosen += [front[place] for place in places.round().astype(int)]
        left = [trial for trial, first in zip(left, on_front, strict=True) if not first]
    return chosen


def _dominates(first: Sequence[float], second: Sequence[float]) -> bool:
    """Whether one setting is nowhere dearer than another, and somewhere cheaper."""
    return all(a <= b for a, b in zip(first, second, strict=True)) and tuple(first) != tuple(second)


def _race(finalists: Sequence[Trial], seeds: Sequence[int], trials: Trials) -> list[Dropped]:
    """Run the finalists with one seed after the other, and drop those that cannot be the best.

    With several costs, those are dropped that another dominates in the end.
    """
    left, dropped = list(finalists), list[Dropped]()
    several = len(trials.aim.costs) > 1
    for seed in seeds:
        if len(left) < 2:
            break
        for trial in left:
            trials.more(trial, seed)
        trials.sweep.finish()
        if several:
            continue
        costs = np.concatenate(costs_of(trials.aim, [trials.raced(trial) for trial in left]), axis=1)
        may_be_best, p = confidence_set(costs)
        dropped += [
            Dropped(trial, len(costs), float(chance))
            for trial, kept, chance in zip(left, may_be_best, p, strict=True)
            if not kept
        ]
        left = [trial for trial, kept in zip(left, may_be_best, strict=True) if kept]
    if several:
        values = values_of(trials.aim, [trials.raced(trial) for trial in left])
        beaten = [any(_dominates(other, own) for other in values) for own in values]
        dropped += [Dropped(its, len(its.runs), math.nan) for its, worse in zip(left, beaten, strict=True) if worse]
    return dropped
