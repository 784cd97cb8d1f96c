"""The aim of a search (minimum cost to reach a target, or maximum accuracy within limits), and the tried settings.

The results of runs are read from the run folders.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from fednet_emu.analysis.ranked import DIVERGED, ENDED
from fednet_emu.analysis.ranking import course_of
from fednet_emu.analysis.scales import COSTS, DEVICE_ENERGY, Measure, with_total_bits
from fednet_emu.arrays import Array
from fednet_emu.emulation.play import play
from fednet_emu.errors import FednetError, ScenarioError
from fednet_emu.federation.stop import Stop
from fednet_emu.records.folder import SUMMARY
from fednet_emu.scenario.model import Scenario
from fednet_emu.scenario.overrides import Setting
from fednet_emu.scenario.tree import Place, node_of
from fednet_emu.study.file import StudyFile
from fednet_emu.study.runs import RunMaker, StudyRun
from fednet_emu.study.search.space import SETTING, Parameter, Point, label_of, levels_at
from fednet_emu.study.sweep import Sweep, aim

STOPS = {"time": "simulated_s", "bits": "bits", "energy": "energy_j", DEVICE_ENERGY: "energy_j", "rounds": "rounds"}
"""The stop setting (a key under `stop` in a scenario) that limits each cost of a run."""
_CLOCK_S = 1e-9
"""Resolution of the simulated clock."""
CAPPED = "capped"
"""Reason why a run has unknown costs: it ended at the cap, before its own stop rules."""


@dataclass(frozen=True)
class Outcome:
    """Costs and score of a run, and the reasons if the run missed the target of the search."""

    costs: tuple[float, ...]
    """The minimised costs, or the negative of the maximised accuracy; infinite if the run missed the target."""
    score: float
    """Accuracy or loss that the run achieved within the limits; NaN if there was no evaluation."""
    why: tuple[str, ...] = ()
    """Reasons why the run missed the target; empty if the run reached the target."""
    course: Array = field(default_factory=lambda: np.empty((2, 0)), repr=False, compare=False)
    """Array [2, evaluations] with the first minimised cost and the score (accuracy or loss) at each evaluation."""

    def score_at(self, amount: float) -> float:
        """Return the score at the last evaluation at which the first cost is at most `amount`; NaN if there is none."""
        spent, scores = self.course
        count = int(np.searchsorted(spent, amount, side="right"))
        return float(scores[count - 1]) if count else math.nan

    @property
    def reached(self) -> bool:
        """True if the run reached the target, so that all costs are finite."""
        return all(map(math.isfinite, self.costs))


@dataclass(frozen=True)
class Aim:
    """The aim of a search: the minimised costs or the maximised accuracy, the target, and the limits on costs."""

    costs: tuple[str, ...]
    """Names of the minimised costs; empty if the accuracy is maximised."""
    limits: Mapping[str, float]
    measure: Measure | None
    """Metric of the target (accuracy or loss); None if there is no target."""
    level: float
    """Value of the metric at which the target is reached; NaN if there is no target."""

    @classmethod
    def of(cls, study: StudyFile) -> Aim:
        """Return the objective of a study that has the key `search`."""
        asked = study.search
        assert asked is not None
        measure, level = aim(study.target)
        limits = {str(cost): most for cost, most in asked.within.items()}
        return cls(() if asked.maximise else asked.costs, limits, measure, level)

    @property
    def is_single(self) -> bool:
        """True if exactly one cost is minimised, which is necessary for a cap on this cost."""
        return len(self.costs) == 1

    def stops(
        self, scenario: Scenario, cap: float = math.inf, milestones: Mapping[float, float] | None = None
    ) -> dict[str, Any]:
        """Return stop settings with which a run of `scenario` ends as soon as its outcome is known.

        The settings contain the target accuracy, the limits on costs, and the conditions of a `Hurdle`: the maximum
        cost `cap`, and the accuracies `milestones` that are required at smaller costs. Stop rules of the scenario still
        apply.
        """
        limits = [*self.limits.items(), *([(self.costs[0], cap)] if self.is_single and math.isfinite(cap) else ())]
        stops: dict[str, Any] = {}
        for cost, most in limits:
            key, amount = _as_stop(scenario, cost, most)
            known = stops.get(key, getattr(scenario.stop, key))
            stops[key] = amount if known is None else min(known, amount)
        if self.measure == "accuracy":
            stops["accuracy"] = min(self.level, scenario.stop.accuracy or 1.0)
        if milestones:
            asked = [its.model_dump(exclude_none=True) for its in scenario.stop.milestones]
            for amount, least in milestones.items():
                asked.append(dict([_as_stop(scenario, self.costs[0], amount), ("accuracy", least)]))
            stops["milestones"] = asked
        return stops

    def outcome(self, evaluations: pd.DataFrame, summary: Mapping[str, Any], run: Scenario, own: Stop) -> Outcome:
        """Return the outcome of a run, from its evaluations in order of time and its summary.

        `run` is the scenario with the stop rules of the search, and `own` are the stop rules without those.
        """
        status, devices = str(summary["status"]), run.devices.count
        if self.costs and self.measure is None:
            return self._whole(spent_in(summary, devices), status, _cut_off(summary, run.stop, own))
        rows = with_total_bits(evaluations)
        spent = {name: rows[COSTS[name].column] for name in dict.fromkeys([*self.costs, *self.limits])}
        if DEVICE_ENERGY in spent:
            spent[DEVICE_ENERGY] = spent[DEVICE_ENERGY] / devices
        rows = rows.assign(**{f"spent {name}": amounts for name, amounts in spent.items()})
        if self.measure is None:
            return self._accuracy(rows, status)
        courses = [course_of(rows, status, self.measure, self.level, cost, self.limits) for cost in self.costs]
        course = rows[[f"spent {self.costs[0]}", self.measure]].to_numpy(np.float64).T
        return Outcome(tuple(its.cost for its in courses), courses[0].score, courses[0].stopped_by, course)

    def _accuracy(self, rows: pd.DataFrame, status: str) -> Outcome:
        over = [rows[f"spent {cost}"].to_numpy() > most for cost, most in self.limits.items()]
        beyond = np.any([*over, np.zeros(len(rows), np.bool_)], axis=0)
        scores = rows["accuracy"].to_numpy(np.float64)[: int(np.argmax(beyond)) if beyond.any() else len(rows)]
        if status == DIVERGED or not len(scores) or not math.isfinite(scores[-1]):
            return Outcome((math.inf,), math.nan, (status if status == DIVERGED else ENDED,))
        return Outcome((-float(scores[-1]),), float(scores[-1]))

    def _whole(self, spent: Mapping[str, float], status: str, cut_off: bool) -> Outcome:
        slack = 1e-9 if cut_off else 0.0
        over = tuple(cost for cost, most in self.limits.items() if spent[cost] > most * (1.0 - slack))
        if over or cut_off or status == DIVERGED:
            return Outcome((math.inf,) * len(self.costs), math.nan, over or ((CAPPED,) if cut_off else (status,)))
        return Outcome(tuple(spent[cost] for cost in self.costs), math.nan)

    def shortfall(self, outcome: Outcome) -> float:
        """Return the relative distance of the score in `outcome` from the target, from 0 to 1.

        It is 1 if the score is NaN, and if the run diverged.
        """
        if self.measure is None or not math.isfinite(outcome.score) or DIVERGED in outcome.why:
            return 1.0
        missing = self.level - outcome.score if self.measure == "accuracy" else outcome.score - self.level
        return min(max(missing / self.level, 0.0), 1.0)


def _cut_off(summary: Mapping[str, Any], stop: Stop, own: Stop) -> bool:
    """Return True if a stop rule of the search has ended a run before its own stop rules `own`."""
    spent = {STOPS[cost]: amount for cost, amount in spent_in(summary, 1).items()}

    def reached(its: Stop) -> bool:
        by_time = spent["simulated_s"] >= (its.simulated_s or math.inf) - _CLOCK_S
        return by_time or its.reached(spent, summary.get("accuracy"))

    return reached(stop) and not reached(own)


def _as_stop(scenario: Scenario, cost: str, amount: float) -> tuple[str, float]:
    if cost == DEVICE_ENERGY:
        amount *= scenario.devices.count
    return STOPS[cost], max(1, math.ceil(amount)) if cost == "rounds" else amount


def spent_in(summary: Mapping[str, Any], devices: int) -> dict[str, float]:
    """Return the total costs of a run with `devices` devices, by name, from the summary of the run."""
    energy_j = float(summary["energy_j"])
    return {
        "time": float(summary["simulated_s"]),
        "bits": sum(float(summary[f"{link}_bit"]) for link in ("uplink", "downlink", "sidelink")),
        "energy": energy_j,
        DEVICE_ENERGY: energy_j / devices,
        "rounds": float(summary["rounds"]),
    }


def costs_of(aim: Aim, trials: Sequence[Sequence[Outcome]], *, graded: bool = True) -> list[Array]:
    """Return one array [runs, costs] of finite objectives for each trial, so that runs and trials can be compared.

    The objectives of a run that reached the target are its costs. The objectives of a run that missed the target are
    one to two times the largest costs of the successful runs, and grow with the distance from the target, so that such
    a run ranks behind all successful runs. If `graded` is False, they are twice the largest costs, as in `fednet best`.
    """
    size = max(len(aim.costs), 1)
    known = np.array([its.costs for runs in trials for its in runs if its.reached]).reshape(-1, size)
    worst = known.max(axis=0) if len(known) else np.ones(size)
    scale = np.maximum(np.abs(worst), 1e-12)
    return [
        np.array(
            [its.costs if its.reached else worst + scale * (aim.shortfall(its) if graded else 1.0) for its in runs]
        ).reshape(-1, size)
        for runs in trials
    ]


def values_of(aim: Aim, trials: Sequence[Sequence[Outcome]], *, graded: bool = True) -> list[tuple[float, ...]]:
    """Return the mean objectives of each trial over its runs; a trial without runs has the largest objectives."""
    costs = costs_of(aim, trials, graded=graded)
    most = np.max([its.max(axis=0) for its in costs if len(its)] or [np.ones(max(len(aim.costs), 1))], axis=0)
    return [tuple(map(float, its.mean(axis=0) if len(its) else most)) for its in costs]


@dataclass
class Trial:
    """A setting that the search tries."""

    number: int
    """Index of the trial, from 0."""
    point: Point
    """Values of the varied parameters."""
    label: str
    """Readable text with the values of the parameters."""
    columns: Mapping[str, Any]
    """Values of the parameters, by the name of the table column."""
    settings: tuple[Setting, ...]
    scenario: Scenario | None = None
    """Scenario of the trial with the first seed, without the stop rules of the search; None for an invalid setting."""
    runs: dict[int, int] = field(default_factory=dict)
    """Index of each run in the sweep, by the seed of the run."""
    unable: str = ""
    """Reason why the trial was not run; empty if the trial was run."""


class Hurdle(NamedTuple):
    """Conditions under which a run of a trial continues: a maximum cost, and minimum accuracies at smaller costs."""

    cap: float = math.inf
    milestones: Mapping[float, float] = {}
    """Required accuracies, by the amount of the minimised cost at which each must be reached."""


@dataclass(frozen=True)
class Dropped:
    """A finalist that was dropped from the race, because it cannot be the best."""

    trial: Trial
    seeds: int
    """Number of seeds with which the finalist had been run when it was dropped."""
    p: float
    """The p-value of the finalist in the model confidence set; NaN if several costs are minimised, because no test is
    made then."""


class Trials:
    """Table of all trials of a search; each trial is run with `seeds`, which are the first seeds of the study."""

    def __init__(
        self, aim: Aim, parameters: Sequence[Parameter], maker: RunMaker, sweep: Sweep, seeds: Sequence[int]
    ) -> None:
        self.aim, self.sweep, self.seeds, self.all = aim, sweep, seeds, list[Trial]()
        self.parameters, self.maker = parameters, maker
        self._known: dict[int, Outcome] = {}

    def begin(self, point: Point, hurdles: Mapping[int, Hurdle], min_rounds: int) -> Trial:
        """Add a trial with one run for each seed, and return it; no runs if the setting is invalid or too costly.

        `hurdles` has the conditions for each run by its seed. `min_rounds` is the minimum number of rounds that are
        needed to reach the target; a setting is too costly if these rounds alone exceed a limit.
        """
        levels, label = levels_at(self.parameters, point), label_of(self.parameters, point)
        columns = {SETTING: label, **{name: value for level in levels for name, value in level.columns.items()}}
        settings = tuple(setting for level in levels for setting in level.settings)
        trial = Trial(len(self.all), point, label, columns, settings)
        self.all.append(trial)
        try:
            plain = [next(self.maker.runs(label, columns, settings, [seed])) for seed in self.seeds]
        except ScenarioError as error:
            trial.unable = f"invalid: {'; '.join(error.problems)}"
            return trial
        trial.scenario = plain[0].scenario
        runs = [(run, hurdles.get(run.scenario.seed, Hurdle())) for run in plain]
        for run, hurdle in runs if not self.maker.timing_only else ():
            why = too_costly(self.aim, run.scenario, min_rounds, hurdle.cap, self.sweep.data_dir)
            if why:
                trial.unable = f"too costly: {why}"
                return trial
        self._run(trial, runs)
        return trial

    def more(self, trial: Trial, seed: int) -> None:
        """Add a run with another seed to a trial."""
        run = next(self.maker.runs(trial.label, trial.columns, trial.settings, [seed]))
        self._run(trial, [(run, Hurdle())])

    def _run(self, trial: Trial, runs: Sequence[tuple[StudyRun, Hurdle]]) -> None:
        ended = [self._ended(trial, run.scenario, hurdle) for run, hurdle in runs]
        places = self.sweep.add(ended)
        trial.runs |= {run.scenario.seed: place for run, place in zip(ended, places, strict=True)}

    def has_ended(self, trial: Trial) -> bool:
        """Return True if all runs of a trial have ended."""
        return all(place in self.sweep.done or place in self.sweep.failures for place in trial.runs.values())

    def tried(self, trial: Trial) -> list[Outcome]:
        """Return the outcomes of a trial's runs with the first seeds (`seeds`); empty if the trial was not run."""
        return [self._outcome(trial, seed) for seed in self.seeds if seed in trial.runs]

    def raced(self, trial: Trial) -> list[Outcome]:
        """Return the outcomes of all runs of a trial, including runs of the race, in ascending order of seeds."""
        return [self._outcome(trial, seed) for seed in sorted(trial.runs)]

    def _outcome(self, trial: Trial, seed: int) -> Outcome:
        place = trial.runs[seed]
        if place not in self._known:
            if place in self.sweep.failures:
                lost = (math.inf,) * max(len(self.aim.costs), 1)
                self._known[place] = Outcome(lost, math.nan, ("failed",))
            else:
                folder, scenario = self.sweep.folder_of[place], self.sweep.runs[place].scenario
                summary = json.loads((folder / SUMMARY).read_text(encoding="utf-8"))
                evaluations = pd.read_parquet(folder / "evaluations.parquet")
                assert trial.scenario is not None  # only valid scenarios have runs
                self._known[place] = self.aim.outcome(evaluations, summary, scenario, trial.scenario.stop)
        return self._known[place]

    def _ended(self, trial: Trial, scenario: Scenario, hurdle: Hurdle) -> StudyRun:
        stops = self.aim.stops(scenario, *hurdle)
        settings = [Setting(f"stop.{name}", node_of(value, Place("search"))) for name, value in stops.items()]
        return next(self.maker.runs(trial.label, trial.columns, (*trial.settings, *settings), [scenario.seed]))


