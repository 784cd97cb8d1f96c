"""Comparisons and figures of studies, on made-up tables."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from d2d_cost import multiples, spent, with_transmissions

from fednet_emu.analysis.comparison import EVERYWHERE, Comparison, between, compare, differences, sentence
from fednet_emu.analysis.fronts import mean_progress
from fednet_emu.analysis.run import RunRecords
from fednet_emu.analysis.scales import TO_TARGET, first_reached
from fednet_emu.analysis.settings import settings_of
from fednet_emu.analysis.statistics import paired_difference, step_values
from fednet_emu.analysis.study import StudyRecords, conditions, level_text
from fednet_emu.draw.figures.series import groups_figure
from fednet_emu.draw.figures.study_curves import Layout
from fednet_emu.draw.figures.study_figures import study_figures
from fednet_emu.errors import FednetError

SIX = ("tdma", "ofdma, equal parts of the band", "noma", "shared, at most 2", "slotted-aloha", "sidelink relay, 3 hops")


def study(axes: dict[str, list], speed=lambda **_levels: 1.0, *, seeds: int = 5, rounds: int = 10) -> StudyRecords:
    """A study in which accuracy grows by 0.1 per round, and a round takes 1 s / speed plus what is the seed's."""
    rows, runs = [], []
    for levels in itertools.product(*axes.values()):
        for seed in range(seeds):
            keys = {**dict(zip(axes, levels, strict=True)), "seed": seed, "run": f"{levels}{seed}"}
            round_s = (1.0 + 0.1 * seed) / speed(**dict(zip(axes, map(str, levels), strict=True)))
            evaluations = pd.DataFrame(
                {
                    **keys,
                    "round": range(rounds + 1),
                    "simulated_s": np.arange(rounds + 1) * round_s,
                    "uplink_bit": np.arange(rounds + 1) * 1e6,
                    "downlink_bit": 0,
                    "sidelink_bit": 0,
                    "total_bit": np.arange(rounds + 1) * 1e6,
                    "energy_j": np.arange(rounds + 1) * 0.5,
                    "loss": 1.0 / (1 + np.arange(rounds + 1)),
                    "accuracy": np.arange(rounds + 1) / 10,
                    "worst_accuracy": np.nan,
                    "std_accuracy": np.nan,
                    "worst_train_loss": np.nan,
                    "attack_success": np.nan,
                }
            )
            rows.append(evaluations)
            last = evaluations.iloc[-1][["simulated_s", "total_bit", "energy_j", "loss", "accuracy"]].to_dict()
            runs.append(
                {
                    **keys,
                    "status": "done",
                    **last,
                    **first_reached(evaluations, [keys["run"]], "accuracy", 0.55).iloc[0],
                }
            )
    table = pd.concat(rows, ignore_index=True)
    return StudyRecords("story", axes, {"accuracy": 0.55}, table, pd.DataFrame(runs), ())


def test_differences_are_paired_by_seed_and_by_place():
    """B is twice as fast: 3 s, 3.3 s, ... less to the target at every size; seeds, not runs, are the repetitions."""
    view = study({"air": ["a", "b"], "size": [1, 2]}, lambda air, size: 2.0 if air == "b" else 1.0, seeds=6)
    found = compare(view.where({"air": "a"}), view.where({"air": "b"}))
    by = {(difference.where, difference.quantity.title): difference for difference in found}

    for where in ("size=1", "size=2", "all together"):
        found, over = by[where, "time to target"], " on average over size" if where == EVERYWHERE else ""
        assert found.pairs == 6
        assert found.paired == pytest.approx((-3.75, -4.5, -3.0, 2 / 2**6)), "six of one sign: from least to largest"
        assert sentence(found, ("a", "b"), view.target) == (
            f"with b, accuracy 0.55 is reached 3.75 s sooner than with a{over}, on 6 of 6 seeds "
            "(mean -3.75 s, 95 % -4.5 s to -3 s): the interval excludes zero"
        )
        assert found.signs == (6, 0), "B needs less in every pair"
    same = sentence(by["all together", "bits to target"], ("a", "b"), view.target)
    assert same == "bits to target are the same with a and b on every seed"


