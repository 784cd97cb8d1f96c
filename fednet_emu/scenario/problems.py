"""From a document to a validated model, or to one sentence for each problem in it.

Every problem of the document is told at once, in the order of the file, as
`file:line  key.path: what is wrong, got VALUE; what would be right`.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from fednet_emu.component import Slot, did_you_mean
from fednet_emu.errors import ScenarioError
from fednet_emu.scenario.document import Document
from fednet_emu.scenario.shapes import Shape, Spot, homes, walk
from fednet_emu.scenario.tree import KeyPath, path_text, problem_text, show

Model = TypeVar("Model", bound=BaseModel)

_RANGES = {
    "greater_than": "> {gt}",
    "greater_than_equal": ">= {ge}",
    "less_than": "< {lt}",
    "less_than_equal": "<= {le}",
}
_OTHERS = {
    "finite_number": "must be finite",
    "multiple_of": "must be a multiple of {multiple_of}",
    "string_pattern_mismatch": "must match the pattern '{pattern}'",
    "string_too_long": "must have at most {max_length} characters",
    "string_too_short": "must have at least {min_length} characters",
    "too_long": "must have at most {max_length} entries",
    "too_short": "must have at least {min_length} entries",
}
_TYPES = frozenset({"not_a_boolean", "int_from_float", "literal_error", "unknown_kind", "none_required"})
_TYPE_ENDINGS = ("_type", "_parsing", "_parsing_size", "_sub_type")


@dataclass(frozen=True)
class _Problem:
    """One problem; `rival` is the path of the required setting that the user meant, if a key is only misspelt."""

    path: KeyPath
    what: str
    written: KeyPath
    missing: bool = False
    rival: KeyPath | None = None


def validate(model_class: type[Model], document: Document) -> Model:
    """The model that a document describes.

    Raises:
        ScenarioError: One line for each problem, in the order of the file.
    """
    try:
        return model_class.model_validate(document.data)
    except ValidationError as error:
        details = error.errors(include_url=False)
    raise ScenarioError(*_sentences(model_class, document, details))


def _sentences(model_class: type[BaseModel], document: Document, details: list[ErrorDetails]) -> list[str]:
    found = [_problem(model_class, document, spot, detail) for spot, detail in _settled(model_class, details)]
    meant = {problem.rival for problem in found}
    left = [problem for problem in found if not (problem.missing and problem.path in meant)]
    sources = list(dict.fromkeys(place.source for place in document.places.values()))

    def order(problem: _Problem) -> tuple[bool, int, int]:
        place = document.place(problem.written)
        return not place.in_file, sources.index(place.source) if place.in_file else 0, place.line or 0

    sentences = [problem_text(document.place(p.written), p.path, p.what) for p in sorted(left, key=order)]
    return list(dict.fromkeys(sentences))


def _settled(model_class: type[BaseModel], details: list[ErrorDetails]) -> Iterator[tuple[Spot, ErrorDetails]]:
    """The errors of pydantic, where only the telling ones of the members of a union are left.

    A value that is right in type for one member is judged by that member; else one error stands for all of them.
    """
    spots = [(walk(model_class, tuple(detail["loc"])), detail) for detail in details]
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
        judged = [(other, its) for other, its in rivals if not _is_type_error(its["type"])]
        yield from deeper or judged[:1] or [(Spot(path, shape, spot.parent, None), {**detail, "type": "union_type"})]


def _is_type_error(kind: str) -> bool:
    return kind in _TYPES or kind.endswith(_TYPE_ENDINGS)


def _problem(model_class: type[BaseModel], document: Document, spot: Spot, detail: ErrorDetails) -> _Problem:
    path, kind = spot.path, detail["type"]
    if kind == "extra_forbidden":
        return _unknown_setting(model_class, document, spot)
    if kind == "missing":
        return _Problem(path, f"is required{_choices(spot.shape)}", path[:-1], missing=True)
    if kind == "unknown_kind" and spot.shape and spot.shape.choice:
        return _unknown_kind(spot.shape.choice, path, detail["input"])
    return _Problem(path, _wrong_value(spot, detail), path)


def _choices(shape: Shape | None) -> str:
    if shape and shape.choice:
        return f"; kinds of {shape.choice.name}: {', '.join(shape.choice.kinds())}"
    return f"; one of {', '.join(map(show, shape.literals))}" if shape and shape.literals else ""


def _unknown_setting(model_class: type[BaseModel], document: Document, spot: Spot) -> _Problem:
    path, key = spot.path, str(spot.path[-1])
    known = [name for name in spot.parent.settings if name != "kind"] if spot.parent else []
    close = difflib.get_close_matches(key, known, n=1)
    if close:
        return _Problem(path, f"no such setting; did you mean '{close[0]}'?", path, rival=(*path[:-1], close[0]))
    slot = spot.parent.slot if spot.parent else None
    kinds = [kind for kind, its in slot.kinds().items() if key in its.model_fields] if slot else []
    if slot and kinds:
        return _Problem(path, f"no such setting; it belongs to {slot.name} {_either(kinds)}", path)
    home = next(homes(Shape(model_class), document.data, key), None)
    if home:
        return _Problem(path, f"no such setting; did you mean '{path_text(home)}'?", path, rival=home)
    return _Problem(path, f"no such setting; known: {', '.join(known) or 'none'}", path)


def _either(names: Iterable[str]) -> str:
    return " or ".join(f"'{name}'" for name in names)


def _unknown_kind(slot: Slot, path: KeyPath, value: Any) -> _Problem:
    """A component whose kind is missing, misspelt or unknown; `value` may be the short form, already written out."""
    kinds = list(slot.kinds())
    if not isinstance(value, Mapping):
        return _Problem(path, f"expected a kind of {slot.name}, got {show(value)}; known: {', '.join(kinds)}", path)
    if "kind" not in value:
        typo = next((key for key in value if difflib.get_close_matches(key, ["kind"], cutoff=0.7)), None)
        if typo is not None:
            return _Problem((*path, typo), "no such setting; did you mean 'kind'?", (*path, typo))
        return _Problem((*path, "kind"), f"is required; kinds of {slot.name}: {', '.join(kinds)}", path)
    kind = value["kind"]
    near = did_you_mean(kind, kinds) if isinstance(kind, str) else ""
    remedy = f"{near} (known: {', '.join(kinds)})" if near else f"; known: {', '.join(kinds)}"
    return _Problem(path, f"no such kind of {slot.name}, got {show(kind)}{remedy}", (*path, "kind"))


def _wrong_value(spot: Spot, detail: ErrorDetails) -> str:
    kind, value, context = detail["type"], detail["input"], detail.get("ctx", {})
    if kind in ("value_error", "assertion_error"):
        return str(context.get("error", "")) or _own_words(detail["msg"])
    if kind in _RANGES:
        bounds = spot.shape.range_text() if spot.shape else None
        return f"must be {bounds or _RANGES[kind].format(**context)}, got {show(value)}"
    if kind in ("too_long", "too_short"):
        return f"{_OTHERS[kind].format(**context)}, got {context['actual_length']}"
    if kind in _OTHERS:
        return f"{_OTHERS[kind].format(**context)}, got {show(value)}"
    if _is_type_error(kind) and spot.shape:
        return f"expected {spot.shape.describe()}, got {show(value)}{_remedy(spot.shape, value)}"
    return f"{_own_words(detail['msg'])}, got {show(value)}"


def _own_words(message: str) -> str:
    text = re.sub(r"^Input should be", "must be", re.sub(r"^(Value|Assertion) error, ", "", message))
    return text[:1].lower() + text[1:]


def _remedy(shape: Shape, value: Any) -> str:
    """The clause that says how to mend a value of the wrong type, where that is not plain."""
    if isinstance(value, str) and shape.literals:
        return did_you_mean(value, shape.literals)
    if shape.annotation is str and isinstance(value, int | float):
        return f"; write '{show(value)}' in quotes"
    if shape.annotation in (int, float) and isinstance(value, str) and re.match(r"[-+]?\.?\d", value):
        return "; write the number alone, the unit is in the name of the setting"
    return ""
