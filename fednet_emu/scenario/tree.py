"""The tree of a scenario: nested values, each with the file and line at which it was written.

Trees are immutable. Merging two trees, or setting a value, returns a new tree, in which every value keeps its file and
line for error messages.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Any

import numpy as np

from fednet_emu.errors import ScenarioError
from fednet_emu.limits import MAX_NESTING, problem_of

KeyPath = tuple[str | int, ...]
"""The keys and list indices that lead from the top of a scenario to one value."""

MAX_SHOWN = 60
"""Maximum length of a value in an error message, in characters; longer values are shortened."""


THE_DEFAULT = "the default"
"""Name of the default kind, for settings that were written in a mapping without a kind."""


@dataclass(frozen=True, slots=True)
class Place:
    """The place where a value was written: a file, a Python mapping, or a command-line option.

    Lines of a file count from 1. In a mapping, the line is 0; in an option, it is None.
    """

    source: str
    line: int | None = None

    def __str__(self) -> str:
        return f"{self.source}:{self.line}" if self.line else self.source

    @property
    def in_file(self) -> bool:
        """True if the value was written in a file or mapping; False if it was set by an option."""
        return self.line is not None


@dataclass(frozen=True, slots=True)
class Node:
    """One value with the place (file and line) where it was written.

    The values of a mapping and the entries of a list are nodes, too. The keys of a mapping are strings.

    Attributes:
        written_for: the kind for which a setting was written; None if the kind of its component has not changed since.
    """

    value: Any
    place: Place
    written_for: Any = None

    def plain(self) -> Any:
        """Return the value as nested dicts, lists and scalars, without files and lines."""
        if isinstance(self.value, dict):
            return {key: child.plain() for key, child in self.value.items()}
        if isinstance(self.value, list):
            return [child.plain() for child in self.value]
        return self.value

    def walk(self, path: KeyPath = ()) -> Iterator[tuple[KeyPath, Node]]:
        """Yield this value and all values nested in it, each with its key path."""
        yield path, self
        if isinstance(self.value, dict | list):
            parts = self.value.items() if isinstance(self.value, dict) else enumerate(self.value)
            for key, child in parts:
                yield from child.walk((*path, key))


def node_of(value: Any, place: Place, path: KeyPath = ()) -> Node:
    """Convert nested Python values to a tree in which all nodes have the origin `place`.

    Objects of other types, such as components, are kept unchanged.

    Raises:
        ScenarioError: a key is not text, or a value exceeds a limit.
    """
    if len(path) > MAX_NESTING:
        raise ScenarioError(f"{place}: is nested deeper than {MAX_NESTING} levels; write it flatter")
    if isinstance(value, Mapping):
        wrong = next((key for key in value if not (isinstance(key, str) or (type(key) is int and path))), None)
        if wrong is not None:
            raise ScenarioError(f"{place}: keys must be text, got {wrong!r}; write '{wrong}'")
        return Node({str(key): node_of(part, place, (*path, str(key))) for key, part in value.items()}, place)
    if isinstance(value, list | tuple):
        return Node([node_of(part, place, (*path, index)) for index, part in enumerate(value)], place)
    if isinstance(value, PurePath):
        return Node(value.as_posix(), place)
    if isinstance(value, np.ndarray | np.generic):
        return node_of(value.tolist(), place, path)
    if what := problem_of(value):
        raise ScenarioError(problem_text(place, path, what))
    return Node(value, place)


def merge(base: Node, own: Node) -> Node:
    """Merge two trees and return the result. Mappings are merged key by key; any other value of `own` replaces `base`.

    A mapping in `own` with a different `kind` replaces the mapping in `base` completely, because the old settings
    belong to the old kind. If `base` has a string where `own` has a mapping, the string is treated as `{kind: STRING}`.
    """
    if not isinstance(own.value, dict):
        return own
    if isinstance(base.value, str):
        base = Node({"kind": Node(base.value, base.place)}, base.place)
    if not isinstance(base.value, dict):
        return own
    old, new = base.value.get("kind"), own.value.get("kind")
    if old is not None and new is not None and old.value != new.value:
        return own
    merged = dict(base.value)
    for key, child in own.value.items():
        merged[key] = merge(merged[key], child) if key in merged else child
    return Node(merged, own.place)


def path_text(path: KeyPath) -> str:
    """Return a key path as it is written in errors and in `--set`, for example `groups[2].size`."""
    text = ""
    for key in path:
        text += f"[{key}]" if isinstance(key, int) else f".{shortened(key)}" if text else shortened(key)
    return text


def problem_text(place: Place, path: KeyPath, what: str) -> str:
    """Return a line of text that states the file and line of a setting, its key path, and the problem `what`."""
    return f"{place}  {path_text(path)}: {what}" if path else f"{place}  {what}"


def kind_text(kind: Any) -> str:
    """Return the kind of a component as text; `kind` is a name or a class."""
    return kind.__name__ if isinstance(kind, type) else str(kind)


def show(value: Any) -> str:
    """Return a value in YAML for an error message, shortened to 60 characters."""
    return shortened(_flow(value))


def shortened(text: str) -> str:
    """Return a text, shortened to 60 characters."""
    return text if len(text) <= MAX_SHOWN else f"{text[: MAX_SHOWN - 3]}..."


def _flow(value: Any) -> str:
    match value:
        case None:
            return "nothing"
        case bool():
            return "true" if value else "false"
        case dict():
            return "{" + ", ".join(f"{key}: {_flow(part)}" for key, part in value.items()) + "}"
        case list() | tuple():
            return "[" + ", ".join(_flow(part) for part in value) + "]"
    return repr(value)


def file_text(path: Path) -> str:
    """Return the path of a file for error messages. Paths inside the working folder are relative."""
    full = Path(os.path.abspath(path))
    folder = Path.cwd()
    return full.relative_to(folder).as_posix() if full.is_relative_to(folder) else full.as_posix()