def test_pairs_without_the_target_are_said():
    """A run that never reaches the target is counted as such, and its pair is left out."""
    view = study({"air": ["a", "b"]}, lambda air: 2.0 if air == "b" else 1.0)
    late = (view.runs["air"] == "b") & (view.runs["seed"] < 2)
    view.runs.loc[late, "time_to_target_s"] = np.nan
    first, second = view.where({"air": "a"}), view.where({"air": "b"})

    text = str(Comparison(("a", "b"), compare(first, second), view.target))
    assert (
        "  time to target: accuracy 0.55 is reached on 5 of 5 seeds with A and on 3 with B, and only 3 seeds with both "
        "count: with B, accuracy 0.55 is reached 3.9 s sooner than with A (mean -3.9 s)\n"
        "    A 7.8 s, B 3.9 s, pairs: 3\n"
    ) in text
    view.runs.loc[(view.runs["air"] == "b") & (view.runs["seed"] < 4), "time_to_target_s"] = np.nan
    text = str(Comparison(("a", "b"), compare(view.where({"air": "a"}), view.where({"air": "b"})), view.target))
    assert "on 1 with B, and only 1 seed with both counts: with B, accuracy 0.55 is reached 4.2 s sooner" in text
    assert "than with A on one seed, which does not show how much seeds vary" in text
    view.runs.loc[view.runs["air"] == "b", "time_to_target_s"] = [6.0, np.nan, np.nan, np.nan, np.nan]
    (its,) = [
        each
        for each in compare(view.where({"air": "a"}), view.where({"air": "b"}))
        if each.quantity.column == "time_to_target_s"
    ]
    assert sentence(its, ("A", "B"), view.target) == (
        "accuracy 0.55 is reached on 5 of 5 seeds with A and on 1 with B, and only 1 seed with both counts: "
        "time to target is the same with A and B"
    )


def test_a_target_that_no_side_reaches_is_said():
    """0.55 is beyond five rounds; without scores there is nothing to say about a target."""
    view = study({"air": ["a", "b"], "size": [1, 2]}, rounds=5)
    rows = between(view, ("air=a", "air=b")).frame.set_index("quantity")

    assert set(rows.loc["time_to_target_s", "sentence"]) == {"accuracy 0.55 is never reached with A or B"}
    assert "bits_to_target" not in rows.index
    timing = replace(view, evaluations=view.evaluations.assign(accuracy=np.nan))
    assert "time_to_target_s" not in set(between(timing, ("air=a", "air=b")).frame["quantity"])


def test_a_target_that_needs_no_training_has_no_verdict():
    """The loss of the untrained model, 1, meets a loss of 1.2; with B only after a round, which says nothing."""
    view = study({"air": ["a", "b"]}, seeds=6)
    start = (view.evaluations["air"] == "b") & (view.evaluations["round"] == 0)
    view.evaluations.loc[start, "loss"] = 2.0
    told = between(view.aiming_at(loss=1.2), ("air=a", "air=b"))
    rows = told.frame.set_index("quantity")

    assert rows.loc["time_to_target_s", "sentence"] == (
        "of 6 seeds, the untrained model meets loss 1.2 on 6 with A; lower the target"
    )
    assert "A 0 s, B 1.25 s, pairs: 6\n" in str(told)
    assert not any(each["certain"] for each in differences(view.aiming_at(loss=1.2)))
    low = view.aiming_at(accuracy=1e-9)
    low.evaluations["accuracy"] += 0.1
    assert "of 6 seeds, the untrained model meets accuracy 0.1 on 6 with A and 6 with B; raise the target" in str(
        between(low.aiming_at(accuracy=0.1), ("air=a", "air=b"))
    )


def test_costs_of_two_targets_are_not_compared():
    """What 0.55 costs says nothing beside what 0.8 costs; final scores and costs of whole runs remain."""
    view = study({"air": ["a", "b"]})
    first, second = view.where({"air": "a"}).aiming_at(0.55), view.where({"air": "b"}).aiming_at(0.8)

    assert "time_to_target_s" in {its.quantity.column for its in compare(first, second.aiming_at(0.55))}
    found = {its.quantity.column for its in compare(first, second)}
    assert found == {"accuracy", "loss", "simulated_s", "total_bit", "energy_j"}


def test_levels_are_compared_as_values():
    """1e5 and 1.000004e5 have one text with six digits: B is 2 times as fast, and both are written apart."""
    levels = [1.0e5, 1.000004e5]
    view = study({"channel.bandwidth_hz": levels}, lambda **its: 2.0 if "100000.4" in its.values() else 1.0, seeds=6)
    texts = [f"channel.bandwidth_hz={level_text(level)}" for level in levels]
    found = between(view, (texts[0], texts[1]))

    assert found.names == ("channel.bandwidth_hz=100000", "channel.bandwidth_hz=100000.4")
    assert found.frame.set_index("quantity").loc["time_to_target_s", ["a", "b"]].tolist() == [7.5, 3.75]
    assert [its.label for its in settings_of(view)] == ["100 kHz", "100.0004 kHz"]
    assert {its["quantity"]: its["certain"] for its in differences(view)}["time_to_target_s"]


