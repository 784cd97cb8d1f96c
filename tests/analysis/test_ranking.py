"""Rankings of settings: what a run costs, what stopped it, what counts up to where, and how it is said."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from fednet_emu.analysis.comparison import Comparison, compare
from fednet_emu.analysis.ranking import positive_limits, rank
from fednet_emu.analysis.statistics import smallest_p
from fednet_emu.draw.figures.study_rows import best_figure
from fednet_emu.draw.page.study_page import rankings, study_document
from fednet_emu.errors import FednetError

GOOD = [{"at": 5 + seed % 3} for seed in range(8)]
SLOW = [{"at": 15 + seed % 3} for seed in range(8)]


def told(ranking):
    return str(ranking)


def test_the_cheapest_is_first_and_the_best(raced):
    """Eight seeds agree: 10 s earlier, with the p-value of the sign-flip test."""
    found = rank(raced({"slow": SLOW, "good": GOOD}))

    assert [its.setting.label for its in found.settings] == ["good", "slow"]
    assert found.settings[0].cost.mean == pytest.approx(np.mean([run["at"] for run in GOOD]))
    assert found.settings[1].difference == pytest.approx((10.0, 10.0, 10.0, 2 / 2**8))
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
    """Of 2 and 10 s Student's interval begins at -44.8 s; of two seeds no difference has an interval."""
    found = told(rank(raced({"a": [{"at": 2}, {"at": 10}], "b": [{"at": 3}, {"at": 12}]})))

    assert "a reaches accuracy 0.9 after 6 s on average (95 % 0 s to 56.8 s)." in found
    assert " 1. a: 6 s (0 s to 56.8 s), reached by 2 of 2" in found
    assert "1.5 s later: not separated, p = 0.5" in found


def test_settings_are_ranked_by_the_way_to_a_loss(raced):
    """A loss of 0.3 takes 7 s and 14 s where it falls by 0.1 and 0.05 a second, to 0.25: less is never reached."""
    view = raced({"quick": [{}] * 2, "slow": [{}] * 2})
    pace = view.evaluations["method"].map({"quick": 0.1, "slow": 0.05})
    falling = view.evaluations.assign(loss=(1 - pace * view.evaluations["simulated_s"]).clip(lower=0.25).round(9))
    view = replace(view, evaluations=falling)
    found = rank(view.aiming_at(loss=0.3))

    assert [(its.setting.label, its.cost.mean) for its in found.settings] == [("quick", 7.0), ("slow", 14.0)]
    assert found.words[0] == "quick reaches loss 0.3 after 7 s on average (95 % 7 s to 7 s)."
    with pytest.raises(
        FednetError, match=r"no run reaches loss 0.2, got loss 0.25 at best, by quick .*; raise the targ"
    ):
        rank(view.aiming_at(loss=0.2))
    with pytest.raises(FednetError, match=r"without limits 4 of 4 do: raise a limit, or raise the target"):
        rank(view.aiming_at(loss=0.3), limits={"time": 5.0})


def test_limits_stop_runs_and_are_named(raced):
    """At 4 J the thirsty one is stopped before it gets there; that it is the fastest does not help it."""
    view = raced({"thirsty": [{"at": 3, "watt": 2.0}] * 2, "thrifty": [{"at": 6, "watt": 0.5}] * 2})

    free, bound = rank(view), rank(view, limits={"energy": 4.0})

    assert free.settings[0].setting.label == "thirsty"
    assert bound.settings[0].setting.label == "thrifty"
    assert bound.settings[1].limited_by == {"energy": 2}
    assert bound.best == [{"method": "thrifty"}], "a setting that never reaches the target is not the best"
    assert "limit of energy: 2 runs" in told(bound)
    assert bound.words == [
        "thrifty reaches accuracy 0.9 within 4 J of energy after 6 s on average (95 % 6 s to 6 s).",
        "No other setting can be compared with it.",
        "Not ranked: thirsty: no run reached accuracy 0.9 within the limits.",
    ]
    per_device = rank(view, limits={"device-energy": 0.4})
    assert [its.limited_by for its in per_device.settings] == [
        its.limited_by and {"device-energy": 2} for its in bound.settings
    ]


