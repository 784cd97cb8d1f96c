"""Claims about the names of settings, axes and metrics in figures of studies."""

from __future__ import annotations

import pytest
from matplotlib.figure import Figure

from fednet_emu.analysis.settings import Names, settings_of
from fednet_emu.draw.figures.study_rows import name_rows
from fednet_emu.errors import FednetError
from tests.draw.figures.test_study_figures import AXES, grid_of


@pytest.mark.parametrize(
    ("levels", "text"),
    [
        ({"network.uplink.access": "tdma", "channel.bandwidth_hz": 1e6}, "tdma, 1 MHz"),
        ({"channel.bandwidth_hz": 5e5}, "500 kHz"),
        ({"channel.bandwidth_hz": 2.5e6, "devices.placement.radius_m": 1500}, "2.5 MHz, 1500 m"),
        ({"devices.count": 10}, "devices = 10"),
        ({"devices.straggler.factor": 40}, "straggler.factor = 40"),
        ({"devices.speed.flop_per_s": 2e7}, "20 MFLOP/s"),
        ({"network.uplink.loss": "none"}, "uplink.loss = none"),
        ({"training.tf32": True}, "tf32 = true"),
        ({"algorithm.lr": 0.05}, "algorithm.lr = 0.05"),
    ],
)
def test_levels_have_units_and_names_where_they_need_them(levels, text):
    """A text of one axis and a number with a unit speak for themselves; other levels have the name of their axis."""
    assert Names.of(AXES).text(levels) == text


def test_texts_that_are_bare_numbers_are_named():
    """`5` and `20` say nothing without their axis, in figures, on pages and in rows; `20 kbit/s` does."""
    axes = {"k1": ["5", "20"], "backhaul": ["20 kbit/s", "2 Mbit/s"], "on": ["false"]}
    names, rows = Names.of(axes), Figure().subplots()
    levels = {"k1": "5", "backhaul": "20 kbit/s", "on": "false"}
    name_rows(rows, [{"k1": level} for level in axes["k1"]], names)

    assert names.text(levels) == names.whole(levels) == "k1 = 5, 20 kbit/s, false"
    assert names.legend([{"k1": level} for level in axes["k1"]]) == ("", ["k1 = 5", "k1 = 20"])
    assert (rows.get_ylabel(), [tick.get_text() for tick in rows.get_yticklabels()]) == ("k1", ["5", "20"])
    assert settings_of(grid_of({"k1": ["5", "20"]}))[0].label == "k1 = 5"


def test_two_axes_of_one_unit_are_named():
    """100 m could be either."""
    names = Names.of({"devices.placement.radius_m": [100], "devices.placement.inner_radius_m": [10]})

    assert names.text({"devices.placement.radius_m": 100}) == "placement.radius = 100 m"


def test_axes_levels_and_metrics_can_have_other_names():
    """By axis, by level, by both, which goes first, and by metric; a number in any way that it may be written."""
    given = {
        "devices.count": "N",
        "tdma": "TDMA",
        "channel.bandwidth_hz=1e6": "narrow",
        "500000": "half",
        "loss": "Error",
    }
    names = Names.of(AXES, given)

    assert names.text({"devices.count": 10, "network.uplink.access": "tdma"}) == "N = 10, TDMA"
    assert [names.level("channel.bandwidth_hz", level) for level in (5e5, 1e6, 2.5e6)] == ["half", "narrow", "2.5 MHz"]
    assert (names.metric("loss"), names.metric("accuracy")) == ("Error", "Accuracy")
    assert (
        Names.of(AXES, {"tdma": "x", "network.uplink.access=tdma": "y"}).level("network.uplink.access", "tdma") == "y"
    )
    with pytest.raises(FednetError, match="no axis, level or metric has this name, got 'tmda'; did you mean 'tdma'"):
        Names.of(AXES, {"tmda": "TDMA"})


def test_rows_of_numbers_say_what_they_are():
    """Levels of one numeric axis are numbers, and the axis names them; texts need no name."""
    numbers, texts = Figure().subplots(), Figure().subplots()
    budget, both = {"algorithm.uncertainty.budget": [0, 0.25]}, {"access": ["tdma", "ofdma"], "devices.count": [10]}
    name_rows(numbers, [{"algorithm.uncertainty.budget": level} for level in (0, 0.25)], Names.of(budget))
    name_rows(texts, [{"access": access, "devices.count": 10} for access in ("tdma", "ofdma")], Names.of(both))

    assert [tick.get_text() for tick in numbers.get_yticklabels()] == ["0", "0.25"]
    assert numbers.get_ylabel() == "uncertainty.budget"
    assert next(tick.get_text() for tick in texts.get_yticklabels()) == "tdma, devices = 10"
    assert texts.get_ylabel() == ""


def test_many_settings_share_the_names_of_their_axes():
    """Of four and more, a heading has the names once; of fewer, each number has its own."""
    names = Names.of(AXES)
    settings = [{"network.uplink.access": "tdma", "devices.straggler.factor": factor} for factor in (1.5, 2, 3, 40)]

    assert names.legend(settings[:2]) == ("", ["tdma, straggler.factor = 1.5", "tdma, straggler.factor = 2"])
    assert names.legend(settings) == (
        "uplink.access, straggler.factor",
        ["tdma, 1.5", "tdma, 2", "tdma, 3", "tdma, 40"],
    )
    assert names.legend([{"channel.bandwidth_hz": band} for band in (1e6, 2e6, 3e6, 4e6)])[0] == ""
