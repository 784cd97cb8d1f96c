"""Overrides from the command line: `--set algorithm.lr=0.05` changes one value of a scenario.

The value is written in YAML (`3`, `rayleigh`, `[1, 2]`, `{kind: fixed, rate_bps: 1e6}`) and replaces the old value.
List entries are numbered from 0, as in `groups.2.size=5` or `groups[2].size=5`. Mappings along the key path are created
if they are missing. Options are applied from left to right.

- `x.kind=NEW`, or its short form `x=NEW`, changes the kind of a component. The component's other settings are marked as
  written for the old kind. The module `problems` later keeps those that fit the new kind.
- A component given as a Python object is treated like a mapping: `x.field=value` changes one field of the component.
- `x.include=NAME` replaces the file that `x` includes by the file NAME.
- A component may be given by its kind alone: if a file says `fading: rician`, `fading.k_db=3` works.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import lru_cache

from fednet_emu.component.component import Component
from fednet_emu.errors import ScenarioError
from fednet_emu.limits import MAX_NESTING
from fednet_emu.scenario.includes import INCLUDE, Reader
from fednet_emu.scenario.tree import (
    THE_DEFAULT,
    KeyPath,
    Node,
    Place,
    kind_text,
    merge,
    node_of,
    path_text,
    problem_text,
    shortened,
    show,
)
from fednet_emu.scenario.yaml_text import parse_value


@dataclass(frozen=True, slots=True)
class Setting:
    """A change of one setting.

    It consists of the key path as a string, and of the new value with its file and line for error messages.
    """

    name: str
    value: Node

    @staticmethod
    @lru_cache(maxsize=256)
    def parse(text: str) -> Setting:
        """Parse an override `key.path=value`. Error messages state `--set key.path` as the origin of the value.

        Raises:
            ScenarioError: the text has no key, or the value is not valid YAML.
        """
        name, equals, value = (part.strip() for part in text.partition("="))
        if not equals or not all(_keys(name)):
            raise ScenarioError(f"--set: expected key.path=value, got {show(text)}; for example algorithm.lr=0.05")
        return Setting(name, parse_value(value, Place(f"--set {shortened(name)}")))


def overridden(root: Node, overrides: Iterable[str | Setting]) -> Node:
    """Return a tree with some settings changed. Each change is a string `key.path=value` or a `Setting`.

    Raises:
        ScenarioError: an override is malformed, or does not fit the tree. The error lists all such overrides.
    """
    problems: list[str] = []
    for override in overrides:
        try:
            root = _applied(root, override)
        except ScenarioError as error:
            problems.extend(error.problems)
    if problems:
        raise ScenarioError(*problems)
    return root


def _keys(name: str) -> list[str]:
    return re.sub(r"\[(\d+)\]", r".\1", name).split(".")


def _applied(root: Node, override: str | Setting) -> Node:
    setting = Setting.parse(override) if isinstance(override, str) else override
    keys = _keys(setting.name)
    if len(keys) > MAX_NESTING:
        what = f"a key path has at most {MAX_NESTING} keys, got {len(keys)}; name a setting that exists"
        raise ScenarioError(f"{setting.value.place}  {what}")
    path, nodes = _resolve(root, keys, setting.value.place)
    value = setting.value
    reader = Reader()
    if path[-1] == INCLUDE:
        base = reader.include(value, path[:-1], path)
        path, value, old = path[:-1], base or value, nodes[-2]
        own = _own(old, old.place.source) if old else None  # without values of the previous include
        value = merge(value, own) if own else value
    else:
        value = reader.expand(value, path)
    if reader.problems:
        raise ScenarioError(*reader.problems)
    _refuse_a_part(nodes[len(path)], path, value)
    return _set(root, path, value)


def _refuse_a_part(old: Node | None, path: KeyPath, value: Node) -> None:
    own, new = _opened(old).value if old else None, value.value
    if isinstance(own, dict) and "kind" in own and isinstance(new, dict) and new and "kind" not in new:
        one, was = next(iter(new)), kind_text(own["kind"].value)
        what = f"would be replaced by a mapping without a kind, got {show(value.plain())}"
        remedy = f"change single settings by their keys, {path_text((*path, one))}, or give all with kind: {was}"
        raise ScenarioError(problem_text(value.place, path, f"{what}; {remedy}"))


def _resolve(root: Node, keys: list[str], place: Place) -> tuple[KeyPath, list[Node | None]]:
    """Return the key path of an override, with list indices as numbers, and the present nodes along this path.

    The first node is the root. A node is None if it is missing.

    Raises:
        ScenarioError: the path is invalid.
    """
    path: KeyPath = ()
    nodes: list[Node | None] = [root]
    for key in keys:
        node = nodes[-1]
        value = _opened(node).value if node else None
        if isinstance(value, list):
            if not (key.isdecimal() and len(key) < 10 and int(key) < len(value)):
                what = f"expected a position in a list of {len(value)}, got {show(key)}"
                raise ScenarioError(problem_text(place, path, f"{what}; positions count from 0"))
            path = (*path, int(key))
            nodes.append(value[int(key)])
        elif value is None or isinstance(value, dict | str):
            path = (*path, key)
            nodes.append(value.get(key) if isinstance(value, dict) else None)
        else:
            what = f"has no setting {show(key)} inside, got {show(value)}; it would have to be a mapping"
            raise ScenarioError(problem_text(place, path, what))
    return path, nodes


def _set(node: Node, path: KeyPath, value: Node) -> Node:
    node = _opened(node)
    if not path:
        swaps = isinstance(value.value, str) and isinstance(node.value, dict)
        return Node(_with_kind(node.value, value), value.place) if swaps else value
    key, rest = path[0], path[1:]
    if isinstance(node.value, list):
        entries = list(node.value)
        entries[int(key)] = _set(entries[int(key)], rest, value)
        return Node(entries, node.place)
    settings = {"kind": Node(node.value, node.place)} if isinstance(node.value, str) else dict(node.value or {})
    if path == ("kind",):
        return Node(_with_kind(settings, value), node.place)
    settings[str(key)] = _set(settings.get(str(key), Node(None, value.place)), rest, value)
    return Node(settings, node.place)


def _opened(node: Node) -> Node:
    component = node.value
    if not isinstance(component, Component):
        return node
    own = {name: getattr(component, name) for name in component.model_fields_set}
    return node_of({"kind": type(component), **own} if component.kind else own, node.place)


def _with_kind(settings: dict[str, Node], kind: Node) -> dict[str, Node]:
    """Change the kind of a component and return its settings; mark settings that were written for the previous kind.

    Options that precede the first change of the kind count as written for the new kind. A mapping without a kind counts
    as written for the default kind, which only the component class defines; see `problems`.
    """
    before = settings.get("kind", Node(THE_DEFAULT, Place("", 0)))
    if before.value == kind.value:
        return {**settings, "kind": kind}
    old = {
        name: replace(child, written_for=child.written_for or before.value)
        for name, child in settings.items()
        if child.place.in_file or not before.place.in_file
    }
    return {**settings, **old, "kind": kind}


def _own(node: Node, source: str) -> Node | None:
    if isinstance(node.value, dict):
        parts = {key: part for key, child in node.value.items() if (part := _own(child, source))}
        return Node(parts, node.place) if parts else None
    return node if node.place.source == source or not node.place.in_file else None
