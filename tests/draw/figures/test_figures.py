"""Figures as a whole: files, names, width, title, and the numbers behind them."""

from __future__ import annotations

import io
import itertools

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure
from matplotlib.text import Text
from matplotlib.transforms import Bbox

from fednet_emu.analysis.activity import WHOLE, Window
from fednet_emu.analysis.run import RunRecords
from fednet_emu.analysis.settings import Names, settings_of
from fednet_emu.draw.figures import run_figures
from fednet_emu.draw.figures.page import fit_to_page, latex_text, numbers_of
from fednet_emu.draw.figures.run_figures import figures, save
from fednet_emu.draw.figures.study_rows import name_rows
from fednet_emu.draw.style import line_style
from fednet_emu.errors import DataError, FednetError
from fednet_emu.files.writing import csv_text
from tests.draw.figures.test_study_figures import AXES, grid_of

NAMES = ["accuracy-time", "accuracy-bits", "accuracy-energy", "loss-time", "round-latency", "timeline"]
LONG_LABELS = (
    "cyclic participation with overlapping groups, alpha = 0.3, bandwidth 10 MHz",
    "asynchronous distributed learning with delayed gradients and truncated channel inversion",
    "fedavg",
)


@pytest.fixture
def long_runs(make_run):
    """Three runs of 60 devices with long labels."""
    return [
        RunRecords.opened(make_run(f"run-{seed}", devices=60, cohort=50, rounds=3, seed=seed), label)
        for seed, label in enumerate(LONG_LABELS)
    ]


@pytest.fixture
def timeline(monkeypatch):
    """The timeline of some runs, without the figures beside it, which take longer."""
    monkeypatch.setattr(run_figures, "progress_figures", lambda *_: {})
    monkeypatch.setattr(run_figures, "latency_figure", lambda *_: None)
    return lambda runs, shown=WHOLE: figures(runs, shown)["timeline"]


def test_an_empty_run_has_no_figures(tmp_path, write_run, make_run):
    """An empty run gives no figure, and does not disturb those of another."""
    empty = RunRecords.opened(write_run(tmp_path / "empty", {}))
    assert figures([empty]) == {}
    assert figures([empty], Window(until_s=5.0)) == {}
    assert figures([]) == {}
    assert list(figures([empty, RunRecords.opened(make_run("fedavg"))])) == NAMES


def test_the_timeline_shows_three_rounds_or_what_was_asked(make_run, timeline):
    """The window ends with the third round by default, at `until_s` when given, and with the run at the latest."""
    run = RunRecords.opened(make_run("fedavg", rounds=8))
    ends_s = run.table("rounds")["ended_s"].to_numpy()

    def window_s(until_s):
        return timeline([run], Window(until_s=until_s)).axes[0].get_xlim()[1]

    assert window_s(None) == pytest.approx(ends_s[2])
    assert window_s(1.5) == pytest.approx(1.5)
    assert window_s(1e6) == pytest.approx(ends_s[-1])


def test_nothing_is_covered_cut_off_or_too_small(long_runs):
    """Legends stay off the axes, all text stays inside a 3.5 inch column and is at least 6 pt high."""
    for name, figure in figures(long_runs).items():
        figure.draw_without_rendering()
        legend = figure.legends[0].get_window_extent()
        assert not any(legend.overlaps(axes.get_tightbbox()) for axes in figure.axes), name
        assert figure.get_figwidth() == 3.5, name
        drawn_in, page_in = figure.get_tightbbox(), figure.bbox_inches
        assert Bbox.union([drawn_in, page_in.padded(0.01)]).bounds == page_in.padded(0.01).bounds, name
        assert all(text.get_fontsize() >= 6.0 for text in figure.findobj(Text)), name


def test_panels_of_a_timeline_do_not_overlap(make_run, timeline):
    """Seven short panels, one above the other, keep their labels to themselves."""
    runs = [RunRecords.opened(make_run(f"run-{seed}", devices=2, cohort=1, rounds=3, seed=seed)) for seed in range(7)]
    figure = timeline(runs)
    figure.draw_without_rendering()
    extents = [axes.get_tightbbox() for axes in figure.axes]
    assert all(upper.y0 >= lower.y1 for upper, lower in itertools.pairwise(extents))


