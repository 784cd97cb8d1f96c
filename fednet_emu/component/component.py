"""Components: frozen pydantic models of the sections of a scenario file.

The fields of a component are its YAML keys, and its methods implement its behaviour. If a field accepts several classes
of components, the key `kind` selects the class from a table (see `Slot`).
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, Self, get_args, get_origin

from pydantic import (
    BaseModel,
    ConfigDict,
    ModelWrapValidatorHandler,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)
from pydantic.fields import FieldInfo
from pydantic_core import InitErrorDetails, PydanticCustomError

from fednet_emu.errors import ScenarioError, did_you_mean, nearest
from fednet_emu.limits import MAX_DECIBEL


class Choice(ABC):
    """Abstract annotation of a field whose value is one of several kinds of components; see `slot.Slot`."""

    @abstractmethod
    def meant(self, given: Mapping[str, Any], default: Any) -> Mapping[str, Any]:
        """Return the settings `given`, which lack the key `kind`, completed from the `default` of the field."""


class Excludes(NamedTuple):
    """Rule that a component cannot be used if another setting of the scenario has certain values.

    The error message is `{why}, got {got}; {remedy}`. Three placeholders in `got` are filled in: `{kind}` with the kind
    of the component, `{path}` with the path of the other setting, and `{value}` with the kind or the value of the other
    setting.
    """

    path: str
    """Key path of the other setting from the root of the scenario, such as `network.transport`. If a setting along the
    path is null, the other setting counts as null."""
    refused: Collection[Any] | Callable[[Any], Any]
    """The refused kinds or values of the other setting, or a function that returns True for a refused value."""
    why: str
    remedy: str
    got: str = "{kind} with {path}: {value}"
    key: str = ""
    """Key of the component to which the error message refers; empty if the error concerns the whole component."""

    def found(self, component: Component, scenario: Any) -> Iterator[tuple[str, str]]:
        """Yield the pair (`key`, error message) if the other setting has a refused value in `scenario`."""
        value = scenario
        for name in self.path.split("."):
            value = getattr(value, name, None)
        shown = value.kind if isinstance(value, Component) else value
        if self.refused(value) if callable(self.refused) else shown in self.refused:
            got = self.got.format(kind=component.kind, path=self.path, value=shown)
            yield self.key, f"{self.why}, got {got}; {self.remedy}".removesuffix("; ")


class Component(BaseModel):
    """Base class of all configurable models and sections of a scenario.

    Instances are immutable. Unknown keys, and booleans given as numbers, are validation errors.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, defer_build=True)

    kind: ClassVar[str] = ""
    """Name of the class in scenario files, if the class is one of several kinds. By default, the function `kinds`
    derives the name from the class name. A class from outside this package keeps its class name as kind."""
    excludes: ClassVar[Sequence[Excludes]] = ()
    """Rules that exclude values of other settings of the scenario if the component is used. Rules of base classes
    apply, too."""

    @classmethod
    def __pydantic_init_subclass__(cls, **options: Any) -> None:
        super().__pydantic_init_subclass__(**options)
        if "kind" in cls.model_fields:
            raise TypeError(f"{cls.__name__}: kind is no setting, got a field; write kind = '...', or leave it out")
        if not is_ours(cls) and "kind" not in vars(cls):
            cls.kind = cls.__name__

    if not TYPE_CHECKING:

        def __init__(self, /, *unnamed: Any, **settings: Any) -> None:
            """Create a component.

            Raises:
                ScenarioError: invalid settings for a class from outside this package.
                ValidationError: invalid settings for a class of this package.
            """
            name = type(self).__name__
            if unnamed:
                what = f"settings are given by name, got {', '.join(map(repr, unnamed))}"
                meant = [f"{key}=..." for key in type(self).model_fields][: len(unnamed)]
                raise ScenarioError(f"{name}: {what}; write {name}({', '.join(meant)})")
            try:
                self.__pydantic_validator__.validate_python(settings, self_instance=self)
            except ValidationError as error:
                if is_ours(type(self)):
                    raise
                raise ScenarioError(*_sentences(type(self), error)) from None

        __init__.__pydantic_base_init__ = True  # pydantic skips this call for data that it validates itself

    @field_validator("*", mode="before")
    @classmethod
    def _as_meant(cls, value: Any, info: ValidationInfo) -> Any:
        """Reject a boolean for a setting of another type; complete a mapping without `kind` from the default."""
        field = cls.model_fields[str(info.field_name)]
        if isinstance(value, Mapping) and "kind" not in value and (choice := _choice_of(field)) is not None:
            return choice.meant(value, field.get_default(call_default_factory=True))
        if _holds_bool(value) and not _admits_bool(field.annotation):
            raise PydanticCustomError("not_a_boolean", "expected a value that is not true or false")
        return value

    @model_validator(mode="after")
    def _settings_fit(self) -> Self:
        self._check()
        return self

    def _check(self) -> None:
        """Raise a `ValueError` if settings of the component contradict each other."""

    @field_validator("*", mode="after")
    @classmethod
    def _no_absurd_level(cls, value: Any, info: ValidationInfo) -> Any:
        if _DECIBEL.search(str(info.field_name)) and not _is_moderate(value):
            raise PydanticCustomError("decibel", f"must be from -{MAX_DECIBEL:g} to {MAX_DECIBEL:g} decibels")
        return value

    def conflicts(self, scenario: Any) -> Iterable[tuple[str, str]]:
        """Yield a pair (key, error message) for each setting that contradicts the rest of the scenario.

        Nested keys are joined by dots; an empty key refers to the whole component. To exclude values of one other
        setting, use the class attribute `excludes` instead of overriding this method.
        """
        for owner in reversed(type(self).__mro__):
            for rule in vars(owner).get("excludes", ()):
                yield from rule.found(self, scenario)


