"""The space of a search: the varied settings, their values, and conditions.

access: {tdma: {network.uplink.access: tdma}, ofdma: ...}       # choices as in a grid: values, variants, lists together
algorithm.lr: {low: 0.01, high: 1, log: true}                   # a range
network.uplink.access.share: {low: 0.1, high: 0.9, when: {access: ofdma}}            # only where it has a meaning
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from pydantic import Field, model_validator

from fednet_emu.component.component import Component
from fednet_emu.errors import ScenarioError, did_you_mean
from fednet_emu.scenario.document import Document
from fednet_emu.scenario.overrides import Setting
from fednet_emu.scenario.problems import validate
from fednet_emu.scenario.tree import Node, Place, problem_text, show
from fednet_emu.study.grid import Level, axis_problem, level_label, levels_of, reserved

CHOICES, WHEN = "choices", "when"
SETTING = "setting"
"""The column with the whole setting in the tables of a search."""
LARGEST = 10**15
"""Largest number of a range, up to which integers and their distances are exact."""
DIGITS = 4
"""Significant digits of drawn numbers, so that scenario files are readable."""

Value = str | int | float
"""The label of a choice, or a number of a range."""
Point = Mapping[str, Value]
"""A value for each parameter that applies."""


class Range(Component):
    """Numbers from `low` to `high`, integers if both ends are and `step` is not set otherwise."""

    low: int | float = Field(ge=-LARGEST, le=LARGEST)
    """Smallest value."""
    high: int | float = Field(ge=-LARGEST, le=LARGEST)
    """Largest value."""
    log: bool = False
    """Whether equal factors, not equal distances, are equally likely."""
    step: int | float | None = None
    """Distance between two values; null for any number in between, or for 1 between whole numbers."""

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
        """Whether its values are whole numbers."""
        return all(isinstance(number, int) for number in (self.low, self.high, self.step or 1))

    def rounded(self, value: float) -> int | float:
        """Return a number of the range with few digits that is close to a value."""
        if self.whole:
            return int(value)
        digits = 12 if self.step is not None else DIGITS
        return min(max(float(f"{value:.{digits}g}"), float(self.low)), float(self.high))


@dataclass(frozen=True)
class Parameter:
    """A varied quantity."""

    name: str
    """Its name, for a range the key path of a setting."""
    values: tuple[Level, ...] | Range
    """Its possible levels, or a range of numbers."""
    when: Mapping[str, frozenset[str]]
    """The labels of other parameters under which it is varied."""

    def applies(self, point: Point) -> bool:
        """Whether it is varied with these values of the parameters before it."""
        return all(point.get(name) in labels for name, labels in self.when.items())

    def level(self, value: Value) -> Level:
        """Return the level of a value."""
        if isinstance(self.values, Range):
            setting = Setting(self.name, Node(value, Place(f"search.space.{self.name}")))
            return Level(level_label(value), {self.name: value}, (setting,))
        return next(level for level in self.values if level.label == value)

    @property
    def ends(self) -> Sequence[Value]:
        """Its choices, or the ends of its range."""
        if isinstance(self.values, Range):
            return self.values.low, self.values.high
        return [level.label for level in self.values]


def space_of(node: Node) -> tuple[Parameter, ...]:
    """Return the parameters of a search, in the order of the file.

    Raises:
        ScenarioError: every malformed entry, with its place.
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
    """Return the levels of a point, in the order of the file."""
    return [parameter.level(point[parameter.name]) for parameter in parameters if parameter.name in point]


def label_of(parameters: Sequence[Parameter], point: Point) -> str:
    """Return a point as readable text."""
    names = [parameter.name for parameter in parameters if parameter.name in point]
    return ", ".join(f"{name}={level.label}" for name, level in zip(names, levels_at(parameters, point), strict=True))


def corners(parameters: Sequence[Parameter]) -> Iterator[Point]:
    """Yield few points that together have every choice and both ends of every range, for a first check."""
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
    """The first value of a parameter, or the first one with which another parameter is varied."""
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
        return validate(Range, Document(node, None, {}))
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
            hint = did_you_mean(key, known) or f"; entries with levels above it: {', '.join(known) or 'none'}"
            raise ScenarioError(problem_text(child.place, path, f"must name an entry above it, got '{key}'{hint}"))
        asked = [level_label(part.plain()) for part in child.value] if isinstance(child.value, list) else None
        labels = asked if asked is not None else [level_label(child.plain())]
        for label in labels:
            if label not in its.ends:
                hint = did_you_mean(label, its.ends) or f"; its levels: {', '.join(map(str, its.ends))}"
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
