"""Oort: its utility by hand, on made-up knowledge and in a run whose losses are known, and its other parts."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from fednet_emu.algorithms.selection.oort import Oort, Pacer, statistical_utility
from fednet_emu.testing import run_small, small_federation, small_scenario
from tests.algorithms.selection.knowledge import known


def test_utility_by_hand() -> None:
    """10 sqrt(4) = 20 and 5 sqrt(9) = 15; in round 8 each gets its sqrt(0.1 log 8 / L), and the slow one a fourth."""
    statistical = statistical_utility(np.array([10.0, 5.0]), np.array([4.0, 9.0]))
    assert statistical.tolist() == [20, 15]

    utility = Oort(clip_percent=100).utility(statistical, np.array([4.0, 2.0]), np.array([2, 5]), 8, 2.0)
    assert utility[0] == pytest.approx((20 + math.sqrt(0.1 * 2.0794415 / 2)) * 0.25)
    assert utility[1] == pytest.approx(15 + math.sqrt(0.1 * 2.0794415 / 5))


def test_high_utilities_are_clipped() -> None:
    """The 95th percentile of 0, 1, ..., 20 is 19."""
    clipped = Oort().utility(np.arange(21.0), np.ones(21), np.full(21, 1), 1, 2.0)

    assert clipped.tolist() == [*range(20), 19]


def test_the_reported_square_is_that_of_all_samples_of_all_steps() -> None:
    """Two steps on batches of 8 of 20 samples each, worked out by hand from the batches that the job draws."""
    settings = ("algorithm={kind: fedavg, cohort: 4, lr: 0.1, batch_size: 8, local_epochs: 2, selection: oort}",)
    for engine in ("serial", "batched"):
        fed, client = small_federation(f"training.engine={engine}"), small_scenario(*settings).algorithm.client
        w = fed.initial_model()
        exchange = fed.exchange(fed.devices(), w, client, 0, statistics=("square", "samples"))
        arrived = fed.clock.run_process(exchange)
        told = {k.index: k.measured for k in arrived.devices}

        for k in range(4):
            square, samples = told[k]
            assert (fed.read(square), samples) == (pytest.approx(by_hand(fed, k, w.value), rel=1e-5), 20)


def by_hand(fed, k: int, w: torch.Tensor) -> float:
    """The mean of squared losses of a device in the first round, every step by autograd."""
    own, rng = fed.task.slice_of(k), fed.streams("batch", k, 0)
    squares: list[float] = []
    w = w.clone().requires_grad_()
    for _ in range(2):
        rows = rng.permutation(np.arange(own.start, own.stop))
        for batch in (rows[:8], rows[8:16], rows[16:]):
            x, y = fed.task.data.x[batch], fed.task.data.y[batch]
            losses = (x @ w[:-1] + w[-1] - y) ** 2
            squares += losses.square().tolist()
            (gradient,) = torch.autograd.grad(losses.mean(), w)
            w = (w - 0.1 * gradient).detach().requires_grad_()
    assert len(squares) == 40
    return sum(squares) / 40


def test_two_numbers_travel_with_every_upload() -> None:
    """A model of 320 bit is 384 bit on the uplink, and takes 384 us; the downlink carries the model alone."""
    fed = run_small("algorithm.selection=oort", timing_only=True)
    transfers = fed.ledger.frames()["transfers"]
    up = transfers[transfers["kind"] == "uplink"]

    assert set(up["size_bit"]) == {384}
    assert set(transfers[transfers["kind"] == "downlink"]["size_bit"]) == {320}
    assert (up["ended_s"] - up["started_s"]).tolist() == pytest.approx([384e-6] * len(up))


def explored(n: int, t: int, squares, **more):
    """Knowledge of devices that all have updates from the latest round."""
    told = {"square": np.asarray(squares, float), "samples": np.full(n, 10.0)}
    return {"told": told, "last_arrived": np.full(n, t - 1), "arrived": np.ones(n, int), "took_s": np.ones(n), **more}


def test_all_are_explored_at_first_by_their_speed() -> None:
    """In round 1 nobody is known: of a fast and a slow device, nine times as fast, the fast one is in nine of ten."""
    rule, fast = Oort(), 0
    told = {"told": {"square": np.full(2, np.nan), "samples": np.full(2, np.nan)}}
    for seed in range(1000):
        view = known(2, 1, seed=seed, compute_s=[0.0, 0.0], rate_bps=[9, 1], memory=rule.start(2), **told)
        fast += rule.choose(view) == [0]

    assert fast / 1000 == pytest.approx(0.9, abs=0.05)


def test_shares_of_exploration_decay() -> None:
    """Of 100 places 90 explore at first, 50 (0.9 x 0.98^29) after 29 rounds, and 20 from then on at the least."""
    rule = Oort()
    for t, unknown in ((1, 89), (29, 51), (300, 20)):
        squares = np.r_[np.ones(200), np.full(200, np.nan)]
        chosen = rule.choose(known(400, 100, t, memory=rule.start(400), **explored(400, t, squares)))
        assert sum(number >= 200 for number in chosen) == unknown
        assert len(set(chosen)) == 100


def test_only_those_near_the_edge_are_drawn() -> None:
    """With three places and utilities of 10 k, who has less than 95 % of the third highest is never in."""
    rule = Oort(exploration=0, least_exploration=0, clip_percent=100, penalty=0)
    squares = np.array([1.0, 4, 9, 16, 25, 36, 49, 0.96 * 25]) ** 1.0
    seen_in = set()
    for seed in range(200):
        seen_in |= set(rule.choose(known(8, 3, 1, seed=seed, memory=rule.start(8), **explored(8, 1, squares))))

    assert seen_in == {4, 5, 6, 7}  # sqrt(0.96) = 0.98 of the third


def test_slow_devices_are_in_less_often() -> None:
    """Twice the preferred time with power 2 is a fourth of the utility, and so out when others are equal."""
    rule = Oort(exploration=0, least_exploration=0, preferred_percent=50)
    took_s = np.array([1.0, 1, 1, 2])
    for seed in range(50):
        own = explored(4, 1, np.ones(4), took_s=took_s)
        assert 3 not in rule.choose(known(4, 3, 1, seed=seed, memory=rule.start(4), **own))


def test_the_pacer_gives_more_time_when_rounds_bring_less() -> None:
    """Windows of two rounds: 20 and 20, then 10 and 10 in units of utility; the percentile grows from 30 to 35 once."""
    rule = Oort(window=2, exploration=0, least_exploration=0)
    memory = rule.start(2)
    for t, square in ((1, 1.0), (2, 1.0), (3, 0.25), (4, 0.25)):
        assert memory.percent == 30
        rule.choose(known(2, 1, t, memory=memory, **explored(2, t, [square, square])))

    assert memory == Pacer(35, [20, 20, 10, 10])
    for t in (5, 6):
        rule.choose(known(2, 1, t, memory=memory, **explored(2, t, [0.25, 0.25])))
    assert memory.percent == 35  # not less than the window before


def test_a_round_has_brought_what_arrived_in_it() -> None:
    """Of utilities 10, 20 and 30 the first is of two rounds ago: the pacer counts 50 for the latest round."""
    rule = Oort(exploration=0, least_exploration=0)
    memory = rule.start(3)
    rule.choose(known(3, 1, 5, memory=memory, **explored(3, 5, [1.0, 4.0, 9.0], last_arrived=[3, 4, 4])))

    assert memory.brought == [50]


def test_those_who_took_part_often_enough_are_left_out() -> None:
    """With a limit of three updates, devices 0 and 1 are left out; when only they remain, they are asked again."""
    rule = Oort(exploration=0, least_exploration=0, most_rounds=3)
    own = explored(5, 1, np.ones(5), arrived=[3, 4, 2, 1, 2])
    for seed in range(50):
        assert not {0, 1} & set(rule.choose(known(5, 2, 1, seed=seed, memory=rule.start(5), **own)))
    assert sorted(rule.choose(known(5, 4, 1, memory=rule.start(5), **own))) == [0, 2, 3, 4]


def test_a_timing_only_run_is_marked() -> None:
    """Losses decide: with nominal ones the run is an approximation, and says so."""
    fed = run_small("algorithm.selection=oort", timing_only=True)

    assert fed.learner.nominal
    assert small_scenario("algorithm.selection=oort").events_depend_on_learning
    assert not small_scenario("algorithm.selection=age").events_depend_on_learning
