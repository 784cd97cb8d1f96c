"""Documents: scenario files merged with their includes and `--set` overrides, before validation.

    document = apply_overrides(load("cyclic-fedavg"), ["algorithm.lr=0.05"])
    scenario = validate(Scenario, document)

A document records the file and line of each value. This module combines the modules `yaml_text`, `library`, `includes`
and `overrides`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from fednet_emu.devices.profiles import Profile
from fednet_emu.devices.speeds import LogNormalSpeed
from fednet_emu.errors import ScenarioError
from fednet_emu.radio.channel import Channel
from fednet_emu.scenario.includes import Reader, read_text
from fednet_emu.scenario.library import Folder, another_kind, find, is_study
from fednet_emu.scenario.overrides import Setting, overridden
from fednet_emu.scenario.tree import KeyPath, Node, Place, file_text, merge, node_of
from fednet_emu.scenario.yaml_text import parse

CHANNEL, PROFILE = "urban-micro", "phone-2019-mid"
"""Default channel of a scenario, and default hardware profile of devices if neither a profile nor a speed is given."""


@dataclass(frozen=True)
class Document:
    """The settings of a scenario as they were written, before validation.

    Attributes:
        root: the settings as a tree of values, each with its file and line.
        path: the scenario file; None if the scenario was read from text or from a mapping.
    """

    root: Node
    path: Path | None

    @cached_property
    def data(self) -> dict[str, Any]:
        """The settings as nested dicts, lists and scalars."""
        plain: dict[str, Any] = self.root.plain()
        return plain

    @cached_property
    def places(self) -> dict[KeyPath, Place]:
        """File and line of every value, by the key path of the value; the key path `()` is the whole document."""
        return {path: node.place for path, node in self.root.walk()}

    def place(self, path: KeyPath) -> Place:
        """Return the file and line at which a setting is written.

        If the setting is omitted, return the file and line of the nearest enclosing mapping or list.
        """
        while path not in self.places:
            path = path[:-1]
        return self.places[path]


def load(name: str | Path, folder: Folder = "scenarios") -> Document:
    """Read a scenario by path or name, together with its included files.

    Raises:
        ScenarioError: the file does not exist, or the file or an included file is invalid; all problems are listed.
    """
    path = find(str(name), folder)
    root = parse(read_text(path), file_text(path))
    if folder == "scenarios" and is_study(root):
        raise ScenarioError(f"{file_text(path)}: {another_kind(str(name), 'study')}")
    return with_includes(root, path)


def with_includes(root: Node, path: Path | None = None) -> Document:
    """Merge the tree `root` with the files that it includes, and return the resulting document.

    `path` is the file from which the tree was read; None if there is no file.

    Raises:
        ScenarioError: an included file is invalid; all problems are listed.
    """
    reader = Reader([] if path is None else [path])
    whole = reader.expand(root, ())
    if reader.problems:
        raise ScenarioError(*reader.problems)
    return Document(whole, path)


def from_text(text: str, source: str = "scenario") -> Document:
    """Read a scenario from YAML text.

    Relative paths of included files start at the working folder. Error messages refer to the text as `source`.
    """
    return with_includes(parse(text, source))


def from_mapping(settings: Mapping[str, Any], source: str) -> Document:
    """Read a scenario from a mapping with the keys of a scenario file; values may be component objects.

    Raises:
        ScenarioError: a key is not text, or an included file is invalid.
    """
    return with_includes(node_of(settings, Place(source, 0)))


def apply_overrides(document: Document, overrides: Iterable[str | Setting]) -> Document:
    """Return a document with some settings changed. Each change is a string `key.path=value`, as in `--set`.

    Raises:
        ScenarioError: an override is malformed, or does not fit the document. The error lists all such overrides.
    """
    return replace(document, root=overridden(document.root, overrides))


def filled(document: Document) -> Document:
    """Return the document of a scenario, completed by the library's default channel and default device profile.

    If the scenario's channel or profile lacks a required key, it is merged over the default one, and replaces only the
    keys that it states.
    """
    root, reader = document.root, Reader()
    if not isinstance(root.value, dict):
        return document

    def underlaid(settings: Mapping[str, Node], at: tuple[str, ...], name: str, model: type[BaseModel]) -> Node:
        own = settings.get(at[-1])
        required = {key for key, field in model.model_fields.items() if field.is_required()}
        if own is not None and not (isinstance(own.value, dict) and required - own.value.keys()):
            return own
        base = reader.expand(Node(name, root.place if own is None else own.place), at)
        return base if own is None else merge(base, own)

    devices = root.value.get("devices", Node({}, root.place))
    found = {"channel": underlaid(root.value, ("channel",), CHANNEL, Channel)}
    if isinstance(devices.value, dict) and not _states_speed(devices.value):
        profile = underlaid(devices.value, ("devices", "profile"), PROFILE, Profile)
        found["devices"] = Node({**devices.value, "profile": profile}, devices.place)
    return replace(document, root=Node({**root.value, **found}, root.place))


def _states_speed(devices: Mapping[str, Node]) -> bool:
    speed = devices["speed"].value if "speed" in devices else None
    if isinstance(speed, dict) and "median_flop_per_s" not in speed:
        return "kind" in speed and speed["kind"].value != LogNormalSpeed.kind
    return speed is not None and not (isinstance(speed, LogNormalSpeed) and speed.relative)
