"""The way of an upload from its request to its row: functions, files and calls, as `qa/way_of_a_transfer.py` counts."""

import pytest

from qa.way_of_a_transfer import WORLDS, calls_of_a_round, way_of_an_upload

BOUNDS = {"tdma": (12, 7, 300), "tcp": (18, 9, 450), "nr-grants": (18, 11, 550)}
"""Most functions and files of an upload, and most calls of a round."""


@pytest.mark.parametrize("world", WORLDS)
def test_the_way_of_an_upload_gets_no_longer(world):
    """Counts are exact, so that a longer way is a decision; a shorter one should lower the bounds."""
    way, calls = way_of_an_upload(*WORLDS[world]), calls_of_a_round(*WORLDS[world])

    assert all(count <= bound for count, bound in zip((*way.count, calls.own.total()), BOUNDS[world], strict=True))


@pytest.mark.parametrize("world", WORLDS)
def test_a_round_without_other_users_calls_nothing_of_theirs(world):
    """No function of `network/traffic` and `network/slices.py` is called, by transfers with and without delays."""
    called = "\n".join(calls_of_a_round(*WORLDS[world]).own)

    assert "/network/medium/medium.py:Medium.send" in called
    assert "/network/traffic/" not in called
    assert "/network/slices.py" not in called


def test_the_way_begins_at_the_request_and_ends_at_the_row():
    """The first function is the verb of the algorithm, the last the one that appends the row."""
    names = [name for names in way_of_an_upload().functions.values() for name in names]

    assert names[0] == "Federation.uplink"
    assert names[-1] == "Table.append"
