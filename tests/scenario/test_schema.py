"""Schema and dump: what an editor accepts and what is written is what the loader accepts."""

from pathlib import Path
from typing import Annotated, Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from jsonschema.exceptions import best_match
from pydantic import Field, ValidationError
from ruamel.yaml import YAML

from fednet_emu.component.component import Component
from fednet_emu.component.slot import Slot
from fednet_emu.limits import LARGEST, MAX_INTEGER, problem_of
from fednet_emu.scenario.document import from_text
from fednet_emu.scenario.problems import validate
from fednet_emu.scenario.schema import json_schema
from fednet_emu.scenario.yaml_text import dump, float_text
from tests.quick import examples, validator


class NoFading(Component):
    """The gain never changes."""

    kind = "none"


class Rician(Component):
    """One path dominates."""

    kind = "rician"
    k_db: float = Field(gt=0, description="Power of the dominant path over that of the others.")


class Flat(Component):
    """A class of another package: its name stands in the table only."""

    depth_db: float = 3.0


AnyFading = Annotated[NoFading | Rician | Flat, Slot("fading", {"none": NoFading, "rician": Rician, "flat": Flat})]


class Channel(Component):
    """An environment."""

    bandwidth_hz: float
    fading: AnyFading
    other: AnyFading | None = None
    usual: AnyFading = Rician(k_db=3)
    rare: AnyFading = NoFading()


class Scenario(Component):
    """A run."""

    seed: int = 0
    channel: Channel
    mix: tuple[AnyFading, ...] = ()
    by_name: dict[str, Channel] = Field(default_factory=dict)
    share: float | tuple[float, ...] | None = Field(None, description="One for all, or one each.")


SCHEMA = json_schema(Scenario)
VALIDATOR = Draft202012Validator(SCHEMA)


@pytest.mark.parametrize("key", ["fading", "other", "usual", "rare"])
@pytest.mark.parametrize(
    "value",
    [
        None,
        {},
        "none",
        "rician",
        {"k_db": 3},
        {"k_db": 0},
        {"depth_db": 1},
        {"depth_db": 1, "k_db": 2},
        {"kind": "none"},
    ],
)
def test_the_schema_accepts_what_the_loader_accepts(key: str, value: Any) -> None:
    """Without a default, and with one that is null, has settings or has none: both agree on every form of a value."""
    channel = {**CHANNEL, key: value}
    try:
        Channel.model_validate(channel)
    except ValidationError:
        assert not accepts({"channel": channel})
    else:
        assert accepts({"channel": channel})


def accepts(document: Any) -> bool:
    return bool(VALIDATOR.is_valid(document))


def told(document: Any, validator: Draft202012Validator = VALIDATOR) -> tuple[str, str]:
    """Where, and in which words, an editor tells the problem of a document."""
    error = best_match(validator.iter_errors(document))
    assert error is not None
    return error.json_path, error.message


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
        {"channel": CHANNEL, "share": [0.5, 1]},
        {"channel": {**CHANNEL, "fading": "my_package.fading:Own"}},
        {"channel": {**CHANNEL, "fading": {"kind": "my_package.fading:Own", "depth_db": 3}}},
        {"channel": {**CHANNEL, "fading": {"kind": "flat", "depth_db": 3}}},
        {"channel": {**CHANNEL, "usual": {"k_db": 4}, "rare": {"depth_db": 3}, "other": {"k_db": 3}}},
        {"channel": {**CHANNEL, "usual": {}, "rare": {}}},
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
        {"channel": {**CHANNEL, "usual": {"k_db": 0}}},
        {"channel": {**CHANNEL, "usual": {"depth_db": 3}}},
        {"channel": {**CHANNEL, "rare": {"depth_db": 3, "k_db": 3}}},
        {"channel": {**CHANNEL, "other": {}}},
        {"channel": CHANNEL, "mix": [{"k_db": 3}]},
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
    rician = SCHEMA["$defs"]["fading.rician"]["else"]

    assert rician["description"] == "One path dominates."
    assert rician["properties"]["k_db"]["description"] == (
        "Power of the dominant path over that of the others. Unit: dB."
    )
    assert SCHEMA["$defs"]["Channel"]["else"]["properties"]["bandwidth_hz"]["description"] == "Unit: Hz."


