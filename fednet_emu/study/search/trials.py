"""The trials of a search: their settings, runs and outcomes, and lower bounds on their costs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from fednet_emu.analysis.scales import COSTS
from fednet_emu.emulation.play import play
from fednet_emu.errors import FednetError, ScenarioError
from fednet_emu.scenario.model import Scenario
from fednet_emu.scenario.overrides import Setting
from fednet_emu.scenario.tree import Place, node_of
from fednet_emu.study.runs import RunMaker, StudyRun
from fednet_emu.study.search.aim import Aim, Outcome, outcome_in, spent_in
from fednet_emu.study.search.space import SETTING, Parameter, Point, label_of, levels_at
from fednet_emu.study.sweep import Sweep


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
    """The settings by which the trial changes the base scenario."""
    scenario: Scenario | None = None
    """Scenario of the trial with the first seed, without the stop rules of the search; None for an invalid setting."""
    runs: dict[int, int] = field(default_factory=dict)
    """Index of each run in the sweep, by the seed of the run."""
    unable: str = ""
    """Reason why the trial was not run; empty if the trial was run."""


class Hurdle(NamedTuple):
    """Conditions under which a run of a trial continues."""

    cap: float = math.inf
    """Cap on the minimised cost."""
    milestones: Mapping[float, float] = {}
    """Required accuracies, by the amount of the minimised cost at which each must be reached."""


@dataclass(frozen=True)
class Dropped:
    """A finalist that was dropped from the race, because it cannot be the best."""

    trial: Trial
    """The finalist."""
    seeds: int
    """Number of seeds with which the finalist had been run when it was dropped."""
    p: float
    """The p-value of the finalist in the model confidence set; NaN with several costs, where no test is made."""


class Trials:
    """Table of all trials of a search; each trial is run with `seeds`, which are the first seeds of the study."""

    def __init__(
        self, aim: Aim, parameters: Sequence[Parameter], maker: RunMaker, sweep: Sweep, seeds: Sequence[int]
    ) -> None:
        self.aim, self.sweep, self.seeds, self.all = aim, sweep, seeds, list[Trial]()
        self.parameters, self.maker = parameters, maker
        self._known: dict[int, Outcome] = {}

    def begin(self, point: Point, hurdles: Mapping[int, Hurdle], min_rounds: int) -> Trial:
        """Add a trial with one run for each seed, or without runs if its setting is invalid or certainly too costly.

        `hurdles` has the conditions for each run by its seed. `min_rounds` is the minimum number of rounds that are
        needed to reach the target.
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
        """Add runs to a trial; each run ends early if it does not meet its `Hurdle`."""
        ended = [self._ended(trial, run.scenario, hurdle) for run, hurdle in runs]
        places = self.sweep.add(ended)
        trial.runs |= {run.scenario.seed: place for run, place in zip(ended, places, strict=True)}

    def has_ended(self, trial: Trial) -> bool:
        """Return True if all runs of a trial have ended."""
        return all(place in self.sweep.done or place in self.sweep.failures for place in trial.runs.values())

    def tried(self, trial: Trial) -> list[Outcome]:
        """Return the outcomes of a trial's runs with the first seeds; empty for a trial that was not run."""
        return [self._outcome(trial.runs[seed]) for seed in self.seeds if seed in trial.runs]

    def raced(self, trial: Trial) -> list[Outcome]:
        """Return the outcomes of all runs of a trial, including runs of the race, in ascending order of seeds."""
        return [self._outcome(trial.runs[seed]) for seed in sorted(trial.runs)]

    def _outcome(self, place: int) -> Outcome:
        """Return the outcome of a run; a failed run counts as a run that missed the target."""
        if place not in self._known:
            if place in self.sweep.failures:
                lost = (math.inf,) * max(len(self.aim.costs), 1)
                self._known[place] = Outcome(lost, math.nan, ("failed",))
            else:
                devices = self.sweep.runs[place].scenario.devices.count
                self._known[place] = outcome_in(self.aim, self.sweep.folder_of[place], devices)
        return self._known[place]

    def _ended(self, trial: Trial, scenario: Scenario, hurdle: Hurdle) -> StudyRun:
        """Return a run of `scenario` that ends as soon as its outcome is known, or if it does not meet `hurdle`."""
        stops = self.aim.stops(scenario, *hurdle)
        settings = [Setting(f"stop.{name}", node_of(value, Place("search"))) for name, value in stops.items()]
        return next(self.maker.runs(trial.label, trial.columns, (*trial.settings, *settings), [scenario.seed]))


def too_costly(
    aim: Aim, scenario: Scenario, rounds: int, cap: float = math.inf, data_dir: Path | str | None = None
) -> str:
    """Return the reason why a scenario certainly exceeds a limit or the cap; empty if it might succeed.

    The target cannot be reached in less than `rounds` rounds, so these rounds are simulated without training, which
    takes milliseconds. They cost the same time, bits and energy as with training. For scenarios in which events or
    message sizes depend on training, this is not true, and the result is empty.
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