def test_levels_may_read_as_conditions():
    """A finalist of a search is a level `access=..., lr=...` of the axis `setting`, with its commas."""
    levels = ["access=tdma, lr=0.1", "access=ofdma, lr=0.1"]
    view = study({"setting": levels, "size": [1, 2]}, seeds=1)

    assert between(view, (f"setting={levels[0]}", f"setting={levels[1]}")).differences[0].pairs == 1
    text = f"size=2, setting={levels[1]}"
    assert conditions(text, "--where", view.axes) == {"size": "2", "setting": levels[1]}
    with pytest.raises(FednetError, match=r"got 'noma'; its levels: access=tdma, lr=0.1; access=ofdma, lr=0.1$"):
        view.where(conditions("setting=noma", "--where", view.axes))
    for twice in ("size=1,size=2", ["size=1", "size=2"]):
        with pytest.raises(FednetError, match="--where: size is given twice, got 1 and 2; give it once"):
            conditions(twice, "--where", view.axes)


def test_rounds_are_counted():
    """One round is no `1 rounds`."""
    fewer = compare(*(study({}, seeds=1).aiming_at(level) for level in (0.55, 0.55)))
    (rounds,) = [its for its in fewer if its.quantity.column == "rounds_to_target"]
    one = replace(rounds, values=np.array([[6.0, 5.0]] * 2), paired=paired_difference(np.full(2, 6.0), np.full(2, 5.0)))

    assert "is reached in 1 round fewer than with A, on 2 of 2 seeds (mean -1 round)" in sentence(
        one, ("A", "B"), {"accuracy": 0.55}
    )


def test_a_difference_is_in_one_unit():
    """221 min with an interval up to 6.6 h is in hours throughout; means that are far apart have their own units."""
    view = study({"air": ["a", "b"]}, seeds=6)
    is_b, seconds = view.runs["air"] == "b", np.array([1.0, 1.2, 3.4, 4.4, 5.5, 6.6]) * 3600
    view.runs.loc[is_b, "time_to_target_s"] = view.runs.loc[~is_b, "time_to_target_s"].to_numpy() + seconds
    told = str(between(view, ("air=a", "air=b")))

    assert "reached 3.68 h later than with A, on 6 of 6 seeds (mean +3.68 h, 95 % 1 h to 6.6 h)" in told
    assert "\n    A 7.5 s, B 221 min, pairs: 6" in told


def test_seeds_that_are_missing_somewhere_are_said():
    """All together, only seeds that both sides have in every place count; in its place, what is there does."""
    view = study({"air": ["a", "b"], "size": [1, 2]}, lambda air, size: 2.0 if air == "b" else 1.0)
    gone = (view.runs["air"] == "b") & (view.runs["size"] == 2) & (view.runs["seed"] == 4)
    part = replace(view, runs=view.runs[~gone])

    text = str(Comparison(("a", "b"), compare(part.where({"air": "a"}), part.where({"air": "b"})), {}))

    assert "; of 5 seeds, 4 reached it with both in every place, and only they count" in text
    assert "\n    A 6.9 s, B 3.45 s, pairs: 4\n" in text


def test_missed_targets_leave_no_verdict_over_all_places():
    """B misses the target with 2 of 8 seeds at one of two sizes: A counts 8 seeds, B 6, and nothing is certain."""
    view = study({"air": ["a", "b"], "size": [1, 2]}, lambda air, size: 2.0 if air == "b" else 1.0, seeds=8)
    missed = (view.runs["air"] == "b") & (view.runs["size"] == 2) & (view.runs["seed"] >= 6)
    view.runs.loc[missed, [*TO_TARGET]] = np.nan
    found = compare(view.where({"air": "a"}), view.where({"air": "b"}))
    (its,) = [each for each in found if (each.where, each.quantity.title) == (EVERYWHERE, "time to target")]

    assert its.known == (8, 6)
    assert its.is_partial
    assert sentence(its, ("A", "B"), view.target).startswith(
        "accuracy 0.55 is reached in every place on 8 of 8 seeds with A and on 6 with B, and only 6 seeds with both "
        "count: with B, accuracy 0.55 is reached 3.75 s sooner than with A"
    )
    told = {(each["where"], each["quantity"]): each["certain"] for each in differences(view)}
    assert told[EVERYWHERE, "time_to_target_s"] is False