@pytest.mark.parametrize(
    ("document", "place", "words"),
    [
        ({"channel": {**CHANNEL, "fading": {"kind": "rician", "kdb": 3}}}, "$.channel.fading", "'kdb' was unexpected"),
        ({"channel": {**CHANNEL, "fading": {"kid": "none"}}}, "$.channel.fading", "'kid' was unexpected"),
        ({"channel": {**CHANNEL, "fading": {"k_db": 3}}}, "$.channel.fading", "'kind' is a required property"),
        ({"channel": {**CHANNEL, "usual": {"k_db": "a"}}}, "$.channel.usual.k_db", "'number'"),
        ({"channel": {**CHANNEL, "usual": {"kdb": 3}}}, "$.channel.usual", "'kdb' was unexpected"),
        ({"channel": {**CHANNEL, "rare": {"k_db": 0}}}, "$.channel.rare.k_db", "0 is less than"),
        ({"channel": {**CHANNEL, "fading": "nome"}}, "$.channel.fading", "'nome' is not one of ['none', 'flat']"),
        ({"channel": {**CHANNEL, "fading": {"kind": "nome"}}}, "$.channel.fading.kind", "'nome' is not one of"),
        ({"channel": {**CHANNEL, "fading": {"kind": "rician", "k_db": "a"}}}, "$.channel.fading.k_db", "'number'"),
        ({"channel": {**CHANNEL, "other": {"kind": "rician", "k_db": 0}}}, "$.channel.other.k_db", "0 is less than"),
        ({"channel": {"include": "urban-micro", "fadding": "none"}}, "$.channel", "'fadding' was unexpected"),
        ({"include": "base", "channel": {"fading": {"kdb": 5}}}, "$.channel.fading", "'kdb' was unexpected"),
        ({"channel": CHANNEL, "mix": ["none", {"kind": "none", "k_db": 3}]}, "$.mix[1]", "'k_db' was unexpected"),
        ({"channel": CHANNEL, "by_name": {"a": {**CHANNEL, "bandwith_hz": 3}}}, "$.by_name.a", "'bandwith_hz' was"),
        ({"channel": CHANNEL, "share": [0.5, "half"]}, "$.share[1]", "'half' is not of type 'number'"),
    ],
)
def test_a_problem_is_told_about_the_very_key(document: Any, place: str, words: str) -> None:
    """An editor underlines the misspelt key or wrong value, not the mapping that has many possible kinds."""
    where, message = told(document)

    assert where == place
    assert words in message


FOLDER = Path(__file__).parents[2] / "scenarios"
SCENARIOS = sorted((*FOLDER.glob("*.yaml"), *FOLDER.glob("papers/*.yaml")))


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.stem)
def test_scenarios_of_the_library_raise_no_alarm(path: Path) -> None:
    """What the loader accepts, an editor accepts; a misspelt key in each algorithm is named."""
    document = YAML(typ="safe").load(path.read_text(encoding="utf-8"))
    assert list(validator().iter_errors(document)) == []

    document["algorithm"]["cohrt"] = 5
    assert told(document, validator()) == (
        "$.algorithm",
        "Additional properties are not allowed ('cohrt' was unexpected)",
    )


@pytest.mark.parametrize("path", sorted((FOLDER / "studies").glob("*.yaml")), ids=lambda path: str(path.stem))
def test_studies_have_a_schema_too(path: Path) -> None:
    """A study file has no includes; its keys are checked as those of a scenario are."""
    document = YAML(typ="safe").load(path.read_text(encoding="utf-8"))
    assert list(validator(study=True).iter_errors(document)) == []

    document["limits"] = {"times_s": 3}
    assert told(document, validator(study=True)) == (
        "$.limits",
        "Additional properties are not allowed ('times_s' was unexpected)",
    )

    document["include"] = "quickstart_access"
    assert told(document, validator(study=True)) == (
        "$",
        "Additional properties are not allowed ('include' was unexpected)",
    )


def test_the_schema_says_what_it_is() -> None:
    """The dialect and the title come first, and it is a valid schema of that dialect."""
    assert list(SCHEMA)[:2] == ["$schema", "title"]
    assert SCHEMA["title"] == "Scenario"
    Draft202012Validator.check_schema(SCHEMA)


def test_every_reference_has_a_target() -> None:
    """No definition is named that is not there."""
    text = str(SCHEMA)
    targets = {part.split("'")[0] for part in text.split("#/$defs/")[1:]}

    assert targets <= SCHEMA["$defs"].keys()
    assert "fading.rician.partial" in targets


