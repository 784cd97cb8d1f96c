"""Claims about arrays with room to spare: whatever comes and goes, what stays is in order and unchanged."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fednet_emu.network.air.roomy import Roomy, others

RECORD = np.dtype([("number", np.int64), ("flag", np.bool_), ("part", np.float64)], align=True)
STEPS = st.lists(st.one_of(st.integers(0, 40), st.sets(st.integers(0, 60), min_size=1, max_size=4), st.none()))


@pytest.mark.parametrize("empty", [np.empty((1, 0), RECORD), np.empty((2, 0)), np.empty((2, 0, 3), np.int64)])
@given(steps=STEPS)
def test_entries_come_at_the_end_and_go_from_anywhere(empty, steps):
    """Against a list: a number of new entries, the places of some that go, or None for all; across several growths."""
    roomy, expected, given_out = Roomy(empty), [], 0
    for step in steps:
        if step is None:
            roomy.clear()
            expected = []
        elif isinstance(step, int):
            numbers = list(range(given_out, given_out + step))
            roomy.grow(step)[...] = filled(empty, numbers)
            expected, given_out = expected + numbers, given_out + step
        else:
            gone = sorted(place for place in step if place < len(expected))
            if gone:
                roomy.drop(np.array(gone))
                expected = [number for place, number in enumerate(expected) if place not in gone]
        assert roomy.now.shape[1] == len(expected)
        assert (roomy.now == filled(empty, expected)).all()


def filled(empty, numbers):
    """Entries made of these numbers, the same in each row."""
    entries = np.empty((len(empty), len(numbers), *empty.shape[2:]), empty.dtype)
    for place, number in enumerate(numbers):
        entries[:, place] = (number, number % 2, number / 3) if empty.dtype.names else number
    return entries


def test_an_entry_that_stays_is_not_copied():
    """A growth within the room and a removal at the end leave the memory where it is."""
    roomy = Roomy(np.empty((1, 0)))
    roomy.grow(3)[...] = [1.0, 2.0, 3.0]
    before = roomy.now
    roomy.grow(1)[...] = 4.0
    roomy.drop(np.array([3]))

    assert np.shares_memory(before, roomy.now)
    assert roomy.now.tolist() == [[1.0, 2.0, 3.0]]


def test_the_others_are_those_not_named():
    """Of five, without the second and the fourth."""
    assert others(np.array([1, 3]), 5).tolist() == [0, 2, 4]
