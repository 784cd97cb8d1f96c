"""The axes of a study file."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fednet_emu.errors import ScenarioError
from fednet_emu.limits import LARGEST, problem_of
from fednet_emu.scenario.tree import Place
from fednet_emu.scenario.yaml_text import parse, parse_value
from fednet_emu.study.grid import axes_of, option_text


def axes(text):
    """The axes of a grid given as YAML."""
    return axes_of(parse(text, "grid.yaml"))


def changes(axis):
    """What each level of an axis sets."""
    return [{setting.name: setting.value.plain() for setting in level.settings} for level in axis.levels]


def test_a_list_varies_one_key():
    """Each entry is a level, whose column holds the value itself."""
    (axis,) = axes("algorithm.lr: [0.1, 1]")

    assert changes(axis) == [{"algorithm.lr": 0.1}, {"algorithm.lr": 1}]
    assert [level.columns["algorithm.lr"] for level in axis.levels] == [0.1, 1.0]


def test_a_count_and_a_share_are_two_levels():
    """1 is one device and 1.0 all of them: both labels and both columns differ, and each sets what was written."""
    (alone,) = axes("algorithm.cohort: [1, 1.0]")
    (together,) = axes("pair: {algorithm.cohort: [5, 1.0], algorithm.lr: [1, 2]}")

    assert [repr(its["algorithm.cohort"]) for its in changes(alone)] == ["1", "1.0"]
    assert [level.label for level in alone.levels] == ["1", "1.0"]
    assert [level.columns["algorithm.cohort"] for level in alone.levels] == ["1", "1.0"]
    assert [level.label for level in together.levels] == ["5, 1", "1.0, 2"]


def test_labels_have_the_digits_that_tell_levels_apart():
    """Six digits are enough for most axes; where two levels agree in them, all digits are shown."""
    (close, apart) = axes("a: [100000.0, 100000.4]\nb: [0.1000001, 1e-7]")

    assert [level.label for level in close.levels] == ["100000.0", "100000.4"]
    assert [level.label for level in apart.levels] == ["0.1", "1e-07"]


def test_variants_have_names():
    """Each variant is a level with any number of settings, also none; the column holds the name."""
    (axis,) = axes("air: {plain: {}, both: {network.uplink.access: tdma, devices.count: 3}}")

    assert changes(axis) == [{}, {"network.uplink.access": "tdma", "devices.count": 3}]
    assert [level.columns for level in axis.levels] == [{"air": "plain"}, {"air": "both"}]


def test_lists_of_one_axis_go_together():
    """The first entries are one level, the second ones another; each key has a column, too."""
    (axis,) = axes("size: {devices.count: [2, 3], algorithm.cohort: [1, 2]}")

    assert changes(axis) == [
        {"devices.count": 2, "algorithm.cohort": 1},
        {"devices.count": 3, "algorithm.cohort": 2},
    ]
    assert axis.levels[1].columns == {"size": "3, 2", "devices.count": 3, "algorithm.cohort": 2}


def test_columns_have_one_type():
    """Numbers with fractions among them are all floats; anything mixed with text is text."""
    (numbers, mixed, flags) = axes("a: [1, 2.5]\nb: [null, 3, {kind: ofdma}]\nc: [true, false]")

    assert [level.columns["a"] for level in numbers.levels] == [1.0, 2.5]
    assert [level.columns["b"] for level in mixed.levels] == ["null", "3", "ofdma"]
    assert [level.columns["c"] for level in flags.levels] == [True, False]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("x: 3", "grid.yaml:1  grid.x: expected a list of values, a mapping of lists"),
        ("x: []", "grid.x: varies nothing, got an empty list"),
        ("\nx: {a: [1, 2], b: [1]}", "grid.yaml:2  grid.x: lists that go together must be equally long, got [2, 1]"),
        ("x: {a: [1], b: {}}", "grid.x: expected a list of values"),
        ("seed: [1, 2]", "got an axis of that name; give the seeds under 'seeds'"),
        ("accuracy: [1, 2]", "grid.accuracy: is a column of the results"),
        ("x: {a: {seed: 1}}", "grid.x: sets the seed; give seeds under 'seeds'"),
        ("x: {a: {k: 1}}\nk: [1, 2]", "grid.yaml:2  grid.k: sets k, which 'x' sets, too"),
    ],
)
def test_what_is_no_axis_is_told_with_its_line(text, told):
    """Each mistake is one sentence with file and line."""
    with pytest.raises(ScenarioError) as caught:
        axes(text)

    assert told in str(caught.value)


TEXTS = st.text(st.characters(codec="utf-8", categories=["L", "N", "P", "S", "Zs"]), max_size=8)
"""What a YAML file can hold."""
VALUES = st.recursive(
    (st.none() | st.booleans() | st.integers() | st.floats(-LARGEST, LARGEST) | TEXTS).filter(
        lambda value: problem_of(value) is None
    ),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.from_regex(r"[a-z]{1,5}", fullmatch=True), inner),
    max_leaves=6,
)


@given(VALUES)
def test_options_read_back_as_the_same_value(value):
    """A replay line gives `--set` exactly what the study file said."""
    assert parse_value(option_text(value), Place("--set")).plain() == value
