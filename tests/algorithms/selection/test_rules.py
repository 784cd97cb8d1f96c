"""Rules by turns, channels and ages against plain loops; and what a rule may not do."""

from __future__ import annotations

import numpy as np
import pytest

from fednet_emu.algorithms.selection import SELECTIONS, Selection, highest, weighted
from fednet_emu.algorithms.selection.power_of_choice import PowerOfChoice
from fednet_emu.algorithms.selection.rules import (
    Age,
    BestChannel,
    CellInterior,
    Everybody,
    MostCharged,
    ProportionalFair,
    RoundRobin,
    Uniform,
)
from fednet_emu.errors import ScenarioError
from fednet_emu.testing import run_small, small_scenario
from tests.algorithms.selection.knowledge import known


def test_every_kind_has_its_name() -> None:
    """The table and the classes agree."""
    assert all(SELECTIONS[kind].kind == kind for kind in SELECTIONS)


def test_best_channel_takes_the_highest_rates_of_those_that_are_there() -> None:
    """Device 4 has the best link, and is away."""
    view = known(5, 2, rate_bps=[3, 1, 5, 4, 9], there=[0, 1, 2, 3])

    assert set(BestChannel().choose(view)) == {2, 3}


def test_the_interior_of_a_cell_are_its_best_links() -> None:
    """40 % of five devices are the two best of four present ones; cohorts of one are drawn among them."""
    rule = CellInterior(share=0.4)
    drawn = {rule.choose(known(5, 1, t, rate_bps=[3, 1, 5, 4, 9], there=[0, 1, 2, 3]))[0] for t in range(40)}

    assert drawn == {2, 3}
    assert rule.choose(known(5, 5, rate_bps=[3, 1, 5, 4, 9])) == [2, 4]
    assert rule.most(5, 5) == 2
    assert CellInterior(share=0.01).most(5, 5) == 1


def test_ties_are_drawn_at_random() -> None:
    """Of ten equal devices each is chosen in about 300 of 1000 draws of three."""
    counts = np.zeros(10)
    for t in range(1000):
        counts[highest(np.ones(10), known(10, 3, t))] += 1

    assert counts.sum() == 3000
    assert counts.min() > 300 - 5 * np.sqrt(210)


def test_proportional_fair_is_a_plain_loop() -> None:
    """Over rounds of moving devices that come and go, the ratios are rate over the mean of all earlier rates seen."""
    rng, n, rule = np.random.default_rng(0), 8, ProportionalFair()
    memory, past = rule.start(n), {k: [] for k in range(n)}
    for t in range(40):
        rate_bps = rng.uniform(1, 9, n)
        there = np.flatnonzero(rng.random(n) < 0.8)
        chosen = rule.choose(known(n, 3, t, rate_bps=rate_bps, there=there, memory=memory))
        ratio = {int(k): rate_bps[k] / (sum(past[k]) / len(past[k])) if past[k] else 1.0 for k in there}
        for k in there:
            past[k].append(rate_bps[k])
        if len(set(ratio.values())) == len(ratio):
            assert sorted(chosen) == sorted(sorted(ratio, key=lambda k: -ratio[k])[:3])
    assert all(past.values())


def test_proportional_fair_is_uniform_where_nothing_moves() -> None:
    """Constant rates of different devices have ratio 1 to the last bit, for as long as the run may be."""
    rule, counts = ProportionalFair(), np.zeros(4)
    memory = rule.start(4)
    for t in range(800):
        counts[rule.choose(known(4, 1, t, rate_bps=[0.1, 0.3, 7.7, 1e9 / 3], memory=memory))] += 1

    assert counts.min() > 200 - 5 * np.sqrt(150)


def test_age_is_a_plain_loop() -> None:
    """The devices chosen have the largest ages: rounds since an update arrived, never counting as before the start."""
    rng, n, rule = np.random.default_rng(1), 9, Age()
    last = np.full(n, -1)
    for t in range(60):
        age = {k: t - last[k] for k in range(n)}
        chosen = rule.choose(known(n, 3, t, last_arrived=last.copy()))
        left = [age[k] for k in range(n) if k not in chosen]
        assert min(age[k] for k in chosen) >= max(left)
        for k in chosen:
            if rng.random() < 0.7:  # else it is lost, and the device stays as old as it is
                last[k] = t


def test_round_robin_goes_around() -> None:
    """Ten devices in threes: 0 1 2, 3 4 5, 6 7 8, 9 0 1, ...; one that was away is asked as soon as it is back."""
    fed = run_small(
        "devices.count=10", "algorithm={kind: fedavg, cohort: 3, lr: 0.1, batch_size: null, local_steps: 1}",
        "algorithm.selection=round-robin", "stop.rounds=10", timing_only=True,
    )  # fmt: skip
    asked = fed.ledger.frame("selection")

    expected = [sorted(number % 10 for number in range(3 * t, 3 * t + 3)) for t in range(10)]
    assert [sorted(own) for _, own in asked.groupby("round")["device"]] == expected
    view = known(4, 2, 5, last_invited=[4, 2, 3, 4], invited=[2, 1, 2, 2])
    assert list(RoundRobin().choose(view)) == [1, 2]


def test_everybody_is_everybody() -> None:
    """All that are there, whatever the cohort."""
    assert Everybody().choose(known(5, 2, there=[0, 3, 4])) == [0, 3, 4]
    assert Everybody().most(2, 5) == 5


