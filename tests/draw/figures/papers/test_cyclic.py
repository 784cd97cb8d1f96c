"""Claims about the figures of cyclic participation."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from fednet_emu.analysis.study import cycle_columns, cycle_times
from fednet_emu.draw.figures.papers.cyclic import bound_figure, cycle_figure


def turns(groups, turn_s, count, structure="random", access="tdma"):
    """The series of a run whose turns all take `turn_s`."""
    number = np.arange(count)
    return pd.DataFrame(
        {
            "cycle": number // groups,
            "group": number % groups,
            "groups": groups,
            "structure": structure,
            "access": access,
            "started_s": number * turn_s,
            "ended_s": (number + 1) * turn_s,
        }
    )


def test_cycle_times_are_of_complete_cycles():
    """Ten turns of 0.5 s in groups of 4 are two cycles of 2 s; the two turns left over do not count."""
    times = cycle_times([turns(4, 0.5, 10), turns(4, 0.5, 3)])

    assert times.values.tolist() == [["random, tdma", 4.0, 2.0]]


def test_a_run_without_a_complete_cycle_tells_no_cycle_time():
    """Three turns of four are not a cycle: the way of grouping is known, numbers are not."""
    columns = cycle_columns(turns(4, 0.5, 3))

    assert columns["grouping"] == "random, tdma"
    assert np.isnan([columns["groups_formed"], columns["cycle_s"]]).all()


def test_ways_are_lines_and_seeds_are_averaged():
    """Three runs of one way and one of another are two lines; equal numbers of groups are one point of a line."""
    tables = [turns(2, 1.0, 8), turns(2, 2.0, 8), turns(4, 1.0, 8), turns(1, 5.0, 8, "interference", "shared")]
    (axes,) = cycle_figure([(str(place), table) for place, table in enumerate(tables)]).get_axes()
    lines = {line.get_label(): line.get_xydata().tolist() for line in axes.get_lines()}

    assert lines == {"random, tdma": [[2.0, 3.0], [4.0, 4.0]], "interference, shared": [[1.0, 5.0]]}


def test_the_bound_is_drawn_over_the_measured_distance():
    """Each run has a solid line and a dashed one of its colour; infinite bounds are left out."""
    rows = pd.DataFrame({"cycle": [0, 1], "gap": [1.0, 0.5], "bound": [1.0, np.inf]})
    (axes,) = bound_figure([("run", rows)]).get_axes()
    measured, bound = axes.get_lines()

    assert axes.get_yscale() == "log"
    assert measured.get_color() == bound.get_color()
    assert measured.get_ydata() == pytest.approx([1.0, 0.5])
    assert np.isnan(bound.get_ydata()[1])
