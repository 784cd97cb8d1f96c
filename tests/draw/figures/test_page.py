"""Claims about figures on a page: width, title, and the numbers behind them."""

from __future__ import annotations

import io

import numpy as np
import pandas as pd
import pytest

from fednet_emu.analysis.run import RunRecords
from fednet_emu.draw.figures.page import fit_to_page, latex_text, numbers_of
from fednet_emu.draw.figures.run_figures import figures, save
from fednet_emu.errors import FednetError
from fednet_emu.files.writing import csv_text


@pytest.fixture
def two(make_run):
    """The figures of two runs with a legend."""
    return figures([RunRecords.opened(make_run(f"run-{seed}", seed=seed), f"seed {seed}") for seed in (1, 2)])


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
        RunRecords.opened(make_run(f"run-{seed}", seed=seed), f"access number {seed} of the study") for seed in range(4)
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


def test_an_unknown_size_is_refused(two):
    """The error names the sizes."""
    with pytest.raises(FednetError, match="got 'one-colum'; did you mean 'one-column'"):
        fit_to_page(two["timeline"], "one-colum")


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


def test_tables_are_written_beside_the_pictures(two, tmp_path):
    """Each figure has its CSV and its LaTeX table."""
    written = save({"timeline": two["timeline"]}, tmp_path, ("svg",), csv=True, latex=True)

    assert [path.name for path in written] == ["timeline.svg", "timeline.csv", "timeline.tex"]
    assert all(path.stat().st_size > 0 for path in written)


def test_pgf_without_latex_is_a_mistake_in_words(two, tmp_path, monkeypatch):
    """PGF needs LaTeX, which is not asked for otherwise; nothing is written."""
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(FednetError, match="formats: pgf needs LaTeX for its text, got no lualatex"):
        save(two, tmp_path / "out", ("pgf",))
    assert not (tmp_path / "out").exists()