def test_targets_that_the_untrained_model_meets_are_made_harder(raced):
    """A higher accuracy and a lower loss are harder to reach."""
    view = raced({"a": [{"at": 5}] * 2, "b": [{"at": 6}] * 2})
    start = view.evaluations["simulated_s"] == 0
    assert start.any()
    met = view.evaluations.assign(loss=np.where(start & (view.evaluations["method"] == "a"), 0.5, 0.9))
    for target, harder in (({"loss": 0.5}, "lower"), ({"accuracy": 0.9}, "raise")):
        good = met.assign(accuracy=np.where(start & (met["method"] == "a"), 0.95, met["accuracy"]), loss=met["loss"])
        good.loc[good["simulated_s"] >= 6, "loss"] = 0.4
        (reason,) = [
            its.not_ranked
            for its in rank(replace(view, evaluations=good).aiming_at(**target)).settings
            if its.not_ranked
        ]
        assert reason.endswith(f"in 2 of 2 runs; {harder} the target")


def test_a_failure_costs_more_than_every_success(raced):
    """A gambler at 9 s on 7 of 20 seeds, over the limit of energy at once on the others, is worse than 10 s always."""
    lucky, unlucky = {"at": 9, "watt": 0.1}, {"at": 9, "watt": 50.0}
    view = raced({"gambler": [lucky] * 7 + [unlucky] * 13, "steady": [{"at": 10, "watt": 0.1}] * 20})

    for limits in ({"energy": 40.0}, {"energy": 40.0, "time": 60.0}):
        found = rank(view, limits=limits)
        assert found.best == [{"method": "steady"}]
        assert found.most == limits.get("time", 2 * 10.0)
        assert found.words[1:3] == [
            "steady reaches it soonest, and no setting in more runs.",
            f"Not the best: gambler (p at most {found.settings[1].p:.2g}).",
        ]
    assert "gambler in 7 of 20 runs." in rank(view, limits={"energy": 40.0}).words[0]


def test_settings_that_are_counted_together_have_their_share_of_runs(raced):
    """Five settings reach the target and one does not: the last two arrive in 3 of 6 runs."""
    methods = {name: [{"at": place + 3, "until": 60}] * 3 for place, name in enumerate("ABCDE")}
    view = raced({**methods, "F": [{"until": 60}] * 3})

    assert rank(view).headline.partition(". ")[0].endswith("D in 3 of 3 runs, after 6 s; 2 others in 3 of 6 runs")


def test_a_limit_is_inclusive_and_that_of_the_cost_itself_is_what_failures_count_as(raced):
    """What is spent exactly is still within; runs that needed longer count as the limit."""
    view = raced({"a": [{"at": 5}, {"at": 9}], "b": [{"at": 7}, {"at": 7}]})

    found = rank(view, limits={"time": 7.0})

    assert found.most == 7.0
    assert {its.setting.label: its.costs.tolist() for its in found.settings} == {"a": [5.0, 7.0], "b": [7.0, 7.0]}
    assert found.settings[0].limited_by == {"time": 1}


def means(its):
    """The restricted means of a setting and of the first one, and where they are restricted."""
    return (*its.restricted, *its.horizon)


def test_one_that_always_arrives_is_not_proved_better_by_three_seeds(raced):
    """A at 10, 11, 12, B not within 100 s: the shares are said, no best, as three seeds give no p below 0.25."""
    view = raced({"A": [{"at": at, "until": 100} for at in (10, 11, 12)], "B": [{"until": 100}] * 3})
    found = rank(view)

    assert found.headline == (
        "Accuracy 0.9 was reached by A in 3 of 3 runs, after 10 s to 12 s; B in 0 of 3 runs within 100 s. "
        "Not separated from A: B."
    )
    assert "3 seeds cannot separate 2 settings, however they differ (p is at least 0.25); 6 are the fewest" in told(
        found
    )
    assert means(found.settings[1]) == (100.0, 11.0, 100.0, 100.0)
    six = rank(raced({"A": [{"at": 10 + seed, "until": 100} for seed in range(6)], "B": [{"until": 100}] * 6}))
    assert six.words[1:3] == [
        "A reaches it soonest, and no setting in more runs.",
        "Not the best: B (p at most 0.031).",
    ]


