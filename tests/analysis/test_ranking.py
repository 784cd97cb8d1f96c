"""Rankings of settings: what a run costs, what stopped it, what counts up to where, and how it is said."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from fednet_emu.analysis.comparison import Comparison, compare
from fednet_emu.analysis.confidence_set import smallest_p
from fednet_emu.analysis.ranking import best, rank
from fednet_emu.analysis.statistics import mean_interval
from fednet_emu.draw.figures.study_rows import best_figure
from fednet_emu.draw.page.study_page import rankings, study_document
from fednet_emu.errors import FednetError

GOOD = [{"at": 5 + seed % 3} for seed in range(8)]
SLOW = [{"at": 15 + seed % 3} for seed in range(8)]


def told(ranking):
    """The ranking as one text."""
    return str(ranking)


def test_the_cheapest_is_first_and_the_best(raced):
    """Eight seeds agree: 10 s earlier, with the p-value of the sign-flip test."""
    found = rank(raced({"slow": SLOW, "good": GOOD}))

    assert [its.setting.label for its in found.settings] == ["good", "slow"]
    assert found.settings[0].cost.mean == pytest.approx(np.mean([run["at"] for run in GOOD]))
    assert found.settings[1].difference == pytest.approx((10.0, 10.0, 10.0))
    assert found.settings[1].p == 2 / 2**8
    assert found.words[1] == "Not the best: slow (p at most 0.0078)."
    assert "10 s later: not the best, p = 0.0078" in told(found)


def test_every_cost_can_be_minimised(raced):
    """Time, bits, energy of all, energy per device and rounds, read at the evaluation that reaches the target."""
    view = raced({"a": [{"at": 6, "watt": 3.0, "bps": 2e6}], "b": [{"at": 9}]})

    costs = {
        cost: rank(view, cost).settings[0].cost.mean for cost in ("time", "bits", "energy", "device-energy", "rounds")
    }

    assert costs == {"time": 6.0, "bits": 9e6, "energy": 9.0, "device-energy": 0.9, "rounds": 3.0}


def test_a_mean_cost_is_not_said_to_be_below_zero(raced):
    """Of 2 and 10 s Student's interval begins at -44.8 s; differences may be negative."""
    found = told(rank(raced({"a": [{"at": 2}, {"at": 10}], "b": [{"at": 3}, {"at": 12}]})))

    assert "a reaches accuracy 0.9 soonest, after 6 s on average (95 % 0 s to 56.8 s)." in found
    assert " 1. a: 6 s (0 s to 56.8 s), reached by 2 of 2" in found
    assert "1.5 s later (-4.85 s to 7.85 s): may be the best of 2" in found


def test_settings_are_ranked_by_the_way_to_a_loss(raced):
    """A loss of 0.3 takes 7 s and 14 s where it falls by 0.1 and 0.05 a second, to 0.25: less is never reached."""
    view = raced({"quick": [{}] * 2, "slow": [{}] * 2})
    pace = view.evaluations["method"].map({"quick": 0.1, "slow": 0.05})
    falling = view.evaluations.assign(loss=(1 - pace * view.evaluations["simulated_s"]).clip(lower=0.25).round(9))
    view = replace(view, evaluations=falling)
    found = best(view, loss=0.3)

    assert [(its.setting.label, its.cost.mean) for its in found.settings] == [("quick", 7.0), ("slow", 14.0)]
    assert found.words[0] == "quick reaches loss 0.3 soonest, after 7 s on average (95 % 7 s to 7 s)."
    with pytest.raises(
        FednetError, match=r"no run reaches loss 0.2, got loss 0.25 at best, by quick .*; raise the targ"
    ):
        best(view, loss=0.2)
    with pytest.raises(FednetError, match=r"without limits 4 of 4 do: raise a limit, or raise the target"):
        best(view, loss=0.3, within={"time": 5.0})


