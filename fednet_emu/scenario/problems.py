"""Validate documents, and report each problem in one readable sentence.

The error lists all problems in the order of the file, each as `file:line key.path: problem, got VALUE; remedy`.

After the kind of a component was changed, a setting that was written for the previous kind is dropped unless it fits:
the new kind has a setting of the same name that allows the value, with equal bounds.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from fednet_emu.component.slot import Slot
from fednet_emu.errors import MAX_PROBLEMS, ScenarioError
from fednet_emu.scenario.document import Document
from fednet_emu.scenario.shapes import Shape, Spot, walk
from fednet_emu.scenario.tree import THE_DEFAULT, KeyPath, Node, kind_text, path_text, problem_text
from fednet_emu.scenario.wording import Problem, is_type_error, problem_of

Model = TypeVar("Model", bound=BaseModel)

LOG = logging.getLogger("fednet_emu.settings")


def validate(model_class: type[Model], document: Document, tell: Callable[[str], None] = LOG.warning) -> Model:
    """Return the validated model of a document.

    Args:
        document: the settings. If the kind of a component was changed, the settings of the old kind are kept if they
            fit the new kind.
        tell: function that receives a line for each component whose kind was changed and some of whose settings were
            dropped, because they do not fit the new kind.

    Raises:
            ScenarioError: the document is invalid. The message has one line for each problem, and explains the first
                hundred.
    """
    document, left_out = settled(model_class, document)
    for line in left_out:
        tell(line)
    try:
        return model_class.model_validate(document.data)
    except ValidationError as error:
        details = error.errors(include_url=False)
    raise ScenarioError(*_sentences(model_class, document, details))


def _sentences(model_class: type[BaseModel], document: Document, details: list[ErrorDetails]) -> list[str]:
    first, others = details[:MAX_PROBLEMS], details[MAX_PROBLEMS:]
    found = [problem_of(model_class, document.data, spot, detail) for spot, detail in _settled(model_class, first)]
    meant = {problem.rival for problem in found}
    left = [problem for problem in found if not (problem.missing and problem.path in meant)]
    sources = list(dict.fromkeys(place.source for place in document.places.values()))

    def order(problem: Problem) -> tuple[bool, int, int]:
        place = document.place(problem.written)
        return not place.in_file, sources.index(place.source) if place.in_file else 0, place.line or 0

    sentences = [problem_text(document.place(p.written), p.path, p.what) for p in sorted(left, key=order)]
    return [*dict.fromkeys(sentences), *(f"{path_text(detail['loc'])}: is not valid either" for detail in others)]


def _settled(model_class: type[BaseModel], details: list[ErrorDetails]) -> Iterator[tuple[Spot, ErrorDetails]]:
    """Yield one location and error for each wrong value, from the errors that pydantic reports for members of unions.

    If the value has the right type for one member of the union, only that member's errors are kept. Otherwise, one
    error about the whole union is reported.
    """
    spots = [(walk(model_class, tuple(detail["loc"])), detail) for detail in map(_pointed, details)]
    seen: set[KeyPath] = set()
    for spot, detail in spots:
        if spot.union is None:
            yield spot, detail
            continue
        path, shape = spot.union
        if path in seen:
            continue
        seen.add(path)
        rivals = [(other, its) for other, its in spots if other.union and other.union[0] == path]
        deeper = [(other, its) for other, its in rivals if len(other.path) > len(path)]
        judged = [(other, its) for other, its in rivals if not is_type_error(its["type"])]
        yield from deeper or judged[:1] or [(Spot(path, shape, spot.parent, None), {**detail, "type": "union_type"})]


def _pointed(detail: ErrorDetails) -> ErrorDetails:
    """Return the error; if it is about a boolean in a list, replace the location of the list by that of its entry."""
    path = _path_to_boolean(detail["input"]) if detail["type"] == "not_a_boolean" else None
    value = detail["input"]
    for index in path or ():
        value = value[index]
    return {**detail, "loc": (*detail["loc"], *(path or ())), "input": value}


def _path_to_boolean(value: Any) -> tuple[int, ...] | None:
    if isinstance(value, list):
        inner = ((index, _path_to_boolean(part)) for index, part in enumerate(value))
        return next(((index, *path) for index, path in inner if path is not None), None)
    return () if isinstance(value, bool) else None


def settled(model_class: type[BaseModel], document: Document) -> tuple[Document, list[str]]:
    """Return a document without settings that do not fit the new kind of a component, and messages about them."""
    told: list[str] = []
    if all(node.written_for is None for _, node in document.root.walk()):
        return document, told
    return replace(document, root=_fitting(document.root, Shape(model_class), (), told)), told


def _fitting(node: Node, shape: Shape, path: KeyPath, told: list[str]) -> Node:
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
    return _fitting(node, step[1], (*path, key), told) if step else node


def _unfit(settings: dict[str, Node], slot: Slot, component: type[BaseModel], kind: Any) -> list[str]:
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
    if name not in new.model_fields:
        return False
    before = old.model_fields[name].metadata if old and name in old.model_fields else []
    return not before or not new.model_fields[name].metadata or before == new.model_fields[name].metadata
