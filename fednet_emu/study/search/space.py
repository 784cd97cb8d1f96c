"""The search space, and proposals for the next settings by Optuna's Tree-structured Parzen Estimator.

The space states the varied settings, their possible values, and the conditions under which a setting is varied:

access: {tdma: {network.uplink.access: tdma}, ofdma: ...}       # choices: values, variants or lists, as in a grid
algorithm.lr: {low: 0.01, high: 1, log: true}                   # a range
network.uplink.access.share: {low: 0.1, high: 0.9, when: {access: ofdma}}            # varied only together with OFDMA

Bergstra, Bardenet, Bengio, Kegl, "Algorithms for Hyper-Parameter Optimization", NeurIPS 2011; Akiba, Sano, Yanase,
Ohta, Koyama, "Optuna", KDD 2019. Proposals depend only on the outcomes so far and on the seed of the search, so that a
repeated search makes the same proposals.
"""

from __future__ import annotations

import importlib
import json
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from pydantic import Field, model_validator

from fednet_emu.component.component import Component
from fednet_emu.errors import FednetError, ScenarioError, did_you_mean
from fednet_emu.scenario.document import Document
from fednet_emu.scenario.overrides import Setting
from fednet_emu.scenario.problems import validate
from fednet_emu.scenario.tree import Node, Place, problem_text, show
from fednet_emu.study.grid import Level, axis_problem, level_label, levels_of, reserved

CHOICES, WHEN = "choices", "when"
SETTING = "setting"
"""Name of the table column with the label of a point, which contains the values of all varied parameters."""
LARGEST = 10**15
"""Maximum absolute value in a range; up to this value, integers and their differences are exact."""
DIGITS = 4
"""Number of significant digits to which random values are rounded, for readable scenario files."""

Value = str | int | float
"""Value of a parameter: the label of a choice, or a number in a range."""
Point = Mapping[str, Value]
"""A point of the search space: the value of each varied parameter, by the name of the parameter."""


class Range(Component):
    """Numbers from `low` to `high`: integers if `low`, `high` and `step` (if set) are integers, else real numbers."""

    low: int | float = Field(ge=-LARGEST, le=LARGEST)
    """Minimum value."""
    high: int | float = Field(ge=-LARGEST, le=LARGEST)
    """Maximum value."""
    log: bool = False
    """True to sample values uniformly on a logarithmic scale, false to sample them uniformly on a linear scale."""
    step: int | float | None = None
    """Distance between adjacent values; null stands for 1 in a range of integers, and for a continuous range
    otherwise."""

    @model_validator(mode="after")
    def _holds_numbers(self) -> Range:
        if not self.low < self.high:
            raise ValueError(f"low must be below high, got {self.low:g} and {self.high:g}; exchange them")
        if self.log and (self.low <= 0 or self.step is not None):
            raise ValueError(
                f"log needs low above 0 and no step, got low {self.low:g}, step {self.step}; leave out log"
            )
        if self.step is not None and not 0 < self.step <= self.high - self.low:
            raise ValueError(f"step must be above 0 and fit between low and high, got {self.step:g}; make it smaller")
        return self

    @property
    def whole(self) -> bool:
        """True if all values of the range are integers."""
        return all(isinstance(number, int) for number in (self.low, self.high, self.step or 1))

    def rounded(self, value: float) -> int | float:
        """Return a number in the range that is close to `value` and has few significant digits."""
        if self.whole:
            return int(value)
        digits = 12 if self.step is not None else DIGITS
        return min(max(float(f"{value:.{digits}g}"), float(self.low)), float(self.high))


@dataclass(frozen=True)
class Parameter:
    """A quantity that a search varies."""

    name: str
    """Name of the parameter; for a range, the key path of a setting."""
    values: tuple[Level, ...] | Range
    """The levels between which the search chooses, or a range of numbers."""
    when: Mapping[str, frozenset[str]]
    """Condition under which the parameter is varied: every earlier parameter named here has one of the given labels."""

    def applies(self, point: Point) -> bool:
        """Return True if the parameter is varied when earlier parameters have the values in `point`."""
        return all(point.get(name) in labels for name, labels in self.when.items())

    def level(self, value: Value) -> Level:
        """Return the level whose settings assign `value` to the parameter."""
        if isinstance(self.values, Range):
            setting = Setting(self.name, Node(value, Place(f"search.space.{self.name}")))
            return Level(level_label(value), {self.name: value}, (setting,))
        return next(level for level in self.values if level.label == value)

    @property
    def ends(self) -> Sequence[Value]:
        """The labels of all choices, or the two ends of the range."""
        if isinstance(self.values, Range):
            return self.values.low, self.values.high
        return [level.label for level in self.values]


