"""The values that each setting of a scenario allows, read from the type annotations of the component classes.

Pydantic locates a problem by a path in which keys are mixed with tags. A tag is the kind of a component, or the member
of a union. This module follows the annotations along such a path. It thereby separates keys from tags, and finds the
settings, kinds and bounds that are allowed at the location.
"""

from __future__ import annotations

import types
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from functools import cache
from pathlib import PurePath
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from annotated_types import Ge, GroupedMetadata, Gt, Le, Lt
from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined, to_jsonable_python

from fednet_emu.component.component import Component
from fednet_emu.component.slot import Slot
from fednet_emu.scenario.tree import KeyPath

_WORDS: dict[type, str] = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "text",
    PurePath: "a path",
    Mapping: "a mapping",
    BaseModel: "a mapping",
    Sequence: "a list",
    Set: "a list",
}
"""Names of types in error messages. A type that is not in this table has the name of its first base class in the
table."""


@dataclass(frozen=True)
class Shape:
    """Type of a setting: a type annotation, split into the bare type and its metadata (from `Annotated` and `Field`).

    Attributes:
        annotation: The bare type; a union only if there are at least two members besides None.
        metadata: Slots (choices between several kinds of component) and bounds from the annotation.
        slot: The slot that lists the class as a kind, if the type is a component class.
        entered: True if the type is a union, and the path has already selected one of its members.
        optional: True if null is allowed.
        default: The default value of a setting; `PydanticUndefined` for required settings and for entries of lists.
    """

    annotation: Any
    metadata: tuple[Any, ...] = ()
    slot: Slot | None = None
    entered: bool = False
    optional: bool = False
    default: Any = PydanticUndefined

    @staticmethod
    def of(annotation: Any, metadata: Iterable[Any] = ()) -> Shape:
        """Create a `Shape` from a type annotation that is written in a class, and from the metadata of its field."""
        found = tuple(_flat(metadata))
        if get_origin(annotation) is Annotated:
            bare, *more = get_args(annotation)
            return Shape.of(bare, (*found, *more))
        if any(isinstance(item, Slot) for item in found):
            return Shape(annotation, found)
        if get_origin(annotation) in (Union, types.UnionType):
            members = [member for member in get_args(annotation) if member is not types.NoneType]
            optional = len(members) < len(get_args(annotation))
            inner = Shape.of(members[0], found) if len(members) == 1 else Shape(annotation, found)
            return replace(inner, optional=optional)
        return Shape(annotation, found)

    @property
    def choice(self) -> Slot | None:
        """The slot (choice between several kinds) that the annotation names; None if it names no slot."""
        return next((item for item in self.metadata if isinstance(item, Slot)), None)

    @property
    def members(self) -> list[Shape]:
        """The members of a union, except None; an empty list if the type is not a union."""
        if self.choice is None and get_origin(self.annotation) in (Union, types.UnionType):
            return [Shape.of(member) for member in get_args(self.annotation) if member is not types.NoneType]
        return []

    @property
    def settings(self) -> dict[str, Shape]:
        """The types of a component's settings, by name; empty if the type is not a component class."""
        return {} if self.model is None or self.choice is not None else _settings_of(self.model)

    @property
    def model(self) -> type[BaseModel] | None:
        """The component class; None if the type is not a component class."""
        return self.annotation if isinstance(self.annotation, type) and issubclass(self.annotation, BaseModel) else None

    @property
    def entries(self) -> tuple[Any, ...]:
        """The types that the entries of a list or the values of a mapping may have; empty for types without entries."""
        origin = get_origin(self.annotation)
        is_container = isinstance(origin, type) and issubclass(origin, Mapping | Sequence | Set)
        return get_args(self.annotation) if is_container else ()

    @property
    def literals(self) -> tuple[Any, ...]:
        """The values allowed by a Literal, or by the Literals in a union; empty if there are none."""
        if get_origin(self.annotation) is Literal:
            return get_args(self.annotation)
        return tuple(choice for member in self.members for choice in member.literals)

    def chosen(self, given: Any) -> type[BaseModel] | None:
        """Return the component class of the kind in `given`, else of the default kind; None if the kind is unknown."""
        if self.choice is None:
            return None
        if isinstance(given, Mapping):
            given = (given if "kind" in given else self.choice.meant(given, self.default)).get("kind")
        return self.choice.get(given)

    def step(self, element: str | int) -> tuple[bool, Shape] | None:
        """Follow one element of a pydantic location, which is a path of keys and tags (kinds or union members).

        Returns:
            Whether `element` is a key (True) or a tag (False), and the type to which it leads. None if there is no such
            type.
        """
        if self.choice is not None:
            component = self.choice.get(str(element))
            return (False, Shape(component, slot=self.choice)) if component else None
        if self.members and not self.entered:
            return False, replace(self, entered=True)
        if self.members:
            return next((step for member in self.members if (step := member.step(element))), None)
        if element in self.settings:
            return True, self.settings[str(element)]
        part = self._part(element)
        return (True, Shape.of(part)) if part is not None else None

    def _part(self, element: str | int) -> Any:
        origin, entries = get_origin(self.annotation), self.entries
        if entries and issubclass(origin, Mapping):
            return entries[1]
        if not entries or not isinstance(element, int):
            return None
        fixed = origin is tuple and entries[-1] is not Ellipsis
        return entries[element] if fixed and element < len(entries) else entries[0]

    def describe(self) -> str:
        """Return a description of the expected value, such as `a number`, `a list` or `a kind of fading`."""
        if self.choice is not None:
            return f"a kind of {self.choice.name}"
        if self.members:
            words = dict.fromkeys(member.describe() for member in self.members)
            return " or ".join(word for word in words if word != "a whole number" or "a number" not in words)
        if self.literals:
            return " or ".join(map(repr, self.literals))
        kind = get_origin(self.annotation) or self.annotation
        bases = _WORDS if isinstance(kind, type) else ()
        return next((_WORDS[base] for base in bases if issubclass(kind, base)), "another value")

    def range_text(self) -> str | None:
        """Return the bounds of a number as text, such as `in [0, 1)` or `> 0`; None if the number has no bounds."""
        low = next((item for item in self.metadata if isinstance(item, Gt | Ge)), None)
        high = next((item for item in self.metadata if isinstance(item, Lt | Le)), None)
        if low and high:
            left = f"({low.gt}" if isinstance(low, Gt) else f"[{low.ge}"
            return f"in {left}, {high.lt})" if isinstance(high, Lt) else f"in {left}, {high.le}]"
        if low:
            return f"> {low.gt}" if isinstance(low, Gt) else f">= {low.ge}"
        if high:
            return f"< {high.lt}" if isinstance(high, Lt) else f"<= {high.le}"
        return next((text for member in self.members if (text := member.range_text())), None)


