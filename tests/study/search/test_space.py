"""The space of a search, its proposals and its aim."""

from __future__ import annotations

import importlib
import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fednet_emu.emulation.play import play
from fednet_emu.errors import FednetError, ScenarioError
from fednet_emu.scenario.overrides import Setting
from fednet_emu.scenario.tree import Place, node_of
from fednet_emu.scenario.yaml_text import parse
from fednet_emu.study.search.space import (
    Range,
    corners,
    importance,
    label_of,
    levels_at,
    proposals,
    require_optuna,
    space_of,
)
from fednet_emu.study.search.trials import CAPPED, Aim, Outcome, costs_of, spent_in, too_costly, values_of
from fednet_emu.testing import small_scenario
from tests.quick import examples

SPACE = """
access: {tdma: {network.uplink.access: tdma}, ofdma: {network.uplink.access: ofdma}}
algorithm.lr: {low: 0.01, high: 1, log: true}
algorithm.cohort: {low: 2, high: 4}
scheme:
  whole: {network.uplink.compression: none}
  top-k: {network.uplink.compression.kind: top-k}
network.uplink.compression.share: {low: 0.1, high: 0.9, step: 0.2, when: {scheme: top-k}}
late: {choices: {none: {algorithm.deadline_s: null}, soon: {algorithm.deadline_s: 1}}, when: {access: [ofdma]}}
"""


def space(text):
    """The parameters of a space in a file called `study`."""
    return space_of(parse(text, "study"))


def test_entries_are_choices_ranges_and_conditions():
    """Levels are those of a grid, ranges of whole numbers are whole, and conditions refer to labels."""
    access, lr, cohort, _, share, late = space(SPACE)

    assert access.ends == ["tdma", "ofdma"]
    assert lr.values == Range(low=0.01, high=1, log=True)
    assert not lr.values.whole
    assert cohort.values.whole
    assert [setting.name for setting in cohort.level(3).settings] == ["algorithm.cohort"]
    assert share.applies({"scheme": "top-k"})
    assert not share.applies({"scheme": "whole"})
    assert not share.applies({})
    assert late.ends == ["none", "soon"]


def test_a_point_is_text_and_settings_in_the_order_of_the_file():
    """Parameters that do not apply are left out."""
    parameters = space(SPACE)
    point = {"scheme": "whole", "access": "tdma", "algorithm.cohort": 3, "algorithm.lr": 0.1}

    assert label_of(parameters, point) == "access=tdma, algorithm.lr=0.1, algorithm.cohort=3, scheme=whole"
    settings = [(its.name, its.value.plain()) for level in levels_at(parameters, point) for its in level.settings]
    assert settings == [
        ("network.uplink.access", "tdma"),
        ("algorithm.lr", 0.1),
        ("algorithm.cohort", 3),
        ("network.uplink.compression", "none"),
    ]


def test_corners_have_every_choice_and_both_ends():
    """Each is a point in which everything that applies has a value, and nothing else."""
    parameters = space(SPACE)
    points = list(corners(parameters))

    for parameter in parameters:
        assert {point[parameter.name] for point in points if parameter.name in point} >= set(parameter.ends)
    for point in points:
        assert [its.name for its in parameters if its.applies(point)] == [
            its.name for its in parameters if its.name in point
        ]


