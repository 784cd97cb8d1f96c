"""ASPIRE: updates and waiting."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fednet_emu.algorithms.robust.aspire.algorithm import Adaptive, Aspire, Master, Pace, Worker, _replaned
from fednet_emu.algorithms.robust.aspire.updates import (
    Heard,
    Planes,
    State,
    Steps,
    h_step,
    initial_state,
    lam_step,
    master_step,
    moved_to,
    renewed,
    slope_step,
    squared_gap,
)
from fednet_emu.algorithms.robust.weights import Prior
from fednet_emu.errors import ScenarioError
from fednet_emu.federation.federation import Federation
from fednet_emu.testing import run_small, small_federation, small_scenario
from tests.quick import examples

STEPS = Steps(n_workers=3, lr_z=0.1, lr_h=0.5, rho_lam=0.2, rho_phi=0.25, prox=2.0, c_lam=0.5, c_phi=0.1,
              model_bound=math.inf, level_bound=10.0, multiplier_bound=3.0, dual_bound=1.0)  # fmt: skip


def test_the_level_by_hand() -> None:
    """H = 2, lam sums to 1.4: 2 - 0.5 (1 - 1.4) = 2.2, within its bounds."""
    assert h_step(2.0, np.array([1.0, 0.4]), STEPS) == pytest.approx(2.2)
    assert h_step(0.1, np.zeros(1), STEPS) == 0.0
    assert h_step(10.0, np.array([3.0]), STEPS) == 10.0


def test_the_multipliers_by_hand() -> None:
    """Lam + 0.2 (p'f - h - 0.5 lam): 1 + 0.2 (3 - 2 - 0.5) = 1.1, and 0.1 + 0.2 (1 - 2 - 0.05) clips at 0."""
    assert lam_step(np.array([1.0, 0.1]), np.array([3.0, 1.0]), 2.0, STEPS) == pytest.approx([1.1, 0.0])


def test_the_dual_of_a_worker_by_hand() -> None:
    """Phi + 0.25 (z - w - 0.1 phi): 0.4 + 0.25 (1 - 0.04) = 0.64; a large gap clips at 1. The slope is -phi."""
    phi, z, w = torch.tensor([0.4, 0.4]), torch.tensor([2.0, 9.0]), torch.tensor([1.0, 1.0])

    assert slope_step(-phi, z, w, STEPS).tolist() == pytest.approx([-0.64, -1.0])


@examples(30)
@given(st.integers(0, 2**20), st.integers(1, 4))
def test_running_sums_are_the_sums(seed: int, n_planes: int) -> None:
    """After thirty steps with one or two of five workers each, all running sums are what adding up gives."""
    rng = np.random.default_rng(seed)
    steps = Steps(**{name: getattr(STEPS, name) for name in Steps.__slots__} | {"n_workers": 5})
    z_0, p = torch.from_numpy(rng.standard_normal(6)), rng.dirichlet(np.ones(5), n_planes)
    w, slopes, f = [z_0] * 5, [torch.zeros_like(z_0)] * 5, [0.0] * 5
    master = initial_state(z_0, n_planes)
    for _ in range(30):
        heard = []
        places = rng.choice(5, int(rng.integers(1, 3)), replace=False)
        for j in places:
            new, loss = torch.from_numpy(rng.standard_normal(6)), float(rng.exponential())
            heard.append(Heard(new, w[j], loss, f[j], 0.0, slopes[j], p[:, j]))
            w[j], f[j] = new, loss
        master = master_step(master, z_0, heard, steps)
        for place, j in enumerate(places):
            slopes[j] = master.slope(place)

    assert master.values == pytest.approx(p @ np.array(f))
    assert torch.allclose(master.pull, -sum(slopes) - STEPS.prox * sum(own - z_0 for own in w))


def test_at_a_saddle_the_gap_is_zero() -> None:
    """Two workers, one plane: models agree, the phi_j cancel the weighted gradients, and the level is the loss."""
    z, phi = torch.tensor([1.0]), torch.tensor([0.5])
    master = State(z, 3.0, np.ones(1), np.ones(1), np.array([3.0]), z, z)
    planes, losses = np.full((1, 2), 0.5), [2.0, 4.0]
    gradients = [torch.tensor([1.0]), torch.tensor([-1.0])]
    slopes, descended = [-phi, phi], [z - g for g in gradients]

    assert squared_gap(master, [z, z], descended, losses, slopes, planes, 0.1, STEPS) == pytest.approx(0, abs=1e-12)
    tilted = master._replace(h=2.0)
    assert squared_gap(tilted, [z, z], descended, losses, slopes, planes, 0.1, STEPS) == pytest.approx(1.0)


def test_a_model_apart_from_the_global_one_opens_the_gap() -> None:
    """W = 1, z = 0, phi = 1/2, kappa_1 = 2, no gradient: dw = 2 - 1/2, dphi = -1, dz = 1/2 - 2, squared and summed."""
    z, w = torch.zeros(1), torch.ones(1)
    master = State(z, 3.0, np.ones(1), np.ones(1), np.array([3.0]), z, z)
    slope = torch.tensor([-0.5])

    assert squared_gap(master, [w], [w], [3.0], [slope], np.ones((1, 1)), 0.1, STEPS) == pytest.approx(
        1.5**2 + 1.0 + 1.5**2
    )


def test_at_a_bound_the_gap_is_what_the_bound_leaves() -> None:
    """W = z = 0.9 below 1, phi = 3: up to 1 w has 0.1 / 0.1 to go, z goes down by 3 in full."""
    z = torch.tensor([0.9])
    master = State(z, 3.0, np.ones(1), np.ones(1), np.array([3.0]), z, z)
    steps, slope = replace(STEPS, model_bound=1.0, dual_bound=10.0), torch.tensor([-3.0])

    assert squared_gap(master, [z], [z], [3.0], [slope], np.ones((1, 1)), 0.1, steps) == pytest.approx(1 + 9, rel=1e-5)


def test_a_new_list_of_planes_brings_its_numbers() -> None:
    """Multipliers, those of before and values are the new ones; model, level and running sums stay."""
    master = initial_state(torch.ones(2), 1)
    lam, before, values = np.array([0.5, 0.0]), np.array([0.75, 0.25]), np.array([2.0, 3.0])
    new = _replaned(master, lam, before, values)

    assert (new.lam is lam, new.lam_before is before, new.values is values) == (True, True, True)
    assert (new.z is master.z, new.pull is master.pull, new.h) == (True, True, master.h)


# ---- planes ----------------------------------------------------------------------------------------------------------

PRIOR = np.full((1, 3), 1 / 3)
LOSSES = np.array([1.0, 2.0, 6.0])
WORST = np.array([0.0, 0.3, 0.7])


def test_a_worst_case_becomes_a_plane() -> None:
    """It has multiplier 0 at first, and a version of its own; what cuts nothing off is not added."""
    chosen, origin, _ = renewed(Planes(3, PRIOR), "ease", WORST, LOSSES, np.ones(1), np.ones(1), 20)

    assert chosen.version == 4
    assert chosen.p.tolist() == [*PRIOR.tolist(), WORST.tolist()]
    assert moved_to(origin, np.array([0.8])).tolist() == [0.8, 0.0]
    planes = Planes(3, PRIOR)
    assert renewed(planes, "ease", PRIOR[0], LOSSES, np.ones(1), np.ones(1), 20)[0] is planes


def test_idle_planes_go_when_twice_idle() -> None:
    """With ease a plane goes when its multiplier was zero now and before; with cp it stays."""
    planes, lam, before = Planes(0, np.tile(PRIOR, (3, 1))), np.array([0.0, 0.0, 1.0]), np.array([0.0, 0.5, 1.0])

    assert renewed(planes, "ease", WORST, LOSSES, lam, before, 20)[1] == [1, 2, -1]
    assert renewed(planes, "cp", WORST, LOSSES, lam, before, 20)[1] == [0, 1, 2, -1]


@examples(60)
@given(st.integers(0, 2**20), st.integers(1, 6), st.integers(2, 6), st.sampled_from(["ease", "cp"]))
def test_the_list_is_never_empty_and_never_too_long(seed: int, length: int, longest: int, upkeep: str) -> None:
    """At least one plane, at most `max_planes`; planes are weights; the smallest multipliers go first."""
    rng = np.random.default_rng(seed)
    p, worst = rng.dirichlet(np.ones(3), length), rng.dirichlet(np.ones(3))
    lam, before = (rng.exponential(size=length) * rng.integers(0, 2, length) for _ in range(2))
    chosen, origin, _ = renewed(Planes(0, p), upkeep, worst, rng.exponential(size=3), lam, before, longest)
    kept = [row for row in origin if row >= 0]
    dropped = [lam[row] for row in range(length) if row not in kept]

    assert 1 <= len(chosen.p) == len(origin) <= max(longest, 1)
    assert chosen.p.sum(1) == pytest.approx(1)
    assert not dropped or not kept or upkeep == "ease" or max(dropped) <= min(lam[kept])


# ---- pace and prior --------------------------------------------------------------------------------------------------


def test_delays_grow_while_a_worker_is_awaited() -> None:
    """From the reply on, not from the report before it; a threshold of 10 s is passed after 10 s, and left behind."""
    pace = Pace(3, 1, Adaptive(threshold_s=10.0))
    for worker in range(3):
        pace.replied(worker, 0.0)
    pace.heard(0, 4.0)
    pace.heard(1, 4.0)

    assert [pace.active(now_s) for now_s in (4.0, 10.0, 10.1)] == [3, 3, 1]
    pace.heard(2, 11.0)
    assert pace.active(11.0) == 1
    pace.replied(2, 20.0)
    pace.heard(2, 24.0)
    assert pace.active(100.0) == 3


def test_a_relative_threshold_is_twice_the_mean() -> None:
    """Delays 1, 1, 1 and 5 have twice the mean 4: a straggler; with 1, 1, 1 and 2.9 there is none."""
    for last, active in ((5.0, 2), (2.9, 4)):
        pace = Pace(4, 2, Adaptive(threshold_s=None))
        for worker in range(4):
            pace.replied(worker, 0.0)
            pace.heard(worker, last if worker == 3 else 1.0)
        assert pace.active(50.0) == active


@pytest.mark.parametrize(("awaited", "eases"), [(0, False), (1, True), (2, True), (3, False), (5, False)])
def test_a_longest_delay_outgrows_twice_the_mean_where_less_than_half_are_awaited(awaited: int, eases: bool) -> None:
    """Of five workers k are awaited since 0: after t the mean delay is k t / 5, and twice that below t for k < 2.5."""
    pace = Pace(5, 1, Adaptive(threshold_s=None))
    for worker in range(awaited):
        pace.replied(worker, 0.0)

    assert pace.may_ease(0.0) == eases
    assert (pace.active(1000.0) == 1) == eases


def test_delays_that_never_part_do_not_ease() -> None:
    """All four had a delay of 1, two are awaited again: t, t, 1 and 1 have twice the mean t + 1, more than t."""
    pace = Pace(4, 1, Adaptive(threshold_s=None))
    for worker in range(4):
        pace.replied(worker, 0.0)
        pace.heard(worker, 1.0)
    pace.replied(0, 5.0)
    pace.replied(1, 5.0)

    assert not pace.may_ease(5.0)
    assert [pace.active(now_s) for now_s in (6.0, 7.0, 1000.0)] == [4, 4, 4]


def test_suspects_count_a_tenth() -> None:
    """Two of five are suspects: 0.02 each, and 0.32 for each of the others; all suspects are nobody's."""
    workers = np.array([0, 1, 2, 5, 9])

    assert Prior(suspects=(1, 9)).weights(workers) == pytest.approx([0.32, 0.02, 0.32, 0.32, 0.02])
    assert Prior().weights(workers) == pytest.approx([0.2] * 5)
    assert Prior(suspects=(0, 1, 2, 5, 9)).weights(workers) == pytest.approx([0.2] * 5)


ASPIRE = "algorithm={kind: aspire, active: null, lr: 0.1, uncertainty: {kind: cd-norm, budget: 1}}"


def series(fed: Federation, name: str, column: str) -> list[Any]:
    return [row[column] for row in fed.ledger.series[name]]


def straggling(*settings: str) -> Federation:
    """Eight workers of which one is four times slower; computing takes far longer than sending."""
    slow = "devices.straggler={kind: slow-window, devices: [7], factor: 4, from_s: 0, to_s: 1e6}"
    speed = "devices.speed={kind: fixed, flop_per_s: 1e4}"
    return run_small(ASPIRE, "devices.count=8", "data.n_samples=160", slow, speed, *settings, timing_only=True)


def test_one_straggler_costs_a_synchronous_master_far_more() -> None:
    """With one of eight workers four times slower, S = 1 needs at most a fifth of the time for as many iterations."""
    fast, slow = (straggling(f"algorithm.active={s}", "stop.rounds=300") for s in ("1", "null"))

    assert fast.round == slow.round == 300
    assert fast.clock.now_s <= slow.clock.now_s / 5


def test_the_longest_delay_is_kept() -> None:
    """With max_delay 10 no report is older than 10 iterations; without it the straggler's are."""
    bounded, free = (straggling("algorithm.active=1", f"algorithm.max_delay={d}", "stop.rounds=200")
                     for d in ("10", "null"))  # fmt: skip

    assert max(series(bounded, "activations", "staleness")) == 10
    assert max(series(free, "activations", "staleness")) > 20


def test_the_words_of_the_paper_hear_everybody_in_any_tau_iterations() -> None:
    """Exclusively, no report is older than 9 iterations, and any 10 of them in a row have heard all eight workers."""
    fed = straggling("algorithm.active=1", "algorithm.max_delay=10", "algorithm.max_delay_inclusive=false",
                     "stop.rounds=200")  # fmt: skip
    heard = list(zip(series(fed, "activations", "step"), series(fed, "activations", "device"), strict=True))

    assert max(series(fed, "activations", "staleness")) == 9
    for first in range(1, 192):
        assert {device for step, device in heard if first <= step < first + 10} == set(range(8))


def test_time_alone_eases_the_pace_while_few_are_awaited() -> None:
    """Of four workers one or two awaited: after 2 s at the first, and before the second's delay grows, S falls to 1.

    The first grows from 0 s on, the second from 4 s on; twice the mean of (3, 2, 0, 0) is 2.5. At 9 s both grow.
    """
    pace = Pace(4, 1, Adaptive(threshold_s=None))
    pace.replied(0, 0.0)
    assert pace.may_ease(0.0)
    pace.heard(0, 2.0)
    for worker, told_s in ((0, 2.0), (1, 3.0)):
        pace.replied(worker, told_s)
    assert pace.active(3.0) == 1
    assert not pace.may_ease(3.0)
    pace.heard(0, 4.0)
    pace.heard(1, 5.0)
    for worker in range(4):
        pace.replied(worker, 5.0)
    assert pace.active(5.5) == 4
    assert not pace.may_ease(8.0)


def test_the_adaptive_master_follows_a_straggler() -> None:
    """S falls from N to 1 within a tick of the moment at which the delay passes the threshold, and comes back.

    Four workers answer within 30 ms; the last is ten times slower from 1 s to 2 s, and the threshold is 60 ms.
    """
    slow = "devices.straggler={kind: slow-window, devices: [3], factor: 10, from_s: 1, to_s: 2}"
    speed, adaptive = "devices.speed={kind: fixed, flop_per_s: 3.6e4}", "{threshold_s: 0.06, tick_s: 0.001}"
    fed = run_small(ASPIRE, "algorithm.active=1", f"algorithm.adaptive={adaptive}", slow, speed,
                    "stop={simulated_s: 3}",
                    "algorithm.loss_of=steps", timing_only=True)  # fmt: skip
    times, active = (np.array(series(fed, "aspire", column)) for column in ("simulated_s", "active"))
    reports = [row for row in fed.ledger.series["activations"] if row["device"] == 3]
    back_s = next(row["arrived_s"] for row in reports if row["arrived_s"] > 2)

    assert set(active[times < 1]) == {4}
    down = int(np.flatnonzero(active == 1)[0])  # the iteration before it ended with the reply to the straggler
    assert 0.06 - 1e-9 <= times[down] - times[down - 1] <= 0.06 + 0.001
    assert 1 < times[down] < 1.1
    assert set(active[(times > times[down]) & (times < 2)]) == {1}
    assert set(active[times > back_s + 0.06 + 0.001]) == {4}


@pytest.mark.parametrize(
    ("threshold_s", "tick_s", "least"), [("10", "1e-9", "0.001"), ("0.06", "1e-6", "6e-06"), ("null", "1e-9", "0.001")]
)
def test_looks_at_the_delays_are_bounded(threshold_s: str, tick_s: str, least: str) -> None:
    """A tick of less than a ten-thousandth of the threshold is refused with its name, its value and the least one."""
    adaptive = f"algorithm.adaptive={{threshold_s: {threshold_s}, tick_s: {tick_s}}}"
    expected = f"tick_s: too fine, got {tick_s} s; give {least} s or more"

    with pytest.raises(ScenarioError, match=re.escape(expected.replace("1e-9", "1e-09").replace("1e-6", "1e-06"))):
        small_scenario(ASPIRE, "algorithm.active=1", adaptive)


def test_the_adaptive_master_looks_at_its_ticks() -> None:
    """A report at 10.5 s with a threshold of 10 s and ticks of 4 s: S falls at 12 s, not when the report comes."""
    speed = f"devices.speed={{kind: list, flop_per_s: [{720 / 10.5}, 7.2, 7.2, 7.2]}}"
    fed = run_small(ASPIRE, "algorithm.active=1", "algorithm.loss_of=steps", speed, "stop.rounds=1",
                    "algorithm.adaptive={threshold_s: 10, tick_s: 4}", timing_only=True)  # fmt: skip

    assert series(fed, "activations", "device") == [0]
    assert series(fed, "activations", "arrived_s") == [pytest.approx(10.5, abs=0.01)]
    assert series(fed, "aspire", "simulated_s") == [pytest.approx(12.0)]


@pytest.mark.parametrize(("loss_of", "extra"), [("steps", 0), ("result", 1)])
def test_the_loss_of_the_result_costs_a_forward_pass(loss_of: str, extra: int) -> None:
    """Over all twenty samples of a worker, beside the one step."""
    fed = run_small(ASPIRE, f"algorithm.loss_of={loss_of}", "stop.rounds=2", timing_only=True)
    model = fed.task.model

    assert set(fed.ledger.computes.column("flop")) == {
        20 * (model.flop_per_sample + extra * model.forward_flop_per_sample)
    }


@pytest.mark.parametrize(("wire", "told"), [("paper", 0), ("reduced", 5)])
def test_a_share_needs_no_planes(wire: Any, told: int) -> None:
    """A reply with multipliers of planes that have not come teaches nothing; one with the worker's share does."""
    fed = small_federation(ASPIRE)
    aspire = Aspire(active=1, lr=0.1, planes="fixed", batch_size=None, loss_of="steps", wire=wire, patience_s=1.0)
    master = Master(fed, np.full(4, 0.25), aspire.steps(4))
    first, terms = master.message(0, wire), master.terms(0)
    worker = Worker(fed.device(0), 0, master.z, master.planes, terms.share)
    newer = first._replace(t=5, planes=Planes(1, np.full((1, 4), 0.5)))
    fed.clock.run_process(aspire.activation(fed, worker, newer, terms, fed.inbox()))

    assert worker.told == told
