"""Claims about the figures of studies: what is read off their lines, bars and points is what the tables say."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from matplotlib.colors import to_hex
from matplotlib.text import Text

from fednet_emu.analysis.ranking import rank
from fednet_emu.analysis.scales import COSTS
from fednet_emu.analysis.settings import settings_of
from fednet_emu.analysis.statistics import band_of, mean_interval
from fednet_emu.analysis.study import StudyRecords
from fednet_emu.draw.figures.page import fit_to_page, numbers_of
from fednet_emu.draw.figures.study_curves import Layout
from fednet_emu.draw.figures.study_figures import study_figures
from fednet_emu.draw.figures.study_pareto import pareto_figure
from fednet_emu.draw.figures.study_rows import bar_figure, best_figure, difference_figure, fanned
from fednet_emu.draw.page.study_page import pareto
from fednet_emu.draw.palette import BLUE
from fednet_emu.draw.style import line_style

Runs = dict[str, list[tuple[list[float], list[float]]]]
"""For each setting its seeds, each with the times (s) and accuracies of its evaluations."""


def view_of(runs: Runs, target: float | None = None, data_sets: Sequence[str] = ("",)) -> StudyRecords:
    """A study of one axis `air`, whose runs take 1 Mbit and 2 J a second."""
    parts, rows = [], []
    for air, seeds in runs.items():
        for seed, (times_s, scores) in enumerate(seeds):
            keys = {"air": air, "seed": seed, "run": f"{air}{seed}"}
            time_s, score = np.array(times_s, float), np.array(scores, float)
            bits = {"uplink_bit": time_s * 1e6, "downlink_bit": 0.0, "sidelink_bit": 0.0, "total_bit": time_s * 1e6}
            unknown = dict.fromkeys(("worst_accuracy", "std_accuracy", "worst_train_loss", "attack_success"), np.nan)
            costs = {"round": np.arange(len(time_s)), "simulated_s": time_s, **bits, "energy_j": 2 * time_s}
            parts.append(pd.DataFrame({**keys, **costs, "loss": 1 - score, "accuracy": score, **unknown}))
            reached = time_s[score >= target].min(initial=math.inf) if target is not None else math.inf
            needed = reached if math.isfinite(reached) else math.nan
            names = ("time_to_target_s", "bits_to_target", "energy_to_target_j")
            rows.append({**keys, "status": "done", "accuracy": score[-1], "loss": 1 - score[-1],
                          "simulated_s": time_s[-1], "total_bit": time_s[-1] * 1e6, "energy_j": 2 * time_s[-1],
                          **dict(zip(names, (needed, needed * 1e6, needed * 2), strict=True)), **unknown})  # fmt: skip
    goal = {} if target is None else {"accuracy": target}
    known = pd.DataFrame(rows).assign(data_set=data_sets if len(data_sets) > 1 else data_sets[0])
    return StudyRecords("story", {"air": list(runs)}, goal, pd.concat(parts), known, ())


def grid_of(axes: dict[str, list]) -> StudyRecords:
    """A study of all combinations of these axes, with two seeds each, of which the long one reaches 0.5."""
    levels = {str(each): dict(zip(axes, each, strict=True)) for each in itertools.product(*axes.values())}
    view = view_of({name: [SHORT, LONG] for name in levels}, 0.5)
    columns = {axis: {name: its[axis] for name, its in levels.items()} for axis in axes}
    runs, evaluations = (
        table.assign(**{axis: table["air"].map(of_name) for axis, of_name in columns.items()})
        for table in (view.runs, view.evaluations)
    )
    return replace(view, axes=axes, runs=runs, evaluations=evaluations)


AXES = {
    "network.uplink.access": ["tdma", "ofdma"],
    "channel.bandwidth_hz": [5e5, 1e6, 2.5e6],
    "devices.count": [10, 20],
    "devices.straggler.factor": [1.5, 40],
    "devices.speed.flop_per_s": [2e7],
    "devices.placement.radius_m": [100, 1500],
    "network.uplink.message_loss": ["none"],
    "network.downlink.message_loss": ["none"],
    "training.tf32": [True],
    "algorithm.lr": [0.05],
    "server.lr": [1.0],
}


def entries(figure) -> list[str]:
    return [text.get_text() for text in figure.legends[0].get_texts()]


SHORT, LONG = ([0.0, 1.0, 4.0], [0.0, 0.2, 0.4]), ([0.0, 3.0, 10.0], [0.0, 0.6, 0.8])


def test_runs_that_have_ended_keep_their_last_value():
    """Of two runs, one ends at 4: the mean goes on to the common end, 12, with it, and one run left after 4."""
    its = band_of(view_of({"a": [SHORT, LONG]}).evaluations, "accuracy", COSTS["time"], 200, 12.0)
    at = dict(zip(its.spent.tolist(), zip(its.mean.tolist(), its.runs.tolist(), strict=True), strict=True))

    assert (its.spent[0], its.spent[-1]) == (0.0, 12.0)
    assert at[4.0] == (pytest.approx((0.4 + 0.6) / 2), 2)
    assert at[10.0] == (pytest.approx((0.4 + 0.8) / 2), 1)
    assert at[12.0] == (pytest.approx((0.4 + 0.8) / 2), 0)


def test_lines_go_on_to_the_common_end_and_say_how_many_runs_are_left():
    """The line is thin from the end of its first run on; a 1 stands where one of two runs is left."""
    figure = study_figures(view_of({"a": [SHORT, LONG], "b": [LONG, LONG]}), against="time")["accuracy-time"]
    whole, after, falls = figure.axes[0].get_lines()[:3]
    numbers = numbers_of(figure)

    assert whole.get_xdata()[-1] == pytest.approx(4.0)
    assert (after.get_xdata()[0], after.get_xdata()[-1]) == (pytest.approx(4.0), 10.0)
    assert after.get_linewidth() < whole.get_linewidth()
    assert list(falls.get_xdata()) == [4.0]
    assert [text.get_text() for text in figure.axes[0].texts] == ["1"]
    assert entries(figure) == ["a", "b", "95 %, clipped to axes", "after a run's end", "runs still going"]
    ends = numbers.groupby("air").last()
    assert ends["accuracy"].to_dict() == pytest.approx({"a": 0.6, "b": 0.8})
    assert numbers.loc[numbers["air"] == "a", "remaining runs"].unique().tolist() == [2, 1]


def test_bands_beyond_the_possible_are_said():
    """Student's interval of 0.1 and 0.9 is -4.6 to 5.6: an accuracy is from 0 to 1, and the legend says that."""
    apart = [([0.0, 1.0, 2.0], [score] * 3) for score in (0.1, 0.9)]
    figure = study_figures(view_of({"a": apart}), against="time")["accuracy-time"]
    corners = figure.axes[0].collections[0].get_paths()[0].vertices[:, 1]

    assert (corners.min(), corners.max()) == (0.0, 1.0)
    assert figure.axes[0].get_ylim() == pytest.approx((-0.05, 1.05))
    assert entries(figure) == ["95 %, clipped to axes"]


