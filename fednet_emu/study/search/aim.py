"""The aim of a search: the costs of a target, or the accuracy within a budget, and the outcome of a run."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fednet_emu.analysis.ranked import ENDED
from fednet_emu.analysis.ranking import course_of
from fednet_emu.analysis.scales import COSTS, DEVICE_ENERGY, Measure, with_total_bits
from fednet_emu.arrays import Array
from fednet_emu.scenario.model import Scenario
from fednet_emu.study.file import StudyFile
from fednet_emu.study.sweep import aim

STOPS = {"time": "simulated_s", "bits": "bits", "energy": "energy_j", DEVICE_ENERGY: "energy_j", "rounds": "rounds"}
"""The limit of a scenario that ends a run at an amount of a cost."""


@dataclass(frozen=True)
class Outcome:
    """The outcome of a run."""

    costs: tuple[float, ...]
    """Each minimised cost, or minus the accuracy; infinite if the run missed the target."""
    score: float
    """The best score within the limits; NaN without evaluations."""
    why: tuple[str, ...] = ()
    """The reason why it missed the target; empty if it did not."""
    course: Array = field(default_factory=lambda: np.empty((2, 0)), repr=False, compare=False)
    """The first cost and the score at each evaluation, [2, evaluations]."""

    def score_at(self, amount: float) -> float:
        """Return the score at the last evaluation within an amount of the first cost; NaN before any."""
        spent, scores = self.course
        count = int(np.searchsorted(spent, amount, side="right"))
        return float(scores[count - 1]) if count else math.nan

    @property
    def reached(self) -> bool:
        """Whether its costs are known."""
        return all(map(math.isfinite, self.costs))


@dataclass(frozen=True)
class Aim:
    """The aim of a search."""

    costs: tuple[str, ...]
    """Names of the minimised costs; none if the accuracy is maximised."""
    limits: Mapping[str, float]
    """The limits of costs."""
    measure: Measure | None
    """The measure of the target; None for costs of whole runs."""
    level: float
    """The level of the target."""

    @classmethod
    def of(cls, study: StudyFile) -> Aim:
        """The aim of a study that is searched."""
        asked = study.search
        assert asked is not None
        measure, level = aim(study.target)
        limits = {str(cost): most for cost, most in asked.within.items()}
        return cls(() if asked.maximise else asked.costs, limits, measure, level)

    @property
    def is_single(self) -> bool:
        """Whether one cost is minimised, so that a run can be ended at a cap."""
        return len(self.costs) == 1

    def stops(
        self, scenario: Scenario, cap: float = math.inf, milestones: Mapping[float, float] | None = None
    ) -> dict[str, Any]:
        """Return the limits with which a scenario ends as soon as its outcome is known, by their names under `stop`.

        These are the target, limits of costs, and the conditions of a `Hurdle`. Limits of the scenario stay.
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

    def outcome(self, evaluations: pd.DataFrame, summary: Mapping[str, Any], devices: int) -> Outcome:
        """Return the outcome of a run, from its evaluations in order of time, and its summary."""
        status = str(summary["status"])
        if self.costs and self.measure is None:
            return self._whole(spent_in(summary, devices), status)
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
        if status == "diverged" or not len(scores) or not math.isfinite(scores[-1]):
            return Outcome((math.inf,), math.nan, (status if status == "diverged" else ENDED,))
        return Outcome((-float(scores[-1]),), float(scores[-1]))

    def _whole(self, spent: Mapping[str, float], status: str) -> Outcome:
        over = tuple(cost for cost, most in self.limits.items() if spent[cost] > most)
        if over or status == "diverged":
            return Outcome((math.inf,) * len(self.costs), math.nan, over or (status,))
        return Outcome(tuple(spent[cost] for cost in self.costs), math.nan)

    def shortfall(self, outcome: Outcome) -> float:
        """Return the distance from the target of a run that missed it, from 0 to 1; 1 if unknown."""
        if self.measure is None or not math.isfinite(outcome.score):
            return 1.0
        missing = self.level - outcome.score if self.measure == "accuracy" else outcome.score - self.level
        return min(max(missing / self.level, 0.0), 1.0)


def _as_stop(scenario: Scenario, cost: str, amount: float) -> tuple[str, float]:
    """The limit of a scenario for an amount of a cost: its name under `stop`, and its value."""
    if cost == DEVICE_ENERGY:
        amount *= scenario.devices.count
    return STOPS[cost], max(1, math.ceil(amount)) if cost == "rounds" else amount


def outcome_in(aim: Aim, folder: Path, devices: int) -> Outcome:
    """Return the outcome of the finished run in a folder."""
    summary = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
    return aim.outcome(pd.read_parquet(folder / "evaluations.parquet"), summary, devices)


def spent_in(summary: Mapping[str, Any], devices: int) -> dict[str, float]:
    """Return the total costs of a run, by name, from its summary."""
    energy_j = float(summary["energy_j"])
    return {
        "time": float(summary["simulated_s"]),
        "bits": sum(float(summary[f"{link}_bit"]) for link in ("uplink", "downlink", "sidelink")),
        "energy": energy_j,
        DEVICE_ENERGY: energy_j / devices,
        "rounds": float(summary["rounds"]),
    }


def costs_of(aim: Aim, trials: Sequence[Sequence[Outcome]]) -> list[Array]:
    """Return the objectives of each run of each trial, [runs, costs] each; finite, and comparable over all trials.

    A run that missed the target counts as one to two times the largest cost of the successful runs, increasing with its
    distance from the target: such runs are worse than all others, and ordered among themselves.
    """
    size = max(len(aim.costs), 1)
    known = np.array([its.costs for runs in trials for its in runs if its.reached]).reshape(-1, size)
    worst = known.max(axis=0) if len(known) else np.ones(size)
    scale = np.maximum(np.abs(worst), 1e-12)
    return [
        np.array([its.costs if its.reached else worst + scale * aim.shortfall(its) for its in runs]).reshape(-1, size)
        for runs in trials
    ]


def values_of(aim: Aim, trials: Sequence[Sequence[Outcome]]) -> list[tuple[float, ...]]:
    """Return the objectives of each trial: the mean over its runs; a trial without any counts as the worst."""
    costs = costs_of(aim, trials)
    most = np.max([its.max(axis=0) for its in costs if len(its)] or [np.ones(max(len(aim.costs), 1))], axis=0)
    return [tuple(map(float, its.mean(axis=0) if len(its) else most)) for its in costs]
