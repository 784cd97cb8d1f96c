"""Describe types, ranges and defaults of settings in words, for the settings reference."""

from __future__ import annotations

import re
import types
from collections.abc import Mapping
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from annotated_types import MinLen
from markdown_text import code
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from fednet_emu.component.slot import Slot
from fednet_emu.scenario.shapes import Shape, short_default
from fednet_emu.scenario.tree import show

_WORDS: dict[Any, str] = {
    bool: "`true` or `false`",
    int: "whole number",
    float: "number",
    str: "text",
    type(None): "`null`",
    Any: "anything",
}


def needs_link(shape: Shape) -> Any:
    """Return the slot name or component class of a setting that has a description of its own; None for others."""
    if shape.choice is not None:
        return shape.choice.name
    is_component = isinstance(shape.annotation, type) and issubclass(shape.annotation, BaseModel)
    return shape.annotation if is_component else None


def type_text(info: FieldInfo) -> str:
    """Return the type of a setting in words."""
    return _type(info.annotation, tuple(info.metadata))


def _type(annotation: Any, metadata: tuple[Any, ...] = ()) -> str:
    origin, arguments = get_origin(annotation), get_args(annotation)
    slot = next((item for item in metadata if isinstance(item, Slot)), None)
    if slot is not None:
        return f"kind of {slot.name.replace('_', ' ')}"
    if origin is Annotated:
        return _type(arguments[0], arguments[1:])
    if origin in (Union, types.UnionType):
        return " or ".join(_type(member) for member in arguments)
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return f"mapping to {_type(arguments[1])}"
    if origin is tuple:
        return f"list of {_type(arguments[0])}" if Ellipsis in arguments else f"list of {len(arguments)} numbers"
    choices = ", ".join(code(show(choice).strip("'")) for choice in arguments)
    return choices if origin is Literal else _WORDS.get(annotation, "mapping")


def range_text(shape: Shape) -> str:
    """Return the bounds of a setting, of its list entries and of its list length, in words; empty without bounds."""
    found = shape.range_text()
    entries = get_args(shape.annotation) if get_origin(shape.annotation) is tuple else ()
    inner = Shape.of(entries[0]).range_text() if entries else None
    fewest = next((f"at least {item.min_length}" for item in shape.metadata if isinstance(item, MinLen)), None)
    whole = "; ".join(text for text in (found, inner and f"each {inner}", fewest) if text)
    return re.sub(r"\d+\.\d+(e[+-]?\d+)?", lambda number: f"{float(number[0]):g}", whole).replace("<", "\\<")


def default_text(info: FieldInfo) -> str:
    """Return the default of a setting, written as in a scenario file; `required` if there is no default."""
    if info.is_required():
        return "required"
    value = short_default(info.get_default(call_default_factory=True))
    if value is None:
        return "`null`"
    if isinstance(info.get_default(call_default_factory=True), BaseModel) and value == {}:
        return "its defaults"
    return code(show(value).strip("'") or "''")