def test_an_average_over_places_names_opposite_directions():
    """B needs 3 s less at size 1 and as much more at size 2: equal on average, which says nothing about either."""
    axes = {"air": ["a", "b"], "size": [1, 2]}
    view = study(axes, lambda air, size: {"a1": 1.0, "b1": 2.0, "a2": 2.0, "b2": 1.0}[air + size], seeds=6)
    sides = view.where({"air": "a"}), view.where({"air": "b"})

    def told(names=("a", "b")):
        found = {(its.where, its.quantity.column): its for its in compare(*sides)}
        return sentence(found[EVERYWHERE, "time_to_target_s"], names, view.target)

    assert told() == (
        "time to target is the same with a and b on average over size, on every seed; "
        "sooner at size = 1, later at size = 2"
    )
    sides[1].runs.loc[sides[1].runs["size"] == 1, "time_to_target_s"] *= 1.1
    assert told().startswith("with b, accuracy 0.55 is reached 188 ms later than with a on average over size, on 6 of")
    assert told().endswith("the interval excludes zero; sooner at size = 1, later at size = 2")
    many = study({"air": ["a", "b"], "size": [*range(5)]}, lambda air, size: 1.5 if air == "b" and size == "0" else 1.0)
    many.runs.loc[(many.runs["air"] == "b") & (many.runs["size"] > 0), "time_to_target_s"] *= 1.1
    sides = many.where({"air": "a"}), many.where({"air": "b"})
    assert told().endswith("; the direction differs between places")


def test_nothing_is_averaged_over_data_sets():
    """A second on one data set is not a second on the other; with one data set there is an average."""
    view = study({"air": ["a", "b"], "data": ["digits", "mnist"]})
    for names, places in ((view.runs["data"], 2), ("digits", 3)):
        part = replace(view, runs=view.runs.assign(data_set=names))
        found = compare(part.where({"air": "a"}), part.where({"air": "b"}))
        assert len({its.where for its in found}) == places


def test_levels_pair_by_what_they_read():
    """One study has numbers on an axis, the other text beside them; equal levels are the same place."""
    found = compare(study({"size": [1, 2]}), study({"size": ["2", "all"]}))

    assert {difference.where for difference in found} == {"size=2"}


def test_a_difference_that_may_be_zero_is_said_to_be_one():
    """A sign that changes from seed to seed leaves zero in the interval; one seed alone can tell nothing."""
    names = ("a", "b")

    def told(its: StudyRecords) -> dict[str, str]:
        found = compare(its.where({"air": "a"}), its.where({"air": "b"}))
        return {d.quantity.title: sentence(d, names, its.target) for d in found}

    view = study({"air": ["a", "b"]})
    ways = np.where(view.runs["seed"] % 2, 0.01, -0.01) * (view.runs["air"] == "b")
    view.runs["accuracy"] += ways
    assert told(view)["final accuracy"] == (
        "with b, the run ends with an accuracy 0.002 lower than with a, on 3 of 5 seeds "
        "(mean -0.002): 5 seeds cannot show it, 6 are the fewest that can"
    )
    nine = study({"air": ["a", "b"]}, seeds=9)
    nine.runs["accuracy"] += np.where(nine.runs["seed"] % 2, 0.01, -0.01) * (nine.runs["air"] == "b")
    assert told(nine)["final accuracy"] == (
        "with b, the run ends with an accuracy 0.001111 lower than with a, on 5 of 9 seeds "
        "(mean -0.001111, 95 % -0.01 to 0.01): the interval includes zero"
    )

    view.runs["accuracy"] += np.where(view.runs["seed"] == 4, 0.01, 0) * (view.runs["air"] == "b")
    assert told(view)["final accuracy"] == "final accuracy is the same with a and b on average"

    lone = study({"air": ["a", "b"]}, lambda air: 2.0 if air == "b" else 1.0, seeds=1)
    assert told(lone)["time to target"] == (
        "with b, accuracy 0.55 is reached 3 s sooner than with a on one seed, which does not show how much seeds vary"
    )


