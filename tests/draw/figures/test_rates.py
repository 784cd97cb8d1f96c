"""Claims about the figure of rates over distance."""

from __future__ import annotations

import numpy as np
import pytest

from fednet_emu.draw.figures.rates import RateCurve, rate_figure


def curve(reach_m: float) -> RateCurve:
    """A rate of 10 Mbit/s up to a distance, and none beyond."""
    distance_m = np.geomspace(10.0, 2000.0, 40)
    rate_bps = np.where(distance_m <= reach_m, 1e7, 0.0)
    return RateCurve(distance_m, rate_bps / 2, rate_bps, rate_bps * 2)


def test_few_environments_share_a_panel_and_one_has_a_band() -> None:
    """Four lines have a legend; one has none, but its band."""
    one, four = rate_figure({"a": curve(100)}), rate_figure({name: curve(100) for name in "abcd"})

    assert (len(one.axes), len(four.axes)) == (1, 1)
    assert (len(one.axes[0].collections), one.legends) == (1, [])
    assert [text.get_text() for text in four.legends[0].get_texts()] == ["a", "b", "c", "d"]


def test_many_environments_are_in_panels_by_reach() -> None:
    """Nine, of which the last reach farthest: three panels of at most four lines, with the same axes."""
    figure = rate_figure({f"e{place}": curve(50.0 * (place + 1)) for place in range(9)})
    names = [[line.get_label() for line in axes.get_lines()] for axes in figure.axes]
    first = figure.axes[0].get_lines()[0]

    assert names == [["e8", "e7", "e6", "e5"], ["e4", "e3", "e2", "e1"], ["e0"]]
    assert len({(axes.get_xlim(), axes.get_ylim()) for axes in figure.axes}) == 1
    assert [axes.get_xlabel() for axes in figure.axes] == ["", "", "Distance (m)"]
    assert np.nanmax(np.asarray(first.get_ydata())) == pytest.approx(10.0)
    assert all(len({line.get_color() for line in axes.get_lines()}) == len(axes.get_lines()) for axes in figure.axes)