def test_uniform_draws_what_it_always_has() -> None:
    """The slot's default asks whom the stream of the cohort has always drawn."""
    fed = run_small("devices.count=9", "algorithm.cohort=4", "stop.rounds=8", timing_only=True)
    rounds, computes = fed.ledger.frame("rounds"), fed.ledger.frame("computes")
    for t in range(8):
        here = computes["started_s"].between(rounds["started_s"][t], rounds["ended_s"][t])
        assert sorted(computes["device"][here]) == sorted(fed.streams("cohort", t).choice(9, 4, replace=False))


def test_weighted_draws_are_in_proportion() -> None:
    """Of weights 1, 2, 3 and 0, one at a time: sixths; the one of weight 0 comes only when all others are in."""
    rng, counts = np.random.default_rng(2), np.zeros(4)
    for _ in range(6000):
        counts[weighted(np.arange(4), np.array([1.0, 2.0, 3.0, 0.0]), 1, rng)] += 1

    assert counts[3] == 0
    assert counts[:3] == pytest.approx([1000, 2000, 3000], abs=5 * np.sqrt(1500))
    assert sorted(weighted(np.arange(4), np.array([1.0, 2.0, 3.0, 0.0]), 3, rng)) == [0, 1, 2]


def test_power_of_choice_keeps_the_largest_losses() -> None:
    """Of the candidates, those with the largest losses; a loss that has not come is the smallest of all."""
    rule = PowerOfChoice(candidates=4)
    losses = np.array([0.5, 2.0, np.nan, 1.0, 9.0, np.nan])

    chosen = rule.choose(known(6, 2, polled=[0, 1, 2, 3], polled_loss=losses))
    assert set(chosen) == {1, 3}
    assert set(rule.choose(known(6, 3, polled=[2, 5, 0], polled_loss=losses))) == {0, 2, 5}


def test_power_of_choice_without_messages_takes_the_last_losses() -> None:
    """Devices of which no loss is known count as infinite, and come first."""
    rule = PowerOfChoice(variant="rpow-d", candidates=6)
    told = {"loss": np.array([0.5, 2.0, np.nan, 1.0, 0.1, np.nan])}

    assert set(rule.choose(known(6, 3, told=told))) == {1, 2, 5}


def test_candidates_are_twice_the_cohort_unless_given() -> None:
    """Of ten devices and three places six are asked for their losses, or as many as there are."""
    assert len(PowerOfChoice().poll(known(10, 3))) == 6
    assert len(PowerOfChoice().poll(known(5, 3))) == 5
    assert len(PowerOfChoice(candidates=4).poll(known(10, 3))) == 4


def test_candidates_are_drawn_by_their_samples() -> None:
    """A device with three times the samples is twice to three times as often among two of ten candidates."""
    rule, counts = PowerOfChoice(candidates=1), np.zeros(4)
    for t in range(4000):
        counts[list(rule.poll(known(4, 1, t, n_samples=[10, 30, 40, 20])))] += 1

    assert counts / 4000 == pytest.approx([0.1, 0.3, 0.4, 0.2], abs=0.04)


class Favourites(Selection):
    """The same devices in every round, there or not."""

    numbers: tuple[int, ...]

    def choose(self, view):
        return self.numbers


def test_a_rule_of_ones_own_is_asked_and_checked() -> None:
    """A class of a user takes part as an object; numbers that nobody can be asked by are named."""
    fed = run_small("algorithm.cohort=2", timing_only=True)
    assert fed.ledger.invited.total() == 6
    own = "{kind: 'tests.algorithms.selection.test_rules:Favourites', numbers: %s}"

    fed = run_small("algorithm.selection=" + own % "[3, 1]", timing_only=True)
    assert dict(fed.ledger.invited) == {1: 3, 3: 3}
    with pytest.raises(ScenarioError, match=r"algorithm.selection: chooses a device twice, got \[1, 1\]"):
        run_small("algorithm.selection=" + own % "[1, 1]", timing_only=True)
    with pytest.raises(ScenarioError, match="device 7, which is away or has no samples"):
        run_small("algorithm.selection=" + own % "[7]", timing_only=True)


@pytest.mark.parametrize("variant", ["pow-d", "cpow-d", "rpow-d"])
def test_nobody_is_asked_for_the_loss_of_a_model_that_is_not_sent_to_all(variant: str) -> None:
    """IFCA sends several models: a rule that polls one is refused, one that reads reported losses is not."""
    rule = f"{{kind: power-of-choice, variant: {variant}}}"
    ifca = f"{{kind: ifca, cohort: 2, clusters: 2, lr: 0.1, batch_size: 8, local_steps: 1, selection: {rule}}}"
    found = [".".join(path) for path, _ in small_scenario(f"algorithm={ifca}").contradictions()]

    assert found == ([] if variant == "rpow-d" else ["algorithm.selection"])


def test_uniform_alone_costs_nothing() -> None:
    """`uniform` records no series, asks for no statistics, and is the same object for all."""
    fed = run_small("algorithm.selection=uniform", timing_only=True)

    assert "selection" not in fed.ledger.series
    assert Uniform().reports == ()
    assert Uniform() == Uniform()


def test_most_charged_asks_who_has_most_energy() -> None:
    """Of those that are there; without batteries each is equally likely."""
    charges_j = [0.5, 2.0, 9.0, 1.0]
    view = known(4, 2, there=np.array([0, 1, 3]), charges_j=charges_j)
    unknown = [tuple(sorted(MostCharged().choose(known(4, 2, seed=seed)))) for seed in range(60)]

    assert view.charge_j[[0, 1, 3]].tolist() == [0.5, 2.0, 1.0]
    assert np.isnan(view.charge_j[2])
    assert sorted(MostCharged().choose(view)) == [1, 3]
    assert len(set(unknown)) == 6
