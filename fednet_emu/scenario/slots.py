"""The keys of a scenario, their possible values, and the slots (settings with a choice between several kinds).

Keys, values and slots are read from the annotations of the component classes. New settings and plug-ins therefore need
no entry in this module.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from pydantic import BaseModel

from fednet_emu.component.slot import Slot
from fednet_emu.errors import ScenarioError, did_you_mean
from fednet_emu.scenario.model import Scenario
from fednet_emu.scenario.schema import documented_fields
from fednet_emu.scenario.shapes import Shape, short_default
from fednet_emu.scenario.tree import show
from fednet_emu.units import unit_of

_SENTENCE = re.compile(r".+?(?<!et al)[.!?](?=\s+[^\sa-z]|\s*$)", re.DOTALL)


@dataclass(frozen=True)
class Place:
    """A slot (setting with a choice between several kinds), and the keys of a scenario at which it is used.

    Attributes:
        keys: the key paths of the settings whose value is a component of the slot, such as `network.uplink.access`.
    """

    slot: Slot
    keys: tuple[str, ...]

    def described(self) -> dict[str, str]:
        """Return a description of each kind: the first sentence of its docstring, or the error if its import fails."""
        return {kind: _described(self.slot, kind) for kind in self.slot.names()}


@cache
def slots() -> Mapping[str, Place]:
    """Return all slots (settings with a choice between several kinds) of a scenario by name, in alphabetical order."""
    found: dict[str, tuple[Slot, list[str]]] = {}
    for path, slot in _slots_below([Shape.of(Scenario)], (), frozenset()):
        found.setdefault(slot.name, (slot, []))[1].append(".".join(path))
    return {name: Place(slot, tuple(dict.fromkeys(keys))) for name, (slot, keys) in sorted(found.items())}


def _called(name: str) -> Place | None:
    places = slots().values()
    return next((its for its in places if name in (its.slot.name, *its.keys)), None) or next(
        (its for its in places if name in {key.rpartition(".")[2] for key in its.keys}), None
    )


def described(name: str) -> tuple[str, dict[str, str]]:
    """Describe the kinds of a slot, the settings of one kind, or the settings of the component at a key.

    A kind is written `<slot>.<kind>`, for example `path_loss.log-distance`.

    Returns:
        A heading, and a text for each kind or setting.

    Raises:
        ScenarioError: the slot, kind or key does not exist.
    """
    head, _, kind = name.rpartition(".")
    place, shapes = _called(head), _shapes_at(name.split("."))
    components = [part.model for shape in shapes if not _slots_of(shape) for part in _classes(shape) if part.model]
    component = place.slot.find(kind) if place is not None else next(iter(components), None)
    if component is not None:
        return f"{name}: {first_sentence(component.__doc__)}", _settings_in_words(component)
    here = _called(name)
    if here is not None:
        return f"{here.slot.name} ({', '.join(here.keys)})", here.described()
    if place is not None:
        hint = did_you_mean(kind, place.slot.names(), "known:")
        raise ScenarioError(f"kinds: no such kind of {place.slot.name}, got '{kind}'{hint}")
    known = sorted({key.rpartition(".")[2] for its in slots().values() for key in its.keys})
    hint = did_you_mean(name, [*known, *slots()]) or f"; choose from {', '.join(known)}"
    raise ScenarioError(f"kinds: no such slot, got '{name}'{hint}")


def _settings_in_words(component: type[BaseModel]) -> dict[str, str]:
    shapes, found = Shape(component).settings, dict[str, str]()
    for name, field in documented_fields(component).items():
        shape, unit = shapes[field.alias or name], unit_of(name)
        value = " ".join(filter(None, [shape.describe(), shape.range_text()]))
        said = "required"
        if not field.is_required():
            default = short_default(field.get_default(call_default_factory=True))
            said = f"default {'null' if default is None else show(default)}"
        parts = [f"{value} or null" if shape.optional else value, *filter(None, [unit]), said]
        found[field.alias or name] = f"{', '.join(parts)}. {' '.join((field.description or '').split())}".strip()
    return found


def settings_below(keys: Sequence[str]) -> Mapping[str, Sequence[Shape]]:
    """Return the types of the settings below a key path, by name; one type for each kind that has the setting."""
    shapes = _shapes_at(keys)
    kinds = [shape for shape in shapes if shape.choice is not None]
    return ({"kind": kinds} if kinds else {}) | _inside(shapes)


def choices(shapes: Iterable[Shape]) -> list[str]:
    """Return the kinds, literals and booleans that a setting allows, as strings; empty if it allows none of these."""
    found: list[Any] = []
    for shape in shapes:
        found += shape.choice.names() if shape.choice is not None else shape.literals
        found += [True, False] if shape.annotation is bool else []
    return list(dict.fromkeys(str(each).lower() if isinstance(each, bool) else str(each) for each in found))


def first_sentence(text: str | None) -> str:
    """Return the first sentence of a docstring, in one line."""
    found = _SENTENCE.match(inspect.cleandoc(text or ""))
    return " ".join(found[0].split()) if found else " ".join((text or "").split())


def _described(slot: Slot, kind: str) -> str:
    try:
        component = slot.find(kind)
    except ScenarioError as problem:
        return str(problem)
    return first_sentence(component.__doc__ if component is not None else None)


def _slots_below(
    shapes: Sequence[Shape], path: tuple[str, ...], inside_of: frozenset[str]
) -> Iterator[tuple[tuple[str, ...], Slot]]:
    """Yield the key path and the slot of each choice of a kind below a key path.

    A slot inside one of its own kinds is not entered again, so that the recursion ends.
    """
    for slot in dict.fromkeys(slot for shape in shapes for slot in _slots_of(shape)):
        yield path, slot
        inside_of |= {slot.name}
    for name, its in _inside(shapes).items():
        entered = [shape for shape in its if inside_of.isdisjoint(slot.name for slot in _slots_of(shape))]
        if entered:
            yield from _slots_below(entered, (*path, name), inside_of)


def _slots_of(shape: Shape) -> list[Slot]:
    if shape.choice is not None:
        return [shape.choice]
    entry = None if shape.members else shape.step(0)
    parts = shape.members if entry is None else [entry[1]]
    return [slot for part in parts for slot in _slots_of(part)]


def _shapes_at(keys: Iterable[str]) -> list[Shape]:
    shapes = [Shape.of(Scenario)]
    for key in keys:
        shapes = _inside(shapes).get(key, [])
    return shapes


def _inside(shapes: Iterable[Shape]) -> dict[str, list[Shape]]:
    found: dict[str, list[Shape]] = {}
    for shape in shapes:
        for part in _classes(shape):
            for name, its in part.settings.items():
                found.setdefault(name, []).append(its)
    return found


def _classes(shape: Shape) -> Iterator[Shape]:
    if shape.choice is not None:
        yield from (Shape(component) for component in shape.choice.table.values())
    elif shape.members:
        for member in shape.members:
            yield from _classes(member)
    else:
        yield shape
