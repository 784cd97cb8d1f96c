"""What a run is worth to a search, and that runs which end early lose nothing that was asked for."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fednet_emu.emulation.play import play
from fednet_emu.scenario.overrides import Setting
from fednet_emu.scenario.tree import Place, node_of
from fednet_emu.study.search.aim import Aim, Outcome, spent_in, values_of
from fednet_emu.study.search.trials import too_costly
from fednet_emu.testing import small_scenario
from tests.quick import examples

LEARNS = (
    "data={kind: synthetic, n_samples: 200, n_test: 200, features: 9, classes: 2}",
    "model=softmax",
    "algorithm.lr=0.02",
    "channel=urban-micro",
    "stop.rounds=6",
)
COSTS = ("time", "bits", "energy", "device-energy", "rounds")


def run_of(scenario):
    """The evaluations and the summary of a run in memory."""
    ended = play(scenario, "run", None)
    return ended.ledger.frames()["evaluations"], ended.summary


def worth(aim, scenario):
    """What a scenario's run is worth, played to its own end."""
    evaluations, summary = run_of(scenario)
    return aim.outcome(evaluations, summary, scenario.devices.count)


def slow_worth(aim, scenario):
    """The same by walking through the evaluations: the first within all limits that reaches the target."""
    evaluations, _ = run_of(scenario)
    for row in evaluations.to_dict("records"):
        bits = row["uplink_bit"] + row["downlink_bit"] + row["sidelink_bit"]
        joules = row["energy_j"]
        amounts = [row["simulated_s"], bits, joules, joules / scenario.devices.count, row["round"]]
        spent = dict(zip(COSTS, amounts, strict=True))
        if any(spent[name] > most for name, most in aim.limits.items()):
            break
        if row["accuracy"] >= aim.level:
            return tuple(spent[name] for name in aim.costs)
    return (math.inf,) * len(aim.costs)


@pytest.fixture(scope="module")
def whole():
    """A scenario that learns over radio links, and what it spends in all."""
    scenario = small_scenario(*LEARNS)
    evaluations, summary = run_of(scenario)
    return scenario, evaluations, spent_in(summary, 4)


@examples(40)
@given(
    cost=st.sampled_from(COSTS),
    part=st.floats(0.1, 1.3),
    limited=st.sampled_from(COSTS),
    share=st.floats(0.1, 1.3),
    place=st.integers(1, 6),
)
def test_a_run_that_ends_early_is_worth_what_the_whole_run_is(whole, cost, part, limited, share, place):
    """Ended at target, limit and cap, its cost is that of the whole run, unless this is beyond the cap.

    The whole run is judged by a walk through its evaluations.
    """
    scenario, evaluations, spent = whole
    level = float(evaluations["accuracy"].iloc[place])
    aim = Aim((cost,), {limited: share * spent[limited]}, "accuracy", level)
    cap = part * spent[cost]
    expected = slow_worth(aim, scenario)

    assert worth(aim, scenario).costs == pytest.approx(expected)
    stop = aim.stops(scenario, cap)
    short = small_scenario(*LEARNS, *(f"stop.{name}={amount!r}" for name, amount in stop.items()))
    found = worth(aim, short)
    if expected[0] <= cap:
        assert found.costs == pytest.approx(expected)
    else:
        assert not found.reached or found.costs == pytest.approx(expected)


@examples(40)
@given(limited=st.sampled_from(COSTS), share=st.floats(0.02, 0.6), rounds=st.integers(1, 2))
def test_what_the_clock_rules_out_never_gets_there(whole, limited, share, rounds):
    """A setting is dropped for a limit only if the whole run is beyond it by the end of these rounds."""
    scenario, evaluations, spent = whole
    aim = Aim(("time",), {limited: share * spent[limited]}, "accuracy", 0.01)
    rows = evaluations.assign(
        bits=evaluations["uplink_bit"] + evaluations["downlink_bit"] + evaluations["sidelink_bit"]
    )
    at = rows[rows["round"] == rounds].iloc[0]
    amounts = [at["simulated_s"], at["bits"], at["energy_j"], at["energy_j"] / 4, at["round"]]
    then = dict(zip(COSTS, amounts, strict=True))[limited]

    told = too_costly(aim, scenario, rounds)

    assert bool(told) == (then > aim.limits[limited])


def test_what_is_ruled_out_is_said_with_both_amounts(whole):
    """How much it is after how many rounds, and how much would be allowed."""
    aim = Aim(("time",), {"bits": 1000}, "accuracy", 0.9)
    assert too_costly(aim, whole[0], 2) == "6.4 kbit after 2 rounds, 1 kbit allowed"
    assert "after a round, 1 ms allowed" in too_costly(Aim(("time",), {}, "accuracy", 0.9), whole[0], 1, cap=1e-3)