def test_what_ended_before_anything_arrived_is_not_ranked(raced):
    """A ends at 5 s, B arrives at 50 s and later: A is neither the best nor equal, and needs more time."""
    found = rank(raced({"A": [{"until": 5}] * 3, "B": [{"at": at, "until": 60} for at in (50, 51, 52)]}))

    assert [its.setting.label for its in found.settings] == ["B", "A"]
    assert [its.may_be_best for its in found.settings] == [True, False]
    assert found.headline == (
        "B reaches accuracy 0.9 after 51 s on average (95 % 48.5 s to 53.5 s). "
        "No other setting can be compared with it. Not ranked: A: ended after 5 s, "
        "before the first run of any setting reached accuracy 0.9 (50 s); give it more "
        "(`stop`)."
    )
    assert "A: reached by 0 of 3 within 5 s" in told(found)
    assert np.isnan(found.frame["p"]).all()


def test_a_censored_run_restricts_its_own_pair_only(raced):
    """A at 10, never within 60, 12; B at 20, 21, 22: restricted to 60 s 27.3 and 21 s, not separated; median 12 s."""
    late = [{"at": 10, "until": 60}, {"until": 60}, {"at": 12, "until": 60}]
    found = rank(raced({"A": late, "B": [{"at": at, "until": 70} for at in (20, 21, 22)]}))
    block = "6.33 s later (27.3 s against 21 s, restricted to 60 s where a run ended): not separated, p = 1"

    assert means(found.settings[1]) == pytest.approx((82 / 3, 21.0, 60.0, 60.0))
    assert "A in 2 of 3 runs, median 12 s" in found.headline
    assert block in told(found)
    assert np.isnan(found.settings[1].cost.mean), "no mean time of runs of which one never arrived"


def test_equal_runs_are_identical_and_not_maybe(raced):
    """The same times on every seed: said as that; so are costs that differ by 1e-12; nothing is left to decide."""
    view = raced({name: [{"at": 10}, {"at": 12}, {"at": 14}] for name in "ab"})
    nudged = view.evaluations.assign(
        simulated_s=view.evaluations["simulated_s"] * np.where(view.evaluations["method"] == "b", 1 + 1e-12, 1)
    )

    for each in (view, replace(view, evaluations=nudged)):
        found = rank(each)
        assert found.words[1:] == ["a and b have the same time to target on every seed."]
        assert "the same on every seed" in told(found)
        assert "best" not in told(found)


def test_the_clock_of_the_shortest_run_does_not_decide(raced):
    """FedAvg arrives at 230, 99, 85 s; FedBuff at 29, 25, ends at 29; FedAsync ends at 10: none is best after 10 s."""
    runs = {
        "FedAvg": [{"at": at, "until": 240} for at in (230, 99, 85)],
        "FedBuff": [{"at": 29, "until": 30}, {"at": 25, "until": 29}, {"until": 29}],
        "FedAsync": [{"until": 10}] * 3,
    }
    found = rank(raced(runs))

    assert found.headline == (
        "Accuracy 0.9 was reached by FedBuff in 2 of 3 runs, median 29 s; FedAvg in 3 of 3 runs, after 85 s to 230 s. "
        "Not separated from FedBuff: FedAvg. Not ranked: FedAsync: ended after 10 s, before the first run of any "
        "setting reached accuracy 0.9 (25 s); give it more (`stop`)."
    )
    assert found.settings[1].difference.mean == pytest.approx((201 + 74 + 0) / 3), "cut at 29 s on the last seed only"
    assert found.first_ended == ("FedBuff", 2, 29.0)
    assert "equally good as" not in told(found).lower()
    assert "Runs that stop by rounds end the sooner the faster they are" in told(found)