def _choice_of(field: FieldInfo) -> Choice | None:
    parts = (field, *get_args(field.annotation))
    found = (item for part in parts for item in getattr(part, "metadata", getattr(part, "__metadata__", ())))
    return next((item for item in found if isinstance(item, Choice)), None)


def is_ours(component: type) -> bool:
    """Return True if the class belongs to this package."""
    return component.__module__.startswith("fednet_emu.")


def exactly_one(*names: str, **otherwise: Any) -> Any:
    """Return a validator that requires exactly one of the settings `names`, for assignment in the body of a component.

    The defaults of these settings are null. If none of them is given, the setting in `otherwise` is used; if
    `otherwise` is empty, a missing setting is an error. The validator reports its error together with all other errors
    of the component.
    """

    def checked(cls: type[Component], given: Any, validated: ModelWrapValidatorHandler[Component]) -> Component:
        if isinstance(given, Mapping) and all(given.get(name) is None for name in names):
            given = {**given, **otherwise}
        problems: list[InitErrorDetails] = []
        made: Component | None = None
        try:
            made = validated(given)
        except ValidationError as error:
            for detail in error.errors(include_url=False):
                same = PydanticCustomError(detail["type"], detail["msg"], detail.get("ctx"))
                problems.append(InitErrorDetails(type=same, loc=detail["loc"], input=detail["input"]))
        values = given if isinstance(given, Mapping) else dict.fromkeys(names[:1], "made before")
        present = [name for name in names if values.get(name) is not None]
        if len(present) != 1:
            got = " and ".join(f"{name}: {values[name]}" for name in present) or "none"
            text = f"exactly one of {', '.join(names[:-1])} and {names[-1]} is needed, got {got}"
            problems.append(InitErrorDetails(type=PydanticCustomError("value_error", text), loc=(), input=given))
        if problems or made is None:
            raise ValidationError.from_exception_data(cls.__name__, problems)
        return made

    return model_validator(mode="wrap")(classmethod(checked))  # type: ignore[arg-type]  # serves every class


def _sentences(component: type[BaseModel], error: ValidationError) -> list[str]:
    details, known = error.errors(include_url=False), list(component.model_fields)
    unknown = [detail["loc"][-1] for detail in details if detail["type"] == "extra_forbidden"]
    meant = {name for word in unknown if (name := nearest(str(word), known))}
    sentences = []
    for detail in details:
        where = ".".join(str(key) for key in (component.__name__, *detail["loc"]))
        if detail["type"] == "extra_forbidden":
            hint = did_you_mean(str(detail["loc"][-1]), known, "known:")
            sentences.append(f"{where}: no such setting, got {detail['input']!r}{hint}")
        elif detail["type"] != "missing":
            sentences.append(f"{where}: {reworded(detail['msg'])}, got {detail['input']!r}")
        elif detail["loc"][-1] not in meant:
            sentences.append(f"{where}: is required; write {component.__name__}({detail['loc'][-1]}=...)")
    return sentences


def reworded(message: str) -> str:
    """Return a message of pydantic as part of a sentence, such as `must be a valid number`."""
    text = re.sub(r"^Input should be", "must be", re.sub(r"^(Value|Assertion) error, ", "", message))
    return text[:1].lower() + text[1:]


class GivenObject(Component):
    """Component whose setting `given` is a Python object, which cannot be stored in a scenario file."""

    model_config = ConfigDict(arbitrary_types_allowed=True)

    @field_validator("given", mode="before", check_fields=False)
    @classmethod
    def _no_text(cls, given: Any) -> Any:
        if isinstance(given, str):
            raise ValueError(  # noqa: TRY004  (pydantic reports a ValueError as an invalid value)
                f"was an object of Python, which no file holds, got '{given}'; hand it over again"
            )
        return given


_DECIBEL = re.compile(r"_db(m|i|m_hz)?$")
"""Pattern for the suffixes of the names of settings in decibels."""


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
