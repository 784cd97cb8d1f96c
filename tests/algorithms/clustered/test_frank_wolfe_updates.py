"""Frank-Wolfe clustering: updates and oracles."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from fednet_emu.algorithms.clustered.frank_wolfe import updates as oracles
from fednet_emu.algorithms.clustered.frank_wolfe.algorithm import Rule
from fednet_emu.algorithms.clustered.frank_wolfe.updates import (
    ascended,
    box,
    clusters_oracle,
    components,
    differences,
    matrix_of,
    pairs_of,
    partitions,
    pulls,
    slopes,
    tied,
)
from tests.quick import examples

SEEDS = st.integers(0, 10_000)


class Toy:
    """Eight regressions in two groups: 50 samples each, d = 3, noise 0.05, coefficients at a distance of 2."""

    def __init__(self, seed: int) -> None:
        rng = np.random.default_rng(seed)
        theta = rng.standard_normal((2, 3))
        way = theta[1] - theta[0]
        theta[1] = theta[0] + 2 * way / np.linalg.norm(way)
        self.x = torch.from_numpy(rng.standard_normal((8, 50, 3)))
        self.truth = torch.from_numpy(theta[np.arange(8) % 2])
        noise = torch.from_numpy(0.05 * rng.standard_normal((8, 50)))
        self.y = torch.einsum("nbd,nd->nb", self.x, self.truth) + noise

    def gradient(self, at: Tensor) -> Tensor:
        """Gradients [8, 3] of half the mean squared errors."""
        return torch.einsum("nbd,nb->nd", self.x, torch.einsum("nbd,nd->nb", self.x, at) - self.y) / 50


def solved(toy: Toy, rule: Rule, rounds: int) -> tuple[np.ndarray, Tensor]:
    """The weights and the parameters [8, 3] after so many iterations from zero."""
    at = torch.zeros(8, 3, dtype=torch.float64)
    state = rule.start(list(at))
    for t in range(rounds):
        at = at - rule.lr * state.shortening[:, None] * (toy.gradient(at) + state.pulls)
        state = rule.advance(state, list(at), t)
        assert state.gap >= 0
        assert state.weights.min() >= 0
        assert state.weights.max() <= 1
    return state.weights, at


@pytest.mark.parametrize(
    ("alpha", "inside", "across", "gradient", "error"),
    [
        pytest.param(0.0, (0, 0), (0, 0), (0, 1.1e-4), 0.021, marks=pytest.mark.slow),
        pytest.param(1e-4, (0.998, 1), (0, 1e-3), (0.016, 0.018), 0.0096, marks=pytest.mark.slow),
        (1e-2, (0.998, 1), (0, 1e-3), (0.016, 0.018), 0.0096),
        (0.05, (1, 1), (1, 1), (1.30, 1.32), 1.04),
    ],
)
def test_the_toy_table(
    alpha: float, inside: tuple[float, float], across: tuple[float, float], gradient: tuple[float, float], error: float
) -> None:
    """Alone at alpha = 0, the two groups from 1e-4 to 1e-2, everybody tied from 0.05: weights, gradients and errors.

    The table was computed by a separate script before this code existed.
    """
    toy = Toy(0)
    w, at = solved(toy, Rule(8, alpha=alpha, lr=0.1, dual_lr=0.01, radius=1.0), 2000)
    i, j = pairs_of(8)
    same = i % 2 == j % 2

    assert inside[0] <= w[same].min() <= inside[1]
    assert across[0] <= w[~same].max() <= across[1]
    assert gradient[0] <= float(toy.gradient(at).norm(dim=1).max()) <= gradient[1]
    assert float((at - toy.truth).norm(dim=1).max()) == pytest.approx(error, rel=0.03)


@pytest.mark.slow
@pytest.mark.parametrize("alpha", [1e-3, 1e-2])
def test_numbers_as_multipliers_recover_the_groups(alpha: float) -> None:
    """The norm coupling with rounded norms and shortened steps ties the groups, and nobody else."""
    rule = Rule(8, alpha=alpha, lr=0.1, dual_lr=0.02, radius=0.2, smoothing=1e-2)
    w, _ = solved(Toy(0), rule, 4000)

    assert components(w, 8).tolist() == [0, 1] * 4


def test_a_known_number_of_clusters_recovers_the_groups() -> None:
    """With the oracle over partitions into two clusters, even without a reward for tying."""
    rule = Rule(8, alpha=0.0, lr=0.1, dual_lr=0.01, radius=1.0, n_clusters=2)
    w, _ = solved(Toy(0), rule, 300)

    assert rule.labels(w).tolist() == [0, 1] * 4


def test_identical_clients_descend_as_one() -> None:
    """With equal data for all and a huge reward, everybody is tied and goes the way of plain gradient descent."""
    toy = Toy(0)
    toy.x, toy.y = toy.x[:1].expand(8, -1, -1), toy.y[:1].expand(8, -1)
    w, at = solved(toy, Rule(8, alpha=1e3, lr=0.1, dual_lr=0.01, radius=1.0), 50)
    alone = torch.zeros(8, 3, dtype=torch.float64)
    for _ in range(50):
        alone = alone - 0.1 * toy.gradient(alone)

    assert w.min() == 1
    torch.testing.assert_close(at, alone, rtol=1e-12, atol=1e-12)


def test_two_clients_by_hand() -> None:
    """With x = (1, 0) and (0, 2), lam = (0.5, 0), w = 1/2: the pull, the ascent, the slope and its gap."""
    x, lam, w = torch.tensor([[1.0, 0.0], [0.0, 2.0]]), torch.tensor([[0.5, 0.0]]), np.array([0.5])
    apart = differences(x)

    assert apart.tolist() == [[1.0, -2.0]]
    assert pulls(w, lam, 2).tolist() == [[0.5, 0.0], [-0.5, 0.0]]
    assert ascended(lam, w, apart, 0.2, 10.0).tolist() == [[pytest.approx(0.6), pytest.approx(-0.2)]]
    assert ascended(lam, w, apart, 0.0, 0.25).tolist() == [[0.25, 0.0]]
    assert slopes(lam, apart, 0.1).tolist() == [pytest.approx(0.4)]
    assert box(np.array([0.4]), w).tolist() == [0.0]


def test_each_multiplier_has_its_own_limit() -> None:
    """A step of 2 along weights 1 and 1/2: (6, 8) is shortened to a length of 1, (0, 1/2) keeps its own."""
    apart = torch.tensor([[3.0, 4.0], [0.0, 0.5]])
    lam = ascended(torch.zeros(2, 2), np.array([1.0, 0.5]), apart, 2.0, 1.0)

    torch.testing.assert_close(lam, torch.tensor([[0.6, 0.8], [0.0, 0.5]]))


@examples(25)
@given(SEEDS, st.integers(2, 7), st.floats(0, 1))
def test_weights_stay_in_their_set(seed: int, n: int, step: float) -> None:
    """W stays symmetric with a unit diagonal and entries in [0, 1]; the gap is not negative."""
    rng = np.random.default_rng(seed)
    w, g = rng.random(n * (n - 1) // 2), rng.standard_normal(n * (n - 1) // 2)
    s = box(g, w)
    matrix = matrix_of(w + step * (s - w), n)

    assert np.array_equal(matrix, matrix.T)
    assert (np.diag(matrix) == 1).all()
    assert matrix.min() >= 0
    assert matrix.max() <= 1
    assert (w - s) @ g >= 0
    assert all(s @ g <= other @ g + 1e-12 for other in rng.random((20, len(g))))


@examples(25)
@given(SEEDS, st.integers(2, 6))
def test_pulls_and_slopes_are_the_derivatives(seed: int, n: int) -> None:
    """Both are what automatic differentiation finds for n sum w <lam, x_i - x_j> and for the reward."""
    rng = np.random.default_rng(seed)
    pairs = n * (n - 1) // 2
    x = torch.from_numpy(rng.standard_normal((n, 3))).requires_grad_()
    w = torch.from_numpy(rng.random(pairs)).requires_grad_()
    lam = torch.from_numpy(rng.standard_normal((pairs, 3)))
    i, j = pairs_of(n)
    coupling = sum(w[p] * (lam[p] @ (x[i[p]] - x[j[p]])) for p in range(pairs))
    by_x, by_w = torch.autograd.grad(coupling - 0.3 * w.sum(), (x, w))
    weights, apart = w.detach().numpy(), differences(x.detach())

    torch.testing.assert_close(pulls(weights, lam, n), n * by_x)
    np.testing.assert_allclose(slopes(lam, apart, 0.3), by_w.numpy(), atol=1e-12)


def test_clusters_are_connected_components() -> None:
    """Ties 0-2 and 2-3 make one cluster although 0-3 is not tied; a weight of exactly a half ties nobody."""
    i, j = pairs_of(5)
    w = np.array([0.9 if pair in {(0, 2), (2, 3)} else 0.5 for pair in zip(i, j, strict=True)])

    found = components(w, 5)

    assert found.tolist() == [0, 1, 0, 0, 2]
    assert found.dtype == np.int64


def test_a_lone_client_has_no_pairs() -> None:
    """One client is its own cluster, feels no pull, and its gap is zero."""
    rule = Rule(1, alpha=1.0, lr=0.1, dual_lr=0.1, radius=1.0)
    state = rule.advance(rule.start([torch.zeros(2)]), [torch.ones(2)], 0)

    assert rule.labels(state.weights).tolist() == [0]
    assert state.pulls.tolist() == [[0.0, 0.0]]
    assert (state.gap, state.moved) == (0.0, pytest.approx(2**0.5))


def test_a_state_counts_its_models_pulls_and_multipliers() -> None:
    """4 clients, 10 shared parameters: 2 x 40, and for 6 pairs 10 scalars each, or 1 each with smoothing."""
    assert Rule(4, 1.0, 0.1, 0.1, 1.0).n_scalars(10) == 140
    assert Rule(4, 1.0, 0.1, 0.1, 1.0, smoothing=0.5).n_scalars(10) == 86


def test_the_first_round_of_springs_by_hand() -> None:
    """Two clients 5 apart, without rounding: a multiplier of 0.1 * 5 on a weight that stays 1 pulls by n / 2."""
    rule = Rule(2, alpha=3.0, lr=1.0, dual_lr=0.1, radius=1.0, smoothing=0.0, initial_weight=1.0)
    x = [torch.tensor([3.0, 0.0]), torch.tensor([0.0, 4.0])]
    state = rule.advance(rule.start(x), x, 0)

    assert (state.weights.tolist(), state.multipliers.tolist()) == ([1.0], [pytest.approx(0.5)])
    assert state.pulls.reshape(-1).tolist() == pytest.approx([0.6, -0.8, -0.6, 0.8])
    assert state.shortening.tolist() == [pytest.approx(1 / 1.4)] * 2


# ---- oracles ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("n", "bell"), [(1, 1), (3, 5), (5, 52), (8, 4140)])
def test_partitions_are_counted_by_bell(n: int, bell: int) -> None:
    """All partitions are there, none twice; those into two clusters are 2^(n-1) - 1."""
    assert len(set(partitions(n))) == len(list(partitions(n))) == bell
    assert len(list(partitions(n, 2))) == 2 ** (n - 1) - 1


@examples(15)
@given(SEEDS, st.integers(2, 7), st.integers(1, 3))
def test_the_oracle_of_few_clients_is_exact(seed: int, n: int, k: int) -> None:
    """No partition into k clusters has a smaller sum of slopes inside, and the matrix found has rank k."""
    g, k = np.random.default_rng(seed).standard_normal(n * (n - 1) // 2), min(k, n)
    s = clusters_oracle(n, k)(g, g)

    assert s @ g == pytest.approx(min(tied(np.array(labels)) @ g for labels in partitions(n, k)))
    assert np.linalg.matrix_rank(matrix_of(s, n)) == k


@pytest.mark.parametrize("seed", range(10))
def test_the_oracle_of_many_clients_finds_planted_clusters(seed: int) -> None:
    """With slopes that are negative, but for noise, inside three hidden clusters, it finds exactly them."""
    rng = np.random.default_rng(seed)
    labels = rng.permutation(np.arange(20) % 3)
    g = np.where(tied(labels) > 0, -1.0, 1.0) + 0.3 * rng.standard_normal(190)

    assert np.array_equal(clusters_oracle(20, 3)(g, g), tied(labels))


def test_local_search_is_nearly_exact(monkeypatch: pytest.MonkeyPatch) -> None:
    """On pure noise with eight clients, the search is within five per cent of enumeration on average of fifty draws."""
    rng = np.random.default_rng(0)
    slopes = rng.standard_normal((50, 28))
    exact = np.array([clusters_oracle(8, 3)(g, g) @ g for g in slopes])
    monkeypatch.setattr(oracles, "ENUMERATED", 0)
    searched = np.array([clusters_oracle(8, 3)(g, g) @ g for g in slopes])

    assert (searched >= exact - 1e-9).all()
    assert searched.mean() <= 0.95 * exact.mean()


def test_as_many_clients_as_are_enumerated_still_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """At the limit itself all partitions are tried: on fifty draws of noise none is better than what is found."""
    monkeypatch.setattr(oracles, "ENUMERATED", 7)
    atoms = np.array([tied(np.array(labels)) for labels in partitions(7, 3)])
    for g in np.random.default_rng(4).standard_normal((50, 21)):
        assert clusters_oracle(7, 3)(g, g) @ g == pytest.approx((atoms @ g).min())


def test_no_cluster_stays_empty() -> None:
    """Two places make two clusters of four clients; the third cluster takes a client of the larger one."""
    points = np.array([[0.0], [1.0], [1.0], [1.0]])

    assert oracles._grouped(points, 0, 3).tolist() == [0, 2, 1, 1]
