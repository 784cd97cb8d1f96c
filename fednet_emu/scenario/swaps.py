"""Drop the settings that do not fit the new kind of a component after the kind was changed.

A setting that was written for the previous kind fits if the new kind has a setting of the same name that allows the
value. If both settings have bounds, the bounds must be equal.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from pydantic import BaseModel, ValidationError

from fednet_emu.component.slot import Slot
from fednet_emu.errors import ScenarioError
from fednet_emu.scenario.document import Document
from fednet_emu.scenario.shapes import Shape
from fednet_emu.scenario.tree import THE_DEFAULT, KeyPath, Node, kind_text, path_text


def settled(model_class: type[BaseModel], document: Document) -> tuple[Document, list[str]]:
    """Return a document without the settings that do not fit a changed kind, and messages about these settings."""
    told: list[str] = []
    if not _has_swaps(document.root):
        return document, told
    return replace(document, root=_settled(document.root, Shape(model_class), (), told)), told


def _has_swaps(node: Node) -> bool:
    return node.written_for is not None or any(map(_has_swaps, _parts(node)))


def _parts(node: Node) -> Iterator[Node]:
    if isinstance(node.value, dict | list):
        yield from node.value.values() if isinstance(node.value, dict) else node.value


def _settled(node: Node, shape: Shape, path: KeyPath, told: list[str]) -> Node:
    if isinstance(node.value, list):
        return replace(node, value=[_below(part, shape, path, at, told) for at, part in enumerate(node.value)])
    if not isinstance(node.value, dict):
        return node
    settings: dict[str, Node] = node.value
    slot = shape.choice
    if slot is None and any(part.written_for == THE_DEFAULT for part in settings.values()):
        return settings["kind"]  # a text in place of a mapping that is not a component
    if slot is not None:
        kind = settings["kind"].value if "kind" in settings else None
        component = shape.chosen(settings if kind is None else kind)
        if component is None:
            return node
        unfit = _unfit(settings, slot, component, kind)
        if unfit:
            kind, before = (kind_text(its) for its in (kind, settings[unfit[0]].written_for))
            what = f"{kind} in place of {before}, so these settings do not apply: {', '.join(unfit)}"
            told.append(f"{path_text(path)}: {what}")
        settings, shape = {key: part for key, part in settings.items() if key not in unfit}, Shape(component)
    return replace(node, value={key: _below(part, shape, path, key, told) for key, part in settings.items()})


def _below(node: Node, shape: Shape, path: KeyPath, key: str | int, told: list[str]) -> Node:
    step = shape.step(key)
    return _settled(node, step[1], (*path, key), told) if step else node


def _unfit(settings: dict[str, Node], slot: Slot, component: type[BaseModel], kind: Any) -> list[str]:
    """Return the names of the settings that were written for another kind and do not fit `component`."""
    old = {name: its for name, its in settings.items() if its.written_for not in (None, kind)}
    alike = {name: its.plain() for name, its in old.items() if _is_alike(name, slot.get(its.written_for), component)}
    wrong: set[Any] = set()
    try:
        component.model_validate(alike)
    except ValidationError as error:
        wrong = {detail["loc"][0] for detail in error.errors(include_url=False) if detail["loc"]}
    except ScenarioError:  # a problem of several settings together, which the complete document may not have
        pass
    return [name for name in old if name not in alike or name in wrong]


def _is_alike(name: str, old: type[BaseModel] | None, new: type[BaseModel]) -> bool:
    """Return True if `new` has a setting called `name`, whose bounds equal those in `old` if both have bounds."""
    if name not in new.model_fields:
        return False
    before = old.model_fields[name].metadata if old and name in old.model_fields else []
    return not before or not new.model_fields[name].metadata or before == new.model_fields[name].metadata