def space_of(node: Node) -> tuple[Parameter, ...]:
    """Return the parameters of a search, in the order of the file.

    Raises:
        ScenarioError: an entry is malformed; all such entries are listed, with their lines.
    """
    found: dict[str, Parameter] = {}
    problems: list[str] = []
    for name, child in node.value.items():
        try:
            found[name] = _parameter(name, child, found)
        except ScenarioError as error:
            problems.extend(error.problems)
    problems.extend(_set_twice(found.values(), node))
    if problems:
        raise ScenarioError(*problems)
    return tuple(found.values())


def levels_at(parameters: Sequence[Parameter], point: Point) -> list[Level]:
    """Return the levels of the parameters at a point, in the order of the file."""
    return [parameter.level(point[parameter.name]) for parameter in parameters if parameter.name in point]


def label_of(parameters: Sequence[Parameter], point: Point) -> str:
    """Return a point as text, such as `access=tdma, algorithm.lr=0.1`."""
    names = [parameter.name for parameter in parameters if parameter.name in point]
    return ", ".join(f"{name}={level.label}" for name, level in zip(names, levels_at(parameters, point), strict=True))


def corners(parameters: Sequence[Parameter]) -> Iterator[Point]:
    """Yield a few points for a first check, which together cover every choice and both ends of every range."""
    for varied in parameters:
        for end in varied.ends:
            point: dict[str, Value] = {}
            for parameter in parameters:
                if parameter.name == varied.name:
                    point |= {varied.name: end} if parameter.applies(point) else {}
                elif parameter.applies(point):
                    point[parameter.name] = _leading(parameter, varied)
            if varied.name in point:
                yield point


def _leading(parameter: Parameter, varied: Parameter) -> Value:
    asked = varied.when.get(parameter.name)
    return next((end for end in parameter.ends if asked is None or end in asked), parameter.ends[0])


def _parameter(name: str, node: Node, above: Mapping[str, Parameter]) -> Parameter:
    problem = reserved(name) or (f"is a column of the results, got '{name}'; rename it" if name == SETTING else None)
    if problem:
        raise ScenarioError(problem_text(node.place, ("search", "space", name), problem))
    given = node.value if isinstance(node.value, dict) else {}
    inner = {key: child for key, child in given.items() if key != WHEN}
    is_range = any(key in given and not isinstance(given[key].value, dict | list) for key in ("low", "high"))
    if is_range:
        found: tuple[Level, ...] | Range = _range(name, Node(inner, node.place))
    else:
        chosen = given[CHOICES] if set(inner) == {CHOICES} else node
        what = axis_problem(chosen)
        if what:
            what += ", or {low:, high:}"
            raise ScenarioError(problem_text(chosen.place, ("search", "space", name), what))
        found = tuple(levels_of(name, chosen))
    is_conditional = WHEN in given and (is_range or CHOICES in given)
    return Parameter(name, found, dict(_conditions(name, given[WHEN], above)) if is_conditional else {})


def _range(name: str, node: Node) -> Range:
    try:
        return validate(Range, Document(node, None))
    except ScenarioError as error:
        where = f"  search.space.{name}: "
        raise ScenarioError(*(problem.replace("  ", where, 1) for problem in error.problems)) from None


def _conditions(name: str, node: Node, above: Mapping[str, Parameter]) -> Iterator[tuple[str, frozenset[str]]]:
    path = ("search", "space", name, WHEN)
    if not isinstance(node.value, dict) or not node.value:
        what = f"expected a mapping from entries to their levels, got {show(node.plain())}; write {{access: tdma}}"
        raise ScenarioError(problem_text(node.place, path, what))
    for key, child in node.value.items():
        its = above.get(key)
        if its is None or isinstance(its.values, Range):
            known = [other.name for other in above.values() if not isinstance(other.values, Range)]
            hint = did_you_mean(key, known, "entries with levels above it:")
            raise ScenarioError(problem_text(child.place, path, f"must name an entry above it, got '{key}'{hint}"))
        asked = [level_label(part.plain()) for part in child.value] if isinstance(child.value, list) else None
        labels = asked if asked is not None else [level_label(child.plain())]
        for label in labels:
            if label not in its.ends:
                hint = did_you_mean(label, its.ends, "its levels:")
                raise ScenarioError(problem_text(child.place, (*path, key), f"no such level, got '{label}'{hint}"))
        yield key, frozenset(labels)


def _set_twice(parameters: Iterable[Parameter], node: Node) -> Iterator[str]:
    first: dict[str, Parameter] = {}
    for parameter in parameters:
        levels = [parameter.level(end) for end in parameter.ends]
        for name in dict.fromkeys(setting.name for level in levels for setting in level.settings):
            path, place = ("search", "space", parameter.name), node.value[parameter.name].place
            other = first.setdefault(name, parameter)
            if name == "seed":
                yield problem_text(place, path, "sets the seed; give seeds under 'seeds'")
            elif other is not parameter and not parameter.when:
                yield problem_text(place, path, f"sets {name}, which '{other.name}' sets, too")