def test_a_faster_setting_that_arrives_less_often_is_not_the_best_alone(raced):
    """Six of ten runs at 10 s and ten of ten at 100 s: both shares are named, and neither is dropped."""
    fast = [{"at": 10, "until": 12}] * 6 + [{"until": 12}] * 4
    found = rank(
        raced({"fast": fast, "sure": [{"at": 100, "until": 120}] * 10, "last": [{"at": 110, "until": 120}] * 10})
    )

    assert found.best == [{"method": "fast"}, {"method": "sure"}]
    assert found.headline == (
        "Accuracy 0.9 was reached by fast in 6 of 10 runs, median 10 s; sure in 10 of 10 runs, after 100 s; "
        "last in 10 of 10 runs, after 110 s. sure reached it in more runs than fast, but later: which is better "
        "depends on which of the two counts. Not the best: last (p at most 0.0001)."
    )
    assert "sure: 100 s" in told(found)
    assert "but reached in more runs" in told(found)


def test_one_short_run_does_not_make_the_others_short(raced):
    """One of ten runs ends at 1 s, the others take 10 s: its pair alone is cut there, and the rest are equal."""
    found = rank(raced({"a": [{"until": 1}] + [{"at": 10}] * 9, "b": [{"at": 10}] * 10}))

    assert found.headline.startswith(
        "Accuracy 0.9 was reached by b in 10 of 10 runs, after 10 s; a in 9 of 10 runs, median 10 s."
    )
    assert means(found.settings[1]) == (9.1, 9.1, 1.0, 1.0)
    assert "after 1 s on average" not in told(found)


def test_a_target_that_the_untrained_model_meets_is_said_and_not_ranked(raced):
    """Reached after 0 s is no achievement of a setting; if all do, nothing can be ranked."""
    found = rank(raced({"a": [{"at": 0}] * 3, "b": [{"at": 10}] * 3}))

    assert found.best == [{"method": "b"}]
    assert "Not ranked: a: the untrained model meets accuracy 0.9 in 3 of 3 runs; raise the target." in found.words
    with pytest.raises(FednetError, match="ranks nothing, got a: the untrained model meets accuracy"):
        rank(raced({"a": [{"at": 0}] * 3, "b": [{"at": 0}] * 3}))


def test_a_cost_of_zero_is_no_sign_of_an_untrained_model(raced):
    """Without energy models a trained model reaches the target with 0 J, and is the cheapest."""
    view = raced({"a": [{"at": 10, "watt": 0.0}] * 3, "b": [{"at": 10}] * 3})

    found = rank(view, "energy")

    assert [(its.setting.label, its.cost.mean, its.not_ranked) for its in found.settings] == [
        ("a", 0.0, ""),
        ("b", 10.0, ""),
    ]
    with pytest.raises(FednetError, match=r"the untrained model meets accuracy 0\.9 in 3 of 3 runs"):
        rank(raced({"a": [{"at": 0}] * 3, "b": [{"at": 0}] * 3}), "energy")


def delayed(view, delays, **columns):
    """The study with a delay of other users (s) of each run; other `columns` are also columns of the runs."""
    return replace(view, runs=view.runs.assign(neighbours_p95_s=delays, **columns))


def test_a_run_without_files_of_other_users_is_not_ranked(raced):
    """A run without a delay has no cost; it is no reason to stop, and its setting is named with the reason."""
    view = raced({"a": [{"at": 5}, {"at": 6}, {"at": 7}], "b": [{"at": 9}, {}, {"at": 9}]})

    found = rank(delayed(view, [np.nan, 1.0, 2.0, 3.0, np.nan, 4.0]), "neighbours")

    assert [its.setting.label for its in found.settings] == ["b", "a"]
    assert "Not ranked: a: no file of other users in 1 of 3 runs; run longer (`stop`)." in found.words
    assert found.settings[0].costs.tolist() == [3.0, 8.0, 4.0], "a miss counts as twice the highest"
    assert "a: reached by 3 of 3, neighbours unknown" in told(found)
    with pytest.raises(FednetError, match="ranks nothing, got a: no file of other users in 3 of 3 runs; run longer"):
        rank(delayed(view, [np.nan] * 3 + [np.nan, 1.0, 2.0]), "neighbours")


