"""Components: the frozen pydantic models that a scenario file is made of, and the slots that hold them.

A component's fields are its YAML keys, `kind` picks its class from one plain table, and its methods are its behaviour.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache
from inspect import isabstract, isclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, NamedTuple, Self, get_args, get_origin

from pydantic import (
    BaseModel,
    ConfigDict,
    GetCoreSchemaHandler,
    ModelWrapValidatorHandler,
    SerializerFunctionWrapHandler,
    TypeAdapter,
    ValidationError,
    ValidationInfo,
    ValidatorFunctionWrapHandler,
    field_validator,
    model_validator,
)
from pydantic_core import ErrorDetails, InitErrorDetails, PydanticCustomError, core_schema

from fednet_emu.errors import ScenarioError, did_you_mean, nearest
from fednet_emu.limits import MAX_DECIBEL
from fednet_emu.plugins import imported, is_import_path, kind_of, offered, offers


class Component(BaseModel):
    """Base of every configurable part: frozen, no unknown keys, numbers are never booleans."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, defer_build=True)

    if not TYPE_CHECKING:

        def __init__(self, /, *unnamed: Any, **settings: Any) -> None:
            """Make a component; for a user's own class, errors are sentences.

            Raises:
                ScenarioError: every problem of the settings of a class from outside this package.
                ValidationError: the same for a class of this package.
            """
            name = type(self).__name__
            if unnamed:
                what = f"settings are given by name, got {', '.join(map(repr, unnamed))}"
                raise ScenarioError(f"{name}: {what}; write {name}({', '.join(_unnamed(type(self), len(unnamed)))})")
            try:
                self.__pydantic_validator__.validate_python(settings, self_instance=self)
            except ValidationError as error:
                if type(self).__module__.startswith("fednet_emu."):
                    raise
                raise ScenarioError(*_sentences(type(self), error)) from None

        __init__.__pydantic_base_init__ = True  # for pydantic, which need not call it for what it validates itself

    @field_validator("*", mode="before")
    @classmethod
    def _no_boolean_as_number(cls, value: Any, info: ValidationInfo) -> Any:
        if _holds_bool(value) and not _admits_bool(cls.model_fields[str(info.field_name)].annotation):
            raise PydanticCustomError("not_a_boolean", "expected a value that is not true or false")
        return value

    @field_validator("*", mode="after")
    @classmethod
    def _no_absurd_level(cls, value: Any, info: ValidationInfo) -> Any:
        if _DECIBEL.search(str(info.field_name)) and not _is_moderate(value):
            raise PydanticCustomError("decibel", f"must be from -{MAX_DECIBEL:g} to {MAX_DECIBEL:g} decibels")
        return value


class ExactlyOne(Component):
    """A component with settings of which exactly one is given; that is checked beside all other problems."""

    alternatives: ClassVar[tuple[str, ...]]
    """The names of these settings, whose default is null."""
    otherwise: ClassVar[Mapping[str, Any]] = {}
    """The one that holds if none is given, with its value; empty if one is required."""

    @model_validator(mode="wrap")
    @classmethod
    def _exactly_one(cls, given: Any, validated: ModelWrapValidatorHandler[Self]) -> Self:
        if isinstance(given, Mapping) and all(given.get(name) is None for name in cls.alternatives):
            given = {**given, **cls.otherwise}
        problems: list[InitErrorDetails] = []
        made: Self | None = None
        try:
            made = validated(given)
        except ValidationError as error:
            problems = [_repeated(detail) for detail in error.errors(include_url=False)]
        values = given if isinstance(given, Mapping) else dict.fromkeys(cls.alternatives[:1], "made before")
        present = [name for name in cls.alternatives if values.get(name) is not None]
        if len(present) != 1:
            got = " and ".join(f"{name}: {values[name]}" for name in present) or "none"
            what = PydanticCustomError(
                "value_error", f"exactly one of {_listed(cls.alternatives)} is needed, got {got}"
            )
            problems.append(InitErrorDetails(type=what, loc=(), input=given))
        if problems or made is None:
            raise ValidationError.from_exception_data(cls.__name__, problems)
        return made


