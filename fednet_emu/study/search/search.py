"""Search for the best settings: try many settings with few seeds, then compare the best ones with more seeds.

In the race, finalists are run with one more seed at a time, and a finalist is dropped as soon as it cannot be the best
(Maron, Moore, "Hoeffding Races", NIPS 1993; Birattari, Stuetzle, Paquete, Varrentrapp, "A Racing Algorithm for
Configuring Metaheuristics", GECCO 2002). Instead of the Friedman test, the race uses the model confidence set of
`fednet best`. A trial ends when its cost reaches a multiple of the best setting's cost with the same seed (adaptive
capping: Hutter, Hoos, Leyton-Brown, Stuetzle, "ParamILS: An Automatic Algorithm Configuration Framework", JAIR 36,
2009). Optionally, a trial also ends when its accuracy is below a quantile of the accuracies of earlier settings (like
the median stopping rule: Golovin et al., "Google Vizier", KDD 2017). All decisions follow from the study file and from
the outcomes in the run folders. If a killed search is started again, it makes the same decisions, and does not repeat
finished runs.

The folder of results has the format of a study with the single axis `setting`, whose levels are the remaining
finalists, so that the commands `best`, `compare`, `plot` and `report` can read the folder. In addition, there are
`trials.csv` with one row per tried setting, `search.json` with a summary of the search, and `best/` with scenario
files.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fednet_emu.analysis.activity import spread
from fednet_emu.analysis.confidence_set import confidence_set
from fednet_emu.analysis.ranked import ENDED
from fednet_emu.analysis.scales import COSTS
from fednet_emu.analysis.searched import SEARCH, TRIALS
from fednet_emu.errors import FednetError, ScenarioError
from fednet_emu.files.writing import csv_text, file_errors, write_json, write_text
from fednet_emu.scenario.overrides import Setting
from fednet_emu.scenario.yaml_text import dump
from fednet_emu.study.file import Search, StudyFile
from fednet_emu.study.grid import Axis
from fednet_emu.study.runners import Runner
from fednet_emu.study.runs import RunMaker
from fednet_emu.study.search.space import (
    SETTING,
    STARTUP,
    Parameter,
    corners,
    importance,
    label_of,
    levels_at,
    proposals,
    require_optuna,
    space_of,
)
from fednet_emu.study.search.trials import CAPPED, Aim, Dropped, Hurdle, Trial, Trials, costs_of, values_of
from fednet_emu.study.sweep import Sweep, describe, study_folder, write_tables

PARTS = (0.25, 0.5, 0.75)
"""Fractions of the cap on the cost at which the accuracy of a trial is compared with the accuracies of earlier
trials."""


def load_search(
    study: StudyFile,
    overrides: Iterable[str | Setting] = (),
    *,
    trials: int | None = None,
    data_dir: Path | str | None = None,
    timing_only: bool = False,
) -> RunMaker:
    """Check a study that has the key `search`, and return a `RunMaker` for its runs.

    `overrides` are settings that apply to all runs. If `trials` is given, it replaces the number of settings to try
    that the study states.

    Raises:
        ScenarioError: the study, or a scenario at the ends of the search space, is invalid; all problems are listed.
        FednetError: Optuna is not installed.
    """
    if study.search is None:
        raise ScenarioError(f"{study.name}: nothing is searched, got no 'search'; fednet sweep {study.name}")
    require_optuna()
    if timing_only and (study.target or study.search.maximise):
        raise FednetError(
            f"{study.name}: search: a timing-only run learns nothing, got a target; leave out target and maximise"
        )
    if trials is not None:
        study = study.model_copy(update={"search": study.search.model_copy(update={"trials": trials})})
    parameters = _space(study)
    axes = [Axis(each.name, tuple(map(each.level, each.ends))) for each in parameters]
    maker, problems = RunMaker(study, overrides, axes, data_dir=data_dir, timing_only=timing_only), list[str]()
    for point in corners(parameters):
        settings = [setting for level in levels_at(parameters, point) for setting in level.settings]
        try:
            list(maker.runs(label_of(parameters, point), {}, settings, study.all_seeds[:1]))
        except ScenarioError as error:
            problems.extend(error.problems)
    if problems:
        raise ScenarioError(*dict.fromkeys(problems))
    return maker


def search(
    maker: RunMaker,
    out: Path,
    runner: Runner,
    *,
    data_dir: Path | str | None = None,
    track: tuple[str, ...] = (),
    on_event: Callable[[Sweep], None] = lambda _sweep: None,
) -> Sweep:
    """Execute a search; write to `out` the tables of finalists and trials, and the scenarios with the best settings.

    All arguments except `maker` have the same meaning as in `sweep`.

    Raises:
        DataError: `out` has other content, or another search or sweep writes to `out`.
    """
    study, asked = maker.study, maker.study.search
    assert asked is not None
    swept = Sweep(study, out, runner, data_dir, track, on_event)
    with study_folder(out, "search or sweep"):
        trials = Trials(Aim.of(study), _space(study), maker, swept, study.all_seeds[: asked.trial_seeds])
        describe(study, {}, maker.timing_only, out)
        finalists: list[Trial] = []
        dropped: list[Dropped] = []
        complete = False
        try:
            _explore(asked, trials)
            finalists = finalists_of(asked, trials)
            dropped = _race(finalists, study.all_seeds[asked.trial_seeds :], trials)
            complete = True
        finally:
            write_results(out, trials, finalists, dropped, complete=complete)
    return swept


def _space(study: StudyFile) -> tuple[Parameter, ...]:
    return space_of(study.root.value["search"].value["space"])


def _explore(asked: Search, trials: Trials) -> None:
    while len(trials.all) < asked.trials:
        values = values_of(trials.aim, [trials.tried(trial) for trial in trials.all])
        known = [(trial.point, value) for trial, value in zip(trials.all, values, strict=True)]
        count = min(asked.batch, asked.trials - len(trials.all))
        points = proposals(trials.parameters, known, count, asked.seed)
        if not points:
            return
        hurdles = _hurdles(asked, trials)
        for point in points:
            trials.begin(point, hurdles, asked.min_rounds)
        trials.sweep.finish()


def _hurdles(asked: Search, trials: Trials) -> Mapping[int, Hurdle]:
    """Return, by seed, the maximum cost of a run of the next trial, and the accuracies required at smaller costs."""
    ranked = _ranked(trials)
    if asked.cap is None or not trials.aim.is_single or not ranked:
        return {}
    best = zip(trials.seeds, trials.tried(ranked[0]), strict=True)
    caps = {seed: asked.cap * outcome.costs[0] for seed, outcome in best}
    return {seed: Hurdle(cap, _milestones(asked.behind, cap, trials, seed)) for seed, cap in caps.items()}


def _milestones(behind: float | None, cap: float, trials: Trials, seed: int) -> dict[float, float]:
    """Return the accuracies required at fractions of the cost `cap`.

    Each is the quantile `behind` of the accuracies that earlier trials with the same seed had at the same cost.
    """
    place = trials.seeds.index(seed)
    runs = [trials.tried(trial)[place] for trial in trials.all if trial.runs]
    if behind is None or len(runs) < STARTUP:
        return {}
    least = {part * cap: [its.score_at(part * cap) for its in runs] for part in PARTS}
    found = {amount: float(np.nanquantile(scores, behind, method="lower")) for amount, scores in least.items()}
    return {amount: score for amount, score in found.items() if score > 0}


def _ranked(trials: Trials) -> list[Trial]:
    values = values_of(trials.aim, [trials.tried(trial) for trial in trials.all])
    whole = [trial for trial in trials.all if trial.runs and all(its.reached for its in trials.tried(trial))]
    return sorted(whole, key=lambda trial: values[trial.number])


def finalists_of(asked: Search, trials: Trials) -> list[Trial]:
    """Return the finalists, which are the trials of lowest cost; only these are run with further seeds.

    With several costs, the Pareto front of all trials comes first, then the Pareto front of the remaining trials, and
    so on (Deb, Pratap, Agarwal, Meyarivan, "A Fast and Elitist Multiobjective Genetic Algorithm: NSGA-II", IEEE
    Transactions on Evolutionary Computation 6(2), 2002). If a front has more trials than needed, evenly spaced trials
    are taken.
    """
    left, chosen = _ranked(trials), list[Trial]()
    if len(trials.aim.costs) < 2:
        return left[: asked.finalists]
    every = values_of(trials.aim, [trials.tried(trial) for trial in trials.all])
    while left and len(chosen) < asked.finalists:
        values = [every[trial.number] for trial in left]
        on_front = [not any(_dominates(other, own) for other in values) for own in values]
        front = [trial for trial, first in zip(left, on_front, strict=True) if first]
        chosen += spread(front, asked.finalists - len(chosen))
        left = [trial for trial, first in zip(left, on_front, strict=True) if not first]
    return chosen


def _dominates(first: Sequence[float], second: Sequence[float]) -> bool:
    return all(a <= b for a, b in zip(first, second, strict=True)) and tuple(first) != tuple(second)


def _race(finalists: Sequence[Trial], seeds: Sequence[int], trials: Trials) -> list[Dropped]:
    """Run the finalists with one seed after the other, drop those that cannot be the best, and return the dropped ones.

    With several costs, finalists are dropped only at the end, if another finalist dominates them.
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
        costs = np.concatenate(costs_of(trials.aim, [trials.raced(trial) for trial in left], graded=False), axis=1)
        may_be_best, p = confidence_set(costs)
        dropped += [
            Dropped(trial, len(costs), float(chance))
            for trial, kept, chance in zip(left, may_be_best, p, strict=True)
            if not kept
        ]
        left = [trial for trial, kept in zip(left, may_be_best, strict=True) if kept]
    if several:
        values = values_of(trials.aim, [trials.raced(trial) for trial in left], graded=False)
        beaten = [any(_dominates(other, own) for other in values) for own in values]
        dropped += [Dropped(its, len(its.runs), math.nan) for its, worse in zip(left, beaten, strict=True) if worse]
    return dropped