def test_limits_stop_runs_and_are_named(raced):
    """At 4 J the thirsty one is stopped before it gets there; that it is the fastest does not help it."""
    view = raced({"thirsty": [{"at": 3, "watt": 2.0}] * 2, "thrifty": [{"at": 6, "watt": 0.5}] * 2})

    free, bound = rank(view), rank(view, limits={"energy": 4.0})

    assert free.settings[0].setting.label == "thirsty"
    assert bound.settings[0].setting.label == "thrifty"
    assert bound.settings[1].limited_by == {"energy": 2}
    assert bound.horizon == 6.0, "the most that any run spent within the limits"
    assert "limit of energy: 2 runs" in told(bound)
    assert bound.words[0].startswith("thrifty reaches accuracy 0.9 soonest within 4 J of energy, after 6 s")
    per_device = rank(view, limits={"device-energy": 0.4})
    assert [its.limited_by for its in per_device.settings] == [
        its.limited_by and {"device-energy": 2} for its in bound.settings
    ]


def test_a_limit_is_inclusive_and_that_of_the_cost_itself_is_the_horizon(raced):
    """What is spent exactly is still within; runs that needed longer count as the limit."""
    view = raced({"a": [{"at": 5}, {"at": 9}], "b": [{"at": 7}, {"at": 7}]})

    found = rank(view, limits={"time": 7.0})

    assert found.horizon == 7.0
    assert {its.setting.label: its.costs.tolist() for its in found.settings} == {"a": [5.0, 7.0], "b": [7.0, 7.0]}
    assert found.settings[0].limited_by == {"time": 1}


def test_the_first_run_to_end_without_the_target_sets_the_horizon(raced):
    """Nobody knows what it would have done later; runs that got there later count as no better than it."""
    view = raced({"a": [{"at": 4}, {"at": 12}], "b": [{"at": None, "until": 8}, {"at": 6}]})

    found = rank(view)

    assert found.horizon == 8.0
    assert {its.setting.label: its.costs.tolist() for its in found.settings} == {"a": [4.0, 8.0], "b": [8.0, 6.0]}
    assert "1 run did not reach it and counts as 8 s, where b with seed 0 ended with budget left." in found.words
    assert "1 run that reached it later counts as that, too: let runs go on for longer to tell more." in found.words
    assert "never reached it: 1 run" in told(found)


def test_a_run_that_gets_there_at_the_horizon_is_not_late(raced):
    """Known to the end of the horizon is known: at 8 s sharp nothing is cut off, a second later it is."""
    early, late = (rank(raced({"a": [{"at": at}], "b": [{"at": None, "until": 8}]})) for at in (8, 9))

    assert (
        (early.horizon, early.settings[0].costs.tolist())
        == (late.horizon, late.settings[0].costs.tolist())
        == (8.0, [8.0])
    )
    assert (early.late, late.late) == (0, 1)


def test_a_run_that_ends_at_the_limit_does_not_set_the_horizon(raced):
    """It used up the limit, so that nobody is asked to let it go on; a second earlier it does set the horizon."""
    at_limit, before = (
        rank(raced({"a": [{"at": 4}], "b": [{"at": None, "until": until}]}), limits={"time": 8.0}) for until in (8, 7)
    )

    assert (at_limit.horizon, at_limit.first_ended) == (8.0, None)
    assert (before.horizon, before.first_ended) == (7.0, ("b", 0))


def test_a_diverged_run_never_gets_there(raced):
    """It has spent nothing more, but does not hide what others needed."""
    view = raced({"a": [{"at": 4}, {"at": 12}], "b": [{"at": 2, "until": 3, "status": "diverged"}, {"at": 6}]})

    found = rank(view)

    assert found.horizon == 12.0
    assert {its.setting.label: its.costs.tolist() for its in found.settings}["b"] == [12.0, 6.0]
    assert found.settings[1].limited_by == {"diverged": 1}


def test_runs_that_fail_do_not_make_a_setting_cheap(raced):
    """By the mean over those that got there the gambler would win; by the restricted mean it does not."""
    gambler = [{"at": 3}] + [{"at": None, "until": 20}] * 7
    found = rank(raced({"gambler": gambler, "steady": [{"at": 8 + seed % 2} for seed in range(8)]}))

    assert found.settings[0].setting.label == "steady"
    assert found.settings[1].cost.mean == pytest.approx((3 + 7 * 20) / 8)


def test_intervals_of_restricted_means_cover():
    """Exponential costs, restricted to their mean: ten seeds cover the true restricted mean nearly as often as said."""
    rng, truth = np.random.default_rng(6), 1 - np.exp(-1)
    found = [mean_interval(np.minimum(costs, 1.0)) for costs in rng.exponential(size=(400, 10))]

    assert np.mean([its.low <= truth <= its.high for its in found]) >= 0.90