STARTUP = 10
"""Number of trials with random settings, before proposals depend on outcomes."""
TRIES = 50
"""Maximum number of draws per requested point. If these draws yield too few new points, the next sampler is used, or
fewer points are returned."""


def require_optuna() -> Any:
    """Return the module `optuna`.

    Raises:
        FednetError: Optuna is not installed.
    """
    try:
        optuna = importlib.import_module("optuna")
    except ImportError as error:
        raise FednetError("search: Optuna is not installed; pip install 'fednet-emu[search]'") from error
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    return optuna


def proposals(
    parameters: Sequence[Parameter],
    known: Sequence[tuple[Point, Sequence[float]]],
    count: int,
    seed: int,
    startup: int = STARTUP,
) -> list[Point]:
    """Return `count` new points of the search space to try; fewer if the space is exhausted.

    `known` lists all points tried so far with their objectives, which are minimised. The first `startup` points are
    random.
    """
    optuna = require_optuna()
    seen = {_key(point) for point, _ in known}
    found: list[Point] = []
    objectives = len(known[0][1]) if known else 1
    own_seed, spare_seed = map(int, np.random.SeedSequence([seed, len(known)]).generate_state(2))
    samplers = (
        optuna.samplers.TPESampler(seed=own_seed, n_startup_trials=startup, constant_liar=True),
        optuna.samplers.RandomSampler(seed=spare_seed),
    )
    for sampler in samplers:
        study = study_of(parameters, known, objectives, sampler)
        for _ in range(TRIES * count):
            if len(found) == count:
                return found
            point = _drawn(parameters, study.ask())
            if _key(point) not in seen:
                seen.add(_key(point))
                found.append(point)
    return found


def study_of(
    parameters: Sequence[Parameter],
    known: Sequence[tuple[Point, Sequence[float]]],
    objectives: int,
    sampler: Any = None,
) -> Any:
    """Return an in-memory study of Optuna that contains the points in `known` with their objectives."""
    optuna = require_optuna()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        study = optuna.create_study(directions=["minimize"] * objectives, sampler=sampler)
    by_name = {parameter.name: parameter for parameter in parameters}
    for point, values in known:
        spread = {name: _distribution(optuna, by_name[name]) for name in point}
        study.add_trial(optuna.trial.create_trial(params=dict(point), distributions=spread, values=list(values)))
    return study


def importance(parameters: Sequence[Parameter], known: Sequence[tuple[Point, Sequence[float]]]) -> dict[str, float]:
    """Return the share (0 to 1) of the variance of the first objective that each parameter explains, by parameter name.

    The method is fANOVA (Hutter, Hoos, Leyton-Brown, "An Efficient Approach for Assessing Hyperparameter Importance",
    ICML 2014). The share of a conditional parameter is computed from the trials that vary this parameter. The result is
    empty if there are fewer than four trials, or if all have the same objective.
    """
    optuna = require_optuna()
    always = [parameter.name for parameter in parameters if not parameter.when]
    shares: dict[str, float] = {}
    for group in ([], *([parameter.name] for parameter in parameters if parameter.when)):
        names = [*always, *group]
        part = [(point, values) for point, values in known if all(name in point for name in names)]
        if len(part) < 4 or len({values[0] for _, values in part}) == 1:
            continue
        study = study_of(parameters, [(point, values[:1]) for point, values in part], 1)
        evaluator = optuna.importance.FanovaImportanceEvaluator(seed=0)
        found: Mapping[str, float] = optuna.importance.get_param_importances(study, evaluator=evaluator, params=names)
        shares |= {name: float(found[name]) for name in (group or names) if name in found}
    return dict(sorted(shares.items(), key=lambda its: -its[1]))


def _drawn(parameters: Sequence[Parameter], trial: Any) -> Point:
    point: dict[str, Value] = {}
    for parameter in parameters:
        if not parameter.applies(point):
            continue
        values = parameter.values
        if not isinstance(values, Range):
            point[parameter.name] = trial.suggest_categorical(parameter.name, list(parameter.ends))
        elif values.whole:
            step = int(values.step or 1)
            drawn = trial.suggest_int(parameter.name, int(values.low), int(values.high), step=step, log=values.log)
            point[parameter.name] = values.rounded(drawn)
        else:
            low, high = float(values.low), float(values.high)
            drawn = trial.suggest_float(parameter.name, low, high, step=values.step, log=values.log)
            point[parameter.name] = values.rounded(drawn)
    return point


def _distribution(optuna: Any, parameter: Parameter) -> Any:
    values, kinds = parameter.values, optuna.distributions
    if not isinstance(values, Range):
        return kinds.CategoricalDistribution(list(parameter.ends))
    if values.whole:
        return kinds.IntDistribution(int(values.low), int(values.high), log=values.log, step=int(values.step or 1))
    return kinds.FloatDistribution(float(values.low), float(values.high), log=values.log, step=values.step)


def _key(point: Point) -> str:
    return json.dumps(dict(point), sort_keys=True)
