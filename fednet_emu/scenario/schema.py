"""The JSON schema of scenario and study files. Editors use it to complete and check YAML while it is written.

The schema is derived from the component classes. It also accepts the forms that are resolved before validation: the
short form of a component, `include` in any mapping, and names of files. Each mapping has two definitions. In the second
one, called `<name>.partial`, no key is required, because a mapping with `include` may omit the keys of the included
file.

If a value may have one of several forms, `if` and `then` select the form by the type of the value or by its `kind`. An
editor then reports a problem at the exact key. With `anyOf`, it would report the whole mapping as "not valid under
any".
"""

from __future__ import annotations

import ast
import inspect
import sys
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from itertools import pairwise
from typing import Annotated, Any, get_origin

from pydantic import BaseModel, TypeAdapter
from pydantic.fields import FieldInfo

from fednet_emu.component.component import Component
from fednet_emu.component.slot import Slot
from fednet_emu.scenario.includes import INCLUDE, MIXED, SHORT_FORMS
from fednet_emu.scenario.shapes import Shape, short_default
from fednet_emu.units import unit_of


def documented_fields(model_class: type[BaseModel]) -> dict[str, FieldInfo]:
    """Return the fields of a class by name, with their docstrings.

    If a field has no docstring, the docstring of the field that it overrides is used.
    """
    texts: dict[str, str] = {}
    for owner in reversed(model_class.__mro__):
        if issubclass(owner, BaseModel):
            texts |= docstrings(owner)
    for name, info in model_class.model_fields.items():
        info.description = info.description or texts.get(name)
    return model_class.model_fields


@cache
def docstrings(owner: type) -> dict[str, str]:
    """Return the docstrings of the fields that a class declares, by field; empty if its source is not available."""
    declared = _classes(owner.__module__).get(owner.__qualname__)
    if declared is None:
        try:
            (declared,) = ast.parse(textwrap.dedent(inspect.getsource(owner))).body
        except (OSError, TypeError):
            return {}
    return {
        field.target.id: inspect.cleandoc(text.value.value)
        for field, text in pairwise(getattr(declared, "body", ()))
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
        if isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant) and isinstance(text.value.value, str)
    }


@cache
def _classes(module: str) -> dict[str, ast.stmt]:
    """Return the syntax trees of the top-level classes of a module, by class name.

    The result is cached, because `inspect.getsource` of a class would parse the module anew.
    """
    try:
        body = ast.parse(inspect.getsource(sys.modules[module])).body
    except (KeyError, OSError, TypeError):
        return {}
    return {declared.name: declared for declared in body if isinstance(declared, ast.ClassDef)}


DIALECT = "https://json-schema.org/draft/2020-12/schema"

Schema = dict[str, Any]
Choice = tuple[frozenset[str], Schema]
"""One possible form of a value: the names of the JSON types that the value may then have, and its schema."""

_SHARES = {"type": "object", "minProperties": 1, "additionalProperties": {"type": "number"}}
"""Schema of a mixture of hardware profiles: a mapping from file names to shares."""
_EVERY_TYPE = frozenset({"object", "array", "string", "number", "boolean", "null"})
_INCLUDE_SCHEMA = {
    "type": "string",
    "description": "A file whose settings are put underneath these: a path from this file, or a name of the library.",
}


def json_schema(model_class: type[BaseModel], *, includes: bool = True) -> Schema:
    """Return the JSON schema (draft 2020-12) of the files that describe a `model_class`.

    If `includes` is True, mappings may include files, and the settings in `SHORT_FORMS` may be file names.
    """
    builder = _Builder({INCLUDE: _INCLUDE_SCHEMA} if includes else {})
    builder.reference(model_class.__name__, model_class)
    root = builder.definitions.pop(model_class.__name__)
    used = {name: part for name, part in builder.definitions.items() if includes or not name.endswith(".partial")}
    return {"$schema": DIALECT, "title": model_class.__name__, **root, "$defs": used}


