"""Claims about collaborative relaying: unbiased weights of least variance, and what a round of it costs."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize

from fednet_emu.algorithms.d2d.colrel import Colrel, best_weights, edge_frequencies, start_weights, variance
from fednet_emu.algorithms.fedavg import FedAvg
from fednet_emu.federation.federation import Federation
from fednet_emu.network.topology import Digraph
from fednet_emu.testing import small_federation
from tests.quick import examples

DEMO = np.array([0.1, 0.2, 0.3, 0.1, 0.1, 0.5, 0.8, 0.1, 0.2, 0.9])
"""Chances of the uplinks in the authors' public demonstration."""


def bias(a: np.ndarray, p: np.ndarray, reach: np.ndarray) -> np.ndarray:
    """Expected weight of each source minus 1, [sources]."""
    return (a * (reach * p[None, :]).T).sum(axis=0) - 1.0


def everybody(count: int, probability: float) -> np.ndarray:
    """All pairs hear each other with one probability, and everybody itself."""
    return np.where(np.eye(count, dtype=bool), 1.0, probability)


@examples(25)
@given(st.integers(2, 7), st.integers(0, 2**32 - 1), st.booleans())
def test_weights_are_unbiased_and_no_worse_than_the_start(size: int, seed: int, reciprocal: bool) -> None:
    """Every source counts 1 in expectation, no weight is below 0, and the variance has not grown."""
    rng = np.random.default_rng(seed)
    p, half = rng.uniform(0.05, 0.95, size), np.triu(rng.random((size, size)) * (rng.random((size, size)) < 0.7), 1)
    reach = half + half.T + np.eye(size)
    a = best_weights(p, reach, reciprocal=reciprocal)

    assert bias(a, p, reach) == pytest.approx(np.zeros(size), abs=1e-9)
    assert (a >= 0).all()
    start = variance(start_weights(p, reach), p, reach, reciprocal=reciprocal)
    assert variance(a, p, reach, reciprocal=reciprocal) <= start * (1 + 1e-9)


@pytest.mark.parametrize("reciprocal", [False, True])
def test_the_variance_is_least_by_another_solver_too(reciprocal: bool) -> None:
    """Five devices with unequal chances: sequential quadratic programming finds the same minimum within 0.1 %."""
    p, reach = DEMO[4:9], everybody(5, 0.6)
    ours = variance(best_weights(p, reach, reciprocal=reciprocal), p, reach, reciprocal=reciprocal)
    found = minimize(
        lambda flat: variance(flat.reshape(5, 5), p, reach, reciprocal=reciprocal),
        start_weights(p, reach).ravel(),
        bounds=[(0, None)] * 25,
        constraints={"type": "eq", "fun": lambda flat: bias(flat.reshape(5, 5), p, reach)},
        options={"maxiter": 1000, "ftol": 1e-12},
        method="SLSQP",
    )

    assert found.success
    assert ours == pytest.approx(found.fun, rel=1e-3)


def test_relaying_pays_where_uplinks_are_poor() -> None:
    """The demonstration's ten devices, hearing each other with probability 0.9: a fifth of the variance or less."""
    reach = everybody(10, 0.9)
    alone = np.diag(1.0 / DEMO)

    assert variance(best_weights(DEMO, reach), DEMO, reach) < 0.2 * variance(alone, DEMO, reach)


@pytest.mark.parametrize("reciprocal", [False, True])
def test_the_variance_over_all_outcomes(reciprocal: bool) -> None:
    """Three devices with any weights: every outcome of uplinks and links, each with its probability, gives S exactly.

    Reciprocal links work or fail for both directions at once.
    """
    p, a = DEMO[[1, 5, 6]], np.array([[1.0, 0.3, 0.7], [0.2, 1.5, 0.4], [0.9, 0.6, 2.0]])
    pairs = [(0, 1), (0, 2), (1, 2)] if reciprocal else [(i, j) for i in range(3) for j in range(3) if i != j]
    chance = {(0, 1): 0.6, (0, 2): 0.3, (1, 2): 0.8}
    reach = np.array([[1.0 if i == j else chance[min(i, j), max(i, j)] for j in range(3)] for i in range(3)])
    mean = square = 0.0
    for outcome in product((0, 1), repeat=3 + len(pairs)):
        up, works = np.array(outcome[:3]), np.eye(3)
        probability = np.prod(np.where(up, p, 1 - p))
        for (i, j), on in zip(pairs, outcome[3:], strict=True):
            works[i, j] = on
            works[j, i] = on if reciprocal else works[j, i]
            probability *= reach[i, j] if on else 1 - reach[i, j]
        total = (up[:, None] * works.T * a).sum()
        mean, square = mean + probability * total, square + probability * total**2

    assert variance(a, p, reach, reciprocal=reciprocal) == pytest.approx(square - mean**2, rel=1e-12)