def test_only_seeds_that_all_settings_have_count(raced):
    """A setting that has not finished a seed takes that seed from all; one without any run is left out and told."""
    view = raced({"a": [{"at": 4}, {"at": 6}, {"at": 8}], "b": [{"at": 5}, {"at": 7}]})
    waiting = pd.DataFrame([{"method": "c", "seed": 0, "cell": "c-0", "status": "waiting", "reason": ""}])
    view = replace(view, axes={"method": ["a", "b", "c"]}, missing=waiting, unfinished=["c-0"])

    found = rank(view)

    assert list(found.seeds) == [0, 1]
    assert found.settings[0].cost.mean == 5.0
    assert found.words[-2:] == [
        "Left out, because no run has finished: c.",
        "1 seed that not every setting has finished does not count.",
    ]


def test_seeds_that_would_settle_it_are_told(raced):
    """Five seeds cannot decide between two settings; a difference as large as its spread needs a dozen."""
    rivals = {"a": [{"at": 6}] * 5, "b": [{"at": at} for at in (5, 6, 7, 8, 9)]}
    sentences = rank(raced(rivals)).words

    assert sentences[1] == "b may be the best, too."
    assert sentences[2] == (
        "Between the 2 that are left, 5 seeds cannot decide, however they differ (p is at least 0.0625); 6 can."
    )
    assert sentences[3] == "If they differ as it seems, 17 more seeds would probably decide about b."
    one = rank(raced({"a": [{"at": 5}], "b": [{"at": 6}]})).words
    assert one[2] == "One seed does not show how much seeds vary; at least 6 can decide between two settings."
    same = rank(raced({"a": [{"at": 5}, {"at": 7}], "b": [{"at": 7}, {"at": 5}]})).words
    assert same[-1] == "No reasonable number of seeds would decide about b: take them as equally good."


def test_two_settings_have_one_p_whoever_is_asked(raced):
    """In a study of two settings the question of `compare` is that of `best`: so is the answer, and each says which."""
    view = raced({"a": [{"at": 6 + seed} for seed in range(5)], "b": [{"at": 8 + 2 * seed} for seed in range(5)]})
    alone = compare(view.where({"method": "a"}), view.where({"method": "b"}))
    (time,) = [its for its in alone if its.quantity.column == "time_to_target_s"]
    ranking = rank(view)

    assert time.p == ranking.settings[1].p == 2 / 2**5
    assert time.paired == ranking.settings[1].difference
    assert "4 s later (2.04 s to 5.96 s): may be the best of 2, p = 0.062" in told(ranking)
    assert "5 seeds cannot decide, however they differ (p is at least 0.0625); 6 can." in told(ranking)
    pair = str(Comparison(("a", "b"), [time], view.target))
    assert "(mean +4 s, 95 % 2.04 s to 5.96 s): the interval excludes zero" in pair
    assert "p = 0.062" in pair


def test_what_cannot_be_decided_is_said_of_those_that_are_left(raced):
    """Three settings, five seeds: one is dropped, which no sentence above denies; two are left, undecided."""
    runs = {"a": range(5, 10), "b": (6, 6, 8, 8, 10), "slow": range(15, 20)}
    found = rank(raced({name: [{"at": at} for at in times] for name, times in runs.items()}))

    assert found.settings[2].p < 0.01 < smallest_p(2, 5)
    assert found.words[1:3] == [
        "b may be the best, too.",
        f"Not the best: slow (p at most {found.settings[2].p:.2g}).",
    ]
    assert found.words[3].startswith("Between the 2 that are left, 5 seeds cannot decide")
    three = rank(raced({name: [{"at": at} for at in (5, 9, 7, 6, 8)] for name in "abc"}))
    assert not [text for text in three.words if "cannot decide" in text], "five seeds can decide between three"


def test_a_page_names_the_best_that_the_ranking_names(raced):
    """A setting of which one run in eight fails is still the best: the page's first words are those of `best`."""
    view = raced(
        {"fast": [{"at": None, "until": 20}] + [{"at": 3}] * 7, "steady": [{"at": 8 + s % 2} for s in range(8)]}
    )
    first = study_document(view)["words"][1]

    assert first == rank(view).headline
    assert first.startswith("fast reaches accuracy 0.9 soonest, after 5.12 s on average (95 % ")
    assert first.endswith("in 7 of 8 runs. steady may be the best, too.")


