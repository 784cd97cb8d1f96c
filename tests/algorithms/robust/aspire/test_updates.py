"""Claims about the updates of ASPIRE, its planes, its pace and its prior, by hand and as laws."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fednet_emu.algorithms.robust.aspire.algorithm import Adaptive, Pace
from fednet_emu.algorithms.robust.aspire.master import _replaned
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
    z_step,
)
from fednet_emu.algorithms.robust.weights import Prior
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


def test_the_global_model_by_hand() -> None:
    """Three workers at 1, 2 and 6, z = 4, sum of phi = 1: the pull is 1 - 2 * 9, z 4 - 0.1 (-17 + 2 * 3 * 4) = 3.3."""
    z = z_step(torch.tensor([4.0]), torch.zeros(1), torch.tensor([-17.0], dtype=torch.float64), STEPS)

    assert z.tolist() == pytest.approx([3.3])


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


def test_the_level_starts_at_the_prior_loss() -> None:
    """When all have reported once, h is sum q_j f_j (here without a step of h, since lam sums to 1)."""
    zero, column = torch.zeros(1), np.ones(1)
    heard = [Heard(zero, zero, loss, 0.0, q, zero, q * column) for loss, q in ((2.0, 0.5), (4.0, 0.25), (8.0, 0.25))]
    master = master_step(initial_state(zero, 1), zero, heard, STEPS)

    assert master.h == pytest.approx(4.0)
    assert master.values == pytest.approx([4.0])


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