def test_unlike_sides_are_refused():
    """An axis on one side only would pair a seed with several runs; different seeds cannot be paired."""
    view = study({"air": ["a", "b"]})

    with pytest.raises(FednetError, match="several runs for each seed, got the axis air on one side"):
        compare(view, view.where({"air": "a"}))
    other = study({"air": ["a", "b"]})
    other.runs["seed"] += 10
    with pytest.raises(FednetError, match="nothing to pair, got no common seed"):
        compare(view, other)


def test_seeds_of_one_side_are_said_not_to_count():
    """A has seeds 0 to 5 and B 2 to 6: four pairs."""
    view = study({"air": ["a", "b"]}, seeds=7)
    is_b, seed = view.runs["air"] == "b", view.runs["seed"]
    view = replace(view, runs=view.runs[np.where(is_b, seed >= 2, seed < 6)])
    told = between(view, ("air=a", "air=b"))

    assert told.differences[0].pairs == 4
    assert (
        "\n2 seeds of A that B has not finished do not count\n1 seed of B that A has not finished does not count\n"
    ) in str(told)


def test_a_side_without_finished_runs_is_named():
    """All runs of B failed: its seeds were swept, but there is nothing to pair."""
    view = study({"air": ["a", "b"]}, seeds=2)
    lost = view.runs["air"] == "b"
    failed = view.runs[lost].assign(status="failed")
    view = replace(view, runs=view.runs[~lost], missing=failed, unfinished=list(failed["run"]))

    with pytest.raises(FednetError, match=r"^air=b: has no finished run, got 2 failed; see failures/$"):
        between(view, ("air=a", "air=b"))
    view = replace(view, missing=failed.assign(status="waiting"))
    with pytest.raises(FednetError, match=r"^air=b: has no finished run, got none; sweep it first$"):
        between(view, ("air=a", "air=b"))


def test_another_target_can_be_aimed_at():
    """The way to another accuracy, or to a loss, which is 1 / (1 + round), is read off the evaluations."""
    view = study({"air": ["a"]}, seeds=1)

    assert view.aiming_at(0.8).runs["time_to_target_s"].tolist() == [8.0]
    assert view.aiming_at(loss=0.25).runs["time_to_target_s"].tolist() == [3.0]
    assert view.aiming_at(loss=0.25).target == {"loss": 0.25}
    assert view.aiming_at() is view
    with pytest.raises(FednetError, match=r"loss: a target has one measure, got 0.5 and accuracy 0.9; leave out one"):
        view.aiming_at(0.9, 0.5)
    for loss in (0.0, -1.0, np.inf, np.nan):
        with pytest.raises(FednetError, match=r"loss: must be a number above 0, got .*; for example 0.3"):
            view.aiming_at(loss=loss)


def test_two_settings_are_compared_on_the_way_to_a_loss():
    """At half the speed a loss of 0.25, three rounds, takes twice the time: 6 s for 3 s."""
    view = study({"air": ["a", "b"]}, lambda air: 0.5 if air == "b" else 1.0, seeds=1)
    found = between(view.aiming_at(loss=0.25), ("air=a", "air=b"))
    rows = found.frame.set_index("quantity")

    assert found.target == {"loss": 0.25}
    assert rows.loc["time_to_target_s", ["a", "b"]].tolist() == [3.0, 6.0]
    assert rows.loc["time_to_target_s", "sentence"].startswith("with B, loss 0.25 is reached 3 s later than with A")


def test_curves_are_steps():
    """What was measured last counts until something new is, and nothing counts before the first."""
    cost, score = np.array([1.0, 2.0, 4.0]), np.array([0.1, 0.5, 0.7])

    found = step_values(cost, score, np.array([0.5, 1.0, 1.9, 2.0, 3.9, 4.0, 9.0]))
    assert found.tolist() == pytest.approx([np.nan, 0.1, 0.1, 0.5, 0.5, 0.7, 0.7], nan_ok=True)


def test_progress_is_the_mean_of_rounds_that_all_seeds_have():
    """A round that one seed has not evaluated is left out."""
    table = study({}, seeds=2).evaluations
    found = mean_progress(table[(table["seed"] == 0) | (table["round"] != 3)])

    assert 3 not in found.index
    assert found["simulated_s"][4] == pytest.approx((4.0 + 4.4) / 2)


