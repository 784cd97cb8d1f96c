"""Claims about the figure of ASPIRE's own records."""

from __future__ import annotations

import pandas as pd

from fednet_emu.draw.figures.papers.series import SERIES_FIGURES, aspire_figure


def test_active_workers_and_planes_are_drawn_over_time() -> None:
    """Two runs: two panels that share the time, two lines each, which show what was recorded."""
    table = pd.DataFrame({"simulated_s": [1.0, 2.0, 4.0], "active": [3, 1, 3], "planes": [1, 1, 2]})
    active, planes = aspire_figure([("ADP", table), ("EASE", table.assign(active=1))]).axes

    assert (active.get_ylabel(), planes.get_ylabel()) == ("Active workers", "Planes")
    assert [line.get_ydata().tolist() for line in active.get_lines()] == [[3, 1, 3], [1, 1, 1]]
    assert planes.get_lines()[0].get_xdata().tolist() == [1.0, 2.0, 4.0]
    assert SERIES_FIGURES["aspire"] is aspire_figure


def test_a_number_that_never_changes_has_no_panel() -> None:
    """With one active worker throughout, only planes are drawn, and the axis says the other."""
    table = pd.DataFrame({"simulated_s": [1.0, 2.0, 4.0], "active": [1, 1, 1], "planes": [1, 1, 2]})
    (planes,) = aspire_figure([("EASE", table)]).axes

    assert planes.get_ylabel() == "Planes"
    assert planes.get_xlabel() == "Time (s)\n(active workers: 1 throughout)"
