"""Claims about the figure of charges over time."""

import numpy as np
import pandas as pd

from fednet_emu.draw.figures.papers.series import FEW, charge_figure


def rows(devices):
    """Device k goes from 2 J to k / 100 J in 600 s, in a straight line."""
    return pd.DataFrame(
        [(device, at_s, 2.0 if at_s == 0 else device / 100) for at_s in (0.0, 600.0) for device in range(devices)],
        columns=["device", "simulated_s", "charge_j"],
    )


def test_few_devices_have_a_named_line_each():
    """With the times and charges of their rows, in minutes."""
    (axes,) = charge_figure([("run", rows(3))]).axes

    assert [line.get_label() for line in axes.lines] == ["dev-0", "dev-1", "dev-2"]
    assert axes.lines[2].get_xdata().tolist() == [0.0, 10.0]
    assert axes.lines[2].get_ydata().tolist() == [2.0, 0.02]
    assert axes.get_xlabel() == "Time (min)"
    assert axes.get_ylabel() == "Charge (J)"


def test_many_devices_are_around_their_median():
    """One thin line for each, and their median; a panel for each run."""
    n = FEW + 3
    first, second = charge_figure([("one", rows(n)), ("two", rows(2))]).axes

    (thin,), (median,) = first.collections, first.lines
    assert [segment[-1].tolist() for segment in thin.get_segments()] == [[10.0, k / 100] for k in range(n)]
    assert median.get_label() == f"median of {n} devices"
    assert np.allclose(median.get_ydata()[[0, -1]], [2.0, 0.05])
    assert [line.get_label() for line in second.lines] == ["dev-0", "dev-1"]
    assert second.get_title(loc="left") == "two"
