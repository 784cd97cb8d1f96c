"""Oracles, the discrete problem and the choice of alpha: against enumeration and closed forms."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fednet_emu.algorithms.clustered.frank_wolfe import updates as oracles
from fednet_emu.algorithms.clustered.frank_wolfe.updates import clusters_oracle, matrix_of, partitions, tied
from tests.algorithms.clustered.discrete import Block, agglomerated, profit, value
from tests.quick import crossed, examples

SEEDS = st.integers(0, 10_000)


def squared_distance_cost(centres: np.ndarray):
    """The cost of a block for f_i(x) = ||x - c_i||^2 / 2: half the scatter of its centres."""

    def cost(block: Block) -> float:
        own = centres[list(block)]
        return float(np.square(own - own.mean(0)).sum() / 2)

    return cost


def least_squares_cost(rng: np.random.Generator, n: int):
    """The cost of a block of regressions in two groups, f_i being half the mean squared error; and the two groups."""
    theta = rng.standard_normal((2, 3))
    theta[1] = theta[0] + 2 * (theta[1] - theta[0]) / np.linalg.norm(theta[1] - theta[0])
    x = rng.standard_normal((n, 50, 3))
    y = np.einsum("nbd,nd->nb", x, theta[np.arange(n) % 2]) + 0.05 * rng.standard_normal((n, 50))

    def cost(block: Block) -> float:
        design, targets = x[list(block)].reshape(-1, 3), y[list(block)].reshape(-1)
        found = np.linalg.lstsq(design, targets, rcond=None)[0]
        return float(np.square(design @ found - targets).sum() / 100)

    return cost


def blocks_of(labels: tuple[int, ...]) -> list[Block]:
    """The blocks of a partition given as labels."""
    return [tuple(int(i) for i in np.flatnonzero(np.array(labels) == label)) for label in range(max(labels) + 1)]


def best_of_all(cost, n: int, alpha: float) -> list[Block]:
    """The best partition by brute force."""
    return min((blocks_of(labels) for labels in partitions(n)), key=lambda blocks: value(blocks, cost, n, alpha))


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


# ---- the discrete problem --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("n", "alpha"), crossed([2, 4, 6, 8], [1e-4, 1e-2, 0.05]))
def test_greedy_merging_equals_brute_force(n: int, alpha: float) -> None:
    """On regressions in two groups it finds the best of all partitions, 4140 of them for eight clients."""
    cost = least_squares_cost(np.random.default_rng(n), n)
    greedy, best = agglomerated(cost, n, alpha), best_of_all(cost, n, alpha)

    assert sorted(greedy) == sorted(best)


def test_the_discrete_optimum_changes_where_theory_says() -> None:
    """For distance D the limit is near D^2 / (2 n^2) = 0.031: two clusters below it, one above."""
    cost = least_squares_cost(np.random.default_rng(8), 8)
    limit = 4 / (2 * 8**2)

    assert len(agglomerated(cost, 8, 0.02)) == 2
    assert len(agglomerated(cost, 8, 1.3 * limit)) == 1


@examples(30)
@given(SEEDS, st.integers(1, 4), st.integers(1, 4))
def test_when_a_merger_pays(seed: int, a: int, b: int) -> None:
    """For f_i = ||x - c_i||^2 / 2 it pays exactly when alpha > ||mean_A - mean_B||^2 / (2 n (|A| + |B|))."""
    n, rng = a + b, np.random.default_rng(seed)
    centres = rng.standard_normal((n, 2))
    first, second = tuple(range(a)), tuple(range(a, n))
    apart = np.square(centres[:a].mean(0) - centres[a:].mean(0)).sum()
    limit = apart / (2 * n * n)
    cost = squared_distance_cost(centres)

    assert profit(first, second, cost, n, 1.001 * limit) > 0 > profit(first, second, cost, n, 0.999 * limit)


def test_the_cost_of_ties_is_neither_submodular_nor_supermodular() -> None:
    """With c = (0, 0, 1), tying 2 and 3 costs more after 12 is tied, and tying 1 and 3 costs less after 12 and 23."""
    cost = squared_distance_cost(np.array([[0.0], [0.0], [1.0]]))

    def least(edges: set[tuple[int, int]]) -> float:
        blocks = [{0}, {1}, {2}]
        for i, j in edges:
            one, other = next(b for b in blocks if i in b), next(b for b in blocks if j in b)
            blocks = [b for b in blocks if b not in (one, other)] + [one | other]
        return sum(cost(tuple(sorted(block))) for block in blocks)

    assert least({(1, 2)}) - least(set()) == pytest.approx(0.25)
    assert least({(0, 1), (1, 2)}) - least({(0, 1)}) == pytest.approx(1 / 3)
    assert least({(0, 2)}) - least(set()) == pytest.approx(0.25)
    assert least({(0, 1), (1, 2), (0, 2)}) - least({(0, 1), (1, 2)}) == pytest.approx(0)


def test_pairs_come_in_rows() -> None:
    """`tied` follows the order of itertools.combinations, as all arrays of pairs do."""
    labels = np.array([0, 1, 0, 1])

    assert tied(labels).tolist() == [float(labels[i] == labels[j]) for i, j in combinations(range(4), 2)]