BEST = "best"
_WHY = {ENDED: "ended without it", CAPPED: "ended at the cap", **{cost: f"limit of {cost}" for cost in COSTS}}
"""Text in trials.csv for each reason why a run missed the target."""
_COLUMNS = ("trial", SETTING, "runs", "reached", "score", "why_not")
"""Columns of trials.csv, in addition to the parameters and the objectives."""
DIGITS = 9
"""Number of significant digits in trials.csv."""


def write_results(
    out: Path, trials: Trials, finalists: Sequence[Trial], dropped: Sequence[Dropped], *, complete: bool
) -> None:
    """Write the results of a search to `out`: tables of all trials and of the finalists, and the dropped finalists.

    `complete` is False if the search was interrupted.
    """
    study, parameters = trials.maker.study, trials.parameters
    ended = [trial for trial in trials.all if trials.has_ended(trial)]
    gone = {its.trial.number for its in dropped}
    left = [trial for trial in finalists if trial.number not in gone and trials.has_ended(trial)]
    raced = values_of(trials.aim, list(map(trials.raced, left)), graded=False)
    left = [left[place] for place in sorted(range(len(left)), key=lambda place: raced[place])]
    places, sweep = [place for trial in left for place in trial.runs.values()], trials.sweep
    write_tables(
        out,
        [sweep.runs[place] for place in places],
        {row: sweep.folder_of[place] for row, place in enumerate(places) if place in sweep.done},
        {row: sweep.failures[place] for row, place in enumerate(places) if place in sweep.failures},
        study.target,
    )
    frame = pd.DataFrame(list(_rows(trials, ended)), columns=None if ended else [*_COLUMNS, *_names(trials)])
    write_text(out / TRIALS, csv_text(frame, DIGITS))
    _write_best(out / BEST, study.name, left)
    values = values_of(trials.aim, list(map(trials.tried, ended)))
    known = [(trial.point, value) for trial, value in zip(ended, values, strict=True)]
    write_json(
        out / SEARCH,
        {
            "name": study.name,
            "costs": list(trials.aim.costs),
            "limits": dict(trials.aim.limits),
            "target": {trials.aim.measure: trials.aim.level} if trials.aim.measure else {},
            "complete": complete,
            "trials": len(ended),
            "parameters": [parameter.name for parameter in parameters],
            "finalists": [trial.number for trial in left],
            "dropped": [
                {"trial": its.trial.number, "seeds": its.seeds, "p": None if math.isnan(its.p) else its.p}
                for its in dropped
            ],
            "runs": {str(trial.number): _costs(trials, trial) for trial in finalists if trials.has_ended(trial)},
            "importance": importance(parameters, known),
        },
    )
    levels = {SETTING: [trial.label for trial in left]} if left else {}
    describe(study, levels, trials.maker.timing_only, out, complete=True)