@pytest.mark.parametrize(("metric", "scores"), [("perplexity", (6.0, 8.0)), ("r2", (-0.5, -0.3))])
def test_scores_beyond_one_and_below_zero_are_shown(metric, scores):
    """A perplexity is at least 1 and an R2 at most that: the axis has what was measured, and nothing is cut."""
    view = view_of({"a": [([0.0, 1.0, 2.0], [score] * 3) for score in scores]})
    own = view.evaluations.assign(**{metric: view.evaluations["accuracy"]}).drop(columns="accuracy")
    figure = study_figures(replace(view, evaluations=own), metric=metric, against="time")[f"{metric}-time"]
    least, most = figure.axes[0].get_ylim()
    interval = mean_interval(np.array(scores))

    bounds = (
        (max(interval.low, 0.0), interval.high) if metric == "perplexity" else (interval.low, min(interval.high, 1.0))
    )
    margin = 0.05 * (bounds[1] - bounds[0])
    assert (least, most) == pytest.approx((bounds[0] - margin, bounds[1] + margin))


def test_a_study_that_aims_at_a_loss_shows_the_loss():
    """Curves have it with its target as a line, differences too; pages list it first."""
    view = replace(view_of({"a": [LONG, SHORT], "b": [SHORT, LONG]}, 0.6), target={"loss": 0.4})
    figures = study_figures(view)

    assert {"loss-time", "loss-bits", "loss-energy", "loss-rounds", "differences"} <= set(figures)
    assert list(figures["loss-time"].axes[0].get_lines()[-1].get_ydata()) == [0.4, 0.4]
    assert "Loss at the end" in figures["differences"].axes[-1].get_xlabel()
    assert list(view.metrics) == ["loss", "accuracy"]