def test_a_delay_that_is_a_lower_bound_decides_only_what_it_can(raced):
    """At least 3 s and 9 s are not separated; 1 s is less than at least 3 s on six seeds, whatever the bound hides."""
    view = raced({name: [{"at": 5}] * 6 for name in "ab"})
    short = rank(delayed(view, [3.0] * 6 + [9.0] * 6, neighbours_at_least=[True] * 6 + [False] * 6), "neighbours")
    clear = rank(delayed(view, [3.0] * 6 + [1.0] * 6, neighbours_at_least=[True] * 6 + [False] * 6), "neighbours")

    assert short.words[:2] == [
        "a reaches accuracy 0.9 with a delay of at least 3 s on average.",
        "Not separated from a: b.",
    ]
    assert "The delay is a lower bound in 6 of 12 runs that reached it" in told(short)
    assert "no difference shown (3 s against 3 s, restricted to 3 s where a delay is a lower bound)" in told(short)
    assert not [text for text in ("same", "equally good within", "Equally good") if text in told(short)]
    assert np.isnan(short.settings[0].median)
    assert [text.get_text() for text in best_figure(short).axes[0].texts] == ["at least"]
    assert short.frame["lower_bounds"].tolist() == [6, 0]
    assert clear.best == [{"method": "b"}]
    assert " 2. a: at least 3 s, reached by 6 of 6" in told(clear)
    assert "2 s longer (3 s against 1 s, restricted to 3 s where a delay is a lower bound): not the best" in told(clear)


def test_an_energy_that_excludes_more_computing_is_not_ranked(raced):
    """Setting a spends 5 J without the computing of all devices, b 9 J without the computing of 30 % of them."""
    view = raced({"a": [{"at": 5}] * 6, "b": [{"at": 9}] * 6})
    mixed, alike = (
        replace(view, runs=view.runs.assign(compute_unknown_share=shares))
        for shares in ([1.0] * 6 + [0.3] * 6, [0.3] * 12)
    )

    assert rank(mixed, "time").best == [{"method": "a"}]
    assert rank(mixed, "energy").best == [{"method": "b"}]
    assert "Not ranked: a: its energy excludes the computing of a larger share" in told(rank(mixed, "energy"))
    with pytest.raises(FednetError, match="energy cannot be limited, got energies that exclude"):
        rank(mixed, "time", {"energy": 100.0})
    assert rank(alike, "energy").best == [{"method": "a"}]
    assert "Energies exclude computing of 30% of the devices, whose power is unknown." in rank(alike, "energy").words
    assert "exclude" not in told(rank(alike, "time")) + told(rank(view, "energy"))


def test_a_run_that_misses_the_target_is_not_censored_at_its_delay(raced):
    """The miss of a counts as twice the highest delay, 8 s; it neither restricts the pair nor wins by ending early."""
    view = raced({"a": [{"until": 4}, {"at": 3, "until": 4}], "b": [{"at": 5}, {"at": 6}]})

    found = rank(delayed(view, [1.0, 6.0, 7.0, 8.0]), "neighbours")

    assert {its.setting.label: its.costs.tolist() for its in found.settings} == {"a": [16.0, 6.0], "b": [7.0, 8.0]}
    assert found.first_ended is None
    assert "1 run did not reach it and counts as 16 s, twice the highest of any run." in found.words
    assert not [text for text in ("restricted", "ended", "simulated_s", "delay of other users to target")
                if text in told(found)]  # fmt: skip
    assert "never reached it: 1 run" in told(found)


def test_an_unknown_cost_is_not_within_a_limit(raced):
    """Of delays of 50 ms, 200 ms, none, and at least 50 and 200 ms, the first alone is within 100 ms."""
    view = delayed(
        raced({"a": [{"at": 5}] * 5}), [0.05, 0.2, np.nan, 0.05, 0.2], neighbours_at_least=[False] * 3 + [True] * 2
    )

    found = rank(view, limits={"neighbours": 0.1})

    assert found.settings[0].got_there.tolist() == [True, False, False, False, False]
    assert found.settings[0].limits == "limit of neighbours: 2 runs, limited cost unknown: 2 runs"
    unknown = "In 2 of these runs, a limited cost is unknown: they may have reached it within the limits."
    assert unknown in found.words
    assert view.within("neighbours", 0.1).evaluations["run"].unique().tolist() == ["a-0"]


