"""Axes of a study, and their levels: the label of each level, and the settings that the level changes.

devices.count: [10, 20]                      # one key, a list of values
access: {tdma: {...}, ofdma: {...}}          # named variants: name -> settings
size: {devices.count: [10, 20], algorithm.cohort: [5, 10]}    # lists whose entries are used together
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from fednet_emu.errors import ScenarioError, one_line
from fednet_emu.federation.stop import Evaluation
from fednet_emu.records.rows import EvaluationRow
from fednet_emu.records.summaries import SPREAD
from fednet_emu.scenario.overrides import Setting
from fednet_emu.scenario.tree import KeyPath, Node, Place, problem_text, show
from fednet_emu.scenario.yaml_text import parse_value

KEYS = ("seed", "run")
"""Columns that, together with the columns of the axes, identify a run."""
STATUS = ("status", "reason")
TOTALS = ("rounds", "simulated_s", "uplink_bit", "downlink_bit", "sidelink_bit", "energy_j")
BACKHAUL = ("backhaul_bit", "backhaul_j")
"""Columns of totals for runs with a backhaul. `energy_j` includes the backhaul energy, but `total_bit` does not include
the bits on the backhaul."""
PRIVACY = ("epsilon", "sample_epsilon", "sample_epsilon_as_poisson")
"""Columns of privacy losses (epsilon) of a device or of a sample, for runs that have such a bound."""


@dataclass(frozen=True)
class Level:
    """One level of a varied quantity: its label (for file names), its values in table columns, and changed settings."""

    label: str
    columns: Mapping[str, Any]
    settings: tuple[Setting, ...]


@dataclass(frozen=True)
class Axis:
    """A quantity that a study varies, with its levels in the order of the study file."""

    name: str
    levels: tuple[Level, ...]


def settings_of(node: Node) -> tuple[Setting, ...]:
    """Return the settings in a mapping from key paths to values, each with the line of its value for error messages."""
    return tuple(Setting(key, as_option(child)) for key, child in (node.value or {}).items())


def axes_of(grid: Node | None) -> list[Axis]:
    """Return the axes (varied quantities) of a grid, in the order of the file.

    Raises:
        ScenarioError: an axis is malformed; all such axes are listed, with their lines.
    """
    axes: list[Axis] = []
    problems: list[str] = []
    for name, node in (grid.value or {}).items() if grid else ():
        what = reserved(name) or axis_problem(node)
        if what:
            problems.append(problem_text(node.place, ("grid", name), what))
        else:
            axes.append(Axis(name, tuple(levels_of(name, node))))
    problems.extend(_varied_twice(axes))
    if problems:
        raise ScenarioError(*problems)
    return axes


def option_text(value: Any) -> str:
    """Return a value as text for the option `--set`: without quotes if possible, else as JSON, which is also YAML."""
    if isinstance(value, str):
        try:
            plain = parse_value(value, Place("")).value == value
        except ScenarioError:
            plain = False
        if plain:
            return value
    return json.dumps(value, ensure_ascii=False, default=repr)


@cache
def result_columns() -> frozenset[str]:
    """Return the names of the columns of the result tables, which an axis must not use as its name."""
    from fednet_emu.analysis.scales import COSTS, METRICS
    from fednet_emu.analysis.study import DATA_SET, DEVICE_COUNT, LOWER_BOUND, UNCOUNTED, cycle_times

    costs = {name for cost in COSTS.values() for name in (cost.column, cost.to_target)}
    per_run = {DATA_SET, DEVICE_COUNT, LOWER_BOUND, UNCOUNTED, *TOTALS, *BACKHAUL, *PRIVACY, *SPREAD}
    own = {*KEYS, *STATUS, *METRICS, *per_run}
    return frozenset({*own, *costs, *EvaluationRow._fields, *Evaluation(consensus=True).columns, *cycle_times([])})


def reserved(name: str) -> str | None:
    """Return the reason why `name` is not allowed as the name of an axis; None if the name is allowed."""
    if name not in result_columns():
        return None
    remedy = "give the seeds under 'seeds'" if name == "seed" else "choose another name"
    return f"is a column of the results, got an axis of that name; {remedy}"


def axis_problem(node: Node) -> str | None:
    """Return an error text about the levels of an axis; None if the levels are valid."""
    if isinstance(node.value, list):
        return None if node.value else "varies nothing, got an empty list; give at least one value"
    parts = list(node.value.values()) if isinstance(node.value, dict) else []
    if parts and all(isinstance(part.value, list) for part in parts):
        lengths = [len(part.value) for part in parts]
        return None if len({*lengths, 0}) == 2 else f"lists that go together must be equally long, got {lengths}"
    if parts and all(isinstance(part.value, dict | None) for part in parts):
        return None
    choices = "a list of values, a mapping of lists that go together, or a mapping of named variants"
    return f"expected {choices}, got {show(node.plain())}"


def levels_of(name: str, node: Node) -> Iterator[Level]:
    """Yield the levels of an axis, in the order of the file."""
    if isinstance(node.value, list):
        given = [entry.plain() for entry in node.value]
        column = column_of(given)
        for label, value, entry in zip(_labels(given, column), column, node.value, strict=True):
            yield Level(label, {name: value}, (Setting(name, as_option(entry)),))
    elif isinstance(next(iter(node.value.values())).value, list):
        keys, lists = list(node.value), [child.value for child in node.value.values()]
        plain = [[entry.plain() for entry in entries] for entries in lists]
        columns = list(map(column_of, plain))
        names = map(", ".join, zip(*map(_labels, plain, columns), strict=True))
        for label, together, values in zip(names, zip(*lists, strict=True), zip(*columns, strict=True), strict=True):
            settings = tuple(Setting(key, as_option(entry)) for key, entry in zip(keys, together, strict=True))
            yield Level(label, {name: label, **dict(zip(keys, values, strict=True))}, settings)
    else:
        for variant, child in node.value.items():
            yield Level(variant, {name: variant}, settings_of(child))


def column_of(values: list[Any]) -> list[Any]:
    """Return values converted to one common type for a table column: numbers, booleans or text.

    Numbers are converted to text if two of them differ only in their type, such as the count 1 and the share 1.0.
    """
    if all(isinstance(value, bool) for value in values):
        return values
    if not all(map(_is_number, values)) or len({*values}) < len({*map(repr, values)}):
        return [level_label(value) for value in values]
    return values if all(isinstance(value, int) for value in values) else [float(value) for value in values]


def _labels(given: list[Any], column: list[Any]) -> list[str]:
    """Return a text label for each level of an axis.

    Numbers are rounded to six significant digits, unless two labels would then be equal.
    """
    short = [level_label(value if _is_number(value) else entry) for value, entry in zip(given, column, strict=True)]
    if len({*short}) == len({*map(repr, given)}):
        return short
    return [repr(value) if _is_number(value) else label for value, label in zip(given, short, strict=True)]


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def level_label(value: Any) -> str:
    """Return a short text that represents a value.

    The label of a component with the single setting `kind` is this kind. A float has at most six significant digits,
    and a decimal point or an exponent. The label of an object that YAML cannot contain is its `repr`.
    """
    if isinstance(value, dict):
        if set(value) == {"kind"}:
            return str(value["kind"])
        return "{" + ", ".join(f"{key}: {level_label(part)}" for key, part in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(level_label, value)) + "]"
    if not isinstance(value, str | int | float | None):
        return one_line(repr(value))
    if not isinstance(value, float):
        return option_text(value)
    text = f"{value:g}"
    return f"{text}.0" if text.lstrip("-").isdigit() else text


def _varied_twice(axes: list[Axis]) -> Iterator[str]:
    first: dict[str, str] = {}
    for axis in axes:
        for setting in {setting.name: setting for level in axis.levels for setting in level.settings}.values():
            other = first.setdefault(setting.name, axis.name)
            if setting.name == "seed":
                yield problem_text(setting.value.place, ("grid", axis.name), "sets the seed; give seeds under 'seeds'")
            elif other != axis.name:
                path: KeyPath = ("grid", axis.name)
                yield problem_text(setting.value.place, path, f"sets {setting.name}, which '{other}' sets, too")


def as_option(node: Node) -> Node:
    """Return a value of a study file as an override, which takes precedence over values in scenario files.

    Errors about the value still name its line in the study file.
    """
    value = node.value
    if isinstance(value, dict):
        value = {key: as_option(child) for key, child in value.items()}
    elif isinstance(value, list):
        value = [as_option(child) for child in value]
    return Node(value, Place(str(node.place)))