def test_lines_that_coincide_are_said_to():
    """Equal settings cannot be told apart in a picture, different ones can."""
    same = study_figures(view_of({"a": [LONG], "b": [LONG]}), against="bits")["accuracy-bits"]
    other = study_figures(view_of({"a": [LONG], "b": [SHORT]}), against="bits")["accuracy-bits"]

    assert "lines coincide" in [text.get_text() for text in same.axes[0].texts]
    assert "lines coincide" not in [text.get_text() for text in other.axes[0].texts]


def test_lines_that_differ_on_every_seed_do_not_coincide():
    """The means 0.1 and 0.104 are 1 % of the axis apart, which a target of 0.9 stretches."""
    runs = {air: [([0.0, 1.0], [score, score])] * 6 for air, score in (("a", 0.1), ("b", 0.104))}
    figure = study_figures(view_of(runs, 0.9), against="bits")["accuracy-bits"]

    assert "lines coincide" not in [text.get_text() for text in figure.axes[0].texts]


def test_a_run_that_diverged_is_marked():
    """A cross marks its last finite score. The line of a setting ends with its last run if all runs diverged."""
    view = view_of({"a": [LONG, LONG], "b": [SHORT, LONG], "c": [SHORT, SHORT]})
    lost = view.runs["run"].isin(["b0", "c0", "c1"])
    view = replace(view, runs=view.runs.assign(status=np.where(lost, "diverged", "done")))
    figure = study_figures(view, against="time")["accuracy-time"]
    crosses = [line for line in figure.axes[0].get_lines() if line.get_marker() == "x"]

    assert [line.get_xydata().tolist() for line in crosses] == [[[4.0, 0.5]], [[4.0, 0.4], [4.0, 0.4]]]
    assert numbers_of(figure).groupby("air").last().iloc[:, 0].to_dict() == {"a": 10.0, "b": 10.0, "c": 4.0}
    assert "run diverged" in entries(figure)


@pytest.mark.filterwarnings("error")
def test_costs_that_are_all_zero_have_an_axis_from_zero():
    """The untrained model reaches the target: no bar has a length, and nothing is warned of."""
    view = view_of({"a": [LONG, LONG], "b": [SHORT, LONG]}, 0.0)
    figure = bar_figure(view, COSTS["time"], Layout.of(view, None))

    assert figure.axes[0].get_xlim()[0] == 0.0


def test_the_target_is_a_line():
    """It is at its level, inside the axis, and in the legend."""
    figure = study_figures(view_of({"a": [LONG], "b": [SHORT]}, 0.9), against="time")["accuracy-time"]
    target = figure.axes[0].get_lines()[-1]

    assert list(target.get_ydata()) == [0.9, 0.9]
    assert figure.axes[0].get_ylim()[1] > 0.9
    assert "target 0.9" in entries(figure)


def test_nine_settings_have_nine_colours():
    """Lines of a figure never share a colour, as far as curves are drawn by default and beyond."""
    assert len({line_style(index)["color"] for index in range(9)}) == 9