def test_a_diverged_setting_is_said_first_and_never_the_best(raced):
    """All six runs of 1e12 diverge, and half of those of 3: whatever the horizon they never arrive."""
    wild = {"at": 2, "until": 3, "status": "diverged"}
    runs = {0.1: [{"at": 12}] * 6, 1e12: [wild] * 6, 3.0: [{"at": 12}] * 3 + [wild] * 3}
    found = rank(raced(runs, axis="lr"))

    assert found.words[0] == "lr = 3: diverged in 3 of 6; lr = 1e+12: diverged in 6 of 6."
    assert found.headline.startswith(found.words[0])
    assert found.best == [{"lr": 0.1}, {"lr": 3.0}], (
        "3 counts as 24 s where it diverged: three of six seeds do not decide"
    )
    assert found.settings[-1].not_ranked == "diverged in 6 of 6"
    slow = rank(raced({**runs, 0.1: [{"at": 12}] * 5 + [{"at": 15}]}, axis="lr"))
    assert slow.most == 2 * 15.0
    assert {its.setting.label: its.costs.tolist() for its in slow.settings}["lr = 3"] == [12.0] * 3 + [30.0] * 3


@pytest.mark.parametrize(("until", "most", "ended"), [(8, 8.0, None), (7, 8.0, ("b", 0, 7.0))])
def test_a_run_that_ends_at_the_limit_used_it_up(raced, until, most, ended):
    """Ending at the limit of 8 s it is known never to arrive within it; a second earlier it ended with budget left."""
    found = rank(raced({"a": [{"at": 4}], "b": [{"at": None, "until": until}]}), limits={"time": 8.0})

    assert (found.most, found.first_ended) == (most, ended)
    assert found.settings[1].limited_by == ({"time": 1} if ended is None else {"ended": 1})


def test_runs_that_fail_do_not_make_a_setting_cheap(raced):
    """By the mean over those that got there the gambler would win; by the restricted mean it does not."""
    gambler = [{"at": 3}] + [{"at": None, "until": 20}] * 7
    found = rank(raced({"gambler": gambler, "steady": [{"at": 8 + seed % 2} for seed in range(8)]}))

    assert found.settings[0].setting.label == "steady"
    assert found.settings[1].restricted[0] == pytest.approx((3 + 7 * 20) / 8)
    assert "gambler: reached by 1 of 8, the others ended after 20 s" in told(found)


def test_the_median_is_that_of_kaplan_and_meier(raced):
    """Of 2, 4, 6, 8 s and one that ended at 3 s, 4/5 are left after 2 s, 4/5 * 2/3 after 4 s, 4/5 * 1/3 after 6 s."""
    runs = [{"at": 2}, {"until": 3}, {"at": 4}, {"at": 6}, {"at": 8}]
    found = rank(raced({"a": runs, "b": [{"at": 9}] * 5}))

    assert found.settings[0].median == 6.0
    assert found.frame["median"].tolist() == [6.0, 9.0]
    wild = {"at": 1, "until": 2, "status": "diverged"}
    failed = rank(raced({"a": [{"at": 2}, wild, {"at": 4}], "b": [{"at": 9}] * 3}))
    assert [its.median for its in failed.settings] == [4.0, 9.0], "what diverged never arrives: 2, 4, never"


