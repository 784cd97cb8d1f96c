"""Known answers about mixing matrices: spectra, push-sum on a ring of five, and matchings with their probabilities."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from fednet_emu.algorithms.decentralised import matcha
from fednet_emu.algorithms.decentralised.d_psgd import metropolis
from fednet_emu.algorithms.decentralised.gossip import Gossip
from fednet_emu.algorithms.decentralised.rounds import imbalance
from fednet_emu.algorithms.decentralised.sgp import pushed
from fednet_emu.network.topology import Digraph
from fednet_emu.testing import small_federation
from tests.algorithms.decentralised.graphs import Pairs, complete, graph_of, hypercube, path, ring, star, torus

SPECTRA: dict[str, tuple[int, Pairs, float]] = {
    "ring 8": (8, ring(8), 0.804737854124),
    "ring 16": (16, ring(16), 0.949253021674),
    "ring 64": (64, ring(64), 0.996789817781),
    "torus 4x4": (16, torus(4), 0.6),
    "torus 8x8": (64, torus(8), 0.882842712475),
    "hypercube 8": (8, hypercube(8), 0.5),
    "hypercube 16": (16, hypercube(16), 0.6),
    "hypercube 64": (64, hypercube(64), 0.714285714286),
    "complete 7": (7, complete(7), 0.0),
    "star 8": (8, star(8), 0.875),
    "star 16": (16, star(16), 0.9375),
    "path 8": (8, path(8), 0.949253021674),
    "path 16": (16, path(16), 0.987190186935),
}
"""Devices, edges and second eigenvalue of the matrix of Metropolis."""


def matrix(graph: Digraph, weights: NDArray[np.float64]) -> NDArray[np.float64]:
    """W with these weights on its edges, and the rest of each row at home."""
    w = np.zeros((graph.n_devices, graph.n_devices))
    w[graph.receiver, graph.sender] = weights
    return w + np.diag(1 - w.sum(1))


@pytest.mark.parametrize("name", SPECTRA)
def test_second_eigenvalues_are_those_of_the_closed_forms(name: str) -> None:
    """The weights of Metropolis are symmetric; a distance to the mean shrinks by lambda_2, along its vector exactly."""
    n, pairs, second = SPECTRA[name]
    graph = graph_of(n, pairs)
    w = matrix(graph, metropolis(graph, graph))
    values, vectors = np.linalg.eigh(w)
    slow, x = vectors[:, -2], np.random.default_rng(0).normal(size=n)
    x -= x.mean()

    assert (w == w.T).all()
    assert values[-2] == pytest.approx(second, abs=1e-11)
    assert np.linalg.norm(w @ slow) == pytest.approx(second, abs=1e-11)
    assert np.linalg.norm(np.linalg.matrix_power(w, 9) @ x) <= max(-values[0], second) ** 9 * np.linalg.norm(x) + 1e-12


def test_a_path_is_as_slow_as_a_ring_of_twice_its_length() -> None:
    """Sixteen in a row and thirty-two in a circle have one second eigenvalue."""
    row, circle = graph_of(16, path(16)), graph_of(32, ring(32))
    of_row, of_circle = (np.linalg.eigvalsh(matrix(graph, metropolis(graph, graph)))[-2] for graph in (row, circle))

    assert of_row == pytest.approx(of_circle, abs=1e-12)


def test_imbalance_is_the_worst_column() -> None:
    """An edge of one direction takes its weight from one column and gives it to another."""
    graph = graph_of(3, [(0, 1), (1, 0), (1, 2)], directed=True)
    weights = np.array([0.25, 0.25, 0.5])

    assert imbalance(graph, weights) == pytest.approx(np.abs(matrix(graph, weights).sum(0) - 1).max())
    assert imbalance(graph, weights) == 0.5


FIVE = graph_of(5, [(0, 1), (1, 2), (2, 3), (3, 4), (4, 0), (0, 2)], directed=True)
START = np.array([1.0, 2.0, 3.0, 4.0, 10.0])


def push_sum(rounds: int) -> NDArray[np.float64]:
    """The ratios of the ring of five after so many rounds."""
    omega, z = np.ones(5), START
    for _ in range(rounds):
        given, after = pushed(omega, FIVE, FIVE)
        omega, z = after, matrix(FIVE, given / after[FIVE.receiver]) @ z
    return z


@pytest.mark.parametrize(("rounds", "error"), [(1, 3.0), (10, 0.147347270332), (30, 0.000418789561), (60, 3.6339e-08)])
def test_push_sum_on_the_ring_of_five(rounds: int, error: float) -> None:
    """A chord makes it unbalanced: errors as published, towards the mean 4."""
    assert np.abs(push_sum(rounds) - 4).max() == pytest.approx(error, rel=1e-4)


def test_without_weights_the_ring_of_five_agrees_on_something_else() -> None:
    """The same shares of x alone lead to what has no business to be a mean: what the weights are for."""
    shares, _ = pushed(np.ones(5), FIVE, FIVE)
    p = np.zeros((5, 5))
    p[FIVE.receiver, FIVE.sender] = shares
    p += np.diag(1 - p.sum(0))
    limit = np.linalg.matrix_power(p, 500) @ START

    assert np.sort(np.abs(np.linalg.eigvals(p)))[-2] == pytest.approx(0.736031878621, abs=1e-11)
    assert limit == pytest.approx([3.529411764706, 2.352941176471, *[4.705882352941] * 3], abs=1e-10)
    assert push_sum(500) == pytest.approx(np.full(5, 4.0), abs=1e-12)


def test_one_peer_exponential_graphs_average_exactly() -> None:
    """Sixteen push to the peer 1, 2, 4 and 8 steps ahead: after four rounds all have the mean."""
    x = np.random.default_rng(1).normal(size=16)
    z, omega = x, np.ones(16)
    for step in (1, 2, 4, 8):
        graph = graph_of(16, [(i, (i + step) % 16) for i in range(16)], directed=True)
        given, after = pushed(omega, graph, graph)
        omega, z = after, matrix(graph, given / after[graph.receiver]) @ z

    assert z == pytest.approx(np.full(16, x.mean()), abs=1e-15)


@given(st.integers(0, 2**32 - 1))
def test_no_share_leaves_the_network(seed: int) -> None:
    """Whatever the graph and the losses: weights stay positive and sum to what they did."""
    rng = np.random.default_rng(seed)
    graph = graph_of(7, zip(*np.nonzero(rng.random((7, 7)) < 0.4), strict=True), directed=True)
    graph = graph.kept(graph.sender != graph.receiver)
    omega = rng.uniform(0.1, 3, 7)
    _, after = pushed(omega, graph, graph.kept(rng.random(len(graph.sender)) < 0.6))

    assert after.sum() == pytest.approx(omega.sum(), rel=1e-12)
    assert (after > 0).all()


# ---- matchings -------------------------------------------------------------------------------------------------------

RING = graph_of(8, ring(8))
OF_RING = matcha.laplacians_of(RING, matcha.matchings(RING))


def enumerated(laplacians: NDArray[np.float64], p: NDArray[np.float64], alpha: float) -> float:
    """The factor rho from all draws of the matchings, each with its probability."""
    n = laplacians.shape[1]
    mean = np.zeros((n, n))
    for drawn in product((0, 1), repeat=len(p)):
        w = np.eye(n) - alpha * np.tensordot(drawn, laplacians, 1)
        mean += np.prod(np.where(drawn, p, 1 - p)) * w.T @ w
    return float(np.linalg.norm(mean - 1 / n, 2))


@pytest.mark.parametrize(
    ("budget", "alpha", "rho"),
    [
        (0.25, 0.607247186328, 0.911052928946),
        (0.5, 0.607247186328, 0.783920633618),
        (0.75, 0.507288870363, 0.660457904104),
        (1.0, 0.435818674448, 0.554583051566),
    ],
)
def test_matchings_of_a_ring_of_eight(budget: float, alpha: float, rho: float) -> None:
    """Two matchings, equally likely; rho as tabulated and as all four draws have it.

    The tabulated alpha are from a grid: the best step is near them and a little better, and no worse than any near it.
    """
    p = matcha.activation(OF_RING, budget)
    step = matcha.best_step(OF_RING, p)
    best = enumerated(OF_RING, p, step)

    assert p == pytest.approx([budget] * 2, abs=1e-9)
    assert matcha.contraction(OF_RING, p, alpha) == pytest.approx(rho, abs=1e-10)
    assert enumerated(OF_RING, p, alpha) == pytest.approx(rho, abs=1e-10)
    assert step == pytest.approx(alpha, abs=1e-3)
    assert best < rho
    assert all(enumerated(OF_RING, p, step + by) >= best - 1e-9 for by in (-1e-4, 1e-4))


def test_the_bottleneck_is_used_most() -> None:
    """Two squares joined by one edge: its matching is used most, and no better split is found on a grid of 1/20."""
    graph = graph_of(8, [*ring(4), *((a + 4, b + 4) for a, b in ring(4)), (0, 4)])
    colour = matcha.matchings(graph)
    laplacians = matcha.laplacians_of(graph, colour)
    p = matcha.activation(laplacians, 0.4)
    bridge = colour[(graph.sender == 0) & (graph.receiver == 4)][0]
    grid = np.array([q for q in product(np.linspace(0, 1, 21), repeat=len(p)) if sum(q) <= 0.4 * len(p) + 1e-9])
    best = np.linalg.eigvalsh(np.tensordot(grid, laplacians, 1))[:, 1].max()

    assert p.argmax() == bridge
    assert p.sum() <= 0.4 * len(p) + 1e-9
    assert np.linalg.eigvalsh(np.tensordot(p, laplacians, 1))[1] >= 0.995 * best


def test_parts_of_a_graph_are_mixed_each_for_itself() -> None:
    """Two separate rings of four have the factor of one: the mean of each part is what it tends to."""
    one, two = graph_of(4, ring(4)), graph_of(8, [*ring(4), *((a + 4, b + 4) for a, b in ring(4))])
    of_one, of_two = (matcha.laplacians_of(graph, matcha.matchings(graph)) for graph in (one, two))
    p, q = matcha.activation(of_one, 0.5), matcha.activation(of_two, 0.5)
    alpha = matcha.best_step(of_one, p)

    assert matcha.best_step(of_two, q) == pytest.approx(alpha, abs=1e-6)
    assert matcha.contraction(of_two, q, alpha) == pytest.approx(enumerated(of_one, p, alpha), abs=1e-9)


@given(st.integers(0, 2**32 - 1))
def test_a_colour_is_a_matching(seed: int) -> None:
    """Every edge has one colour, both ways the same; no device has two edges of one; at most 2 Delta - 1 of them."""
    rng = np.random.default_rng(seed)
    graph = graph_of(9, zip(*np.nonzero(np.triu(rng.random((9, 9)) < 0.5, 1)), strict=True))
    colour = matcha.matchings(graph)
    laplacians = matcha.laplacians_of(graph, colour)
    degree = int(graph.out_degree.max()) - 1

    assert len(laplacians) <= max(2 * degree - 1, 0)
    assert all(np.diag(one).max() == 1 and (one == one.T).all() for one in laplacians)
    assert np.diag(laplacians.sum(0)).tolist() == (graph.out_degree - 1).tolist()


@given(st.lists(st.floats(-2, 3), min_size=1, max_size=6), st.floats(0.1, 4))
def test_probabilities_are_projected_onto_the_budget(p: list[float], total: float) -> None:
    """The result is feasible, and no feasible point is nearer: to all of them the angle is obtuse."""
    given_p = np.array(p)
    found = matcha.on_budget(given_p, total)
    others = np.random.default_rng(0).random((50, len(p)))
    others *= np.minimum(1, total / others.sum(1))[:, None]

    assert ((found >= 0) & (found <= 1)).all()
    assert found.sum() <= total + 1e-9
    assert ((others - found) @ (given_p - found)).max() <= 1e-6


@pytest.mark.parametrize("pairs", [None, 1, 2])
def test_gossip_pairs_neighbours_that_are_free(pairs: int | None) -> None:
    """Each device is in one pair at most; without a limit nobody who is left has a neighbour who is, too."""
    fed, graph = small_federation("devices.count=9"), graph_of(9, torus(3))
    met = [Gossip(pairs=pairs).links(fed, graph, t) for t in range(20)]

    for pair in met:
        assert pair.out_degree.max() == 2
        assert set(zip(pair.sender, pair.receiver, strict=True)) == set(zip(pair.receiver, pair.sender, strict=True))
        alone = pair.out_degree == 1
        left = alone[graph.sender] & alone[graph.receiver]
        assert not left.any() if pairs is None else len(pair.sender) == 2 * pairs
    assert len({tuple(pair.receiver) for pair in met}) > 5
    assert math.isclose(sum(2 in pair.receivers(1) for pair in met), 20 * len(met[0].sender) / 2 / 18, abs_tol=8)


def test_matcha_draws_anew_in_every_round_and_forgets_a_graph_that_has_changed() -> None:
    """Each of two matchings of a ring is used in about 6 of 10 rounds; a star has weights of its own."""
    fed, method = small_federation(), matcha.Matcha(budget=0.6)
    around, spokes = graph_of(4, ring(4)), graph_of(4, star(4))
    drawn = [method.links(fed, around, t).sender.size // 4 for t in range(400)]
    method.links(fed, spokes, 400)
    laplacians = matcha.laplacians_of(spokes, matcha.matchings(spokes))
    p = matcha.activation(laplacians, 0.6)

    assert np.bincount(drawn) / 400 == pytest.approx([0.16, 0.48, 0.36], abs=0.08)
    assert fed.memory["matcha"][1] == pytest.approx(p)
    assert fed.memory["matcha"][2] == pytest.approx(matcha.best_step(laplacians, p))
