"""From scenario text to one document: YAML with its includes, changed by `--set`, every value with its place.

    document = apply_overrides(load("cyclic-fedavg"), ["algorithm.lr=0.05"])
    scenario = validate(Scenario, document)

This module is the door to scenario text; its parts are `yaml_text`, `search`, `includes`, `overrides` and `dump`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from fednet_emu.errors import ScenarioError
from fednet_emu.scenario.dump import dump
from fednet_emu.scenario.includes import Reader, ShortForms
from fednet_emu.scenario.overrides import Setting, overridden
from fednet_emu.scenario.search import Folder, find, names
from fednet_emu.scenario.tree import KeyPath, Node, Place, node_of
from fednet_emu.scenario.yaml_text import parse

__all__ = ["SHORT_FORMS", "Document", "apply_overrides", "dump", "find", "from_mapping", "from_text", "load", "names"]

SHORT_FORMS: ShortForms = {"channel": "channels"}
"""The settings of a scenario that may be the name of a file."""


@dataclass(frozen=True)
class Document:
    """A scenario as it was written, not yet validated."""

    root: Node
    path: Path | None
    short_forms: ShortForms

    @cached_property
    def data(self) -> dict[str, Any]:
        """The settings as nested dicts, lists and scalars."""
        plain: dict[str, Any] = self.root.plain()
        return plain

    @cached_property
    def places(self) -> dict[KeyPath, Place]:
        """The place of every mapping, list and scalar, by key path; `()` is the whole document."""
        return dict(self.root.walk())

    def place(self, path: KeyPath) -> Place:
        """The place of a setting, or of the nearest mapping or list around it that was written."""
        while path not in self.places:
            path = path[:-1]
        return self.places[path]


def load(name: str | Path, folder: Folder = "scenarios", short_forms: ShortForms = SHORT_FORMS) -> Document:
    """Reads a scenario by path or name, together with the files that it includes.

    Raises:
        ScenarioError: No such file, or problems in the text of it or of an included file, all at once.
    """
    path = find(str(name), folder)
    reader = Reader(short_forms, [])
    root = reader.read(path)
    if root is None or reader.problems:
        raise ScenarioError(*reader.problems)
    return Document(root, path, short_forms)


def from_text(text: str, source: str = "scenario", short_forms: ShortForms = SHORT_FORMS) -> Document:
    """As `load`, from text; relative includes start at the working folder, and errors call the text `source`."""
    reader = Reader(short_forms, [])
    root = reader.expand(parse(text, source), ())
    if reader.problems:
        raise ScenarioError(*reader.problems)
    return Document(root, None, short_forms)


def from_mapping(settings: Mapping[str, Any], source: str, short_forms: ShortForms = SHORT_FORMS) -> Document:
    """As `from_text`, from a mapping with the same keys; a component that was already built may stand for a mapping.

    Raises:
        ScenarioError: a key is no text, or there are problems in included files.
    """
    reader = Reader(short_forms, [])
    root = reader.expand(node_of(settings, Place(source, 0)), ())
    if reader.problems:
        raise ScenarioError(*reader.problems)
    return Document(root, None, short_forms)


def apply_overrides(document: Document, overrides: Iterable[str | Setting]) -> Document:
    """The document with settings changed, each given as `key.path=value`; see `overrides` for the rules.

    Raises:
        ScenarioError: One line for each override that is malformed or does not fit the document.
    """
    return replace(document, root=overridden(document.root, document.short_forms, overrides))
