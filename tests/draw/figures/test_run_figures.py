"""Figures of runs: curves, charges, rates, data and the timeline."""

from __future__ import annotations

import itertools

import numpy as np
import pandas as pd
import pytest
from matplotlib.collections import PolyCollection
from matplotlib.colors import to_rgb

from fednet_emu.analysis.activity import WAITING
from fednet_emu.analysis.data_split import DataSplit, Part
from fednet_emu.draw.figures.data_split import MOST_BUBBLES, split_figures
from fednet_emu.draw.figures.page import fit_to_page, numbers_of
from fednet_emu.draw.figures.rates import rate_figure
from fednet_emu.draw.figures.run_figures import latency_figure, progress_figures, save
from fednet_emu.draw.figures.series import FEW, charge_figure
from fednet_emu.draw.figures.timeline import HATCH, LOOKS, Panel, timeline_figure
from fednet_emu.draw.style import line_style
from fednet_emu.radio.survey import Rates
from tests.quick import crossed


@pytest.fixture
def evaluations(make_frame):
    """The evaluations of a run with the given accuracies, at 100 s, 2 Mbit up, 1 Mbit down and 3 kJ each."""

    def table(*accuracies, loss=1.0, sidelink_bit=0.0, energy_j=3000.0):
        rows = [
            {
                "simulated_s": 100.0 * i,
                "uplink_bit": 2e6 * i,
                "downlink_bit": 1e6 * i,
                "sidelink_bit": sidelink_bit * i,
                "energy_j": energy_j * i,
                "accuracy": accuracy,
                "loss": loss / i,
            }
            for i, accuracy in enumerate(accuracies, start=1)
        ]
        return make_frame("evaluations", rows)

    return table


def lines(figure):
    """The curves of a figure: label -> (x, y)."""
    axes = figure.axes[0]
    return {line.get_label(): (list(line.get_xdata()), list(line.get_ydata())) for line in axes.get_lines()}


def test_accuracy_is_drawn_against_all_three_costs(evaluations):
    """The axes carry the unit that their numbers are in: 300 s, 9 Mbit (up, down and between devices), 9 kJ."""
    figures = progress_figures([("a", evaluations(0.1, 0.5, 0.8, sidelink_bit=1e6))])
    assert list(figures) == ["accuracy-time", "accuracy-bits", "accuracy-energy", "loss-time"]
    loss = figures.pop("loss-time")
    assert lines(loss)["a"] == (pytest.approx([100 / 60, 200 / 60, 5.0]), pytest.approx([1.0, 0.5, 1 / 3]))
    assert (loss.axes[0].get_xlabel(), loss.axes[0].get_ylabel()) == ("Time (min)", "Loss")
    labels = [figure.axes[0].get_xlabel() for figure in figures.values()]
    assert labels == ["Time (min)", "Bits (Mbit)", "Energy (kJ)"]
    assert all(figure.axes[0].get_ylabel() == "Accuracy" for figure in figures.values())
    assert lines(figures["accuracy-time"])["a"][0] == pytest.approx([100 / 60, 200 / 60, 5.0])
    assert lines(figures["accuracy-bits"])["a"] == ([4.0, 8.0, 12.0], [0.1, 0.5, 0.8])
    assert lines(figures["accuracy-energy"])["a"][0] == [3.0, 6.0, 9.0]


def test_accuracies_close_to_one_are_kept_apart(evaluations):
    """The scale is logit when a run comes close to 1 and none touches an end, else linear."""
    scales = [
        progress_figures([("a", evaluations(*accuracies))])["accuracy-time"].axes[0].get_yscale()
        for accuracies in ((0.1, 0.98), (0.1, 0.9), (0.0, 0.98), (0.1, 1.0))
    ]

    assert scales == ["logit", "linear", "linear", "linear"]


