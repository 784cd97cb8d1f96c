"""The JSON schema of a scenario, by which editors complete and check the YAML while it is written.

It comes from the component classes, widened by what a document may hold before it is validated: the short form of a
component, `include` in any mapping, and file names. A mapping has two versions, because one with `include` may leave
out what the included file gives: the complete one, and `<name>.partial`, in which nothing is required.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema

from fednet_emu.scenario.document import SHORT_FORMS
from fednet_emu.scenario.includes import INCLUDE

DIALECT = "https://json-schema.org/draft/2020-12/schema"

UNITS = {
    "_bps_hz": "bit/s/Hz",
    "_dbm_hz": "dBm/Hz",
    "_m_s": "m/s",
    "_per_s": "per second",
    "_bps": "bit/s",
    "_bit": "bit",
    "_dbm": "dBm",
    "_db": "dB",
    "_hz": "Hz",
    "_flop": "floating-point operations",
    "_rad": "rad",
    "_ms": "ms",
    "_ns": "ns",
    "_s": "s",
    "_m": "m",
    "_w": "W",
    "_j": "J",
}
"""The unit that the ending of a setting's name stands for; the first ending that fits counts."""

_KINDS = "x-kinds"
_REF = "#/$defs/"
_TABLES = frozenset({"properties", "$defs", _KINDS})
_VALUES = frozenset({"default", "const", "enum", "required"})
_INCLUDE_SCHEMA = {
    "type": "string",
    "description": "A file whose settings are put underneath these: a path from this file, or a name of the library.",
}


def json_schema(model_class: type[BaseModel], short_forms: Iterable[str] = tuple(SHORT_FORMS)) -> dict[str, Any]:
    """The JSON schema (2020-12) of the documents that describe a model.

    Args:
        model_class: The class that a document is validated against.
        short_forms: Names of settings whose value may be the name of a file.
    """
    schema = model_class.model_json_schema(schema_generator=_Generator)
    definitions = schema.pop("$defs", {})
    _allow_short_kinds(schema, definitions)
    for part in [part for whole in (schema, *definitions.values()) for part in _parts(whole)]:
        _allow_files(part, frozenset(short_forms))
    whole = {model_class.__name__: schema} if "properties" in schema else {}
    partial = {f"{name}.partial": _partial(part) for name, part in (definitions | whole).items()}
    complete = {name: _partial_if_included(part, name) for name, part in definitions.items()}
    root = _partial_if_included(schema, model_class.__name__)
    return {"$schema": DIALECT, "title": model_class.__name__, **root, "$defs": complete | partial}


class _Generator(GenerateJsonSchema):
    """Pydantic's generator, with the units of settings and with the short forms of components."""

    def tagged_union_schema(self, schema: core_schema.TaggedUnionSchema) -> JsonSchemaValue:
        kinds = {str(kind): self.generate_inner(choice) for kind, choice in schema["choices"].items()}
        named = {"anyOf": [{"required": ["kind"]}, {"required": [INCLUDE]}]}
        return {"anyOf": list(kinds.values()), "allOf": [named], _KINDS: kinds}

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False  # a title made from the name says nothing that the name does not

    def model_schema(self, schema: core_schema.ModelSchema) -> JsonSchemaValue:
        found = super().model_schema(schema)
        for name, part in found.get("properties", {}).items():
            unit = next((unit for ending, unit in UNITS.items() if name.endswith(ending)), None)
            if unit:
                part["description"] = f"{part.get('description', '')} Unit: {unit}.".strip()
        return found


def _allow_short_kinds(schema: dict[str, Any], definitions: dict[str, Any]) -> None:
    """Adds to each slot the names of the kinds that need no further setting."""
    for part in [part for whole in (schema, *definitions.values()) for part in _parts(whole)]:
        kinds = part.pop(_KINDS, {})
        targets = {kind: definitions.get(its.get("$ref", "").removeprefix(_REF), its) for kind, its in kinds.items()}
        short = [kind for kind, target in targets.items() if not set(target.get("required", ())) - {"kind"}]
        if short:
            part["anyOf"].insert(0, {"enum": short})


def _allow_files(part: dict[str, Any], short_forms: frozenset[str]) -> None:
    """Adds `include` to the schema of a mapping, and file names to the settings that have a short form."""
    settings = part.get("properties", {})
    if part.get("type") == "object":
        for name in short_forms & settings.keys():
            settings[name] = {"anyOf": [{"type": "string"}, settings[name]]}
        part["properties"] = {**settings, INCLUDE: dict(_INCLUDE_SCHEMA)}


def _partial(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema in which nothing is required, here and in all that it refers to."""
    partial = copy.deepcopy(schema)
    for part in _parts(partial):
        part.pop("required", None)
        if "$ref" in part:
            part["$ref"] += ".partial"
    return partial


def _partial_if_included(schema: dict[str, Any], name: str) -> dict[str, Any]:
    if "properties" not in schema:
        return schema
    return {
        "description": schema.get("description", ""),
        "if": {"required": [INCLUDE]},
        "then": {"$ref": f"{_REF}{name}.partial"},
        "else": schema,
    }


def _parts(schema: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """A schema and every schema inside it, outermost first; values such as defaults are no schemas."""
    yield schema
    for key, value in list(schema.items()):
        if key in _VALUES:
            continue
        inner = value.values() if key in _TABLES else value if isinstance(value, list) else [value]
        for part in inner:
            if isinstance(part, dict):
                yield from _parts(part)
