"""Shares of devices by activity."""

from __future__ import annotations

import numpy as np
import pandas as pd
from hypothesis import given
from hypothesis import strategies as st

from fednet_emu.analysis.activity import SPENT, state_shares, time_split

DEVICES, END_S = 3, 20
BARS = st.lists(
    st.tuples(st.integers(-1, DEVICES - 1), st.sampled_from(SPENT[:-1]), st.integers(0, END_S), st.integers(0, END_S)),
    min_size=1,
    max_size=30,
)


@given(BARS)
def test_a_device_is_in_one_state_at_a_time(given: list[tuple[int, str, int, int]]) -> None:
    """The mean shares equal `time_split`, their sum is at most 1 in each interval, and the server is not counted."""
    rows = [(device, name, min(times), max(times)) for device, name, *times in given]
    bars = pd.DataFrame(rows, columns=["device", "activity", "started_s", "ended_s"])
    bars = bars.astype({"started_s": float, "ended_s": float})

    shares = state_shares(bars, DEVICES, np.linspace(0.0, END_S, 8))

    spent_s = time_split(bars, DEVICES, END_S)
    assert np.sum([*shares.values(), np.zeros(7)], axis=0).max() <= 1 + 1e-9
    for name in SPENT[:-1]:
        share = shares.get(name, np.zeros(7))
        assert share.min() >= -1e-9
        np.testing.assert_allclose(share.mean(), spent_s[name].sum() / (DEVICES * END_S), atol=1e-9)