@pytest.mark.parametrize(
    "axes", [{"access": SIX}, pytest.param({"access": SIX, "devices.count": (10, 20, 40)}, marks=pytest.mark.slow)]
)
def test_six_variants_fit_into_a_column(axes):
    """No panel, legend or label of any figure leaves the page, and none covers another."""
    view = study({name: list(levels) for name, levels in axes.items()}, lambda **levels: 1 + len(levels["access"]) % 5)
    figures = study_figures(view)

    assert {"accuracy-time", "accuracy-rounds", "time-to-target", "bits-to-target", "pareto"} <= figures.keys()
    for name, figure in figures.items():
        figure.draw_without_rendering()
        labels = [label for label in (figure._supxlabel, figure._supylabel) if label is not None]
        parts = [axes.get_tightbbox() for axes in figure.axes]
        parts += [part.get_window_extent() for part in (*figure.legends, *labels)]
        for part in parts:
            assert figure.bbox.x0 - 1 <= part.x0 < part.x1 <= figure.bbox.x1 + 1, name
            assert figure.bbox.y0 - 1 <= part.y0 < part.y1 <= figure.bbox.y1 + 1, name
        for part, other in itertools.combinations(parts, 2):
            assert min(part.x1 - other.x0, other.x1 - part.x0, part.y1 - other.y0, other.y1 - part.y0) <= 1, name


def test_panels_are_asked_for_by_axis():
    """By default the second axis makes panels; at most two can."""
    view = study({"a": ["x"], "b": ["y", "z"], "c": ["u"]}, seeds=1)

    assert len(study_figures(view, against="time")["accuracy-time"].axes) == 2
    assert len(study_figures(view, against="time", panels=[])["accuracy-time"].axes) == 1
    with pytest.raises(FednetError, match="at most two axes can be panels, got a, b, c"):
        study_figures(view, panels=["a", "b", "c"])
    with pytest.raises(FednetError, match="--metric: was not measured in story, got 'std_accuracy'"):
        study_figures(view, metric="std_accuracy")


def test_scores_within_a_budget_are_of_the_last_evaluation_that_it_paid_for():
    """With 4.5 s, of 1 s, 1.1 s, ... a round, seeds 0 and 1 have done four rounds and seed 2 three."""
    part = study({"air": ["a"]}, seeds=3).within("time", 4.5)

    assert part.runs["accuracy"].tolist() == pytest.approx([0.4, 0.4, 0.3])
    assert part.runs["simulated_s"].tolist() == pytest.approx([4.0, 4.4, 3.6])
    assert part.evaluations["simulated_s"].max() <= 4.5
    both = study({"air": ["a"]}, seeds=3).within("time", 4.5).within("bits", 3e6)
    assert both.runs["accuracy"].tolist() == pytest.approx([0.3, 0.3, 0.3])
    with pytest.raises(FednetError, match="no such cost, got 'tim'; did you mean 'time'"):
        part.within("tim", 1.0)


def test_a_limit_is_named_and_what_is_reached_beyond_it_is_not_reached():
    """Of runs to 0.55 in 6 s to 7.5 s (a) and half of it (b), seeds 0 to 2 of a and all of b are within 7.4 s."""
    view = study({"air": ["a", "b"]}, lambda air: 2.0 if air == "b" else 1.0, seeds=6)
    told = between(view, ("air=a", "air=b"), {"time": 7.4})
    rows = told.frame.set_index("quantity")

    assert "\ntarget: accuracy 0.55\neach run counts up to its last evaluation within 7.4 s\n" in str(told)
    assert "simulated_s" not in rows.index, "it restates the limit"
    assert rows.loc["accuracy", "sentence"].startswith(
        "with B, the accuracy at the last evaluation within the limit is 0.4333 higher than with A, on 6 of 6 seeds"
    )
    assert rows.loc["total_bit", "sentence"].startswith(
        "with B, up to the last evaluation within the limit, the run sends 4.33 Mbit more than with A, on 6 of 6 seeds"
    )
    assert rows.loc["time_to_target_s", "sentence"].startswith(
        "accuracy 0.55 within 7.4 s is reached on 3 of 6 seeds with A and on 6 with B, and only 3 seeds with both count"
    )
    rows = between(view, ("air=a", "air=b"), ["rounds=5", "time=60"]).frame.set_index("quantity")
    assert rows.loc["loss", "sentence"] == "loss within the limits is the same with A and B on every seed"