def _costs(trials: Trials, trial: Trial) -> list[list[float | None]]:
    """Return the costs of each run of a finalist, in ascending order of seeds; None if a run missed the target."""
    return [[cost if math.isfinite(cost) else None for cost in its.costs] for its in trials.raced(trial)]


def _names(trials: Trials) -> Sequence[str]:
    return trials.aim.costs or ("accuracy",)


def _rows(trials: Trials, ended: Sequence[Trial]) -> Iterator[dict[str, Any]]:
    names = _names(trials)
    sign = 1.0 if trials.aim.costs else -1.0
    for trial in ended:
        runs = trials.tried(trial)
        reached = bool(runs) and all(its.reached for its in runs)
        means = sign * np.mean([its.costs for its in runs], axis=0) if reached else np.full(len(names), math.nan)
        causes = dict.fromkeys(_WHY.get(cause, cause) for its in runs for cause in its.why)
        yield {
            "trial": trial.number,
            SETTING: trial.label,
            **{each.name: trial.columns.get(each.name, "") for each in trials.parameters},
            "runs": len(runs),
            "reached": sum(its.reached for its in runs),
            **dict(zip(names, map(float, means), strict=True)),
            "score": float(np.mean([its.score for its in runs])) if runs else math.nan,
            "why_not": trial.unable or ", ".join(causes),
        }


def _write_best(folder: Path, name: str, left: Sequence[Trial]) -> None:
    """Write the scenarios of the remaining finalists, best first, and remove the scenarios of an earlier search."""
    with file_errors(folder, "written"):
        folder.mkdir(exist_ok=True)
        for path in folder.glob("*.yaml"):
            if path.stem.isdecimal():  # only these names come from a search
                path.unlink()
    for place, trial in enumerate(left, 1):
        if trial.scenario is not None:
            heading = f"# {name}, place {place}: {trial.label}\n"
            write_text(folder / f"{place}.yaml", heading + dump(trial.scenario))