def test_only_seeds_that_all_settings_have_count(raced):
    """A setting that has not finished a seed takes that seed from all; one without any run is left out and told."""
    view = raced({"a": [{"at": 4}, {"at": 6}, {"at": 8}], "b": [{"at": 5}, {"at": 7}]})
    waiting = pd.DataFrame([{"method": "c", "seed": 0, "run": "c-0", "status": "waiting", "reason": ""}])
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

    assert sentences[1] == "Not separated from a: b."
    assert sentences[2] == (
        "5 seeds cannot separate 2 settings, however they differ (p is at least 0.0625); 6 are the fewest that can."
    )
    assert sentences[3] == "If they differ as it seems, 17 more seeds would probably decide about b."
    one = rank(raced({"a": [{"at": 5}], "b": [{"at": 6}]})).words
    assert one[2] == "One seed does not show how much seeds vary; at least 6 can decide between two settings."
    same = rank(raced({"a": [{"at": 5}, {"at": 7}], "b": [{"at": 7}, {"at": 5}]}))
    assert "equally good as" not in told(same).lower(), "equal means of two seeds are no equivalence"


def test_equally_good_is_said_of_an_interval_within_a_margin(raced):
    """Of 100 s, -2 to 2 s on eight seeds lie within 5 %; -8 to 8 s do not, and are only not separated."""
    for spread, text in ((1, "Equally good as a within 5%: b."), (8, "Not separated from a: b.")):
        apart = [spread * step for step in (-2, 2, -1, 1, -2, 2, -1, 1)]
        found = rank(
            raced({"a": [{"at": 100, "until": 130}] * 8, "b": [{"at": 100 + each, "until": 130} for each in apart]})
        )
        assert text in found.words
        assert ("equally good within" in told(found)) == (spread == 1)


def test_a_row_has_one_unit_and_one_question(raced):
    """A mean of 5.5 min with its interval is in minutes; differences have p and no interval of another method."""
    found = rank(raced({"a": [{"at": 300 + 30 * seed, "until": 900} for seed in range(3)],
                        "b": [{"at": 350 + 10 * seed, "until": 900} for seed in range(3)]}))  # fmt: skip

    assert " 1. a: 5.5 min (4.26 min to 6.74 min), reached by 3 of 3" in told(found)
    assert "    30 s later: not separated, p = 0.25" in told(found)
    assert not {"difference_low", "difference_high"} & set(found.frame)


def test_names_with_commas_are_joined_by_semicolons(raced):
    """`ofdma, devices.count = 10, tdma, ...` would read as four settings."""
    found = rank(raced({name: [{"at": 5}, {"at": 7}] for name in ("a, b", "c, d", "e")}))

    assert found.words[1] == "a, b; c, d; and e have the same time to target on every seed."


def test_two_settings_have_one_p_whoever_is_asked(raced):
    """In a study of two settings the question of `compare` is that of `best`: so is the answer, and each says which."""
    view = raced({"a": [{"at": 6 + seed} for seed in range(5)], "b": [{"at": 8 + 2 * seed} for seed in range(5)]})
    alone = compare(view.where({"method": "a"}), view.where({"method": "b"}))
    (time,) = [its for its in alone if its.quantity.column == "time_to_target_s"]
    ranking = rank(view)

    assert time.paired.p == ranking.settings[1].p == 2 / 2**5
    assert time.paired[0] == ranking.settings[1].difference[0] == 4.0
    assert "4 s later: not separated, p = 0.062" in told(ranking)
    assert "5 seeds cannot separate 2 settings, however they differ (p is at least 0.0625); 6 are" in told(ranking)
    pair = str(Comparison(("a", "b"), [time], view.target))
    assert "(mean +4 s): 5 seeds cannot show it, 6 are the fewest that can" in pair
    assert "p =" not in pair
    assert "95 %" not in pair.partition("p of the same test")[2]


def test_what_cannot_be_decided_is_said_of_those_that_are_left(raced):
    """Three settings, five seeds: one is dropped, which no sentence above denies; two are left, undecided."""
    runs = {"a": range(5, 10), "b": (6, 6, 8, 8, 10), "slow": range(15, 20)}
    found = rank(raced({name: [{"at": at} for at in times] for name, times in runs.items()}))

    assert found.settings[2].p < 0.01 < smallest_p(2, 5)
    assert found.words[1:3] == [
        "Not separated from a: b.",
        f"Not the best: slow (p at most {found.settings[2].p:.2g}).",
    ]
    assert found.words[3].startswith("5 seeds cannot separate 2 settings")
    orders = {"a": (5, 9, 7, 6, 8), "b": (9, 5, 8, 7, 6), "c": (7, 6, 5, 9, 8)}
    three = rank(raced({name: [{"at": at} for at in times] for name, times in orders.items()}))
    assert len(three.undecided) == 2
    assert not [text for text in three.words if "cannot separate" in text], "five seeds can separate three"