class Still(Component):
    """Has no settings."""

    kind = "none"


class Waves(Component):
    """Has one, declared before its kind."""

    coherence_s: float = 0.1
    kind = "waves"


AnyFadingDump = Annotated[Still | Waves, Slot("fading", {"none": Still, "waves": Waves})]


class ScenarioDump(Component):
    """Everything that YAML could misread."""

    name: str = "a"
    count: int = 1
    band_hz: float = 2e7
    flag: bool = False
    maybe: float | None = None
    fading: AnyFadingDump = Waves()
    layers: tuple[int, ...] = (64, 10)
    grid: tuple[tuple[float, float], ...] = ()
    mix: tuple[AnyFadingDump, ...] = ()
    notes: dict[str, str] = Field(default_factory=dict)


class Nothing(Component):
    """Has no settings."""


def test_no_settings_are_an_empty_mapping() -> None:
    """Which reads back; an empty text would be no mapping."""
    assert dump(Nothing()) == "{}\n"


def test_what_steers_a_terminal_is_an_escape() -> None:
    """A character that turns the direction of text round is seen, and read back."""
    turned = ScenarioDump(name="a\u202eb", notes={"k": "c\u2066d"})
    text = dump(turned)

    assert (r'name: "a\u202eb"' in text, r'k: "c\u2066d"' in text, text.isascii()) == (True, True, True)
    assert validate(ScenarioDump, from_text(text)) == turned


def test_every_setting_is_written_out() -> None:
    """Defaults are in the text, kinds lead, numbers are readable and lists stand on one line."""
    assert dump(ScenarioDump(mix=(Still(),), grid=((0, 1.5),))) == (
        "name: a\n"
        "count: 1\n"
        "band_hz: 2.0e+7\n"
        "flag: false\n"
        "maybe: null\n"
        "fading:\n"
        "  kind: waves\n"
        "  coherence_s: 0.1\n"
        "layers: [64, 10]\n"
        "grid: [[0.0, 1.5]]\n"
        "mix:\n"
        "- kind: none\n"
        "notes: {}\n"
    )


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0.0"),
        (0.05, "0.05"),
        (0.001, "0.001"),
        (0.0001, "1.0e-4"),
        (1e-27, "1.0e-27"),
        (123456.0, "123456.0"),
        (3.5e9, "3.5e+9"),
        (-2.5e7, "-2.5e+7"),
        (float("inf"), ".inf"),
    ],
)
def test_numbers_are_spelt_for_people(value: float, text: str) -> None:
    """Large and small numbers have an exponent, others do not."""
    assert float_text(value) == text


texts = st.text(alphabet=st.characters(codec="utf-8", exclude_categories=("Cs",)), max_size=12)
odd_texts = st.sampled_from(
    ["on", "1e6", "null", "", " ", "12:30", "2026-01-01", "a: b", "# c", "- d", "'", '"', "{x}"]
)
numbers = st.floats(-LARGEST, LARGEST).filter(lambda value: problem_of(value) is None)
whole_numbers = st.integers(-MAX_INTEGER, MAX_INTEGER)
fadings = st.builds(Still) | st.builds(Waves, coherence_s=numbers)


@st.composite
def scenarios(draw: Any) -> ScenarioDump:
    """Any scenario."""
    return ScenarioDump(
        name=draw(texts | odd_texts),
        count=draw(whole_numbers),
        band_hz=draw(numbers),
        flag=draw(st.booleans()),
        maybe=draw(st.none() | numbers),
        fading=draw(fadings),
        layers=draw(st.lists(whole_numbers, max_size=30).map(tuple)),
        grid=draw(st.lists(st.tuples(numbers, numbers), max_size=3).map(tuple)),
        mix=draw(st.lists(fadings, max_size=2).map(tuple)),
        notes=draw(st.dictionaries((texts | odd_texts).filter(lambda key: key != "include"), texts, max_size=3)),
    )


@examples(80)
@example(ScenarioDump(name="\x85\u2028\n ", notes={"\x85": "", " ": "\xa0"}))
@given(scenarios())
def test_a_dumped_scenario_reads_back_as_itself(scenario: ScenarioDump) -> None:
    """The text of a scenario, read and validated, is an equal scenario."""
    assert validate(ScenarioDump, from_text(dump(scenario))) == scenario
