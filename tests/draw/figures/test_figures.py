"""Claims about the figures as a whole, and about the files they become."""

from __future__ import annotations

import itertools

import matplotlib as mpl
import pytest
from matplotlib.figure import Figure
from matplotlib.text import Text
from matplotlib.transforms import Bbox

from fednet_emu.analysis.activity import Window
from fednet_emu.analysis.run import RunRecords
from fednet_emu.draw.figures.page import numbers_of
from fednet_emu.draw.figures.run_figures import figures, save
from fednet_emu.draw.style import line_style
from fednet_emu.errors import DataError, FednetError

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
        RunRecords.opened(make_run(f"run-{seed}", devices=60, cohort=50, rounds=6, seed=seed), label)
        for seed, label in enumerate(LONG_LABELS)
    ]


def test_a_run_has_all_figures(make_run):
    """A run that trained gives accuracy against three costs, loss, the round latencies and the timeline."""
    assert list(figures([RunRecords.opened(make_run("fedavg"))])) == NAMES


def test_an_empty_run_has_no_figures(tmp_path, write_run, make_run):
    """An empty run gives no figure, and does not disturb those of another."""
    empty = RunRecords.opened(write_run(tmp_path / "empty", {}))
    assert figures([empty]) == {}
    assert figures([empty], Window(until_s=5.0)) == {}
    assert figures([]) == {}
    assert list(figures([empty, RunRecords.opened(make_run("fedavg"))])) == NAMES


def test_runs_with_one_name_are_told_apart(make_run):
    """Two seeds of one scenario are two entries of the legend."""
    runs = [RunRecords.opened(make_run(f"run-{seed}", seed=seed), "fedavg") for seed in (1, 2)]
    legend = figures(runs)["round-latency"].legends[0]
    assert [text.get_text() for text in legend.get_texts()] == ["fedavg, seed 1", "fedavg, seed 2"]


def test_the_timeline_shows_three_rounds_or_what_was_asked(make_run):
    """The window ends with the third round by default, at `until_s` when given, and with the run at the latest."""
    run = RunRecords.opened(make_run("fedavg", rounds=8))
    ends_s = run.table("rounds")["ended_s"].to_numpy()

    def window_s(until_s):
        return figures([run], Window(until_s=until_s))["timeline"].axes[0].get_xlim()[1]

    assert window_s(None) == pytest.approx(ends_s[2])
    assert window_s(1.5) == pytest.approx(1.5)
    assert window_s(1e6) == pytest.approx(ends_s[-1])


@pytest.mark.parametrize("until_s", [0.0, -1.0, float("nan")])
def test_a_window_that_ends_before_it_starts_is_refused(until_s):
    """The error says where, what, the value and what would be right."""
    with pytest.raises(FednetError, match=rf"until_s: .* got {until_s:g} s; give a later end"):
        figures([], Window(until_s=until_s))


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


def test_panels_of_a_timeline_do_not_overlap(make_run):
    """Seven short panels, one above the other, keep their labels to themselves."""
    runs = [RunRecords.opened(make_run(f"run-{seed}", devices=2, cohort=1, rounds=3, seed=seed)) for seed in range(7)]
    figure = figures(runs)["timeline"]
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
    """A figure of curves and one of bars."""
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


def test_drawing_leaves_no_state_behind(make_run, tmp_path):
    """Drawing and saving change no matplotlib setting of the process."""
    before = dict(mpl.rcParams)
    save(figures([RunRecords.opened(make_run("a", rounds=2))]), tmp_path, ("png",))
    assert dict(mpl.rcParams) == before


def test_a_timeline_of_a_part_of_the_run(make_run):
    """Begin, end, devices and order are those that were asked for; without an end it is that of the run."""
    run = RunRecords.opened(make_run("a"))
    last_s = run.table("rounds")["ended_s"].max()
    part = figures([run], Window(from_s=2.0, until_s=5.0, devices=(1, 4), sort="busy"))["timeline"].axes[0]
    rest = figures([run], Window(from_s=2.0))["timeline"].axes[0]
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


def test_runs_side_by_side_have_one_time_axis(make_run):
    """Runs whose third rounds end at different times are shown up to the later one, and the rows end with each run."""
    runs = [RunRecords.opened(make_run(f"run-{seed}", rounds=rounds, seed=seed)) for seed, rounds in ((1, 3), (2, 30))]
    ends_s = [run.table("rounds")["ended_s"].to_numpy()[2] for run in runs]
    first, second = figures(runs)["timeline"].axes
    idle = [axes.collections[0].get_paths()[0].vertices[:, 0].max() for axes in (first, second)]

    assert ends_s[0] != pytest.approx(ends_s[1])
    assert first.get_xlim() == second.get_xlim() == (0.0, pytest.approx(max(ends_s)))
    assert idle == [pytest.approx(min(run.table("rounds")["ended_s"].max(), max(ends_s))) for run in runs]


def test_devices_that_did_nothing_are_counted(make_run):
    """Of ten devices one is invited in each of two rounds: the axis says how many of them have rows."""
    run = RunRecords.opened(make_run("few", cohort=1, rounds=2))
    (axes,) = figures([run])["timeline"].axes
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


def test_the_numbers_of_a_timeline_are_its_bars(make_run):
    """A row for each bar of each run, in seconds."""
    run = RunRecords.opened(make_run("a"))
    figure = figures([run])["timeline"]
    numbers = numbers_of(figure)
    computes = run.table("computes")

    assert set(numbers["run"]) == {"a"}
    assert (numbers["activity"] == "compute").sum() == (computes["started_s"] < figure.axes[0].get_xlim()[1]).sum()
