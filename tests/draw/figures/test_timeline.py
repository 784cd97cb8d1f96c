"""Claims about how the timeline is drawn."""

from __future__ import annotations

import itertools

import numpy as np
import pandas as pd
import pytest
from matplotlib.collections import PolyCollection
from matplotlib.colors import to_rgb

from fednet_emu.analysis.activity import WAITING
from fednet_emu.draw.figures.timeline import HATCH, LOOKS, Panel, timeline_figure


def bars(rows):
    """A table of bars from tuples (device, activity, start, end, failed)."""
    return pd.DataFrame(rows, columns=["device", "activity", "started_s", "ended_s", "failed"])


def panel(rows, until_s=10.0, label="run", round_ends_s=()):
    """A panel with the given bars."""
    return Panel(label, bars(rows), np.array(round_ends_s, dtype=float), until_s)


def boxes(axes, *, hatched):
    """The bars drawn in a panel (idle background left out): (left, right, middle row)."""
    drawn = [
        path.vertices
        for collection in axes.collections
        if isinstance(collection, PolyCollection) and collection.get_zorder() > 1.5
        if (collection.get_hatch() is not None) == hatched
        for path in collection.get_paths()
    ]
    return sorted((v[:, 0].min(), v[:, 0].max(), (v[:, 1].min() + v[:, 1].max()) / 2) for v in drawn)


def test_bars_stand_in_the_row_of_their_device():
    """Rows are devices in ascending order, labelled with their numbers; lost transfers are hatched."""
    figure = timeline_figure([panel([(8, "compute", 0.0, 2.0, False), (3, "uplink", 1.0, 4.0, True)])])
    axes = figure.axes[0]
    assert [tick.get_text() for tick in axes.get_yticklabels()] == ["3", "8"]
    assert boxes(axes, hatched=False) == [(0.0, 2.0, 1.0)]
    assert boxes(axes, hatched=True) == [(1.0, 4.0, 0.0)]
    assert axes.get_xlim() == (0.0, 10.0)
    assert axes.get_xlabel() == "Time (s)"


def test_all_panels_share_the_time_axis():
    """Two runs have a panel each, titled, and only the lowest names the axis: unit and range hold for both."""
    short, long = (panel([(0, "compute", 0.0, end_s, False)], end_s, f"until {end_s}") for end_s in (60.0, 1200.0))
    figure = timeline_figure([short, long])
    assert [axes.get_title(loc="left") for axes in figure.axes] == ["until 60.0", "until 1200.0"]
    assert [axes.get_xlabel() for axes in figure.axes] == ["", "Time (min)"]
    assert [axes.get_xlim()[1] for axes in figure.axes] == [20.0, 20.0]


def labels(axes):
    """The numbers of the devices in the rows of a panel, from top to bottom."""
    return [int(tick.get_text()) for tick in axes.get_yticklabels()]


def test_sixty_devices_have_a_row_each_in_the_order_asked_for():
    """Sixty rows fit; sorted by waiting, the one that waited longest is on top, and its bars are in its row."""
    rows = [(device, WAITING, 0.0, 1.0 + device / 100, False) for device in range(60)]
    (by_number,) = timeline_figure([panel(rows)]).axes
    (sorted_,) = timeline_figure([Panel("run", bars(rows), np.empty(0), 10.0, sort="waiting")]).axes
    assert (labels(by_number), by_number.get_ylabel()) == (list(range(60)), "Device")
    assert (labels(sorted_), sorted_.get_ylabel()) == (list(range(59, -1, -1)), "Device, by waiting")
    ends = {middle: right for _, right, middle in boxes(sorted_, hatched=False)}
    assert [ends[row] for row in sorted(ends)] == pytest.approx([1.59 - row / 100 for row in range(60)])


def test_more_devices_are_areas_and_some_rows():
    """Of 100 devices 24 have rows, from the one that waited longest to the last; three panels share them."""
    rows = [(device, WAITING, 0.0, 1.0 + device / 100, False) for device in range(100)]
    areas, some = timeline_figure([panel(rows)]).axes
    assert areas.get_ylabel() == "Devices (%)"
    assert some.get_ylabel() == "24 of 100, by waiting"
    assert (labels(some)[0], labels(some)[-1], len(labels(some))) == (99, 0, 24)
    assert labels(some) == sorted(labels(some), reverse=True)
    three = timeline_figure([panel(rows)] * 3)
    assert [len(labels(axes)) for axes in three.axes[1::2]] == [12, 12, 12]
    assert [axes.get_xlabel() for axes in three.axes] == [""] * 5 + ["Time (s)"]


def test_when_nobody_waits_many_devices_are_told_apart_by_being_busy():
    """An order by waiting would say nothing."""
    rows = [(device, "uplink", 0.0, 1.0 + device / 100, False) for device in range(100)]
    assert timeline_figure([panel(rows)]).axes[1].get_ylabel() == "24 of 100, by busy"


