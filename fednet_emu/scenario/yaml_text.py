"""Parse YAML text into a tree of values, each with its place (file and line).

The rules of YAML 1.2 apply: `1e6` is a number, and `on` and `12:30` are strings. Dates are strings, too. Duplicate
keys, keys that are not strings, tags, and merge keys `<<` are errors. Anchors and aliases are allowed if the text stays
within the limits of `fednet_emu.limits` when all aliases are written out.
"""

from __future__ import annotations

import io
import json
import math
import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
from pydantic import BaseModel
from ruamel.yaml import YAML
from ruamel.yaml.composer import Composer
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.nodes import MappingNode, ScalarNode, SequenceNode
from ruamel.yaml.representer import SafeRepresenter

from fednet_emu.errors import ScenarioError, visible_lines
from fednet_emu.limits import MAX_NESTING, MAX_VALUES, problem_of, too_large
from fednet_emu.scenario.tree import KeyPath, Node, Place, problem_text, show

_TAG = "tag:yaml.org,2002:"
_SCALARS = frozenset(_TAG + name for name in ("null", "bool", "int", "float"))
_TEXTS = frozenset(_TAG + name for name in ("str", "timestamp"))
_DIGITS = 100
"""Maximum number of characters in an integer; a longer integer is an error."""


@lru_cache(maxsize=32)  # trees are immutable, and runs of one scenario include the same files
def parse(text: str, source: str, *, quoted: bool = True) -> Node:
    """Parse the text of a whole file, whose top level must be a mapping. Error messages call the file `source`.

    If `quoted` is False, error messages do not quote a text that is not a scenario.

    Raises:
        ScenarioError: The text is not valid YAML (only the first problem is listed), or has duplicate keys, keys that
            are not strings, tags, or merge keys (all problems are listed).
    """
    root = _compose(text, lambda line: Place(source, line), quoted=quoted)
    if root is None:
        raise ScenarioError(f"{source}:1  the file is empty; a scenario is a mapping of settings, `key: value`")
    if not isinstance(root, MappingNode):
        place = Place(source, root.start_mark.line + 1)
        kind = "a list" if isinstance(root, SequenceNode) else show(root.value) if quoted else "text"
        raise ScenarioError(f"{place}  the top of the file must be a mapping, got {kind}; write `key: value`")
    return _convert(root, lambda line: Place(source, line))


def parse_value(text: str, place: Place) -> Node:
    """Parse one value, such as `3` or `[1, 2]`, and return its tree, in which all nodes have the origin `place`."""
    root = _compose(text, lambda line: place)
    return Node(None, place) if root is None else _convert(root, lambda line: place)


def _compose(text: str, place: Callable[[int], Place], *, quoted: bool = True) -> Any:
    directive = re.search(r"^%YAML\s+(?!1\.2\s)(\S*)", text, re.MULTILINE)
    if directive:
        line = text.count("\n", 0, directive.start()) + 1
        raise ScenarioError(f"{place(line)}  yaml: must be version 1.2, got {directive[1]}; remove the %YAML line")
    yaml = YAML(typ="safe", pure=True)
    yaml.Composer = _Composer
    try:
        return yaml.compose(text)
    except _TooMuchError as error:
        what, line = error.args
        raise ScenarioError(f"{place(line)}  {what}") from None
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = mark.line + 1 if mark else 1
        context = f" ({error.context})" if error.context else ""
        what = f"{error.problem}{context}"
        raise ScenarioError(f"{place(line)}  yaml: {what if quoted else _unquoted(what)}") from error
    except YAMLError as error:
        line = text.count("\n", 0, getattr(error, "position", 0)) + 1
        reason = getattr(error, "reason", None) or str(error).splitlines()[0]
        raise ScenarioError(f"{place(line)}  yaml: {reason}") from error


class _TooMuchError(Exception):
    """The text exceeds a limit; the arguments are the limit and the line."""