@cache
def _settings_of(component: type[BaseModel]) -> dict[str, Shape]:
    fields = component.model_fields.items()
    return {
        field.alias or name: replace(
            Shape.of(field.annotation, field.metadata), default=field.get_default(call_default_factory=True)
        )
        for name, field in fields
    }


def _flat(metadata: Iterable[Any]) -> Iterator[Any]:
    for item in metadata:
        if isinstance(item, FieldInfo):
            yield from _flat(item.metadata)
        elif isinstance(item, GroupedMetadata) and not isinstance(item, Slot):
            yield from item
        else:
            yield item


def short_default(value: Any) -> Any:
    """Return a default value in the shortest form in which a scenario file may state it.

    For a component, settings with default values are left out. If only `kind` remains, the name of the kind is
    returned.
    """
    if isinstance(value, list | tuple):
        return [short_default(part) for part in value]
    if not isinstance(value, BaseModel):
        return to_jsonable_python(value)
    settings = {
        name: short_default(getattr(value, name))
        for name, field in type(value).model_fields.items()
        if getattr(value, name) != field.get_default(call_default_factory=True)
    }
    kind = value.kind if isinstance(value, Component) else ""
    return {"kind": kind, **settings} if kind and settings else kind or settings


@dataclass(frozen=True)
class Spot:
    """The setting to which a pydantic location, a path of keys and tags, refers.

    Attributes:
        path: The keys of the location, without the tags.
        shape: The type of the setting; None if the classes do not define the setting.
        parent: The type of the mapping or list that contains the setting.
        union: The path and type of the outermost union along the location; None if there is no union.
    """

    path: KeyPath
    shape: Shape | None
    parent: Shape | None
    union: tuple[KeyPath, Shape] | None


def walk(model_class: type[BaseModel], location: tuple[str | int, ...]) -> Spot:
    """Return the setting at a pydantic location (a path of keys and tags) in the class `model_class`."""
    path: KeyPath = ()
    shape: Shape | None = Shape(model_class)
    parent: Shape | None = None
    union: tuple[KeyPath, Shape] | None = None
    for element in location:
        if element == "[key]":
            continue
        if shape and shape.members and not shape.entered and union is None:
            union = path, shape
        step = shape.step(element) if shape else None
        is_key, behind = step or (True, None)
        if is_key:
            path, parent = (*path, element), shape
        shape = behind
    return Spot(path, shape, parent, union)


def homes(shape: Shape, data: Any, key: str, path: KeyPath = ()) -> Iterator[KeyPath]:
    """Yield the key paths of all settings called `key`, in components of the kinds that are chosen in `data`."""
    settings = data if isinstance(data, Mapping) else {}
    for name, inner in shape.settings.items():
        value = settings.get(name)
        if name == key:
            yield (*path, name)
        if inner.choice is not None:
            inner = Shape(inner.chosen(value))  # noqa: PLW2901  (replaces the slot by the class that the data chooses)
        if inner.annotation is not shape.annotation:
            yield from homes(inner, value, key, (*path, name))