class _Builder:
    def __init__(self, extra: Schema) -> None:
        self.extra = extra  # settings that every mapping may have
        self.definitions: dict[str, Schema] = {}

    def reference(
        self, name: str, model_class: type[BaseModel], kind: str | None = None, *, partial: bool = False
    ) -> Schema:
        """Return a reference to the definition of a class, and add the definition if it is missing.

        If `kind` is given, the key `kind` must have this value. If `partial` is True, no keys are required.
        """
        if name not in self.definitions:
            self.definitions |= {name: {}, f"{name}.partial": {}}  # ends the recursion for a class that contains itself
            whole, part = (self._mapping(model_class, kind, partial=partial) for partial in (False, True))
            self.definitions[f"{name}.partial"] = part
            including = {"if": {"required": [INCLUDE]}, "then": _ref(f"{name}.partial"), "else": whole}
            self.definitions[name] = {"description": whole["description"], **including} if self.extra else whole
        return _ref(f"{name}.partial" if partial else name)

    def _mapping(self, model_class: type[BaseModel], kind: str | None = None, *, partial: bool) -> Schema:
        fields = {field.alias or name: field for name, field in documented_fields(model_class).items()}
        shapes = Shape(model_class).settings
        filled: frozenset[str] = getattr(model_class, "filled", frozenset())
        needed = (
            [] if partial else [name for name, field in fields.items() if field.is_required() and name not in filled]
        )
        nullable = [name for name in needed if shapes[name].optional]
        properties = {
            name: self._setting(name, field, shapes[name], partial=partial, filled=name in filled)
            for name, field in fields.items()
        }
        if kind is not None:
            properties = {"kind": {"const": kind}, **properties}
        return {
            "type": "object",
            "description": model_class.__doc__ or "",
            "properties": properties | self.extra,
            "additionalProperties": False,
            **_required(needed, nullable, getattr(model_class, "waived", {})),
        }

    def _setting(self, name: str, field: FieldInfo, shape: Shape, *, partial: bool, filled: bool) -> Schema:
        unit = unit_of(name)
        text = f"{field.description or ''}{f' Unit: {unit}.' if unit else ''}".strip()
        choice = self._value(shape, partial=partial, filled=filled)
        if self.extra and name in SHORT_FORMS:
            choice = _either([(frozenset({"string"}), {"type": "string"}), choice])
            choice = (choice[0], {"if": _SHARES, "then": {}, "else": choice[1]}) if name == MIXED else choice
        default = (
            {} if field.is_required() else {"default": short_default(field.get_default(call_default_factory=True))}
        )
        return {**choice[1], **({"description": text} if text else {}), **default}

    def _value(self, shape: Shape, *, partial: bool, filled: bool = False) -> Choice:
        """Return the JSON types and the schema of the values that a setting with the type `shape` allows.

        If `filled` is True, the value may omit required keys, because the library supplies them.
        """
        if shape.members:
            members = (replace(member, default=shape.default) for member in shape.members)
            choices = [self._value(member, partial=partial, filled=filled) for member in members]
        elif shape.choice is not None:
            choices = [self._slot(shape.choice, shape.default, partial=partial)]
        elif shape.model is not None:
            name, model = shape.model.__name__, shape.model
            its = self.reference(name, model, partial=partial)
            if filled and not partial:
                whole = {"required": [key for key, field in model.model_fields.items() if field.is_required()]}
                its = {**_when(whole, its), "else": self.reference(name, model, partial=True)}
            choices = [(frozenset({"object"}), its)]
        else:
            choices = [self._part(shape, partial=partial)]
        if shape.optional:
            choices.append((frozenset({"null"}), {"type": "null"}))
        return _either(choices) if len(choices) > 1 else choices[0]

    def _part(self, shape: Shape, *, partial: bool) -> Choice:
        """Return the JSON types and the schema of a scalar, of a list, or of a mapping with arbitrary keys."""
        origin, entries = get_origin(shape.annotation), shape.entries
        if not entries:
            plain = dict(_plain_schema(shape.annotation, shape.metadata))
            given = plain.get("type", _EVERY_TYPE)
            names = [given] if isinstance(given, str) else given
            return frozenset("number" if name == "integer" else name for name in names), plain
        parts = [self._value(Shape.of(each), partial=partial)[1] for each in entries if each is not Ellipsis]
        if issubclass(origin, Mapping):
            return frozenset({"object"}), {
                "type": "object",
                "properties": self.extra,
                "additionalProperties": parts[1],
            }
        if origin is tuple and Ellipsis not in entries:
            fixed = {"prefixItems": parts, "minItems": len(parts), "maxItems": len(parts)}
            return frozenset({"array"}), {"type": "array", **fixed}
        return frozenset({"array"}), {**_plain_schema(list[Any], shape.metadata), "items": parts[0]}

    def _slot(self, slot: Slot, default: Any, *, partial: bool) -> Choice:
        kinds, name = slot.kinds(), slot.name
        kind = slot.name_of(type(default)) if isinstance(default, Component) else None
        if partial:
            name += ".partial"
        elif kind or default is None:
            name += f"-or-{kind or 'null'}"
        short = [kind for kind, its in kinds.items() if not any(map(FieldInfo.is_required, its.model_fields.values()))]
        if name not in self.definitions:
            self.definitions[name] = {}
            if f"{slot.name}.any" not in self.definitions:
                self.definitions[f"{slot.name}.any"] = {}
                self.definitions[f"{slot.name}.any"] = self._of_any_kind(kinds.values())
            without = {} if partial else self._without_kind(slot.name, kinds, kind, default)
            self.definitions[name] = self._choice_of_kinds(slot.name, kinds, short, without)
        return frozenset({"object", "string"} if short else {"object"}), _ref(name)

    def _choice_of_kinds(
        self, slot: str, kinds: Mapping[str, type[BaseModel]], short: list[str], without: Schema
    ) -> Schema:
        chosen = [
            _when(
                {"type": "object", "properties": {"kind": {"const": kind}}, "required": ["kind"]},
                self.reference(f"{slot}.{kind}", its, kind, partial=not without),
            )
            for kind, its in kinds.items()
        ]
        without_kind = {"type": "object", "not": {"required": ["kind"]}}
        nothing_given = {"type": "object", "not": {"anyOf": [{"required": ["kind"]}, {"required": [INCLUDE]}]}}
        return {
            "type": ["string", "object"] if short else "object",
            **({"examples": short} if short else {}),
            "properties": {"kind": _name_of_kind(list(kinds))},
            "allOf": [
                *([_when({"type": "string"}, _name_of_kind(short))] if short else []),
                *chosen,
                _when(without_kind, _ref(f"{slot}.any")),
                *([_when(nothing_given, without)] if without else []),
            ],
        }

    def _without_kind(self, slot: str, kinds: Mapping[str, type[BaseModel]], kind: str | None, default: Any) -> Schema:
        """Return the schema of a mapping that does not state its kind; `kind` is the default kind of the component."""
        required = {"required": ["kind"]}
        if kind and kind not in kinds:  # the default comes from another package, and has no kind in this table
            return {"type": "object"}
        if kind and kinds[kind].model_fields:
            return self.reference(f"{slot}.{kind}", kinds[kind], kind, partial=True)
        if not kind and default is not None:
            return required
        named = {name: {"propertyNames": {"enum": list(its.model_fields)}} for name, its in kinds.items()}
        only = {"oneOf": list(named.values()), "minProperties": 1}
        chosen = [_when(keys, self.reference(f"{slot}.{name}", kinds[name], name)) for name, keys in named.items()]
        return {"if": only, "then": {"allOf": chosen}, "else": {"maxProperties": 0} if kind else required}

    def _of_any_kind(self, kinds: Iterable[type[BaseModel]]) -> Schema:
        """Return the schema of a mapping whose kind is stated in an included file.

        The schema allows the settings of all kinds.
        """
        found: dict[str, list[Schema]] = {}
        for its in kinds:
            for name, setting in self._mapping(its, partial=True)["properties"].items():
                bare = {word: value for word, value in setting.items() if word not in ("description", "default")}
                if bare not in found.setdefault(name, []):
                    found[name].append(bare)
        properties = {name: same[0] if len(same) == 1 else {"anyOf": same} for name, same in found.items()}
        return {"properties": properties, "additionalProperties": False}