def test_nothing_is_ruled_out_where_events_depend_on_learning(whole):
    """There the clock alone says nothing: coded uploads have as many bits as their values need."""
    coded = small_scenario(*LEARNS, "network.uplink.compression={kind: qsgd, coding: elias}")
    aim = Aim(("time",), {"time": 1e-9}, "accuracy", 0.9)

    assert too_costly(aim, whole[0], 1)
    assert too_costly(aim, coded, 1) == ""


def test_limits_of_the_scenario_stay():
    """The smaller of two limits ends a run; a target below its own counts."""
    scenario = small_scenario(*LEARNS, "stop={rounds: 5, simulated_s: 3, accuracy: 0.8}")
    aim = Aim(("time",), {"time": 4, "device-energy": 2, "energy": 9}, "accuracy", 0.9)

    assert aim.stops(scenario, cap=2) == {"simulated_s": 2, "energy_j": 8, "accuracy": 0.8}
    assert aim.stops(scenario, cap=2, milestones={1.5: 0.3})["milestones"] == [{"simulated_s": 1.5, "accuracy": 0.3}]
    rounds = Aim(("rounds",), {}, "accuracy", 0.9)
    assert rounds.stops(scenario, cap=2.5, milestones={1.2: 0.3}) == {
        "rounds": 3,
        "accuracy": 0.8,
        "milestones": [{"rounds": 2, "accuracy": 0.3}],
    }
    assert Setting("stop.milestones", node_of([{"rounds": 2, "accuracy": 0.3}], Place("x"))).value.plain()


def test_accuracy_within_limits_is_that_of_the_last_evaluation_there(whole):
    """The accuracy at the deadline, as its negative, for everything is minimised."""
    scenario, evaluations, _ = whole
    deadline = float(evaluations["simulated_s"].iloc[3])
    aim = Aim((), {"time": deadline}, None, math.nan)

    assert worth(aim, scenario).costs == (-evaluations["accuracy"].iloc[3],)
    assert "accuracy" not in aim.stops(scenario)


def test_without_a_target_the_costs_are_those_of_the_whole_run(whole):
    """All of them, or none if a limit is broken."""
    scenario, _, spent = whole
    assert worth(Aim(COSTS, {}, None, math.nan), scenario).costs == pytest.approx([spent[name] for name in COSTS])
    broken = worth(Aim(("time",), {"bits": spent["bits"] - 1}, None, math.nan), scenario)
    assert (broken.costs, broken.why) == ((math.inf,), ("bits",))


def test_a_diverged_run_reaches_nothing():
    """Whatever its scores were."""
    totals = {"uplink_bit": 1, "downlink_bit": 0, "sidelink_bit": 0, "energy_j": 1, "simulated_s": 1}
    rows = pd.DataFrame([{**totals, "round": 1, "accuracy": 1.0, "loss": 0.1}])
    for aim in (Aim(("time",), {}, "accuracy", 0.5), Aim((), {"time": 2}, None, 0), Aim(("time",), {}, None, 0)):
        summary = {**totals, "rounds": 1, "status": "done"}
        assert aim.outcome(rows, summary, 4).reached
        lost = aim.outcome(rows, summary | {"status": "diverged"}, 4)
        assert not lost.reached
        assert lost.why == ("diverged",)


def test_the_score_at_an_amount_is_that_of_the_last_evaluation():
    """Inclusive, and unknown before the first."""
    its = Outcome((3.0,), 0.9, course=np.array([[1.0, 2.0, 3.0], [0.1, 0.5, 0.9]]))
    assert [its.score_at(amount) for amount in (1, 1.9, 2, 9)] == [0.1, 0.1, 0.5, 0.9]
    assert math.isnan(its.score_at(0.5))


RUN = st.one_of(
    st.builds(lambda cost: Outcome((cost,), 0.9), st.floats(0.1, 100)),
    st.builds(lambda score: Outcome((math.inf,), score, ("ended",)), st.floats(0, 0.89)),
)


@given(st.lists(RUN, min_size=1, max_size=12))
def test_single_runs_are_in_order(runs):
    """Cheaper before dearer, those that got there before those that did not, and these by how far they came."""
    aim = Aim(("time",), {}, "accuracy", 0.9)
    values = [value for (value,) in values_of(aim, [[its] for its in runs])]

    assert all(map(math.isfinite, values))
    for a, first in zip(values, runs, strict=True):
        for b, second in zip(values, runs, strict=True):
            if first.reached and second.reached:
                assert (a < b) == (first.costs < second.costs)
            elif first.reached:
                assert a < b or second.score > 0.9 - 1e-9
            elif not second.reached and first.score > second.score + 1e-9:
                assert a < b


def test_a_trial_without_runs_is_the_worst():
    """It was ruled out by the clock, or is no scenario."""
    aim = Aim(("time",), {}, "accuracy", 0.9)
    good, bad = Outcome((2.0,), 0.9), Outcome((math.inf,), 0.1, ("ended",))
    (first,), (second,), (third,) = values_of(aim, [[good, good], [good, bad], []])

    assert first == 2
    assert second < third == values_of(aim, [[good], [bad]])[1][0]
    assert values_of(aim, [[]]) == [(1.0,)]