@pytest.mark.parametrize("amount", [-5, 0, np.nan, np.inf])
def test_a_limit_is_a_positive_number(amount):
    """As of `best`, and each cost has one limit."""
    view = study({"air": ["a", "b"]}, seeds=1)
    with pytest.raises(FednetError, match="--within: a limit must be a number above 0, got time="):
        between(view, ("air=a", "air=b"), {"time": amount})
    with pytest.raises(FednetError, match="--within: time is limited twice, got 1 and 2; limit it once"):
        between(view, ("air=a", "air=b"), ["time=1", "time=2"])


def cyclic(air: str, groups: str) -> float:
    """Groups formed in the made-up study of cyclic participation: none asks the access."""
    return float(groups) * (1.0 if air == "tdma" else 2.0)


def test_times_are_drawn_over_the_groups_that_were_formed():
    """A line for each way: cycle times 2 s and 8 s at 1 and 4 groups with turns; twice the groups, the other way."""
    view = study({"air": ["tdma", "shared"], "groups": [1, 4]})
    formed = [cyclic(air, groups) for air, groups in zip(view.runs["air"], view.runs["groups"], strict=True)]
    view.runs["grouping"], view.runs["groups_formed"], view.runs["cycle_s"] = view.runs["air"], formed, formed
    view.runs["cycle_s"] *= 2.0
    figure = groups_figure(view)
    above, below = figure.get_axes()
    drawn = [line.get_xydata().tolist() for line in above.get_lines() if line.get_marker() != "None"]

    assert [line for line in drawn if line] == [[[1, 2], [4, 8]], [[2, 4], [8, 16]]]
    assert below.get_ylabel() == "Time to accuracy 0.55 (s)"


def test_groups_are_drawn_only_where_a_way_varied_them():
    """One number of groups for each way is no line, and without the series there is nothing to draw."""
    view = study({"air": ["tdma", "shared"]})

    assert groups_figure(view) is None
    view.runs["grouping"], view.runs["groups_formed"], view.runs["cycle_s"] = view.runs["air"], 4.0, 1.0
    assert groups_figure(view) is None


def test_the_range_of_scores_leaves_out_the_start():
    """Accuracy from 0 to 1 in ten steps: with its first sixth left out, the range begins above 0."""
    (axes,) = study_figures(study({"air": ["a", "b"]}), against="rounds")["accuracy-rounds"].get_axes()

    assert axes.get_ylim() == pytest.approx((0.1 - 0.045, 1.0 + 0.045))


def test_a_panel_of_many_lines_is_drawn_only_when_asked_for():
    """Nine settings have bars, and curves only with a cost chosen."""
    view = study({"air": [f"kind-{place}" for place in range(9)]}, seeds=2)

    assert not {name for name in study_figures(view) if name.startswith("accuracy")}
    assert "accuracy-time" in study_figures(view, against="time")


def test_four_panels_are_two_by_two():
    """Panels fill rows evenly, at most three in each."""
    widths = {
        n: [len(row) for row in Layout.of(study({"air": ["a"], "size": list(range(n))}, seeds=1), None).panels]
        for n in (2, 3, 4, 5, 7)
    }

    assert widths == {2: [2], 3: [3], 4: [2, 2], 5: [3, 2], 7: [3, 3, 1]}


def test_runs_have_what_their_series_tell(tmp_path):
    """A run that recorded turns gets its cycle time, 2 s for four turns of 0.5 s; one that did not has NaN."""
    view = study({"air": ["a"]}, seeds=2)
    turns = pd.DataFrame(
        {
            "cycle": 0,
            "group": range(4),
            "groups": 4,
            "structure": "random",
            "access": "tdma",
            "started_s": np.arange(4) * 0.5,
            "ended_s": np.arange(1, 5) * 0.5,
        }
    )
    (tmp_path / "runs" / view.runs["run"][0]).mkdir(parents=True)
    turns.to_parquet(tmp_path / "runs" / view.runs["run"][0] / "cyclic_turns.parquet")
    view.runs.assign(data_set="digits", device_count=10).to_parquet(tmp_path / "runs.parquet")
    view.evaluations.to_parquet(tmp_path / "study.parquet")
    (tmp_path / "study.json").write_text(json.dumps({"name": "story", "axes": view.axes, "target": {}}))
    runs = StudyRecords.opened(tmp_path).runs

    assert runs["cycle_s"].tolist() == pytest.approx([2.0, np.nan], nan_ok=True)
    assert runs["grouping"][0] == "random, tdma"


