"""Dump: a component as YAML text that reads back as the same component."""

from typing import Annotated, Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pydantic import Field

from fednet_emu.component.component import Component
from fednet_emu.component.slot import Slot
from fednet_emu.limits import LARGEST, MAX_INTEGER, problem_of
from fednet_emu.scenario.document import from_text
from fednet_emu.scenario.problems import validate
from fednet_emu.scenario.yaml_text import dump, float_text
from tests.quick import examples


class Still(Component):
    """Has no settings."""

    kind = "none"


class Waves(Component):
    """Has one, declared before its kind."""

    coherence_s: float = 0.1
    kind = "waves"


AnyFading = Annotated[Still | Waves, Slot("fading", {"none": Still, "waves": Waves})]


class Scenario(Component):
    """Everything that YAML could misread."""

    name: str = "a"
    count: int = 1
    band_hz: float = 2e7
    flag: bool = False
    maybe: float | None = None
    fading: AnyFading = Waves()
    layers: tuple[int, ...] = (64, 10)
    grid: tuple[tuple[float, float], ...] = ()
    mix: tuple[AnyFading, ...] = ()
    notes: dict[str, str] = Field(default_factory=dict)


class Nothing(Component):
    """Has no settings."""


def test_no_settings_are_an_empty_mapping() -> None:
    """Which reads back; an empty text would be no mapping."""
    assert dump(Nothing()) == "{}\n"


def test_what_steers_a_terminal_is_an_escape() -> None:
    """A character that turns the direction of text round is seen, and read back."""
    turned = Scenario(name="a\u202eb", notes={"k": "c\u2066d"})
    text = dump(turned)

    assert (r'name: "a\u202eb"' in text, r'k: "c\u2066d"' in text, text.isascii()) == (True, True, True)
    assert validate(Scenario, from_text(text, short_forms={})) == turned


def test_every_setting_is_written_out() -> None:
    """Defaults are in the text, kinds lead, numbers are readable and lists stand on one line."""
    assert dump(Scenario(mix=(Still(),), grid=((0, 1.5),))) == (
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


@examples(200)
@given(st.floats(-LARGEST, LARGEST).filter(lambda value: problem_of(value) is None))
def test_a_number_reads_back_as_itself(value: float) -> None:
    """The spelling loses no bit, and reads as a number."""
    read = from_text(f"x: {float_text(value)}\n").data["x"]

    assert type(read) is float
    assert read == value


texts = st.text(alphabet=st.characters(codec="utf-8", exclude_categories=("Cs",)), max_size=12)
odd_texts = st.sampled_from(
    ["on", "1e6", "null", "", " ", "12:30", "2026-01-01", "a: b", "# c", "- d", "'", '"', "{x}"]
)
numbers = st.floats(-LARGEST, LARGEST).filter(lambda value: problem_of(value) is None)
whole_numbers = st.integers(-MAX_INTEGER, MAX_INTEGER)
fadings = st.builds(Still) | st.builds(Waves, coherence_s=numbers)


@st.composite
def scenarios(draw: Any) -> Scenario:
    """Any scenario."""
    return Scenario(
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
@example(Scenario(name="\x85\u2028\n ", notes={"\x85": "", " ": "\xa0"}))
@given(scenarios())
def test_a_dumped_scenario_reads_back_as_itself(scenario: Scenario) -> None:
    """The text of a scenario, read and validated, is an equal scenario."""
    assert validate(Scenario, from_text(dump(scenario), short_forms={})) == scenario
