"""Claims about the curves that overlay runs."""

from __future__ import annotations

import numpy as np
import pytest

from fednet_emu.draw.figures.curves import latency_figure, progress_figures
from fednet_emu.draw.style import line_style


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
