"""Slots: fields of components whose value is a component of one of several kinds."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from inspect import isabstract, isclass
from typing import Annotated, Any, TypeVar

from pydantic import GetCoreSchemaHandler, GetPydanticSchema, SerializerFunctionWrapHandler, TypeAdapter
from pydantic_core import PydanticCustomError, core_schema

from fednet_emu.component.component import Choice, Component
from fednet_emu.component.plugins import imported, is_import_path, kind_of, offered, offers
from fednet_emu.errors import ScenarioError


class Slot(Choice):
    """Annotation of a field whose value is a component; the class is chosen from a table of kinds.

    `Annotated[Fading, Slot("fading", FADINGS)]` annotates a field that accepts a mapping `{kind: rayleigh, ...}`, the
    short form `rayleigh`, or a component object. In Python, `kind` may also be the class itself. A mapping without
    `kind` changes the default of the field; see `meant`. The function `kinds` creates the table from a list of classes.

    A kind that is not in the table is searched among the entry points of installed packages, or interpreted as the
    import path of a class. The class of the kind validates the settings of the component.
    """

    def __init__(self, name: str, table: Mapping[str, type[Component]]) -> None:
        self.name = name
        self.table = table
        self._given: dict[str, type[Component]] = {}  # classes that scenarios give in place of a kind, by name
        self._base: type[Component] = Component  # the annotated class, set when a model with this slot is built

    def names(self) -> list[str]:
        """Return the names of all kinds in the table and in installed packages; packages are not imported."""
        return list(dict.fromkeys([*self.table, *offers().get(self.name, ())]))

    def kinds(self) -> dict[str, type[Component]]:
        """Return the class of each available kind. Kinds whose package cannot be imported are left out."""
        found = {kind: self.get(kind) for kind in self.names()}
        return {kind: component for kind, component in found.items() if component is not None}

    def get(self, kind: Any) -> type[Component] | None:
        """Return the class of a kind, or `kind` itself if it is a class; None if there is no suitable class."""
        if isinstance(kind, type):
            return kind if issubclass(kind, self._base) else None
        try:
            return self.find(kind) if isinstance(kind, str) else None
        except ScenarioError:
            return None

    def find(self, kind: str) -> type[Component] | None:
        """Return the class of a kind, from the table, a package or an import path; None if the kind is unknown.

        Raises:
            ScenarioError: The class cannot be imported, or is not a component for this slot.
        """
        if kind in self.table:
            return self.table[kind]
        if kind in self._given:
            return self._given[kind]
        if kind in offers().get(self.name, ()):
            return self._checked(kind, offered(self.name, kind))
        return self._checked(kind, imported(kind)) if is_import_path(kind) else None

    def _checked(self, kind: str, found: Any) -> type[Component]:
        base = f"{self._base.__module__}.{self._base.__qualname__}"
        if not (isclass(found) and issubclass(found, self._base)):
            raise ScenarioError(f"'{kind}' is no {self.name}, got {found!r}; derive the class from {base}")
        if isabstract(found):
            lacking = ", ".join(sorted(found.__abstractmethods__))
            raise ScenarioError(f"'{kind}' is not complete, got a {self.name} without {lacking}; define it")
        return found

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> core_schema.CoreSchema:
        if isclass(source) and issubclass(source, Component):
            self._base = source
        dumped = core_schema.wrap_serializer_function_ser_schema(self._dump, schema=core_schema.any_schema())
        return core_schema.no_info_plain_validator_function(self._validate, serialization=dumped)

    def meant(self, given: Mapping[str, Any], default: Any) -> Mapping[str, Any]:
        """Return the settings `given`, which lack the key `kind`, completed from the `default` of the field.

        If the default is null or a kind without settings, and exactly one kind in the table has all given settings, the
        result has that kind. Otherwise, the given settings override the settings of the default.
        """
        if default is None or (isinstance(default, Component) and not type(default).model_fields):
            fits = [kind for kind, its in self.table.items() if given.keys() <= its.model_fields.keys()]
            if given and len(fits) == 1:
                return {"kind": fits[0], **given}
        if not isinstance(default, Component):
            return given
        own = {name: getattr(default, name) for name in default.model_fields_set}
        return {"kind": self.name_of(type(default)), **own, **given}

    def _validate(self, value: Any) -> Component:
        if isinstance(value, self._base):
            return value
        given = {"kind": value} if isinstance(value, str) else value
        settings = dict(given) if isinstance(given, Mapping) else {}
        kind = settings.pop("kind", None)
        if isinstance(kind, type) and issubclass(kind, self._base):
            named = self.name_of(kind)
            self._given[named], kind = kind, named
        try:
            component = self.find(kind) if isinstance(kind, str) else None
        except ScenarioError as error:
            raise PydanticCustomError("plug_in", "{problem}", {"problem": str(error)}) from error
        if component is None:
            raise PydanticCustomError("unknown_kind", f"expected a kind of {self.name}: {', '.join(self.table)}")
        return _validator(kind, component).validate_python(settings)

    def name_of(self, component: type[Component]) -> str:
        """Return the kind of a class in scenario files: from the table, or else its name as a plug-in."""
        if self.table.get(component.kind) is component:
            return component.kind
        return kind_of(self.name, component)

    def _dump(self, value: Any, handler: SerializerFunctionWrapHandler) -> Any:
        if isinstance(value, Component):
            type(value).model_rebuild()  # pydantic before 2.14 does not complete a deferred class here
        settings = handler(value)
        return {"kind": self.name_of(type(value)), **settings} if isinstance(value, Component) else settings


Kind = TypeVar("Kind", bound=Component)


def kinds(*components: type[Kind]) -> dict[str, type[Kind]]:
    """Return a dictionary from kind to class; by default, a class such as `FixedRate` has the kind `fixed-rate`."""
    for component in components:
        if "kind" not in vars(component):
            component.kind = _WORDS.sub("-", component.__name__).lower()
    return {component.kind: component for component in components}


_WORDS = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
"""Pattern of the boundaries between the words in a class name."""


@cache
def _validator(kind: str, component: type[Component]) -> TypeAdapter[Component]:
    """Return the validator for the settings of a component class, whose error locations contain the kind."""

    def tagged(source: Any, handler: GetCoreSchemaHandler) -> core_schema.CoreSchema:
        return core_schema.tagged_union_schema({kind: handler(source)}, discriminator=lambda _: kind)

    return TypeAdapter(Annotated[component, GetPydanticSchema(tagged)])  # type: ignore[arg-type]  # known at run time