def test_loss_stands_in_when_a_run_has_no_accuracy(evaluations):
    """A regression has no accuracy; beside a classification both are compared by loss, never half of each."""
    regression, classification = evaluations(np.nan, np.nan), evaluations(0.5, 0.6, loss=4.0)
    for runs in ([("r", regression)], [("r", regression), ("c", classification)]):
        figures = progress_figures(runs)
        assert list(figures) == ["loss-time", "loss-bits", "loss-energy"]
        assert list(lines(figures["loss-time"])) == [label for label, _ in runs]
        assert figures["loss-time"].axes[0].get_ylabel() == "Loss"


def test_a_run_without_evaluations_is_left_out_but_keeps_its_style(evaluations):
    """The second of three runs was timing-only; the third looks the same in every figure all the same."""
    figures = progress_figures([("a", evaluations(0.5)), ("timing", evaluations()), ("c", evaluations(0.6))])
    drawn = {line.get_label(): line.get_color() for line in figures["accuracy-time"].axes[0].get_lines()}
    assert drawn == {"a": line_style(0)["color"], "c": line_style(2)["color"]}


def test_there_is_no_figure_without_data(evaluations, make_frame):
    """Nothing evaluated: no figure; nothing spent (no energy model): no figure of that cost."""
    assert progress_figures([("timing", evaluations())]) == {}
    assert progress_figures([]) == {}
    assert latency_figure([("a", make_frame("rounds", []))]) is None
    assert list(progress_figures([("a", evaluations(0.5, energy_j=0.0))])) == [
        "accuracy-time",
        "accuracy-bits",
        "loss-time",
    ]


def test_a_loss_that_spans_decades_is_logarithmic(evaluations):
    """A loss that falls by more than a factor of 100 has a logarithmic axis, one that halves has not."""
    falling = evaluations(*[np.nan] * 200)
    halving = evaluations(np.nan, np.nan)
    assert progress_figures([("a", falling)])["loss-time"].axes[0].get_yscale() == "log"
    assert progress_figures([("a", halving)])["loss-time"].axes[0].get_yscale() == "linear"


def test_round_latency_is_a_cumulative_share(make_frame):
    """Of the latencies 1, 2, 2 and 5 s, three quarters are at most 2 s; a round that never ended is not counted."""
    spans = [(0.0, 1.0), (1.0, 3.0), (3.0, 5.0), (5.0, 10.0), (10.0, np.nan)]
    rounds = make_frame("rounds", [{"started_s": start, "ended_s": end} for start, end in spans])
    figure = latency_figure([("a", rounds)])
    latency_s, share = map(np.array, lines(figure)["a"])
    assert [share[latency_s <= limit].max() for limit in (1.0, 2.0, 5.0)] == [0.25, 0.75, 1.0]
    assert figure.axes[0].get_xlabel() == "Round latency (s)"


def test_a_legend_appears_with_the_second_run(evaluations):
    """One run needs no legend (the caption names it), two do."""
    one = progress_figures([("a", evaluations(0.5))])["accuracy-time"]
    two = progress_figures([("a", evaluations(0.5)), ("b", evaluations(0.6))])["accuracy-time"]
    assert one.legends == []
    assert [text.get_text() for text in two.legends[0].get_texts()] == ["a", "b"]


def test_three_long_labels_are_below_each_other(evaluations):
    """Two entries in a row and one alone below them would look like a mistake; short ones share a row."""
    runs = [(f"{name}, with a label of some length", evaluations(0.5)) for name in "abc"]
    long, short = (
        progress_figures(given)["accuracy-time"].legends[0] for given in (runs, [(n[0], t) for n, t in runs])
    )
    assert (long._ncols, short._ncols) == (1, 3)


def test_only_lines_that_must_be_told_apart_have_markers(evaluations):
    """A lone line has none, of two each has its own, which the legend shows."""
    one, two = (
        progress_figures([(name, evaluations(0.5, 0.6)) for name in names])["accuracy-time"] for names in ("a", "ab")
    )
    assert [line.get_marker() for line in one.axes[0].get_lines()] == ["none"]
    assert [handle.get_marker() for handle in two.legends[0].legend_handles] == ["o", "s"]


