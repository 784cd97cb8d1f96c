"""Claims about groups that take turns, and about how devices divide their samples between them."""

from __future__ import annotations

from itertools import chain

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fednet_emu.algorithms.cyclic.structures import (
    CommonDevice,
    CommonDeviceAndNewGroup,
    CopiedNeighbours,
    at_random,
    parts_of,
    seats_of,
    separate,
)

SIZES = st.tuples(st.integers(2, 8), st.integers(2, 8))
"""Groups of the base, and devices in each."""


def test_the_worked_examples():
    """Sixteen devices in four groups, written out by hand from the constructions."""
    assert separate(16, 4) == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11], [12, 13, 14, 15]]
    assert CommonDevice(groups=4).of(16)[1:] == [[4, 5, 6, 7, 0], [8, 9, 10, 11, 0], [12, 13, 14, 15, 0]]
    assert CopiedNeighbours(groups=4).of(16) == [
        [12, 0, 1, 2],
        [0, 4, 5, 6],
        [4, 8, 9, 10],
        [8, 12, 13, 14],
        [3, 7, 11, 15],
    ]
    assert CopiedNeighbours(groups=4, variant="chain").of(16)[0] == [0, 1, 2, 3]
    assert CopiedNeighbours(groups=4, variant="pairwise").of(16)[-1] == [7, 15]
    assert CommonDeviceAndNewGroup(groups=4).of(16)[3:] == [[0, 12, 13, 14], [0, 7, 11, 15]]


@given(SIZES)
def test_scenario_1_seats_everybody_once(sizes):
    """K groups of n, every device once."""
    k, n = sizes
    groups = separate(k * n, k)

    assert [len(group) for group in groups] == [n] * k
    assert sorted(chain(*groups)) == list(range(k * n))


@given(SIZES)
def test_scenario_2_has_one_device_everywhere(sizes):
    """Sizes n, n + 1, ..., n + 1; device 0 in all K groups, all others in one; M + K - 1 turns per cycle."""
    k, n = sizes
    groups = CommonDevice(groups=k).of(k * n)
    seats = {device: len(mine) for device, mine in seats_of(groups).items()}

    assert [len(group) for group in groups] == [n] + [n + 1] * (k - 1)
    assert seats == {0: k} | dict.fromkeys(range(1, k * n), 1)


@given(SIZES, st.sampled_from(["cyclic", "chain", "pairwise"]))
def test_scenario_3_keeps_sizes_and_adds_a_group(sizes, variant):
    """K groups of n and one of those who made room; who is copied sits in two groups in a row, all others in one."""
    k, n = sizes
    copies = {"cyclic": k, "chain": k - 1, "pairwise": k // 2}[variant]
    groups = CopiedNeighbours(groups=k, variant=variant).of(k * n)
    seats = seats_of(groups)
    twice = [mine for mine in seats.values() if len(mine) == 2]

    assert [len(group) for group in groups] == [n] * k + [copies]
    assert sorted(seats) == list(range(k * n))
    assert len(twice) == copies
    assert all(mine[1] == mine[0] + 1 or (variant == "cyclic" and mine == [0, k - 1]) for mine in twice)


@given(SIZES)
def test_scenario_4_has_one_device_everywhere_in_groups_that_keep_their_size(sizes):
    """K groups of n and one of K, device 0 in all K + 1, all others in one; M + K turns per cycle."""
    k, n = sizes
    groups = CommonDeviceAndNewGroup(groups=k).of(k * n)
    seats = {device: len(mine) for device, mine in seats_of(groups).items()}

    assert [len(group) for group in groups] == [n] * k + [k]
    assert seats == {0: k + 1} | dict.fromkeys(range(1, k * n), 1)


@given(st.integers(1, 30), st.integers(1, 8), st.data())
def test_random_groups_are_fair(devices, groups, data):
    """Every device has its number of seats, in different groups; with one seat sizes differ by one at most."""
    seats = data.draw(st.integers(1, groups))
    formed = at_random(devices, groups, seats, np.random.default_rng(0))

    assert {device: len(set(mine)) for device, mine in seats_of(formed).items()} == dict.fromkeys(range(devices), seats)
    assert seats > 1 or max(map(len, formed)) - min(map(len, formed)) <= 1


@given(st.integers(0, 200), st.integers(1, 12))
def test_parts_are_disjoint_and_cover_all_samples(samples, seats):
    """Each sample is in exactly one part, parts differ by one sample at most, and their shares sum to 1."""
    parts = parts_of(samples, seats, np.random.default_rng(1))

    assert sorted(np.concatenate(parts).tolist()) == list(range(samples))
    assert max(map(len, parts)) - min(map(len, parts)) <= 1
    assert sum(len(part) / max(samples, 1) for part in parts) == pytest.approx(min(samples, 1))