def test_the_smallest_run_has_room_for_its_labels(make_run):
    """One device and one round still make figures whose axes are as high as their labels."""
    drawn = figures([RunRecords.opened(make_run("lonely", devices=1, cohort=1, rounds=1))])
    for name, figure in drawn.items():
        figure.draw_without_rendering()
        (axes,) = figure.axes
        label, frame = axes.yaxis.label.get_window_extent(), axes.get_window_extent()
        assert label.height <= frame.height, name


def test_forty_runs_differ_without_colour():
    """No two of the first forty runs share both dashes and marker, so they survive greyscale print."""
    looks = {(str(line_style(i)["linestyle"]), line_style(i)["marker"]) for i in range(40)}
    assert len(looks) == 40


def two_of(run):
    drawn = figures([run])
    return {name: drawn[name] for name in ("accuracy-time", "timeline")}


def test_equal_figures_are_equal_files_whatever_the_users_settings(make_run, tmp_path):
    """Files hold no dates and no user settings: a second rendering under another style has the same bytes."""
    run = RunRecords.opened(make_run("fedavg", rounds=3))
    one = save(two_of(run), tmp_path / "one", ("png", "pdf", "svg"))
    with mpl.rc_context({"font.size": 20, "axes.grid": True, "lines.linewidth": 5, "svg.hashsalt": "x"}):
        two = save(two_of(run), tmp_path / "two", ("png", "pdf", "svg"))
    assert [path.name for path in one] == [path.name for path in two]
    assert all(a.read_bytes() == b.read_bytes() for a, b in zip(one, two, strict=True))
    assert not any(b"CreationDate" in path.read_bytes() or b"<dc:date>" in path.read_bytes() for path in one)


def test_text_in_pdf_is_truetype(make_run, tmp_path):
    """Publishers refuse Type 3 fonts; ours are embedded TrueType."""
    (path,) = save({"latency": figures([RunRecords.opened(make_run("a"))])["round-latency"]}, tmp_path, ("pdf",))
    content = path.read_bytes()
    assert b"/FontFile2" in content
    assert b"/Subtype /Type3" not in content


def test_a_file_is_complete_or_not_there(tmp_path, monkeypatch):
    """A rendering that dies half-way leaves the old file as it was, and no fragment beside it."""
    (path,) = save({"plot": Figure()}, tmp_path / "new" / "folder", ("png",))
    before = path.read_bytes()

    def die_half_way(self, target, **options):
        target.write_bytes(before[:10])
        raise OSError(28, "no space left on device")

    monkeypatch.setattr(Figure, "savefig", die_half_way)
    with pytest.raises(DataError, match="no space"):
        save({"plot": Figure()}, path.parent, ("png",))
    assert path.read_bytes() == before
    assert list(path.parent.iterdir()) == [path]


def test_a_timeline_of_a_part_of_the_run(make_run, timeline):
    """Begin, end, devices and order are those that were asked for; without an end it is that of the run."""
    run = RunRecords.opened(make_run("a"))
    last_s = run.table("rounds")["ended_s"].max()
    part = timeline([run], Window(from_s=2.0, until_s=5.0, devices=(1, 4), sort="busy")).axes[0]
    rest = timeline([run], Window(from_s=2.0)).axes[0]
    assert part.get_xlim() == (2.0, 5.0)
    assert part.get_ylabel() == "Device, by busy"
    assert {tick.get_text() for tick in part.get_yticklabels()} <= {"1", "4"}
    assert rest.get_xlim() == (2.0, pytest.approx(last_s))


@pytest.mark.parametrize(
    ("shown", "problem"),
    [
        (Window(from_s=3.0, until_s=2.0), "until_s: must be after the begin at 3 s, got 2"),
        (Window(from_s=-1.0), "from_s: must be at least 0, got -1 s; leave it out"),
        (Window(from_s=1e9), "from_s: the last run ends at .* s, got 1e\\+09 s; give an earlier time"),
        (Window(sort="bussy"), "sort: no such order of devices, got 'bussy'; did you mean 'busy'?"),
        (Window(devices=(1, 10)), "devices: no such device, got 10; they are numbered 0 to 9"),
        (Window(devices=()), "devices: no device is to be shown, got no number"),
    ],
)
def test_a_timeline_that_would_show_nothing_is_refused(make_run, shown, problem):
    """Each mistake is one sentence."""
    with pytest.raises(FednetError, match=problem):
        figures([RunRecords.opened(make_run("a"))], shown)


