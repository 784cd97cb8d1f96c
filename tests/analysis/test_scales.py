"""Claims about costs: each has one name, one title and one column, wherever it is asked for or shown."""

from typing import get_args

import pytest

from fednet_emu.analysis.scales import COSTS, RECORDED, TO_TARGET, limits_text
from fednet_emu.draw.page.document import TITLES
from fednet_emu.records.rows import EvaluationRow
from fednet_emu.study import file


def test_study_files_have_these_names():
    """What `search` of a study file may minimise and limit."""
    assert get_args(file.Cost) == tuple(COSTS)


def test_columns_are_those_of_the_records():
    """The costs of evaluations, and what reaching the target cost, by which pages name their tables."""
    recorded = {name.replace("_ns", "_s") for name in EvaluationRow._fields} | {"total_bit"}

    assert {cost.column for cost in RECORDED.values()} <= recorded
    assert [TITLES[column][0] for column in TO_TARGET] == [f"{cost.title} to target" for cost in RECORDED.values()]


@pytest.mark.parametrize(
    ("limits", "text"),
    [
        ({}, ""),
        ({"energy": 4.0, "bits": 2e7}, " within 4 J of energy and 20 Mbit"),
        ({"device-energy": 0.4, "rounds": 5, "time": 60.0}, " within 400 mJ per device and 5 rounds and 1 min"),
    ],
)
def test_limits_are_told_with_their_units(limits, text):
    """In the order in which they are given."""
    assert limits_text(limits) == text