def test_a_single_run_has_the_costs_of_a_study():
    """Its summary has the delays of other users, here 20 ms, its settings have the five devices of its 5 J."""
    delays = {"phones": {"p95_s": 0.02, "at_least": ["p95_s"]}, "cars": {"p95_s": 0.01, "at_least": []}}
    bits = dict.fromkeys(("uplink_bit", "downlink_bit", "sidelink_bit"), 0)
    summary = {"seed": 0, "status": "done", "compute_j": None, "traffic": delays, **bits}
    table = study({}, seeds=1).evaluations
    view = StudyRecords.of_run(
        RunRecords("a", summary, {"devices": {"count": 5}}, None, lambda: {"evaluations": table})
    )

    assert (view.spent("neighbours").iloc[-1], view.spent("device-energy").iloc[-1]) == (0.02, 1.0)
    assert view.runs[["neighbours_at_least", "compute_unknown_share"]].all(axis=None)


AXES = {"method": ["aware", "fedavg"], "data": ["a"]}
BASELINE = {"method": "fedavg"}


@pytest.fixture
def view(tmp_path: Path) -> StudyRecords:
    """Per round `aware` uploads 2 and pushes 10, `fedavg` uploads 5; per round accuracy grows by 0.2 and 0.1.

    With seed 1 `fedavg` needs 3 rounds for what takes it 2 with seed 0.
    """
    tables = []
    for method, gain, uploads, pushes in (("aware", 0.2, 2, 10), ("fedavg", 0.1, 5, 0)):
        for seed in (0, 1):
            name = f"{method}{seed}"
            (tmp_path / "runs" / name).mkdir(parents=True)
            pd.DataFrame({"invited": [uploads] * 4}).to_parquet(tmp_path / "runs" / name / "rounds.parquet")
            if pushes:
                counted = pd.DataFrame({"d2d_senders": [pushes] * 4})
                counted.to_parquet(tmp_path / "runs" / name / "connectivity.parquet")
            rounds = np.arange(5)
            late = seed if method == "fedavg" else 0
            spending = {"total_bit": rounds * 8, "energy_j": rounds * 1.0, "simulated_s": rounds * 1.0}
            accuracy = gain * np.maximum(rounds - late, 0)
            table = pd.DataFrame({"round": rounds, "accuracy": accuracy, **spending})
            tables.append(table.assign(method=method, data="a", seed=seed, run=name))
    study = StudyRecords("story", AXES, {}, pd.concat(tables, ignore_index=True), pd.DataFrame(), ())
    return with_transmissions(study, tmp_path)


def test_uploads_and_pushes_are_counted_until_the_target(view: StudyRecords) -> None:
    """Accuracy 0.2 takes one round of 2 uploads and 10 pushes, or two rounds (three with seed 1) of 5 uploads."""
    table = spent(view, BASELINE, 0.2)

    assert table["uploads"].tolist() == [2, 2, 10, 15]
    assert table["pushes"].tolist() == [10, 10, 0, 0]


def test_the_target_may_be_where_the_baseline_ends(view: StudyRecords) -> None:
    """FedAvg ends at 0.4 or, with seed 1, at 0.3; the other method needs two rounds for either."""
    table = spent(view, BASELINE, None)

    assert table["target_accuracy"].tolist() == pytest.approx([0.4, 0.3, 0.4, 0.3])
    assert table["round"].tolist() == [2, 2, 4, 4]


def test_costs_are_multiples_of_the_baseline_with_the_same_seed(view: StudyRecords) -> None:
    """At half an upload a push, 2 + 5 is 0.7 of 10 uploads and 7 / 15 of 15; Student's interval of two."""
    table = multiples(spent(view, BASELINE, 0.2), [*AXES], BASELINE, prices=(0.5,))
    row = table[(table["method"] == "aware") & (table["cost"] == "cost_0.5")].iloc[0]

    mean, half = (0.7 + 7 / 15) / 2, (0.7 - 7 / 15) / 2
    assert row["mean"] == pytest.approx(mean)
    assert row["high"] - mean == pytest.approx(12.7062 * half, rel=1e-5)  # t of one degree of freedom


def test_runs_that_never_got_there_are_not_compared(view: StudyRecords) -> None:
    """FedAvg reaches 0.35 with seed 0 alone: one ratio is left, and it has no interval."""
    table = multiples(spent(view, BASELINE, 0.35), [*AXES], BASELINE)
    row = table[(table["method"] == "aware") & (table["cost"] == "cost_0")].iloc[0]

    assert row["seeds"] == 1
    assert row["mean"] == pytest.approx(4 / 20)
    assert np.isnan(row["low"])