def test_relays_that_never_fail_share_a_source() -> None:
    """Two of three never fail: they carry a half of every source each, and the third nothing."""
    p, reach = np.array([1.0, 0.3, 1.0]), everybody(3, 1.0)

    assert best_weights(p, reach).tolist() == [[0.5] * 3, [0.0] * 3, [0.5] * 3]


def test_certain_links_carry_everything() -> None:
    """A relay that never fails costs nothing: the variance is 0."""
    p, reach = np.array([1.0, 0.3, 0.3]), everybody(3, 1.0)

    assert variance(best_weights(p, reach), p, reach) == pytest.approx(0.0, abs=1e-12)


def test_edges_are_counted() -> None:
    """One of two graphs has the edge from 0 to 2."""
    one = Digraph.of(np.zeros(3, np.int64), np.array([0, 1]), np.array([2, 0]))
    other = Digraph.of(np.zeros(3, np.int64), np.array([1]), np.array([0]))

    assert edge_frequencies([one, other])[0, 2] == 0.5
    assert edge_frequencies([one, other])[1, 0] == 1.0


def relaying(*changes: str) -> Federation:
    """Eight devices in two clusters whose members send to two others."""
    topology = "{edges: {kind: random-regular, degree: 3}, clusters: {kind: equal, count: 2}}"
    return small_federation(
        "devices.count=8",
        "data.n_samples=160",
        f"network.sidelink={{channel: {{include: ideal}}, access: spatial-reuse, topology: {topology}}}",
        *changes,
    )


def test_with_all_invited_it_is_federated_averaging() -> None:
    """Uploads that never fail need no relays: the same model as FedAvg of all."""
    fed = relaying("stop.rounds=4")
    model = fed.run(Colrel(cohort=8, lr=0.1, batch_size=None, local_steps=1))
    other = relaying("stop.rounds=4")
    reference = other.run(FedAvg(cohort=8, lr=0.1, batch_size=None, local_steps=1, weighting="uniform"))
    assert model is not None
    assert reference is not None

    assert torch.allclose(fed.read(model), other.read(reference), rtol=1e-6, atol=1e-7)


def test_relaying_lowers_the_variance_it_foresees() -> None:
    """Where uplinks differ the recorded variance is below that of everybody for itself; three of eight upload.

    Where they do not, equal updates gain nothing from relays.
    """
    fed, same = relaying("stop.rounds=3"), relaying("stop.rounds=1")
    fed.run(Colrel(cohort=3, lr=0.1, batch_size=None, local_steps=1, uplink_arrives=(0.1, 0.9) * 4))
    same.run(Colrel(cohort=3, lr=0.1, batch_size=None, local_steps=1))
    (row,), (even,) = fed.ledger.series["relay_weights"], same.ledger.series["relay_weights"]

    assert row["variance"] < 0.5 * row["variance_alone"]
    assert even["variance"] == pytest.approx(even["variance_alone"])
    assert [line["uploads"] for line in fed.ledger.series["relaying"]] == [3, 3, 3]
    assert [line["d2d_receptions"] for line in fed.ledger.series["relaying"]] == [16, 16, 16]


def test_a_late_cluster_counts_for_nothing() -> None:
    """A step takes 720 us, the deadline is 100 us: no upload, no sender and no reception in any round."""
    fed = relaying("stop.rounds=2")
    fed.run(Colrel(cohort=8, lr=0.1, batch_size=None, local_steps=1, deadline_s=1e-4))

    for row in fed.ledger.series["relaying"]:
        assert (row["sampled"], row["uploads"], row["d2d_senders"], row["d2d_receptions"]) == (8, 0, 0, 0)
