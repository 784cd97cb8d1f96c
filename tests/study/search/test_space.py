"""The space of a search: what its entries mean, and what is wrong with them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fednet_emu.errors import ScenarioError
from fednet_emu.scenario.yaml_text import parse
from fednet_emu.study.search.proposals import proposals
from fednet_emu.study.search.space import Range, corners, label_of, levels_at, space_of

SPACE = """
access: {tdma: {network.uplink.access: tdma}, ofdma: {network.uplink.access: ofdma}}
algorithm.lr: {low: 0.01, high: 1, log: true}
algorithm.cohort: {low: 2, high: 4}
scheme:
  whole: {network.uplink.compression: none}
  top-k: {network.uplink.compression.kind: top-k}
network.uplink.compression.share: {low: 0.1, high: 0.9, step: 0.2, when: {scheme: top-k}}
late: {choices: {none: {algorithm.deadline_s: null}, soon: {algorithm.deadline_s: 1}}, when: {access: [ofdma]}}
"""


def space(text):
    """The parameters of a space in a file called `study`."""
    return space_of(parse(text, "study"))


def test_entries_are_choices_ranges_and_conditions():
    """Levels are those of a grid, ranges of whole numbers are whole, and conditions refer to labels."""
    access, lr, cohort, _, share, late = space(SPACE)

    assert access.ends == ["tdma", "ofdma"]
    assert lr.values == Range(low=0.01, high=1, log=True)
    assert not lr.values.whole
    assert cohort.values.whole
    assert [setting.name for setting in cohort.level(3).settings] == ["algorithm.cohort"]
    assert share.applies({"scheme": "top-k"})
    assert not share.applies({"scheme": "whole"})
    assert not share.applies({})
    assert late.ends == ["none", "soon"]


def test_a_point_is_text_and_settings_in_the_order_of_the_file():
    """Parameters that do not apply are left out."""
    parameters = space(SPACE)
    point = {"scheme": "whole", "access": "tdma", "algorithm.cohort": 3, "algorithm.lr": 0.1}

    assert label_of(parameters, point) == "access=tdma, algorithm.lr=0.1, algorithm.cohort=3, scheme=whole"
    settings = [(its.name, its.value.plain()) for level in levels_at(parameters, point) for its in level.settings]
    assert settings == [
        ("network.uplink.access", "tdma"),
        ("algorithm.lr", 0.1),
        ("algorithm.cohort", 3),
        ("network.uplink.compression", "none"),
    ]


def test_corners_have_every_choice_and_both_ends():
    """Each is a point in which everything that applies has a value, and nothing else."""
    parameters = space(SPACE)
    points = list(corners(parameters))

    for parameter in parameters:
        assert {point[parameter.name] for point in points if parameter.name in point} >= set(parameter.ends)
    for point in points:
        assert [its.name for its in parameters if its.applies(point)] == [
            its.name for its in parameters if its.name in point
        ]


@given(seed=st.integers(0, 2**31), count=st.integers(1, 12))
def test_proposals_lie_in_the_space(seed, count):
    """Numbers are in their ranges and on their steps, and a parameter has a value where it applies, only there."""
    parameters = space(SPACE)
    for point in proposals(parameters, [], count, seed):
        assert set(point) == {its.name for its in parameters if its.applies(point)}
        assert 0.01 <= point["algorithm.lr"] <= 1
        assert point["algorithm.cohort"] in (2, 3, 4)
        assert point.get("network.uplink.compression.share", 0.1) in (0.1, 0.3, 0.5, 0.7, 0.9)


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("a.b: 3", "search.space.a.b: expected a list of values"),
        ("a.b: []", "varies nothing, got an empty list"),
        ("a.b: {low: 2, high: 1}", "low must be below high, got 2 and 1"),
        ("a.b: {low: 0, high: 1, log: true}", "log needs low above 0 and no step, got low 0, step None"),
        ("a.b: {low: 1, high: 2, step: 3}", "step must be above 0 and fit between low and high, got 3"),
        ("a.b: {low: -1.0e+30, high: 1.0e+30}", "search.space.a.b: low: must be"),
        ("a.b: {low: 0, high: 10000000000000000}", "search.space.a.b: high: must be"),
        ("a.b: {low: .nan, high: 1}", "low"),
        ("a.b: {low: 1}", "search.space.a.b: high: is required"),
        ("a.b: {low: 1, high: 2, hihg: 3}", "hihg"),
        ("seed: [1, 2]", "give the seeds under 'seeds'"),
        ("setting: [1, 2]", "is a column of the results, got 'setting'"),
        ("x: {one: {seed: 1}, two: {seed: 2}}", "sets the seed"),
        ("a.b: [1, 2]\nx: {one: {a.b: 3}}", "sets a.b, which 'a.b' sets, too"),
        ("a.b: {low: 1, high: 2, when: {c: 1}}", "must name an entry above it, got 'c'"),
        ("a.b: [1, 2]\nc: {low: 1, high: 2, when: {a.b: 3}}", "no such level, got '3'; its levels: 1, 2"),
        ("a.b: {low: 1, high: 2}\nc: {low: 1, high: 2, when: {a.b: 1}}", "must name an entry above it, got 'a.b'"),
        ("a.b: [1, 2]\nc: {low: 1, high: 2, when: 3}", "expected a mapping from entries to their levels, got 3"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(text, what):
    """One sentence, with the line of the entry."""
    with pytest.raises(ScenarioError) as caught:
        space(text)

    assert what in str(caught.value)
    assert "study:" in str(caught.value)


def test_all_problems_are_told_at_once():
    """Not only the first."""
    with pytest.raises(ScenarioError) as caught:
        space("a.b: 3\nc.d: {low: 2, high: 1}")

    assert len(caught.value.problems) == 2