def test_runs_side_by_side_have_one_time_axis(make_run, timeline):
    """Runs whose third rounds end at different times are shown up to the later one, and the rows end with each run."""
    runs = [RunRecords.opened(make_run(f"run-{seed}", rounds=rounds, seed=seed)) for seed, rounds in ((1, 3), (2, 30))]
    ends_s = [run.table("rounds")["ended_s"].to_numpy()[2] for run in runs]
    first, second = timeline(runs).axes
    idle = [axes.collections[0].get_paths()[0].vertices[:, 0].max() for axes in (first, second)]

    assert ends_s[0] != pytest.approx(ends_s[1])
    assert first.get_xlim() == second.get_xlim() == (0.0, pytest.approx(max(ends_s)))
    assert idle == [pytest.approx(min(run.table("rounds")["ended_s"].max(), max(ends_s))) for run in runs]


def test_devices_that_did_nothing_are_counted(make_run, timeline):
    """Of ten devices one is invited in each of two rounds: the axis says how many of them have rows."""
    run = RunRecords.opened(make_run("few", cohort=1, rounds=2))
    (axes,) = timeline([run]).axes
    rows = len(axes.get_yticklabels())

    assert rows < 10
    assert axes.get_ylabel() == f"Device\n({rows} of 10)"


def test_the_accuracy_that_ends_runs_is_a_line(make_run):
    """A scenario with `stop.accuracy` has its level drawn, and named, in the figures of the accuracy alone."""
    folder = make_run("a")
    scenario = (folder / "scenario.yaml").read_text(encoding="utf-8")
    (folder / "scenario.yaml").write_text(f"{scenario}stop: {{accuracy: 0.85}}\n", encoding="utf-8")
    drawn = figures([RunRecords.opened(folder)])
    target = drawn["accuracy-bits"].axes[0].get_lines()[-1]

    assert list(target.get_ydata()) == [0.85, 0.85]
    assert [text.get_text() for text in drawn["accuracy-bits"].legends[0].get_texts()] == ["a", "target 0.85"]
    assert len(drawn["loss-time"].axes[0].get_lines()) == 1


def test_the_numbers_of_a_timeline_are_its_bars(make_run, timeline):
    """A row for each bar of each run, in seconds."""
    run = RunRecords.opened(make_run("a"))
    figure = timeline([run])
    numbers = numbers_of(figure)
    computes = run.table("computes")

    assert set(numbers["run"]) == {"a"}
    assert (numbers["activity"] == "compute").sum() == (computes["started_s"] < figure.axes[0].get_xlim()[1]).sum()


@pytest.fixture
def two(make_run):
    return figures([RunRecords.opened(make_run(f"run-{seed}", rounds=5, seed=seed), f"seed {seed}") for seed in (1, 2)])


@pytest.mark.parametrize(("size", "width_in"), [("one-column", 3.5), ("two-column", 7.16)])
def test_a_figure_is_as_wide_as_its_columns(two, size, width_in):
    """The width is that of one or both columns; title, legend and axes stay apart and inside the page."""
    for name, figure in two.items():
        fit_to_page(figure, size, "Two runs of the story, with a title that is too long for a line of one column")
        figure.draw_without_rendering()
        (legend,) = figure.legends
        box = legend.get_window_extent()

        assert figure.get_figwidth() == width_in
        assert legend.get_title().get_text().startswith("Two runs of the story")
        assert len(legend.get_title().get_text().splitlines()) == (2 if size == "one-column" else 1)
        assert not any(box.overlaps(axes.get_tightbbox()) for axes in figure.axes), name
        assert figure.bbox.x0 - 1 <= box.x0 < box.x1 <= figure.bbox.x1 + 1
        assert box.y1 <= figure.bbox.y1 + 1


def test_a_wide_page_needs_fewer_rows_of_a_legend(make_run):
    """Four entries with long labels are below each other in one column, and side by side in two; then back again."""
    runs = [
        RunRecords.opened(make_run(f"run-{seed}", rounds=3, seed=seed), f"access number {seed} of the study")
        for seed in range(4)
    ]
    figure = figures(runs)["round-latency"]
    narrow, height_in = figure.legends[0]._ncols, figure.get_figheight()
    fit_to_page(figure, "two-column")
    wide = figure.legends[0]._ncols
    lower_in = figure.get_figheight()
    fit_to_page(figure, "one-column")

    assert narrow < wide
    assert lower_in < height_in
    assert (figure.legends[0]._ncols, len(figure.legends)) == (narrow, 1)
    assert figure.get_figheight() == pytest.approx(height_in)