def test_a_page_names_the_best_that_the_ranking_names(raced):
    """The page's first words are those of `best`: shares where one run in eight fails, and no best among them."""
    view = raced(
        {"fast": [{"at": None, "until": 20}] + [{"at": 3}] * 7, "steady": [{"at": 8 + s % 2} for s in range(8)]}
    )
    first = study_document(view)["words"][1]

    assert first == rank(view).headline
    assert first == (
        "Accuracy 0.9 was reached by fast in 7 of 8 runs, median 3 s; steady in 8 of 8 runs, after 8 s to 9 s. "
        "Not separated from fast: steady."
    )


def test_the_table_and_the_figure_have_the_numbers(raced):
    """A row for each setting with its levels; the figure shows a dot or a cross for each run."""
    found = rank(raced({"a": [{"at": 6}, {"at": 8}], "b": [{"at": None}, {"at": 9}]}))
    table = found.frame
    figure = best_figure(found)

    assert table["method"].tolist() == ["a", "b"]
    assert table["time_to_target_s"].tolist() == pytest.approx([7.0, np.nan], nan_ok=True)
    assert table["difference"].tolist() == pytest.approx([np.nan, 7.5], nan_ok=True)
    assert table["reached"].tolist() == [2, 1]
    assert table["limited_by"].tolist() == ["", "never reached it: 1 run"]
    shown = {line.get_label(): line.get_xdata().tolist() for line in figure.axes[0].get_lines()}
    assert shown["failed"] == [20.0]
    assert shown["runs"] == [9.0]
    assert figure.numbers.equals(table)


def test_a_page_ranks_by_every_cost_and_each_data_set_for_itself(raced):
    """Scores on different data say nothing together; what cannot be ranked says why."""
    view = raced({"a": GOOD, "b": SLOW, "c": [{"at": None}] * 8})
    data = ["x" if cell[0] in "ab" else "y" for cell in view.runs["run"]]
    view = replace(view, runs=view.runs.assign(data_set=data))

    found = list(rankings(view))

    assert [(its["data_set"], its["cost"]) for its in found[:4]] == [
        ("x", c) for c in ("time", "bits", "energy", "rounds")
    ]
    assert found[0]["words"] == rank(raced({"a": GOOD, "b": SLOW})).words
    assert found[4]["words"] == ["race: no run reaches accuracy 0.9, got accuracy 0.52 at best, by c with seed 0; "
                                 "lower the target, or give the runs more time."]  # fmt: skip
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
    view = raced({"a": [{"at": 5}], "b": [{"at": 9}]})

    def ranked(*, minimise="time", within=(), accuracy=None, where=None):
        return rank(view.where(where or {}).aiming_at(accuracy), minimise, positive_limits(within))

    with pytest.raises(FednetError, match=problem.replace("?", r"\?")):
        ranked(**arguments)


def test_a_study_that_cannot_be_ranked_says_why(raced):
    """Without a target, without a common seed, without scores, without the number of devices."""
    view = raced({"a": [{"at": 5}], "b": [{"at": 9}]})

    for broken, problem in (
        (replace(view, target={}), "the target is missing; give --accuracy 0.9 or --loss 0.3"),
        (raced({"a": [{"at": 5}], "b": [{"at": 5, "seed": 7}]}), "needs a seed that all settings have, got none"),
        (replace(view, evaluations=view.evaluations.assign(accuracy=np.nan)), "accuracy: was not measured"),
        (replace(view, runs=view.runs[:0], evaluations=view.evaluations), "needs finished runs, got none; sweep it"),
    ):
        with pytest.raises(FednetError, match=problem):
            rank(broken)
    with pytest.raises(FednetError, match="device-energy: needs the number of devices, got none of a-0"):
        rank(replace(view, runs=view.runs.drop(columns="device_count")), "device-energy")