def _listed(names: Sequence[str]) -> str:
    return f"{', '.join(names[:-1])} and {names[-1]}"


def _repeated(detail: ErrorDetails) -> InitErrorDetails:
    """Return an error of pydantic in the form in which it can be raised again."""
    same = PydanticCustomError(detail["type"], detail["msg"], detail.get("ctx"))
    return InitErrorDetails(type=same, loc=detail["loc"], input=detail["input"])


def _unnamed(component: type[BaseModel], count: int) -> list[str]:
    return [f"{name}=..." for name in component.model_fields if name != "kind"][:count]


def _sentences(component: type[BaseModel], error: ValidationError) -> list[str]:
    """Return a sentence for each problem of the settings with which a class was called."""
    details, known = error.errors(include_url=False), [name for name in component.model_fields if name != "kind"]
    unknown = [detail["loc"][-1] for detail in details if detail["type"] == "extra_forbidden"]
    meant = {name for word in unknown if (name := nearest(str(word), known))}
    sentences = []
    for detail in details:
        where = ".".join(str(key) for key in (component.__name__, *detail["loc"]))
        if detail["type"] == "extra_forbidden":
            hint = did_you_mean(str(detail["loc"][-1]), known) or f"; known: {', '.join(known) or 'none'}"
            sentences.append(f"{where}: no such setting, got {detail['input']!r}{hint}")
        elif detail["type"] != "missing":
            text = re.sub(r"^Input should be", "must be", re.sub(r"^(Value|Assertion) error, ", "", detail["msg"]))
            sentences.append(f"{where}: {text[:1].lower()}{text[1:]}, got {detail['input']!r}")
        elif detail["loc"][-1] not in meant:
            sentences.append(f"{where}: is required; write {component.__name__}({detail['loc'][-1]}=...)")
    return sentences


_DECIBEL = re.compile(r"_db(m|i|m_hz)?$")
"""End of the names of settings in decibels."""


def _is_moderate(level: Any) -> bool:
    if isinstance(level, list | tuple):
        return all(map(_is_moderate, level))
    return not isinstance(level, int | float) or abs(level) <= MAX_DECIBEL


def _holds_bool(value: Any) -> bool:
    return isinstance(value, bool) or (isinstance(value, list | tuple) and any(map(_holds_bool, value)))


def _admits_bool(annotation: Any) -> bool:
    if annotation is Any or annotation is bool:
        return True
    if get_origin(annotation) is Literal:
        return any(isinstance(choice, bool) for choice in get_args(annotation))
    return any(_admits_bool(argument) for argument in get_args(annotation))


class Waived(NamedTuple):
    """Settings that are not required where another one, `by`, has one of these kinds.

    A component whose attribute `waived` is one fills them in itself.
    """

    names: tuple[str, ...]
    by: str
    kinds: tuple[str, ...]