class _Composer(Composer):
    """Parses a text into nodes of the YAML library, and raises an error if the text exceeds a limit."""

    def __init__(self, loader: Any = None) -> None:
        super().__init__(loader)
        self.warn_double_anchors = False
        self._inside, self._count = 0, 0

    def compose_node(self, parent: Any, index: Any) -> Any:
        self._inside += 1
        self._count += index is not None  # the keys of a mapping do not count as values
        if self._inside > MAX_NESTING + 1 or self._count > MAX_VALUES:
            what = _TOO_DEEP if self._inside > MAX_NESTING else _TOO_MANY
            raise _TooMuchError(what, self.parser.peek_event().start_mark.line + 1)
        node = super().compose_node(parent, index)
        self._inside -= 1
        return node


_TOO_DEEP = f"is nested deeper than {MAX_NESTING} levels; write it flatter"
_TOO_MANY = f"holds more than {MAX_VALUES} values, with aliases written out; keep large tables in files of data"


def _unquoted(what: str) -> str:
    """Return a message of the YAML library without quoted text, except single characters and names in `<>`."""
    return re.sub(r"'(<[^']*>|[^'])'|'[^']*'", lambda found: found[0] if found[1] else "'...'", what)


def _convert(root: Any, place: Callable[[int], Place]) -> Node:
    converter = _Converter(place)
    tree = converter.node(root, (), place(root.start_mark.line + 1))
    if converter.problems:
        raise ScenarioError(*converter.problems)
    return tree


class _Converter:
    """Converts nodes of the YAML library to nodes of a `tree`, and collects errors such as duplicate keys and tags."""

    def __init__(self, place: Callable[[int], Place]) -> None:
        self._place = place
        self._scalars = YAML(typ="safe", pure=True).constructor
        self._made: dict[int, tuple[Any, int] | None] = {}  # None while a mapping or list is converted
        self._size = 0
        self.problems: list[str] = []

    def node(self, node: Any, path: KeyPath, place: Place) -> Node:
        if isinstance(node, ScalarNode):
            self._size += 1
            return Node(self._scalar(node, path, place), place)
        if id(node) in self._made:  # an alias: its value is shared, and counted as if it were written out
            made = self._made[id(node)]
            if made is None:
                self._complain(place, path, "contains itself through an alias; write the value out")
                return Node(None, place)
            self._grow(made[1], place, path)
            return Node(made[0], place)
        self._made[id(node)] = None
        before = self._size
        self._grow(1, place, path)
        if isinstance(node, MappingNode):
            value: Any = self._mapping(node, path)
        else:
            value = [self.node(child, (*path, index), self._line(child)) for index, child in enumerate(node.value)]
        self._made[id(node)] = value, self._size - before
        if str(node.tag) not in (f"{_TAG}map", f"{_TAG}seq"):
            self._complain(place, path, f"yaml tags are not used here, got {_tag_text(node)}; remove the tag")
        return Node(value, place)

    def _grow(self, size: int, place: Place, path: KeyPath) -> None:
        self._size += size
        if self._size > MAX_VALUES:
            raise ScenarioError(problem_text(place, path, _TOO_MANY))

    def _mapping(self, node: MappingNode, path: KeyPath) -> dict[str, Node]:
        value: dict[str, Node] = {}
        for key_node, child in node.value:
            place = self._line(key_node)
            key = self._key(key_node, path, place)
            if key is None:
                continue
            if key in value:
                first = value[key].place.line
                self._complain(place, (*path, key), f"is given twice, first in line {first}; keep one of them")
            value.setdefault(key, self.node(child, (*path, key), place))
        return value

    def _key(self, node: Any, path: KeyPath, place: Place) -> str | None:
        tag = str(node.tag)
        if isinstance(node, ScalarNode) and (tag in _TEXTS or tag == f"{_TAG}int"):
            if what := problem_of(str(node.value)):
                self._complain(place, path, f"a key {what}")
            return str(node.value)
        if tag == f"{_TAG}merge":
            self._complain(place, path, "merge keys are not used here, got '<<'; write `include: NAME`")
        elif isinstance(node, ScalarNode):
            self._complain(place, path, f"a key must be text, got {node.value}; write '{node.value}' in quotes")
        else:
            self._complain(place, path, "a key must be text, got a list or mapping; write one word")
        return None

    def _scalar(self, node: ScalarNode, path: KeyPath, place: Place) -> Any:
        tag = str(node.tag)
        value: Any = str(node.value)
        if tag == f"{_TAG}int" and len(node.value) > _DIGITS:
            self._complain(place, path, too_large(f"one of {len(node.value)} characters"))
            return None
        if tag in _SCALARS:
            try:
                value = self._scalars.construct_object(node)
            except (ValueError, KeyError, IndexError):
                self._complain(place, path, f"is no {tag.removeprefix(_TAG)}, got {show(node.value)}; remove the tag")
                return None
        elif tag not in _TEXTS:
            self._complain(place, path, f"yaml tags are not used here, got {_tag_text(node)}; remove the tag")
        if what := problem_of(value):
            self._complain(place, path, what)
        return value

    def _line(self, node: Any) -> Place:
        return self._place(node.start_mark.line + 1)

    def _complain(self, place: Place, path: KeyPath, what: str) -> None:
        self.problems.append(problem_text(place, path, what))