@pytest.mark.parametrize("size", [None, pytest.param("two-column", marks=pytest.mark.slow)])
def test_a_legend_leaves_most_of_a_figure_to_the_data(size):
    """Six settings with long keys: the legend of no figure is higher than a quarter of it, and no title is too wide."""
    keys = ("network.uplink.access", "channel.bandwidth_hz")
    figures = study_figures(grid_of({name: AXES[name] for name in keys}))
    numbers = {"network.uplink.access": ["tdma", "ofdma"], "devices.straggler.factor": [1.5, 2, 3, 4]}
    figures |= study_figures(grid_of(numbers), panels=[], against="time")

    assert {"accuracy-time", "accuracy-bits", "time-to-target", "pareto"} <= figures.keys()
    for name, figure in figures.items():
        fit_to_page(figure, size)
        figure.draw_without_rendering()
        for legend in figure.legends:
            assert legend.get_window_extent().height < 0.25 * figure.bbox.height, name
        titles = [axes.title.get_window_extent() for axes in figure.axes if axes.get_title()]
        for one, other in itertools.combinations(titles, 2):
            assert one.x1 < other.x0 or other.x1 < one.x0 or one.y1 < other.y0 or other.y1 < one.y0, name


def bars_of(figure) -> dict[float, float]:
    """The bars of the first panel: row -> length."""
    return {bar.get_y() + 0.35: bar.get_width() for bar in figure.axes[0].patches}


def test_runs_that_never_reached_the_target_are_failures():
    """Nobody of `b` and one of three of `c` fails: no bar and three crosses; a bar of the other two, and a cross."""
    view = view_of({"a": [LONG] * 3, "b": [SHORT] * 3, "c": [LONG, SHORT, LONG]}, 0.5)
    figure = bar_figure(view, COSTS["time"], Layout.of(view, None))
    crosses = {
        float(line.get_ydata()[0]): len(line.get_xdata())
        for line in figure.axes[0].get_lines()
        if line.get_marker() == "x"
    }
    words = [text.get_text() for text in figure.findobj(Text)]
    places = [line.get_xdata().min() for line in figure.axes[0].get_lines() if line.get_marker() == "x"]

    assert min(places) > 1.0, "beyond the end of the axis, where a place is no time"
    assert bars_of(figure) == pytest.approx({0.0: 3.0, 2.0: 3.0})
    assert crosses == {1.0: 3, 2.0: 1}
    assert {"0 of 3 runs", "2 of 3 runs"} <= set(words)
    assert entries(figure) == ["95 % interval over seeds", "run that never got there"]
    assert numbers_of(figure)[["runs", "reached", "mean (s)"]].values.tolist()[::2] == [[3, 3, 3.0], [3, 2, 3.0]]


def test_many_failures_are_a_number():
    """Eight crosses would cover the bar: one stands for them, with their number."""
    view = view_of({"a": [LONG] * 8, "b": [SHORT] * 8}, 0.5)
    figure = bar_figure(view, COSTS["bits"], Layout.of(view, None))

    assert "8" in [text.get_text() for text in figure.axes[0].texts]
    assert [len(line.get_xdata()) for line in figure.axes[0].get_lines() if line.get_marker() == "x"] == [1]


def test_an_interval_of_costs_is_clipped_at_zero():
    """Student's interval of 3 s and 30 s begins below 0: an arrow head is at 0, and the table of numbers has 0."""
    late = ([0.0, 30.0], [0.0, 0.6])
    view = view_of({"a": [LONG, late]}, 0.5)
    figure = bar_figure(view, COSTS["time"], Layout.of(view, None))
    ends = {
        line.get_marker(): float(line.get_xdata()[0])
        for line in figure.axes[0].get_lines()
        if len(line.get_xdata()) == 1 and line.get_marker() in ("|", "<")
    }

    assert ends == pytest.approx({"<": 0.0, "|": mean_interval(np.array([3.0, 30.0])).high})
    assert entries(figure) == ["95 % interval over seeds (arrow: clipped)"]
    assert numbers_of(figure)["low (s)"].tolist() == [0.0]
    assert "95 % interval over seeds (arrow: clipped)" in entries(best_figure(rank(view)))


def test_bars_of_many_settings_have_one_colour():
    """More settings than colours: rows are told apart by their names, and no colour comes twice."""
    view = view_of({f"kind-{place}": [LONG] for place in range(12)}, 0.5)
    figure = bar_figure(view, COSTS["time"], Layout.of(view, None))

    assert {to_hex(bar.get_facecolor()) for bar in figure.axes[0].patches} == {BLUE.lower()}


