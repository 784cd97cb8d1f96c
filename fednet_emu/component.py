"""Components: the frozen pydantic models that a scenario file is made of, and the slots that hold them.

A component's fields are its YAML keys, `kind` picks its class from one plain table, and its methods are its behaviour.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from importlib.metadata import entry_points
from typing import Any, Literal, get_args, get_origin

from pydantic import BaseModel, ConfigDict, GetCoreSchemaHandler, ValidationInfo, field_validator
from pydantic_core import PydanticCustomError, core_schema

ENTRY_POINT_GROUP = "fednet_emu.components"
"""Other packages add kinds here, named `<slot>.<kind>`, for example `fading.nakagami`."""


class Component(BaseModel):
    """Base of every configurable part: frozen, no unknown keys, numbers are never booleans."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, use_attribute_docstrings=True)

    @field_validator("*", mode="before")
    @classmethod
    def _no_boolean_as_number(cls, value: Any, info: ValidationInfo) -> Any:
        if _holds_bool(value) and not _admits_bool(cls.model_fields[str(info.field_name)].annotation):
            raise PydanticCustomError("not_a_boolean", "expected a value that is not true or false")
        return value


def _holds_bool(value: Any) -> bool:
    return isinstance(value, bool) or (isinstance(value, list | tuple) and any(map(_holds_bool, value)))


def _admits_bool(annotation: Any) -> bool:
    if annotation is Any or annotation is bool:
        return True
    if get_origin(annotation) is Literal:
        return any(isinstance(choice, bool) for choice in get_args(annotation))
    return any(_admits_bool(argument) for argument in get_args(annotation))


class Slot:
    """Annotation of a field that holds one component out of a table of kinds.

    `Annotated[Fading, Slot("fading", FADINGS)]` accepts `{kind: rayleigh, ...}`, the short form `rayleigh`, or a
    component that was already built. `table` maps each kind to its class, whose field `kind` has that default.
    """

    def __init__(self, name: str, table: Mapping[str, type[Component]]) -> None:
        self.name = name
        self.table = table

    def kinds(self) -> dict[str, type[Component]]:
        """The table together with the kinds that installed packages add through entry points."""
        prefix = f"{self.name}."
        added = {
            point.name.removeprefix(prefix): point.load()
            for point in entry_points(group=ENTRY_POINT_GROUP)
            if point.name.startswith(prefix)
        }
        return {**self.table, **added}

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> core_schema.CoreSchema:
        kinds = self.kinds()
        choices = {kind: handler.generate_schema(component) for kind, component in kinds.items()}
        union = core_schema.tagged_union_schema(
            choices,
            discriminator=_kind_of,
            custom_error_type="unknown_kind",
            custom_error_message=f"expected a kind of {self.name}: {', '.join(kinds)}",
        )
        return core_schema.no_info_before_validator_function(_expand_short_form, union)


def _expand_short_form(value: Any) -> Any:
    return {"kind": value} if isinstance(value, str) else value


def _kind_of(value: Any) -> Any:
    return value.get("kind") if isinstance(value, Mapping) else getattr(value, "kind", None)


def did_you_mean(word: str, known: Any) -> str:
    """The clause `; did you mean 'x'?` for a misspelt word, or nothing when no known word is close."""
    close = difflib.get_close_matches(word, [str(name) for name in known], n=1)
    return f"; did you mean '{close[0]}'?" if close else ""