def _tag_text(node: Any) -> str:
    return str(node.tag).replace(_TAG, "!!")


LINE_WIDTH = 120


def dump(model: BaseModel) -> str:
    """Return a component as YAML text with all settings, including those with default values.

    The key `kind` is the first key. The text can be parsed and validated to an equal component. Large and small numbers
    are written as `2.0e+7`, and lists without mappings are written on one line.
    """
    settings = model.model_dump(mode="json")
    return "".join(_written(json.dumps({key: value})) for key, value in settings.items()) or "{}\n"


@lru_cache(maxsize=512)
def _written(settings: str) -> str:
    """Convert a mapping from JSON to YAML text. Results are cached, because runs of a study share most settings."""
    yaml = YAML(typ="safe", pure=True)
    yaml.Representer = _Representer
    yaml.width = LINE_WIDTH
    yaml.allow_unicode = True
    stream = io.StringIO()
    yaml.dump(json.loads(settings), stream)
    # non-printable characters are in double quotes, where YAML has the same escapes as Python
    return visible_lines(stream.getvalue())


class _Representer(SafeRepresenter):
    """Defines how `dump` writes values. The keys of a mapping keep their order, except that `kind` is first."""

    def represent_dict(self, data: dict[str, Any]) -> Any:
        ordered = {key: data[key] for key in sorted(data, key=lambda key: key != "kind")}
        return self.represent_mapping(f"{_TAG}map", ordered.items(), flow_style=False)

    def represent_list(self, data: list[Any]) -> Any:
        return self.represent_sequence(f"{_TAG}seq", data, flow_style=not _has_mapping(data))

    def represent_str(self, data: str) -> Any:
        # ruamel escapes unusual line breaks only in double quotes; without escapes they would be read as blanks
        return self.represent_scalar(f"{_TAG}str", data, style=None if data.isprintable() else '"')

    def represent_float(self, data: float) -> Any:
        return self.represent_scalar(f"{_TAG}float", float_text(data))


_Representer.add_representer(dict, _Representer.represent_dict)
_Representer.add_representer(str, _Representer.represent_str)
_Representer.add_representer(list, _Representer.represent_list)
_Representer.add_representer(float, _Representer.represent_float)


def _has_mapping(value: Any) -> bool:
    return isinstance(value, dict) or (isinstance(value, list) and any(map(_has_mapping, value)))


def float_text(value: float) -> str:
    """Return the shortest YAML text that reads back as the same number; large and small numbers look like `2.0e+7`."""
    if not math.isfinite(value):
        return ".nan" if math.isnan(value) else ".inf" if value > 0 else "-.inf"
    if value == 0 or 1e-3 <= abs(value) < 1e6:
        return repr(value)
    return np.format_float_scientific(value, trim="0", exp_digits=1)