def test_differences_are_paired_by_seed():
    """Seeds end at 0.4 and 0.8 in both, plus 0.05 and 0.07 in b: the mean difference is 0.06, of two seeds."""
    b = [(times, [*scores[:-1], scores[-1] + more]) for (times, scores), more in ((SHORT, 0.05), (LONG, 0.07))]
    view = view_of({"a": [SHORT, LONG], "b": b, "c": [SHORT, LONG]})
    figure = difference_figure(view, "accuracy", Layout.of(view, None))
    (axes,) = figure.axes
    means = [line.get_xdata()[0] for line in axes.get_lines() if line.get_label() == "mean"]
    seeds = [list(line.get_xdata()) for line in axes.get_lines() if line.get_label() == "runs"]

    assert means == pytest.approx([0.06, 0.0])
    assert seeds[0] == pytest.approx([0.05, 0.07])
    assert [tick.get_text() for tick in axes.get_yticklabels()] == ["b", "c"]
    assert axes.get_xlabel() == "Accuracy at the end, minus that\nof a"
    assert numbers_of(figure)["pairs"].tolist() == [2, 2]
    assert entries(figure) == ["seed", "mean"], "two seeds have no interval"
    renamed = difference_figure(view, "accuracy", Layout.of(view, None, {"a": "deadline = 0.02"}))
    assert renamed.axes[0].get_xlabel() == "Accuracy at the end, minus that\nof deadline = 0.02"


def test_without_differences_there_is_no_such_figure():
    """One setting, one seed, or equal scores have nothing to show."""
    for runs in ({"a": [LONG, LONG]}, {"a": [LONG], "b": [SHORT]}, {"a": [LONG, SHORT], "b": [LONG, SHORT]}):
        view = view_of(runs)
        assert difference_figure(view, "accuracy", Layout.of(view, None)) is None


def fronts_of(figure) -> dict[str, list[tuple[str, float]]]:
    """Setting and accuracy of the points on the front of each cost."""
    return {
        str(cost): list(zip(part["air"], part["accuracy"], strict=True))
        for cost, part in numbers_of(figure).groupby("front", sort=False)
    }


def test_each_cost_has_its_front_energy_too():
    """`b` is as accurate as `a` later: it is on no front; time, data and energy have a panel each."""
    figure = pareto_figure(
        view_of({"a": [([0.0, 1.0, 2.0], [0.1, 0.5, 0.8])], "b": [([0.0, 3.0, 4.0], [0.1, 0.5, 0.8])]})
    )
    expected = [("a", 0.5), ("a", 0.8)]

    assert [axes.get_xlabel() for axes in figure.axes] == ["Time (s)", "Bits (Mbit)", "Energy (J)"]
    assert fronts_of(figure) == {"time": expected, "bits": expected, "energy": expected}
    assert entries(figure) == ["a", "not on the front"]


def test_energy_is_weighed_against_time():
    """Each setting is its mean energy and time to the target; a line joins those that none beats in both."""
    view = view_of({"a": [LONG], "b": [LONG], "c": [LONG], "d": [LONG]}, 0.5)
    spent = {"time_to_target_s": [1.0, 2.0, 3.0, 2.0], "energy_to_target_j": [9.0, 4.0, 5.0, 4.0]}
    figure = study_figures(replace(view, runs=view.runs.assign(**spent)))["front-energy-time"]
    numbers = numbers_of(figure)

    assert numbers["front"].tolist() == [True, True, False, True]
    assert numbers[["simulated_s", "energy_j"]].to_numpy().T.tolist() == list(spent.values())
    line, beaten, *points = figure.axes[0].get_lines()
    assert line.get_xydata().tolist() == [[1.0, 9.0], [2.0, 4.0], [2.0, 4.0]]
    assert beaten.get_xydata().tolist() == [[3.0, 5.0]]
    assert [point.get_fillstyle() for point in points] == ["full", "full", "none"], "the ring around b is d"
    assert points[2].get_markersize() > points[1].get_markersize()
    assert entries(figure) == ["a", "b", "d", "not on the front"]
    axes = figure.axes[0]
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("Time to accuracy 0.5 (s)", "Energy to accuracy 0.5 (J)")
    assert "front-energy-time" not in study_figures(view_of({"a": [LONG]}, 0.5)), "one setting has nothing to weigh"