class Slot:
    """Annotation of a field that holds one component out of a table of kinds.

    `Annotated[Fading, Slot("fading", FADINGS)]` accepts `{kind: rayleigh, ...}`, the short form `rayleigh`, or a
    component that was already built. In Python, `kind` may also be the class itself. `table` maps each kind to its
    class, whose field `kind` has that default.

    A kind that is not in the table is looked up when a scenario names it: among the entry points of installed packages,
    or as the import path of a class. Such a class, and a component passed as an object, needs no field `kind`.
    """

    def __init__(self, name: str, table: Mapping[str, type[Component]]) -> None:
        self.name = name
        self.table = table
        self._given: dict[str, type[Component]] = {}  # classes that scenarios have named by themselves
        self._base: type[Component] = Component  # replaced by the annotated class when a model with this slot is built

    def names(self) -> list[str]:
        """List the kinds in the table and those that installed packages offer, without importing anything."""
        return list(dict.fromkeys([*self.table, *offers().get(self.name, ())]))

    def kinds(self) -> dict[str, type[Component]]:
        """Map each available kind to its class; kinds of packages that cannot be imported are left out."""
        found = {kind: self.get(kind) for kind in self.names()}
        return {kind: component for kind, component in found.items() if component is not None}

    def get(self, kind: Any) -> type[Component] | None:
        """Return the class of a kind, or that class itself; None where `find` would raise an error."""
        if isinstance(kind, type):
            return kind if issubclass(kind, self._base) else None
        try:
            return self.find(kind) if isinstance(kind, str) else None
        except ScenarioError:
            return None

    def find(self, kind: str) -> type[Component] | None:
        """Look up the class of a kind: in the table, then among installed packages, then as an import path.

        Raises:
            ScenarioError: the class cannot be imported, or is not a component for this slot.
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
        union = core_schema.tagged_union_schema(
            {kind: handler.generate_schema(component) for kind, component in self.table.items()},
            discriminator=_kind_of,
            custom_error_type="unknown_kind",
            custom_error_message=f"expected a kind of {self.name}: {', '.join(self.table)}",
        )
        as_it_is = core_schema.wrap_serializer_function_ser_schema(self._dump, schema=core_schema.any_schema())
        return core_schema.no_info_wrap_validator_function(self._validate, union, serialization=as_it_is)

    def _validate(self, value: Any, table: ValidatorFunctionWrapHandler) -> Any:
        if isinstance(value, self._base) and self._base is not Component:
            return value
        given = {"kind": value} if isinstance(value, str) else value
        kind = given.get("kind") if isinstance(given, Mapping) else None
        if isinstance(kind, type) and issubclass(kind, self._base):
            given, kind = self._by_name(given, kind)
        if not isinstance(kind, str) or kind in self.table:
            return table(given)
        try:
            component = self.find(kind)
        except ScenarioError as error:
            raise PydanticCustomError("plug_in", "{problem}", {"problem": str(error)}) from error
        if component is None:
            return table(given)
        return _outsider(kind, component).validate_python({key: its for key, its in given.items() if key != "kind"})

    def _by_name(self, settings: Mapping[str, Any], component: type[Component]) -> tuple[Mapping[str, Any], str]:
        """Return settings whose kind is a class with the kind by which a scenario names it, and that kind."""
        kind = next((kind for kind, its in self.table.items() if its is component), None)
        if kind is None:
            kind = kind_of(self.name, component)
            self._given[kind] = component
        return {**settings, "kind": kind}, kind

    def _dump(self, value: Any, handler: SerializerFunctionWrapHandler) -> Any:
        """Dump the settings of a component, with the kind from which a scenario finds its class again."""
        if isinstance(value, Component):
            type(value).model_rebuild()  # pydantic before 2.14 does not complete a deferred class here by itself
        settings = handler(value)
        if not isinstance(value, Component) or type(value) in self.table.values():
            return settings
        return {**settings, "kind": kind_of(self.name, type(value))}


@cache
def _outsider(kind: str, component: type[Component]) -> TypeAdapter[Component]:
    """Build the validator for a class outside the table; error locations contain its kind, as for built-in kinds."""
    return TypeAdapter(Annotated[component, _Only(kind)])  # type: ignore[arg-type]  # its class is known only now


class _Only:
    """Annotation of a component whose kind is already known, so that its settings need not contain `kind`."""

    def __init__(self, kind: str) -> None:
        self.kind = kind

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> core_schema.CoreSchema:
        return core_schema.tagged_union_schema({self.kind: handler(source)}, discriminator=lambda _: self.kind)


def _kind_of(value: Any) -> Any:
    return value.get("kind") if isinstance(value, Mapping) else getattr(value, "kind", None)