def test_labels_are_text_and_nothing_else(evaluations):
    """Dollar signs are no mathematics and a leading underscore hides nothing: every run has its entry."""
    figure = progress_figures([("$5 and $6_x", evaluations(0.5)), ("_draft", evaluations(0.6))])["accuracy-time"]
    figure.draw_without_rendering()
    first, second = figure.legends[0].get_texts()
    assert [first.get_text(), second.get_text()] == [r"\$5 and \$6_x", "_draft"]
    assert first.get_window_extent().height == pytest.approx(second.get_window_extent().height, rel=0.1)


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


DISTANCES_M = np.geomspace(10.0, 2000.0, 40)


def curve(reach_m: float) -> Rates:
    """A rate of 10 Mbit/s up to a distance, and none beyond."""
    rate_bps = np.where(reach_m >= DISTANCES_M, 1e7, 0.0)
    return Rates(rate_bps / 2, rate_bps, rate_bps * 2)


def test_few_environments_share_a_panel_and_one_has_a_band() -> None:
    """Four lines have a legend; one has none, but its band."""
    one, four = (rate_figure(DISTANCES_M, {name: curve(100) for name in names}) for names in ("a", "abcd"))

    assert (len(one.axes), len(four.axes)) == (1, 1)
    assert (len(one.axes[0].collections), one.legends) == (1, [])
    assert [text.get_text() for text in four.legends[0].get_texts()] == ["a", "b", "c", "d"]


def test_many_environments_are_in_panels_by_reach() -> None:
    """Nine, of which the last reach farthest: three panels of at most four lines, with the same axes."""
    figure = rate_figure(DISTANCES_M, {f"e{place}": curve(50.0 * (place + 1)) for place in range(9)})
    names = [[line.get_label() for line in axes.get_lines()] for axes in figure.axes]
    first = figure.axes[0].get_lines()[0]

    assert names == [["e8", "e7", "e6", "e5"], ["e4", "e3", "e2", "e1"], ["e0"]]
    assert len({(axes.get_xlim(), axes.get_ylim()) for axes in figure.axes}) == 1
    assert [axes.get_xlabel() for axes in figure.axes] == ["", "", "Distance (m)"]
    assert np.nanmax(np.asarray(first.get_ydata())) == pytest.approx(10.0)
    assert all(len({line.get_color() for line in axes.get_lines()}) == len(axes.get_lines()) for axes in figure.axes)


def labelled(devices, labels=3, seed=0):
    counts = np.random.default_rng(seed).integers(0, 50, (labels, devices))
    counts[:, -1] = 0
    return Part(counts.sum(axis=0), counts)


NOTHING = Part(np.zeros(4, np.int64), np.zeros((3, 4), np.int64))


def test_areas_of_bubbles_are_numbers_of_samples():
    """One for each label that a device has; the bars above are the sizes."""
    part = labelled(5)
    figure = split_figures(DataSplit(part, labelled(5, seed=1)))["data"]
    above, below = figure.axes
    (bubbles,) = below.collections
    device, label = bubbles.get_offsets().T.astype(int)
    area = bubbles.get_sizes() / part.counts[label, device]

    assert len(area) == np.count_nonzero(part.counts)
    np.testing.assert_allclose(area, area[0])
    assert [bar.get_height() for bar in above.patches] == part.sizes.tolist()


def test_the_legend_has_the_areas_of_the_bubbles():
    """Its numbers of samples have the area that so many have in the figure."""
    part = Part(np.array([80, 40]), np.array([[80, 40]]))
    figure = split_figures(DataSplit(part, part))["data"]
    areas = {handle.get_label().split()[0]: handle.get_markersize() ** 2 for handle in figure.entries.handles}

    biggest = figure.axes[1].collections[0].get_sizes().max()
    assert areas == {"10": pytest.approx(biggest / 8), "50": pytest.approx(biggest * 5 / 8)}