def test_runs_that_coincide_stand_side_by_side():
    """Three of 5 s and one of 6 s in a row: three heights, symmetrical about the middle, within the row."""
    offsets = fanned(np.array([5.0, 5.0, 6.0, 5.001]))

    assert offsets.tolist() == pytest.approx([-0.14, 0.0, 0.0, 0.14])
    assert np.abs(fanned(np.full(40, 3.0))).max() <= 0.3
    assert fanned(np.array([])).tolist() == fanned(np.array([7.0]))[:0].tolist() == []


def test_the_figure_and_the_page_have_one_front():
    """The same settings and rounds, also where a first round is hardly better than the untrained model."""
    runs = {
        "quick": [([0.0, 1.0, 2.0, 3.0], [0.1, 0.13, 0.5, 0.8])],
        "slow": [([0.0, 2.0, 4.0, 6.0], [0.1, 0.4, 0.7, 0.9])],
        "lost": [([0.0, 0.5, 1.0], [0.1, 0.6, 0.7])],
    }
    view = view_of(runs, 0.5)
    view.runs.loc[view.runs["air"] == "lost", "status"] = "diverged"
    told = pareto(view, settings_of(view))["rounds"]
    of_page = {
        cost: {(told["setting"][place], told["accuracy"][place]) for place in told["fronts"][f"{column}:accuracy"]}
        for cost, column in (("time", "simulated_s"), ("bits", "total_bit"), ("energy", "energy_j"))
    }
    place = {"quick": 0.0, "slow": 1.0}
    of_figure = {
        cost: {(place[air], score) for air, score in part} for cost, part in fronts_of(pareto_figure(view)).items()
    }

    assert of_figure == of_page
    assert of_page["time"] == {(0.0, 0.5), (0.0, 0.8), (1.0, 0.9)}, "0.13 is less than a tenth of the way to 0.9"


def test_settings_with_different_data_have_fronts_of_their_own():
    """An easy data set does not beat a hard one: each has a row, named by the levels that its settings share."""
    runs = {"easy": [([0.0, 1.0], [0.1, 0.9])], "hard": [([0.0, 1.0], [0.1, 0.5])]}
    alone = pareto_figure(view_of(runs))
    apart = pareto_figure(view_of(runs, data_sets=["digits", "faces"]))

    assert fronts_of(alone)["time"] == [("easy", 0.9)]
    assert fronts_of(apart)["time"] == [("easy", 0.9), ("hard", 0.5)]
    assert len(apart.axes) == 2 * len(alone.axes)
    assert [axes.get_title(loc="left") for axes in apart.axes[::3]] == ["easy", "hard"]
    assert numbers_of(apart)["data"].unique().tolist() == ["easy", "hard"]


def test_final_scores_are_those_of_the_runs():
    """Each run has its point, each setting its mean; an interval beyond 0 to 1 ends there with an arrow head."""
    view = view_of({"a": [LONG] * 3, "b": [LONG] * 3})
    assert "final" not in study_figures(view)

    view.runs["worst_accuracy"] = [0.5, 0.6, 0.7, 0.1, 0.9, 0.8]
    figure = study_figures(view)["final"]
    (axes,) = figure.axes
    runs, means, cut = (
        [list(line.get_xdata()) for line in axes.get_lines() if line.get_label() == label]
        for label in ("runs", "mean", "cut")
    )
    assert runs == [[0.5, 0.6, 0.7], [0.1, 0.9, 0.8]]
    assert means == [pytest.approx([0.6]), pytest.approx([0.6])]
    assert cut == [[0.0], [1.0]]
    assert [tick.get_text() for tick in axes.get_yticklabels()] == ["a", "b"]
    assert entries(figure) == ["run", "mean", "95 % interval over seeds (arrow: clipped)"]
