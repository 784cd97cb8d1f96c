"""Shares of devices in each state, and the orders of devices."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fednet_emu.analysis.activity import WAITING, ranked, spread, state_shares

BARS = st.lists(st.tuples(st.sampled_from(["uplink", "compute"]), st.integers(0, 90), st.integers(0, 40)), min_size=1)


def bars(*rows: tuple[int, str, float, float, bool]) -> pd.DataFrame:
    """Bars from tuples (device, activity, start, end, failed)."""
    return pd.DataFrame(rows, columns=["device", "activity", "started_s", "ended_s", "failed"])


@given(BARS)
def test_shares_are_the_part_of_each_stretch_that_devices_spend(spans: list[tuple[str, int, int]]) -> None:
    """With times in whole seconds, a count of seconds one by one gives the same shares."""
    table = bars(*((0, activity, float(start), float(start + took), False) for activity, start, took in spans))
    edges_s = np.arange(0.0, 141.0, 7.0)

    shares = state_shares(table, 5, edges_s)

    for activity in {activity for activity, _, _ in spans}:
        seconds = np.zeros(140)
        for which, start, took in spans:
            if which == activity:
                seconds[start : start + took] += 1
        np.testing.assert_allclose(shares[activity], seconds.reshape(20, 7).sum(axis=1) / (7 * 5), atol=1e-12)


def test_shares_of_a_window_leave_out_what_is_outside() -> None:
    """Of four devices one sends for the second half of the window; what it did before does not count."""
    shares = state_shares(
        bars((2, "uplink", 0.0, 1.0, False), (2, "uplink", 6.0, 9.0, False)), 4, np.array([4.0, 6.0, 8.0])
    )

    np.testing.assert_allclose(shares["uplink"], [0.0, 0.25])


ROWS = bars(
    (7, "uplink", 0.0, 5.0, True),
    (7, WAITING, 0.0, 1.0, False),
    (2, "compute", 0.0, 9.0, False),
    (2, WAITING, 0.0, 4.0, False),
    (5, "compute", 0.0, 9.0, False),
)


@pytest.mark.parametrize(
    ("sort", "devices"),
    [("device", [2, 5, 7]), ("waiting", [2, 7, 5]), ("computing", [2, 5, 7]), ("busy", [2, 5, 7]), ("lost", [7, 2, 5])],
)
def test_orders_of_devices(sort: str, devices: list[int]) -> None:
    """The longest time comes first, equal times in the order of the numbers; waiting is not being busy."""
    assert ranked(ROWS, sort) == devices


def test_chosen_devices_are_spread_over_the_ranking() -> None:
    """The first and the last are there, the others at equal distances, nobody twice."""
    assert spread(list(range(100, 0, -1)), 4) == [100, 67, 34, 1]
    assert spread([3, 1], 24) == [3, 1]
