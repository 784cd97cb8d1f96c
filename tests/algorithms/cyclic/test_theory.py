"""Claims about the theory beside a run: its constants are what they are called, and its bound holds."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from fednet_emu.algorithms.cyclic.theory import Theory
from fednet_emu.errors import ScenarioError
from fednet_emu.testing import run_small, small_federation, small_scenario

LOGISTIC = (
    "devices.count=8",
    "data={kind: synthetic, n_samples: 160, n_test: 8, features: 4, classes: 3}",
    "partition={kind: dirichlet, alpha: 0.5, min_samples: 6}",
    "model=softmax",
)
SCENARIOS = ("scenario-1", "scenario-2", "scenario-3", "scenario-4")


BOUNDED = (
    *LOGISTIC,
    "algorithm={kind: cyclic-fedavg, structure: {kind: scenario-1, groups: 2}, agg: sum, lr: 0.003, l2: 0.3, "
    "bounds: true}",
)


@pytest.mark.parametrize("seed", [*range(4), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(4, 20))])
def test_the_rate_bound_is_never_violated(seed):
    """On 20 random regularised logistic regressions with measured constants F - F* stays below the bound throughout.

    All four scenarios take part. The bound is finite, starts at the gap and differs from it, and the gap shrinks: the
    claim is not empty.
    """
    structure = f"{{kind: {SCENARIOS[seed % 4]}, groups: 2}}"
    algorithm = f"algorithm={{kind: cyclic-fedavg, structure: {structure}, agg: sum, lr: 0.003, l2: 0.3, bounds: true}}"
    fed = run_small(*LOGISTIC, algorithm, f"seed={seed}", "stop.rounds=30", "evaluation.every_rounds=30")
    rows = fed.ledger.frame("cyclic_bound")

    assert len(rows) == 30 / (2 if seed % 4 < 2 else 3)
    assert np.isfinite(rows["bound"]).all()
    assert (rows["gap"] <= rows["bound"] * (1 + 1e-9)).all()
    assert rows["bound"][0] == pytest.approx(rows["gap"][0])
    assert 0 < rows["gap"].iloc[-1] < 0.9 * rows["gap"][0]


def test_the_optimum_of_least_squares():
    """F* of unregularised least squares is that of the normal equations, L and mu are eigenvalues of the Hessians."""
    fed = small_federation(
        "devices.count=2", "data={kind: synthetic-regression, n_samples: 60, n_test: 8, features: 3}"
    )
    theory = Theory(fed, [[(0, None)], [(1, None)]], 0.0, 0.1)
    design = np.column_stack([fed.task.data.x.double().numpy(), np.ones(60)])
    target = fed.task.data.y.double().numpy().reshape(-1)
    hessians = [2 * design[rows].T @ design[rows] / 30 for rows in (slice(0, 30), slice(30, 60))]
    best = np.linalg.lstsq(design, target, rcond=None)[0]
    start = fed.task.model.initial().double().numpy()

    def loss(w):
        return np.square(design @ w - target).mean()

    assert theory.state(torch.tensor(start)).gap == pytest.approx(loss(start) - loss(best), rel=1e-8)
    assert theory.smoothness == pytest.approx(max(np.linalg.eigvalsh(hessian)[-1] for hessian in hessians))
    assert theory.convexity == pytest.approx(np.linalg.eigvalsh(sum(hessians) / 2)[0])


def test_constants_by_hand():
    """C is the largest sample gradient, alpha the distance of group means from the mean, both of a squared error."""
    fed = small_federation(
        "devices.count=2", "data={kind: synthetic-regression, n_samples: 60, n_test: 8, features: 3}"
    )
    theory = Theory(fed, [[(0, None)], [(1, None)]], 0.0, 0.1)
    w = fed.task.model.initial().double()
    design = torch.column_stack([fed.task.data.x.double(), torch.ones(60)])
    each = 2 * (design @ w - fed.task.data.y.double().reshape(-1))[:, None] * design
    state, own = theory.state(w), each.reshape(2, 30, 4).mean(1)

    assert state.largest == pytest.approx(float(each.norm(dim=1).max()))
    assert state.dissimilarity == pytest.approx(float((own[0] - own[1]).norm() / 2))
    assert state.gradient_norm == pytest.approx(float(own.mean(0).norm()))


def test_the_curvature_of_a_softmax_stays_below_l():
    """No Hessian of a regularised softmax at ten random points has an eigenvalue above the L of the theory."""
    fed = small_federation(*LOGISTIC)
    theory = Theory(fed, [[(0, None), (1, np.arange(3))]], 0.3, 0.1)
    x, y, task = fed.task.data.x.double(), fed.task.data.y, fed.task
    draws = torch.Generator().manual_seed(3)

    for rows in (task.slice_of(0), slice(task.slice_of(1).start, task.slice_of(1).start + 3)):
        for _ in range(5):
            w = torch.randn(task.model.size, generator=draws, dtype=torch.float64)
            hessian = torch.autograd.functional.hessian(lambda v, r=rows: task.model.loss(v, x[r], y[r]), w)
            assert float(torch.linalg.eigvalsh(hessian)[-1]) + 0.3 <= theory.smoothness


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        (("model={kind: mlp, hidden: [4]}", "algorithm.l2=0.1"), "needs a convex model, got another"),
        ((), "algorithm.l2: the rate bound needs strong convexity, got 0"),
    ],
)
def test_what_the_theory_does_not_cover(settings, says):
    """Other models, and softmax without a regulariser, are refused, with training and without."""
    algorithm = "algorithm={kind: cyclic-fedavg, structure: {kind: scenario-1, groups: 2}, lr: 0.001, bounds: true}"

    for timing_only in (False, True):
        with pytest.raises(ScenarioError, match=says):
            run_small(*LOGISTIC, algorithm, *settings, timing_only=timing_only)


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        (("network.uplink.message_loss={kind: random, probability: 0.3}",), "network.uplink.message_loss: random"),
        (("network.downlink.message_loss={kind: random, probability: 0.3}",), "network.downlink.message_loss: random"),
        (("devices.availability={kind: periodic, on_s: 5, off_s: 5}",), "devices.availability: "),
        (
            ("channel.rate={kind: fixed, bit_rate_bps: 1e6, threshold_db: -5}", "channel.fading={kind: rayleigh}"),
            "channel.rate: fixed",
        ),
    ],
)
def test_bounds_are_refused_where_messages_can_be_lost(settings, named):
    """Random loss, outages and absences are named by the check of the scenario, and by the run before it trains."""
    [(path, what)] = small_scenario(*BOUNDED, *settings).contradictions()
    fed = small_federation(*BOUNDED, *settings)

    assert path == ("algorithm", "bounds")
    assert named in what
    assert "hold only where no message can be lost" in what
    with pytest.raises(ScenarioError, match=r"algorithm\.bounds: hold only where no message can be lost"):
        fed.run(small_scenario(*BOUNDED, *settings).algorithm)
    assert fed.ledger.sent_bit == [0, 0, 0]


def test_losses_without_bounds_are_nobodys_business():
    """The same networks are accepted without the bound, and the bound on networks that lose nothing."""
    lossy = "network.uplink.message_loss={kind: random, probability: 0.3}"

    assert list(small_scenario(*BOUNDED, lossy, "algorithm.bounds=false").contradictions()) == []
    assert list(small_scenario(*BOUNDED).contradictions()) == []


def test_from_a_loss_that_nobody_foresaw_on_the_bound_is_infinite():
    """Uploads that all time out: the bound starts at the gap, and after the first cycle nothing is promised."""
    fed = run_small(*BOUNDED, "network.uplink.timeout_s=1e-4", "stop.rounds=6", "evaluation.every_rounds=6")
    rows = fed.ledger.frame("cyclic_bound")

    assert np.isfinite(rows["bound"][0])
    assert rows["bound"][1:].tolist() == [np.inf, np.inf]


def test_the_bound_is_recorded_with_its_parts():
    """A number in each column of each row, at the times at which its cycle began."""
    fed = run_small(*BOUNDED, "stop.rounds=4", "evaluation.every_rounds=4")
    rows, turns = fed.ledger.series["cyclic_bound"], fed.ledger.series["cyclic_turns"]
    columns = "cycle simulated_s bound gap gradient_norm largest dissimilarity u1 u2 v1 v2 smoothness convexity"

    assert [set(row) for row in rows] == [set(columns.split())] * 2
    assert [row["cycle"] for row in rows] == [0, 1]
    assert [row["simulated_s"] for row in rows] == [turn["started_s"] for turn in turns[::2]]
    assert [row["convexity"] for row in rows] == [0.3, 0.3]
