"""Selection of clients: Oort, FedCS and the cohort sampler."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest
import torch

from fednet_emu.algorithms.base import Synchronous
from fednet_emu.algorithms.selection import SELECTIONS
from fednet_emu.algorithms.selection.base import RoundWork
from fednet_emu.algorithms.selection.fedcs import FedCs, greedy
from fednet_emu.algorithms.selection.oort import Oort, Pacer, statistical_utility
from fednet_emu.federation import SgdPlan
from fednet_emu.federation.federation import Federation
from fednet_emu.records.laws import verify
from fednet_emu.scenario.algorithms import ALGORITHMS
from fednet_emu.testing import run_small, small_federation, small_scenario
from tests.algorithms.selection.knowledge import known
from tests.algorithms.small import ALGORITHM_SETTINGS, CONDITIONS, EVERYWHERE, assert_it_goes_on
from tests.quick import crossed


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
    transfers = fed.ledger.frame("transfers")
    up = transfers[transfers["direction"] == "uplink"]

    assert set(up["size_bit"]) == {384}
    assert set(transfers[transfers["direction"] == "downlink"]["size_bit"]) == {320}
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
    rule = Oort(exploration=0, min_exploration=0, clip_percent=100, penalty=0)
    squares = np.array([1.0, 4, 9, 16, 25, 36, 49, 0.96 * 25]) ** 1.0
    seen_in = set()
    for seed in range(200):
        seen_in |= set(rule.choose(known(8, 3, 1, seed=seed, memory=rule.start(8), **explored(8, 1, squares))))

    assert seen_in == {4, 5, 6, 7}  # sqrt(0.96) = 0.98 of the third


def test_slow_devices_are_in_less_often() -> None:
    """Twice the preferred time with power 2 is a fourth of the utility, and so out when others are equal."""
    rule = Oort(exploration=0, min_exploration=0, preferred_percent=50)
    took_s = np.array([1.0, 1, 1, 2])
    for seed in range(50):
        own = explored(4, 1, np.ones(4), took_s=took_s)
        assert 3 not in rule.choose(known(4, 3, 1, seed=seed, memory=rule.start(4), **own))


def test_the_pacer_gives_more_time_when_rounds_bring_less() -> None:
    """Windows of two rounds: 20 and 20, then 10 and 10 in units of utility; the percentile grows from 30 to 35 once."""
    rule = Oort(window=2, exploration=0, min_exploration=0)
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
    rule = Oort(exploration=0, min_exploration=0)
    memory = rule.start(3)
    rule.choose(known(3, 1, 5, memory=memory, **explored(3, 5, [1.0, 4.0, 9.0], last_arrived=[3, 4, 4])))

    assert memory.brought == [50]


def test_those_who_took_part_often_enough_are_left_out() -> None:
    """With a limit of three updates, devices 0 and 1 are left out; when only they remain, they are asked again."""
    rule = Oort(exploration=0, min_exploration=0, max_rounds=3)
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


def by_the_book(download_s, compute_s, upload_s, round_s, size):
    """Algorithm 3 of the paper, set by set: the whole time of a round is worked out anew for every candidate."""

    def distribution_s(devices):
        return max((download_s[k] for k in devices), default=0.0)

    def uploads_end_s(order):
        theta = 0.0
        for k in order:
            theta += upload_s[k] + max(0.0, compute_s[k] - theta)
        return theta

    left, order = list(range(len(upload_s))), []
    while left and len(order) < size:
        now = uploads_end_s(order)

        def adds_s(k, now=now):
            growth_s = distribution_s([*order, k]) - distribution_s(order)
            return growth_s + upload_s[k] + max(0.0, compute_s[k] - now)

        best = max(left, key=lambda k: 1.0 / adds_s(k))
        left.remove(best)
        if distribution_s([*order, best]) + uploads_end_s([*order, best]) < round_s:
            order.append(best)
    return order or [min(range(len(upload_s)), key=lambda k: download_s[k] + compute_s[k] + upload_s[k])]


def test_the_greedy_choice_is_the_pseudo_code() -> None:
    """On 300 random instances, of which some fit all, some a few and some nobody."""
    rng, sizes = np.random.default_rng(0), set()
    for _ in range(300):
        n = int(rng.integers(1, 13))
        times_s = rng.exponential(1.0, (3, n)) * rng.uniform(0.1, 3, (3, 1))
        round_s, size = float(rng.uniform(0.2, 12)), int(rng.integers(1, n + 1))
        found = greedy(*times_s, round_s, size)
        assert found == by_the_book(*times_s, round_s, size)
        sizes.add((len(found) == size, len(found) == 1))

    assert len(sizes) == 4


def test_it_reads_estimates_and_candidates() -> None:
    """Of given candidates, times follow from rates and sizes: 32 bit at 32 bit/s take a second."""
    view = known(4, 4, compute_s=[1, 1, 1, 50], rate_bps=[32, 16, 32, 320], downlink_rate_bps=[320] * 4)

    assert view.upload_s == pytest.approx([1, 2, 1, 0.1])
    assert list(FedCs(round_s=4.5).choose(view)) == [0, 2]
    assert len(FedCs(candidates=4, round_s=1e4).choose(view)) == 4


def test_estimates_are_the_times_of_an_undisturbed_run() -> None:
    """One device alone takes what the server expects: 320 us down, 720 us of work, 320 us up."""
    fed = run_small(
        "algorithm.cohort=1", "algorithm.selection={kind: fedcs, round_s: 0.001361}", "stop.rounds=1", timing_only=True
    )
    took_s = fed.ledger.frame("selection")["took_s"]

    assert took_s.tolist() == pytest.approx([0.00136])


KINDS = {
    **{kind: kind for kind in SELECTIONS},
    "cpow-d": "{kind: power-of-choice, variant: cpow-d, batch_size: 4, candidates: 3}",
    "rpow-d": "{kind: power-of-choice, variant: rpow-d}",
    "tight fedcs": "{kind: fedcs, round_s: 0.003}",
    "short oort": "{kind: oort, window: 1, max_rounds: 2}",
}
WITH_SLOT = sorted(kind for kind in ALGORITHMS if issubclass(ALGORITHMS[kind], Synchronous))
OTHERS = set(WITH_SLOT) - {"fedavg", "cfl", "frank-wolfe-clustering"}  # what the last two read decides events, too
POLLED = {kind for kind in WITH_SLOT if "polls" in ALGORITHMS[kind].uses}
HARD = {
    **CONDITIONS,
    "a deadline": (
        "algorithm.deadline_s=0.0035",
        "devices.speed={kind: log-normal, median_flop_per_s: 1e6, sigma: 0.7}",
    ),
    "departures": ("devices.availability={kind: periodic, on_s: 0.006, off_s: 0.004}",),
    "unicast": ("network.downlink.mode=unicast",),
}


ROUNDS = 4
"""In fewer rounds Oort asks for no loss."""


def settings_of(algorithm: str, selection: str, condition: str) -> tuple[str, ...]:
    """A run of four rounds on four devices, or one."""
    own = ALGORITHM_SETTINGS[algorithm]
    more = ("algorithm.cohort=1",) if condition == "one device" else ("algorithm.cohort=2",)
    if algorithm == "q-ffl":
        more += ("algorithm.sampling=uniform",)
    alone = condition == "one device" and selection == "cpow-d"
    rule = "{kind: power-of-choice, variant: cpow-d}" if alone else KINDS[selection]
    return (*EVERYWHERE, f"stop.rounds={ROUNDS}", *own, *HARD[condition], *more, f"algorithm.selection={rule}")


def test_who_has_the_slot() -> None:
    """The synchronous methods that invite a cohort and make local steps."""
    personal = ["cfl", "ditto", "fedper", "fedrep", "frank-wolfe-clustering", "ifca", "per-fedavg", "pfedme"]
    distilled = ["feddf", "fedmd", "fedproto"]
    others = {"fedavg", "feddyn", "fednova", "fedprox", "flexlora", "flora", "hetlora", "q-ffl", "scaffold"}
    assert sorted(others.union(personal, distilled)) == WITH_SLOT


@pytest.mark.parametrize(
    ("algorithm", "selection", "condition"),
    [
        *crossed(["fedavg"], KINDS, HARD),
        *crossed(sorted(OTHERS), ["oort", "age"], ["30 % loss"]),
        *crossed(sorted(OTHERS & POLLED), ["power-of-choice"], ["30 % loss"]),
    ],
)
def test_it_conforms(algorithm: str, selection: str, condition: str) -> None:
    """Rounds end, laws hold, and how training is run changes no event; without training neither, but for losses."""
    settings = settings_of(algorithm, selection, condition)
    fed = run_small(*settings)
    batched, timed = run_small(*settings, "training.engine=batched"), run_small(*settings, timing_only=True)
    rule = small_scenario(*settings).algorithm.selection

    assert fed.round == timed.round == ROUNDS
    assert not any(verify(fed.ledger, frozenset({"uplink", "downlink"})).values())
    assert fed.ledger.event_digest() == batched.ledger.event_digest()
    assert rule.needs_losses == timed.learner.nominal
    assert rule.needs_losses or fed.ledger.event_digest() == timed.ledger.event_digest()
    assert (fed.ledger.rounds.column("invited") <= rule.most(2, 4)).all()


@pytest.mark.parametrize("selection", sorted(KINDS))
def test_it_goes_on_from_a_checkpoint_file(selection: str) -> None:
    """Who was invited is known again, too."""
    whole, last = assert_it_goes_on(*settings_of("fedavg", selection, "30 % loss"), "stop.rounds=3")

    assert last.ledger.invited == whole.ledger.invited


@pytest.mark.parametrize("selection", sorted(KINDS))
def test_no_rule_sees_the_future(selection: str) -> None:
    """A device that slows down and goes away later changes no choice before that, and no record of it."""
    settings = settings_of("fedavg", selection, "ideal")[1:]  # without stragglers
    calm = run_small("stop.rounds=12", "devices.count=5", *settings, "stop.rounds=12")
    rounds = calm.ledger.frame("rounds")
    middle_s = float(rounds["ended_s"][5])
    slow = f"devices.straggler={{kind: slow-window, devices: [0, 1, 2, 3, 4], factor: 7, from_s: {middle_s}, to_s: 99}}"
    away = f"devices.availability={{kind: windows, devices: {{2: [[0, {middle_s + 0.005}]]}}}}"
    changed = run_small("devices.count=5", *settings, "stop.rounds=12", slow, away)

    def asked(fed: Federation) -> list[tuple[int, ...]]:
        computes, own = fed.ledger.frame("computes"), fed.ledger.frame("rounds")
        return [
            tuple(sorted(set(computes["device"][computes["ended_s"].between(a, b, "right")])))
            for a, b in zip(own["started_s"], own["ended_s"], strict=True)
        ]

    before, after = asked(calm), asked(changed)
    assert before[:6] == after[:6]
    assert calm.ledger.event_digest() != changed.ledger.event_digest()
    if selection != "uniform":
        early = [fed.ledger.frame("selection").query("round <= 6") for fed in (calm, changed)]
        pd.testing.assert_frame_equal(*early, check_exact=True)


def test_questions_cost_air_time_and_computing() -> None:
    """Three candidates are sent 320 bit, compute a forward pass each, send 32 bit; then two of them have a round."""
    rule = "{kind: power-of-choice, candidates: 3}"
    unicast = "network.downlink.mode=unicast"
    fed = run_small("algorithm.cohort=2", f"algorithm.selection={rule}", "stop.rounds=1", unicast, timing_only=True)
    frames = fed.ledger.frames()
    transfers, computes = frames["transfers"], frames["computes"]
    up = transfers[transfers["direction"] == "uplink"].sort_values("requested_s")
    forward, whole = fed.task.model.forward_flop_per_sample * 20, fed.task.model.flop_per_sample * 20

    assert up["size_bit"].tolist() == [32, 32, 32, 320, 320]
    assert (transfers["direction"] == "downlink").sum() == 3 + 2
    assert sorted(computes["flop"]) == pytest.approx([forward] * 3 + [whole] * 2)
    assert fed.ledger.sent_bit[:2] == [3 * 32 + 2 * 320, 5 * 320]


def test_what_was_seen_is_recorded() -> None:
    """One row for each device that was asked: whether its upload came, and when, counted from the question."""
    fed = run_small(
        "algorithm.cohort=4",
        "algorithm.selection=all",
        "algorithm.deadline_s=0.01",
        "devices.speed={kind: list, flop_per_s: [1e6, 1e6, 1e6, 1]}",
        "stop.rounds=2",
        timing_only=True,
    )
    asked = fed.ledger.frame("selection")

    assert asked["round"].tolist() == [1] * 4 + [2] * 4
    assert asked["device"].tolist() == [0, 1, 2, 3] * 2
    assert asked["arrived"].tolist() == [True, True, True, False] * 2
    assert asked["took_s"][3] == pytest.approx(0.01)
    assert asked["took_s"][:3].is_monotonic_increasing


def test_losses_and_reports_of_lost_uploads_are_not_known() -> None:
    """A device whose uploads are all lost stays unexplored, so that its share of exploration is not spent on others."""
    lossy = "network.uplink.message_loss={kind: random, probability: 0.999999}"
    fed = run_small("algorithm.cohort=2", "algorithm.selection=oort", lossy, "stop.rounds=5", timing_only=True)

    assert not fed.learner.nominal  # nothing was read
    assert not fed.ledger.frame("selection")["arrived"].any()


def test_round_robin_is_fair_and_best_channel_is_not() -> None:
    """After whole turns all were asked alike; by rate, nobody whose link is slower than that of one who never was."""
    settings = ("devices.count=10", "algorithm.cohort=2", "stop.rounds=10", "channel=urban-micro")
    far = ("devices.placement.radius_m=300",)
    fair, fast = (
        run_small(*settings, *far, f"algorithm.selection={kind}", timing_only=True)
        for kind in ("round-robin", "best-channel")
    )

    assert dict(fair.ledger.invited) == dict.fromkeys(range(10), 2)
    rates_bps = np.array([k.expected_rate_bps for k in fast.devices()])
    out = sorted(set(range(10)) - set(fast.ledger.invited))
    assert out
    assert rates_bps[list(fast.ledger.invited)].min() > rates_bps[out].max()


@pytest.mark.parametrize(("compression", "model_bit"), [("none", 320), ("float16", 160)])
def test_the_expected_upload_has_all_numbers(compression: str, model_bit: int) -> None:
    """Of 25 numbers the 10 of the model may be compressed, and 15 take 32 bit each."""
    fed = small_federation(f"network.uplink.compression={compression}")
    work = RoundWork(fed, SgdPlan(lr=0.1, batch_size=None, steps=1), down=10, up=25)

    assert work.up_bit == model_bit + 15 * 32