def _required(names: Sequence[str], nullable: Sequence[str], waived: Mapping[str, Sequence[str]]) -> Schema:
    """Return the schema that requires the settings `names`.

    Settings in `nullable` are not required if another setting has a kind in `waived`.
    """
    if not (names and waived):
        return {"required": list(names)} if names else {}
    ((by, kinds),) = waived.items()
    waiving = {"type": "object", "properties": {"kind": {"enum": list(kinds)}}, "required": ["kind"]}
    return {
        "required": [name for name in names if name not in nullable],
        "if": {"properties": {by: waiving}, "required": [by]},
        "else": {"required": list(nullable)},
    }


def _either(choices: list[Choice]) -> Choice:
    """Combine several forms of a value into one schema, which checks a value by the form for its JSON type."""
    whole = frozenset(kind for kinds, _ in choices for kind in kinds)
    if sum(len(kinds) for kinds, _ in choices) > len(whole):
        return whole, {"anyOf": [schema for _, schema in choices]}
    if len(choices) == 2 and choices[1][0] == {"null"} and isinstance(choices[0][1].get("type"), str):
        schema = choices[0][1]
        listed = {"enum": [*schema["enum"], None]} if "enum" in schema else {}
        return whole, {**schema, "type": [schema["type"], "null"], **listed}
    parts = [_when({"type": sorted(kinds)}, schema) for kinds, schema in choices if schema.keys() != {"type"}]
    return whole, {"type": sorted(whole), "allOf": parts} if parts else {"type": sorted(whole)}


@cache
def _plain_schema(annotation: Any, metadata: tuple[Any, ...]) -> Schema:
    return TypeAdapter(Annotated[annotation, *metadata] if metadata else annotation).json_schema()


def _name_of_kind(kinds: list[str]) -> Schema:
    return {"examples": kinds, **_when({"not": {"pattern": ":"}}, {"enum": kinds})}


def _when(condition: Schema, then: Schema) -> Schema:
    return {"if": condition, "then": then}


def _ref(name: str) -> Schema:
    return {"$ref": f"#/$defs/{name}"}