def test_the_table_and_the_figure_have_the_numbers(raced):
    """A row for each setting with its levels; the figure shows a dot or a cross for each run."""
    found = rank(raced({"a": [{"at": 6}, {"at": 8}], "b": [{"at": None}, {"at": 9}]}))
    table = found.frame
    figure = best_figure(found)

    assert table["method"].tolist() == ["a", "b"]
    assert table["time_to_target_s"].tolist() == [7.0, 14.5]
    assert table["reached"].tolist() == [2, 1]
    assert table["limited_by"].tolist() == ["", "never reached it: 1 run"]
    shown = {line.get_label(): line.get_xdata().tolist() for line in figure.axes[0].get_lines()}
    assert shown["failed"] == [20.0]
    assert shown["runs"] == [9.0]
    assert figure.numbers.equals(table)


def test_a_page_ranks_by_every_cost_and_each_data_set_for_itself(raced):
    """Scores on different data say nothing together; what cannot be ranked says why."""
    view = raced({"a": GOOD, "b": SLOW, "c": [{"at": None}] * 8})
    data = ["x" if cell[0] in "ab" else "y" for cell in view.cells["cell"]]
    view = replace(view, cells=view.cells.assign(data_set=data))

    found = list(rankings(view))

    assert [(its["data_set"], its["cost"]) for its in found[:4]] == [
        ("x", c) for c in ("time", "bits", "energy", "rounds")
    ]
    assert found[0]["words"] == rank(raced({"a": GOOD, "b": SLOW})).words
    assert found[4]["words"] == ["race: no run reaches accuracy 0.9, got accuracy 0.52 at best, by c with seed 0; "
                                 "lower the target, or let the runs go on for longer."]  # fmt: skip
    with pytest.raises(FednetError, match="settings have to learn the same data, got x, y; choose levels with --where"):
        rank(view)


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({"minimise": "tme"}, "race: no such cost, got 'tme'; did you mean 'time'?"),
        ({"within": {"joule": 4.0}}, "race: no such cost, got 'joule'; choose from time, bits, energy, device-energy"),
        ({"within": ["energy=4", "energy=5"]}, "--within: energy is limited twice, got 4 and 5; limit it once"),
        ({"within": {"time": 0.0}}, "--within: a limit must be a number above 0, got time=0; for example time=60"),
        ({"within": {"time": float("nan")}}, "a limit must be a number above 0, got time=nan"),
        ({"within": ["time"]}, "--within: expected cost=amount, got 'time'"),
        ({"accuracy": 1.5}, "accuracy: must be above 0 and at most 1, got 1.5"),
        (
            {"accuracy": 0.95},
            "no run reaches accuracy 0.95, got accuracy 0.9 at best, by a with seed 0; lower the target",
        ),
        (
            {"within": {"energy": 2.0}},
            "within 2 J of energy, got accuracy 0.502 at best.*without limits 2 of 2 do: raise a",
        ),
        ({"where": {"methd": "a"}}, "no such axis, got 'methd'; did you mean 'method'?"),
    ],
)
def test_mistakes_are_told(raced, arguments, problem):
    """In one sentence with what would be right."""
    with pytest.raises(FednetError, match=problem.replace("?", r"\?")):
        best(raced({"a": [{"at": 5}], "b": [{"at": 9}]}), **arguments)


def test_a_study_that_cannot_be_ranked_says_why(raced):
    """Without a target, without a common seed, without scores, without the number of devices."""
    view = raced({"a": [{"at": 5}], "b": [{"at": 9}]})

    for broken, problem in (
        (replace(view, target={}), "needs a target, got none; say which with --accuracy 0.9 or --loss 0.3"),
        (raced({"a": [{"at": 5}], "b": [{"at": 5, "seed": 7}]}), "needs a seed that all settings have, got none"),
        (replace(view, evaluations=view.evaluations.assign(accuracy=np.nan)), "accuracy: was not measured"),
        (replace(view, cells=view.cells[:0], evaluations=view.evaluations), "needs finished runs, got none; sweep it"),
    ):
        with pytest.raises(FednetError, match=problem):
            rank(broken)
    with pytest.raises(FednetError, match="device-energy: needs the number of devices, got none of a-0"):
        rank(replace(view, cells=view.cells.drop(columns="device_count")), "device-energy")