def test_areas_are_as_high_as_the_share_of_devices():
    """Of 400 devices 100 have bars and compute for the first half of the window: 25 % of the height."""
    rows = [(device, "compute", 0.0, 7.0, False) for device in range(100)]
    figure = timeline_figure([Panel("run", bars(rows), np.empty(0), 12.0, from_s=2.0, devices=400)])
    axes = figure.axes[0]
    (area,) = axes.collections
    corners = area.get_paths()[0].vertices
    assert axes.get_xlim() == (2.0, 12.0)
    assert figure.axes[1].get_ylabel() == "24 of 400, by busy"
    assert axes.get_ylim() == (0.0, 100.0)
    assert corners[corners[:, 0] < 6.9, 1].max() == pytest.approx(25.0)
    assert corners[corners[:, 0] > 7.1, 1].max() == pytest.approx(0.0)


def test_no_entry_of_the_legend_is_alone_in_its_row():
    """Six entries that do not fit one row are two rows of three."""
    rows = [(0, name, i, i + 1.0, False) for i, name in enumerate(("downlink", "compute", "uplink", WAITING))]
    legend = timeline_figure([panel(rows, round_ends_s=[2.0])]).legends[0]
    assert len(legend.get_texts()) == 6
    assert legend._ncols == 3


def test_the_legend_names_what_is_shown_and_nothing_else():
    """No sidelink entry without a sidelink; a stopped computation changes `lost` to `lost or stopped`."""
    rows = [(0, "compute", 0.0, 1.0, False), (0, "uplink", 1.0, 2.0, True)]

    def entries(*given, **options):
        return [text.get_text() for text in timeline_figure([panel(given, **options)]).legends[0].get_texts()]

    assert entries(*rows) == ["computing", "uplink", "idle", "lost"]
    stopped = (1, "compute", 0.0, 1.0, True)
    assert entries(*rows, stopped, round_ends_s=[2.0]) == [
        "computing",
        "uplink",
        "idle",
        "lost or stopped",
        "round end",
    ]


def test_a_panel_has_few_artists_however_many_bars():
    """10^5 bars are a handful of collections: one for each activity, delivered or lost, and one for idle."""
    count = 100_000
    table = pd.DataFrame(
        {
            "device": np.arange(count) % 40,
            "activity": np.array(list(LOOKS))[np.arange(count) % len(LOOKS)],
            "started_s": np.arange(count) / 1e3,
            "ended_s": np.arange(count) / 1e3 + 0.5,
            "failed": np.arange(count) % 7 == 0,
        }
    )
    axes = timeline_figure([Panel("run", table, np.empty(0), 100.5)]).axes[0]
    assert len(axes.collections) <= 2 * len(LOOKS) + 1
    assert sum(len(collection.get_paths()) for collection in axes.collections) == count + 40


def test_a_device_that_only_waited_has_a_row():
    """A device that never got the channel is shown waiting."""
    figure = timeline_figure([panel([(6, WAITING, 0.0, 3.0, True)])])
    assert [tick.get_text() for tick in figure.axes[0].get_yticklabels()] == ["6"]
    assert boxes(figure.axes[0], hatched=True) == [(0.0, 3.0, 0.0)]


def test_runs_in_which_nothing_happened_have_no_panel():
    """An empty run is left out, and no figure is left when all are empty."""
    busy = panel([(0, "compute", 0.0, 1.0, False)])
    assert timeline_figure([panel([])]) is None
    assert len(timeline_figure([panel([]), busy]).axes) == 1


@pytest.mark.parametrize("pair", list(itertools.combinations(LOOKS, 2)), ids="-".join)
def test_bars_differ_without_colour(pair):
    """In greyscale (ITU-R BT.601 luma) any two kinds of bar differ by a tenth in lightness, or else in height."""
    one, other = (LOOKS[name] for name in pair)
    luma = [float(np.dot((0.299, 0.587, 0.114), to_rgb(look.colour))) for look in (one, other)]
    assert abs(luma[0] - luma[1]) >= 0.1 or one.height != other.height


def test_lost_bars_are_hollow():
    """What was lost is not filled with its colour: it carried nothing."""
    figure = timeline_figure([panel([(0, name, i, i + 1.0, True) for i, name in enumerate(LOOKS)])])
    hatched = [collection for collection in figure.axes[0].collections if collection.get_hatch() == HATCH]
    assert len(hatched) == len(LOOKS)
    assert all(tuple(collection.get_facecolor()[0]) == (1.0, 1.0, 1.0, 1.0) for collection in hatched)


def test_the_time_axis_is_linear_however_long_the_rounds():
    """Round ends at 1, 2 and 500 s: the start of the run stays in the picture."""
    bars = pd.DataFrame(
        {"device": [0], "activity": ["compute"], "started_s": [0.0], "ended_s": [0.5], "failed": [False]}
    )
    figure = timeline_figure([Panel("run", bars, np.array([1.0, 2.0, 500.0]), 500.0)])

    assert figure.axes[0].get_xscale() == "linear"
    assert figure.axes[0].get_xlim()[0] <= 0.0