@given(seed=st.integers(0, 2**31), count=st.integers(1, 12))
def test_proposals_lie_in_the_space(seed, count):
    """Numbers are in their ranges and on their steps, and a parameter has a value where it applies, only there."""
    parameters = space(SPACE)
    for point in proposals(parameters, [], count, seed):
        assert set(point) == {its.name for its in parameters if its.applies(point)}
        assert 0.01 <= point["algorithm.lr"] <= 1
        assert point["algorithm.cohort"] in (2, 3, 4)
        assert point.get("network.uplink.compression.share", 0.1) in (0.1, 0.3, 0.5, 0.7, 0.9)


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("a.b: 3", "search.space.a.b: expected a list of values"),
        ("a.b: []", "varies nothing, got an empty list"),
        ("a.b: {low: 2, high: 1}", "low must be below high, got 2 and 1"),
        ("a.b: {low: 0, high: 1, log: true}", "log needs low above 0 and no step, got low 0, step None"),
        ("a.b: {low: 1, high: 2, step: 3}", "step must be above 0 and fit between low and high, got 3"),
        ("a.b: {low: -1.0e+30, high: 1.0e+30}", "search.space.a.b: low: must be"),
        ("a.b: {low: 0, high: 10000000000000000}", "search.space.a.b: high: must be"),
        ("a.b: {low: .nan, high: 1}", "low"),
        ("a.b: {low: 1}", "search.space.a.b: high: is required"),
        ("a.b: {low: 1, high: 2, hihg: 3}", "hihg"),
        ("seed: [1, 2]", "give the seeds under 'seeds'"),
        ("setting: [1, 2]", "is a column of the results, got 'setting'"),
        ("x: {one: {seed: 1}, two: {seed: 2}}", "sets the seed"),
        ("a.b: [1, 2]\nx: {one: {a.b: 3}}", "sets a.b, which 'a.b' sets, too"),
        ("a.b: {low: 1, high: 2, when: {c: 1}}", "must name an entry above it, got 'c'"),
        ("a.b: [1, 2]\nc: {low: 1, high: 2, when: {a.b: 3}}", "no such level, got '3'; its levels: 1, 2"),
        ("a.b: {low: 1, high: 2}\nc: {low: 1, high: 2, when: {a.b: 1}}", "must name an entry above it, got 'a.b'"),
        ("a.b: [1, 2]\nc: {low: 1, high: 2, when: 3}", "expected a mapping from entries to their levels, got 3"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(text, what):
    """One sentence, with the line of the entry."""
    with pytest.raises(ScenarioError) as caught:
        space(text)

    assert what in str(caught.value)
    assert "study:" in str(caught.value)


def test_all_problems_are_told_at_once():
    """Not only the first."""
    with pytest.raises(ScenarioError) as caught:
        space("a.b: 3\nc.d: {low: 2, high: 1}")

    assert len(caught.value.problems) == 2


SPACE_PROPOSALS = space_of(
    parse(
        """
kind: [a, b, c]
lr: {low: 0.001, high: 10, log: true}
n: {low: 1, high: 30}
w: {low: 0, high: 1.0, when: {kind: b}}
""",
        "study",
    )
)


def cost(point):
    """The least cost is 0, at kind b, lr 0.1, n 7, w 0.5."""
    off = {"a": 2.0, "b": 0.0, "c": 4.0}[point["kind"]]
    return off + abs(math.log10(point["lr"]) + 1) + abs(point["n"] - 7) / 10 + abs(point.get("w", 0.5) - 0.5)


def searched(seed, trials, batch=4, startup=10):
    known = []
    while len(known) < trials:
        points = proposals(SPACE_PROPOSALS, known, batch, seed, startup)
        known += [(point, (cost(point),)) for point in points]
    return known


def test_the_same_knowledge_gives_the_same_proposals():
    """Nothing is remembered from call to call; another seed, or more knowledge, gives others."""
    known = searched(3, 20)

    assert searched(3, 20) == known
    assert proposals(SPACE_PROPOSALS, known, 4, 3) == proposals(SPACE_PROPOSALS, known, 4, 3)
    assert proposals(SPACE_PROPOSALS, known, 4, 3) != proposals(SPACE_PROPOSALS, known, 4, 4)
    assert proposals(SPACE_PROPOSALS, known[:16], 4, 3) == [point for point, _ in known[16:]]


def test_proposals_beat_chance():
    """After 40 trials the best cost is lower than that of 40 random ones on average over five seeds, by a lot."""
    best = [min(value for _, (value,) in searched(seed, 40)) for seed in range(5)]
    chance = [min(value for _, (value,) in searched(seed, 40, startup=40)) for seed in range(5)]

    assert np.mean(best) < 0.75 * np.mean(chance)


@examples(20)
@given(seed=st.integers(0, 2**31), batch=st.integers(1, 7))
def test_no_point_is_proposed_twice_until_the_space_is_used_up(seed, batch):
    """All six points of a small space come, each once, then none."""
    small = space_of(parse("a: [1, 2, 3]\nb: {low: 1, high: 2}", "study"))
    known = []
    while points := proposals(small, known, batch, seed):
        known += [(point, (float(point["b"]),)) for point in points]

    assert sorted((point["a"], point["b"]) for point, _ in known) == [(a, b) for a in "123" for b in (1, 2)]


def test_importance_finds_what_matters():
    """A cost that hangs on one parameter is explained by it; a constant one by nothing."""
    known = [(point, (float(point["n"]),)) for point, _ in searched(0, 40)]
    shares = importance(SPACE_PROPOSALS, known)

    assert next(iter(shares)) == "n"
    assert shares["n"] > 0.9
    assert importance(SPACE_PROPOSALS, [(point, (1.0,)) for point, _ in known]) == {}
    assert importance(SPACE_PROPOSALS, known[:3]) == {}


def test_importance_under_a_condition_is_that_where_it_holds():
    """A parameter that is varied in one branch only is judged there."""
    known = [(point, (point.get("w", 0.5),)) for point, _ in searched(1, 60)]
    shares = importance(SPACE_PROPOSALS, known)

    assert shares["w"] > 0.8


def test_a_missing_optuna_is_a_sentence(monkeypatch):
    """It says what to install."""

    def absent(_name):
        raise ImportError

    monkeypatch.setattr(importlib, "import_module", absent)
    with pytest.raises(FednetError, match=r"pip install 'fednet-emu\[search\]'"):
        require_optuna()


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
    return ended.ledger.frame("evaluations"), ended.summary


def worth(aim, scenario):
    """What a scenario's run is worth, played to its own end."""
    evaluations, summary = run_of(scenario)
    return aim.outcome(evaluations, summary, scenario, scenario.stop)


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


@pytest.mark.parametrize("limited", COSTS)
def test_a_run_that_a_limit_or_the_cap_cuts_off_has_no_cost(limited):
    """Without a target, whole runs are compared: one that has not ended by its own rules is not among them."""
    scenario = small_scenario(*LEARNS)
    spent = spent_in(run_of(scenario)[1], 4)

    def found(aim, cap=math.inf):
        stops = (f"stop.{name}={amount!r}" for name, amount in aim.stops(scenario, cap).items())
        short = small_scenario(*LEARNS, *stops)
        return aim.outcome(*run_of(short), short, scenario.stop)

    def within(share):
        return Aim(("energy",), {limited: share * spent[limited]}, None, math.nan)

    cut, capped = found(within(0.5)), found(Aim((limited,), {}, None, math.nan), 0.5 * spent[limited])
    assert found(within(1.01)).costs == (spent["energy"],)
    assert (cut.reached, cut.why) == (False, (limited,))
    assert (capped.reached, capped.why) == (False, (CAPPED,))


def test_a_run_that_diverged_counts_twice_the_worst(whole):
    """Its score may be above the target; it ranks behind a run that failed by little."""
    aim = Aim(("rounds",), {}, "accuracy", 0.6)
    good, near = Outcome((2.0,), 0.7), Outcome((math.inf,), 0.57, ("ended",))
    lost = Outcome((math.inf,), 0.9, ("diverged",))

    assert [costs[0, 0] for costs in costs_of(aim, [[good], [near], [lost]])] == pytest.approx([2.0, 2.1, 4.0])
    assert [costs[0, 0] for costs in costs_of(aim, [[good], [near], [lost]], graded=False)] == [2.0, 4.0, 4.0]


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
    run = small_scenario()
    totals = {"uplink_bit": 1, "downlink_bit": 0, "sidelink_bit": 0, "energy_j": 1, "simulated_s": 1}
    rows = pd.DataFrame([{**totals, "round": 1, "accuracy": 1.0, "loss": 0.1}])
    for aim in (Aim(("time",), {}, "accuracy", 0.5), Aim((), {"time": 2}, None, 0), Aim(("time",), {}, None, 0)):
        summary = {**totals, "rounds": 1, "status": "done"}
        assert aim.outcome(rows, summary, run, run.stop).reached
        lost = aim.outcome(rows, summary | {"status": "diverged"}, run, run.stop)
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