def too_costly(
    aim: Aim, scenario: Scenario, rounds: int, cap: float = math.inf, data_dir: Path | str | None = None
) -> str:
    """Return the reason why a scenario certainly exceeds a limit or the cap; empty if it might succeed.

    The target cannot be reached in less than `rounds` rounds, so these rounds are simulated without training, which
    takes milliseconds. They cost the same time, bits and energy as with training. If events or message sizes depend on
    training, no such simulation is possible, and the result is empty.
    """
    limits = dict(aim.limits)
    if aim.is_single and math.isfinite(cap):
        limits[aim.costs[0]] = min(cap, limits.get(aim.costs[0], math.inf))
    free = scenario.stop.model_copy(update={"rounds": min(rounds, scenario.stop.rounds or rounds), "accuracy": None})
    short = scenario.model_copy(update={"stop": free})
    if not limits or short.events_depend_on_learning or list(short.untimed()):
        return ""
    try:
        spent = spent_in(
            play(short, "bound", None, timing_only=True, data_dir=data_dir).summary, scenario.devices.count
        )
    except FednetError:  # the real run will report this error
        return ""
    over = [cost for cost, most in limits.items() if spent[cost] > most]
    if not over:
        return ""
    count = f"{rounds} rounds" if rounds > 1 else "a round"
    its = COSTS[over[0]]
    return f"{its.show(spent[over[0]])} after {count}, {its.show(limits[over[0]])} allowed"