def test_many_devices_are_shades_in_one_order():
    """Shares of the labels, ordered alike in both figures as the training samples are."""
    train, test = labelled(MOST_BUBBLES + 1), labelled(MOST_BUBBLES + 1, seed=1)
    drawn, order = split_figures(DataSplit(train, test)), train.order()

    for name, part in (("data", train), ("data-test", test)):
        above, below = drawn[name].axes[:2]
        rows = np.asarray(below.images[0].get_array())
        np.testing.assert_array_equal(rows, np.repeat(part.shares[:, order], len(rows) // 3, axis=0))
        np.testing.assert_array_equal(above.patches[0].get_data().values, part.sizes[order])
    assert "ordered by their most frequent label" in below.get_xlabel()


@pytest.mark.parametrize(("devices", "kind"), crossed([10, 100, 1000], ["labels", "targets", "sizes"]))
def test_every_form_is_drawn_and_written(tmp_path, devices, kind):
    """In both widths, with its numbers as a table."""
    sizes, spread = np.arange(devices), np.sort(np.random.default_rng(0).normal(size=(5, devices)), axis=0)
    spread[:, 0] = np.nan
    part = labelled(devices, 62) if kind == "labels" else Part(sizes, targets=spread if kind == "targets" else None)
    drawn = split_figures(DataSplit(part, part))
    for figure in drawn.values():
        fit_to_page(figure, "two-column", "Who has what")

    files = save(drawn, tmp_path, ["svg"], csv=True)
    assert sorted(path.name for path in files) == ["data-test.csv", "data-test.svg", "data.csv", "data.svg"]
    assert numbers_of(drawn["data"])["samples"].sum() == part.sizes.sum()


def test_without_test_samples_there_is_one_figure():
    """As with natural groups that only training samples have."""
    assert list(split_figures(DataSplit(labelled(4), NOTHING))) == ["data"]


def bars(rows):
    """A table of bars from tuples (device, activity, start, end, failed)."""
    return pd.DataFrame(rows, columns=["device", "activity", "started_s", "ended_s", "failed"])


def panel(rows, until_s=10.0, label="run", round_ends_s=()):
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


def test_what_a_device_does_at_once_is_one_state():
    """Half of 200 devices compute, send two messages and wait, all at the same time: half of the devices send."""
    does = [("compute", 0.0), ("uplink", 0.0), (WAITING, 0.0), ("uplink", 1.0)]
    rows = [(device, what, start_s, 10.0, False) for device in range(100) for what, start_s in does]
    areas = timeline_figure([Panel("run", bars(rows), np.empty(0), 10.0, devices=200)]).axes[0].collections
    heights = {tuple(area.get_facecolor()[0][:3]): np.ptp(area.get_paths()[0].vertices[:, 1]) for area in areas}
    assert heights.pop(to_rgb(LOOKS["uplink"].colour)) == pytest.approx(50.0)
    assert list(heights.values()) == pytest.approx([0.0, 0.0], abs=1e-6)


def test_the_server_has_a_row_but_is_no_device():
    """Five of six devices are active; with a hundred, the server is neither counted nor drawn."""
    server = (-1, "compute", 0.0, 9.0, False)
    few = [server, *((device, "uplink", 0.0, 1.0, False) for device in range(5))]
    many = [server, *((device, "uplink", 0.0, 1.0, False) for device in range(100))]
    axes = timeline_figure([Panel("run", bars(few), np.empty(0), 10.0, devices=6)]).axes[0]
    areas, some = timeline_figure([Panel("run", bars(many), np.empty(0), 10.0, devices=100)]).axes
    assert [tick.get_text() for tick in axes.get_yticklabels()] == ["server", "0", "1", "2", "3", "4"]
    assert axes.get_ylabel() == "Device\n(5 of 6)"
    assert (some.get_ylabel(), -1 in labels(some), len(areas.collections)) == ("24 of 100, by busy", False, 1)


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
