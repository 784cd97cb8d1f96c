"""Schema: what an editor accepts is what the loader accepts."""

from typing import Annotated, Any, Literal

import pytest
from pydantic import Field

from fednet_emu.component import Component, Slot
from fednet_emu.scenario.schema import json_schema


class NoFading(Component):
    """The gain never changes."""

    kind: Literal["none"] = "none"


class Rician(Component):
    """One path dominates."""

    kind: Literal["rician"] = "rician"
    k_db: float = Field(gt=0, description="Power of the dominant path over that of the others.")


AnyFading = Annotated[NoFading | Rician, Slot("fading", {"none": NoFading, "rician": Rician})]


class Channel(Component):
    """An environment."""

    bandwidth_hz: float
    fading: AnyFading
    other: AnyFading | None = None


class Scenario(Component):
    """A run."""

    seed: int = 0
    channel: Channel
    mix: tuple[AnyFading, ...] = ()
    by_name: dict[str, Channel] = Field(default_factory=dict)


SCHEMA = json_schema(Scenario)
TYPES = {"object": dict, "array": list, "string": str, "integer": int, "number": (int, float), "null": type(None)}


def accepts(value: Any, schema: Any = SCHEMA) -> bool:
    """Whether a value is right by a schema: JSON Schema 2020-12 with the words that pydantic writes."""
    if schema in (True, False):
        return bool(schema)
    if "$ref" in schema and not accepts(value, SCHEMA["$defs"][schema["$ref"].removeprefix("#/$defs/")]):
        return False
    if "if" in schema and not accepts(value, schema["then" if accepts(value, schema["if"]) else "else"]):
        return False
    return (
        (not isinstance(value, dict) or _accepts_mapping(value, schema))
        and ("type" not in schema or isinstance(value, TYPES[schema["type"]]))
        and all(accepts(value, part) for part in schema.get("allOf", ()))
        and ("anyOf" not in schema or any(accepts(value, part) for part in schema["anyOf"]))
        and ("enum" not in schema or value in schema["enum"])
        and ("const" not in schema or value == schema["const"])
        and ("exclusiveMinimum" not in schema or value > schema["exclusiveMinimum"])
        and ("items" not in schema or all(accepts(part, schema["items"]) for part in value))
    )


def _accepts_mapping(value: dict[str, Any], schema: dict[str, Any]) -> bool:
    known = schema.get("properties", {})
    others = schema.get("additionalProperties", True)
    return set(schema.get("required", ())) <= value.keys() and all(
        accepts(part, known.get(key, others)) for key, part in value.items()
    )


CHANNEL = {"bandwidth_hz": 1e6, "fading": "none"}


@pytest.mark.parametrize(
    "document",
    [
        {"channel": CHANNEL},
        {"channel": {"bandwidth_hz": 1e6, "fading": {"kind": "rician", "k_db": 3}}},
        {"channel": {**CHANNEL, "other": None}},
        {"channel": {**CHANNEL, "other": "none"}, "seed": 3, "mix": ["none", {"kind": "none"}]},
        {"channel": "urban-micro"},
        {"channel": {"include": "urban-micro", "fading": {"k_db": 5}}},
        {"channel": {**CHANNEL, "fading": {"include": "fading.yaml"}}},
        {"include": "base", "channel": {"fading": {"k_db": 5}}},
        {"channel": CHANNEL, "by_name": {"a": CHANNEL, "include": "more.yaml"}},
    ],
)
def test_right_documents_are_accepted(document: Any) -> None:
    """Short forms, file names, and partial mappings over an included file raise no alarm."""
    assert accepts(document)


@pytest.mark.parametrize(
    "document",
    [
        {},
        {"channel": CHANNEL, "sed": 1},
        {"channel": {"bandwidth_hz": 1e6}},
        {"channel": {"bandwidth_hz": "loud", "fading": "none"}},
        {"channel": {**CHANNEL, "fading": "rician"}},
        {"channel": {**CHANNEL, "fading": "nome"}},
        {"channel": {**CHANNEL, "fading": {"k_db": 3}}},
        {"channel": {**CHANNEL, "fading": {"kind": "rician"}}},
        {"channel": {**CHANNEL, "fading": {"kind": "rician", "k_db": 0}}},
        {"channel": {**CHANNEL, "fading": {"kind": "none", "k_db": 3}}},
        {"channel": {"include": "urban-micro", "fadding": "none"}},
        {"include": "base", "channel": {"fading": {"k_db": "loud"}}},
        {"include": 3},
    ],
)
def test_wrong_documents_are_refused(document: Any) -> None:
    """Unknown and missing settings, wrong types and short forms of kinds that need more are seen while typing."""
    assert not accepts(document)


def test_settings_are_described_with_their_units() -> None:
    """An editor shows the description of a field, the unit in its name, and the docstring of its class."""
    rician = SCHEMA["$defs"]["Rician"]["else"]

    assert rician["description"] == "One path dominates."
    assert rician["properties"]["k_db"]["description"] == (
        "Power of the dominant path over that of the others. Unit: dB."
    )
    assert SCHEMA["$defs"]["Channel"]["else"]["properties"]["bandwidth_hz"]["description"] == "Unit: Hz."


def test_the_schema_says_what_it_is() -> None:
    """The dialect and the title come first, and no private mark is left inside."""
    assert list(SCHEMA)[:2] == ["$schema", "title"]
    assert SCHEMA["title"] == "Scenario"
    assert "x-kinds" not in str(SCHEMA)


def test_every_reference_has_a_target() -> None:
    """No definition is named that is not there."""
    text = str(SCHEMA)
    targets = {part.split("'")[0] for part in text.split("#/$defs/")[1:]}

    assert targets <= SCHEMA["$defs"].keys()
    assert "Rician.partial" in targets