def test_a_title_of_a_figure_without_a_legend(make_run):
    """It is above the axes."""
    figure = figures([RunRecords.opened(make_run("a"))])["accuracy-time"]
    fit_to_page(figure, title="A run")
    figure.draw_without_rendering()

    assert figure._suptitle.get_text() == "A run"
    assert figure._suptitle.get_window_extent().y0 >= figure.axes[0].get_tightbbox().y1


def test_the_numbers_of_curves_are_those_of_the_run(make_run):
    """One row for each evaluation of each run, in the units of the axes."""
    runs = [RunRecords.opened(make_run(f"run-{seed}", seed=seed, rounds=5), f"seed {seed}") for seed in (1, 2)]
    numbers = numbers_of(figures(runs)["accuracy-bits"])
    measured = runs[1].table("evaluations")
    second = numbers[numbers["series"] == "seed 2"]

    assert list(numbers.columns) == ["panel", "series", "Bits (Mbit)", "Accuracy"]
    assert second["Accuracy"].tolist() == measured["accuracy"].tolist()
    bits = measured["uplink_bit"] + measured["downlink_bit"]
    assert second["Bits (Mbit)"].to_numpy() == pytest.approx(bits.to_numpy() / 1e6)


def test_numbers_survive_as_csv_and_latex():
    """CSV reads back; LaTeX has a row for each of ours, escapes what it must, and has a dash for what is unknown."""
    numbers = pd.DataFrame({"setting_a": ["50 % & more", "b"], "time (µs)": [1.0 / 3, np.nan], "runs": [5, 0]})
    again = pd.read_csv(io.StringIO(csv_text(numbers, 6)))
    table = latex_text(numbers).splitlines()

    assert again["time (µs)"].tolist() == pytest.approx([0.333333, np.nan], nan_ok=True)
    assert again["setting_a"].tolist() == ["50 % & more", "b"]
    assert table[0] == r"\begin{tabular}{lrr}"
    assert table[2] == r"setting\_a & time (\textmu{}s) & runs \\"
    assert table[4:6] == [r"50 \% \& more & 0.333 & 5 \\", r"b & -- & 0 \\"]


def test_latex_writes_a_mean_and_its_interval_in_one_column():
    """Three digits, mean and half the width; an interval that ends at zero as its ends, so that no time is negative."""
    numbers = pd.DataFrame({
        "method": ["a", "b", "c"],
        "time_to_target_s": [6.8712, 6.0, 12345.6], "time_to_target_s_low": [4.0812, 0.0, np.nan],
        "time_to_target_s_high": [9.6612, 56.8, np.nan],
        "mean (s)": [0.9123, 1.0, 1e-7], "low (s)": [0.9, 1.0, 0.0], "high (s)": [0.9246, 1.0, 2e-7],
    })  # fmt: skip

    assert latex_text(numbers).splitlines()[2:7] == [
        r"method & time\_to\_target\_s & mean (s) \\",
        r"\midrule",
        r"a & $6.87 \pm 2.79$ & $0.912 \pm 0.0123$ \\",
        r"b & 6 (0 to 56.8) & $1 \pm 0$ \\",
        r"c & 12300 & $1e-07 \pm 1e-07$ \\",
    ]


def test_pgf_without_latex_is_a_mistake_in_words(tmp_path, monkeypatch):
    """PGF needs LaTeX, which is not asked for otherwise; nothing is written."""
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(FednetError, match="formats: pgf needs LaTeX for its text, got no lualatex"):
        save({"plot": Figure()}, tmp_path / "out", ("pgf",))
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("levels", "text"),
    [
        ({"network.uplink.access": "tdma", "channel.bandwidth_hz": 1e6}, "tdma, 1 MHz"),
        ({"channel.bandwidth_hz": 5e5}, "500 kHz"),
        ({"channel.bandwidth_hz": 2.5e6, "devices.placement.radius_m": 1500}, "2.5 MHz, 1500 m"),
        ({"devices.count": 10}, "devices = 10"),
        ({"devices.straggler.factor": 40}, "straggler.factor = 40"),
        ({"devices.speed.flop_per_s": 2e7}, "20 MFLOP/s"),
        ({"network.uplink.message_loss": "none"}, "uplink.message loss = none"),
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
