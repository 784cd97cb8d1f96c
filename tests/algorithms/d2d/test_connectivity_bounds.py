"""Claims about the connectivity of clusters: its singular values, what bounds them, what the server makes of it."""

from __future__ import annotations

from fractions import Fraction
from itertools import combinations

import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fednet_emu.algorithms.d2d import connectivity_bounds as theory
from fednet_emu.algorithms.d2d.connectivity_bounds import BOUNDS, Degrees
from fednet_emu.network.topology import Digraph


def one_cluster(matrix: np.ndarray) -> Digraph:
    """A cluster from an adjacency matrix [receiver, sender], whose diagonal does not count."""
    receiver, sender = np.nonzero(matrix & ~np.eye(len(matrix), dtype=bool))
    return Digraph.of(np.zeros(len(matrix), np.int64), sender, receiver)


def regular(size: int, degree: int) -> Digraph:
    """A circulant digraph: each sends to the degree - 1 next ones."""
    sender = np.repeat(np.arange(size), degree - 1)
    return Digraph.of(np.zeros(size, np.int64), sender, (sender + np.tile(np.arange(1, degree), size)) % size)


def batch_of(rng: np.random.Generator, count: int, size: int) -> np.ndarray:
    """Strongly connected digraphs with loops [graphs, receivers, senders] in which alpha is above one half."""
    kept: list[np.ndarray] = []
    while len(kept) < count:
        density = rng.uniform(0.55, 1.0, (4 * count, 1, 1))
        hubs = rng.uniform(0.0, 0.4, (4 * count, size, 1))
        graphs = rng.random((4 * count, size, size)) < np.clip(density + hubs - 0.2, 0.0, 1.0)
        graphs |= np.eye(size, dtype=bool)
        paths = graphs.astype(np.float32)
        for _ in range(int(np.ceil(np.log2(size)))):
            paths = np.minimum(paths @ paths, 1.0)
        good = (paths > 0).all(axis=(1, 2)) & (graphs.sum(axis=1).min(axis=1) > size / 2)
        kept.extend(graphs[good])
    return np.array(kept[:count])


def degrees_of(graphs: np.ndarray) -> Degrees:
    """Degrees of graphs [graphs, receivers, senders]."""
    out, into = graphs.sum(axis=1), graphs.sum(axis=2)
    size = np.full(len(graphs), graphs.shape[1])
    return Degrees(size, out.min(axis=1), out.max(axis=1), into.max(axis=1))


def phi_of(graphs: np.ndarray) -> np.ndarray:
    """Connectivity factors by a singular value decomposition of every graph."""
    sigma = np.linalg.svd(graphs / graphs.sum(axis=1, keepdims=True), compute_uv=False)
    return sigma[:, 0] ** 2 + sigma[:, 1] ** 2 - 1.0


@pytest.fixture(scope="module")
def population() -> list[tuple[Degrees, np.ndarray]]:
    """20,016 random strongly connected digraphs of 3 to 20 devices: degrees and factors, size by size."""
    rng = np.random.default_rng(7)
    drawn = [batch_of(rng, 1112, size) for size in range(3, 21)]
    return [(degrees_of(graphs), phi_of(graphs)) for graphs in drawn]


def test_the_safe_bound_is_never_violated(population: list[tuple[Degrees, np.ndarray]]) -> None:
    """On more than 20,000 digraphs psi >= phi; half of them or more are not regular."""
    assert sum(len(phi) for _, phi in population) >= 20_000
    assert all((theory.safe(d) >= phi - 1e-9).all() for d, phi in population)
    assert np.mean(np.concatenate([d.eps for d, _ in population]) > 0) > 0.5


@pytest.mark.parametrize("form", ["seed1m", "seed2p"])
def test_the_corrected_forms_hold_where_they_claim_to(population: list[tuple[Degrees, np.ndarray]], form: str) -> None:
    """No violation where valid, with at least a hundred such digraphs."""
    bound, valid = BOUNDS[form]
    trusted = [(bound(d)[valid(d)], phi[valid(d)]) for d, phi in population]

    assert sum(len(phi) for _, phi in trusted) >= 100
    assert all((psi >= phi - 1e-9).all() for psi, phi in trusted)


def test_the_first_form_fails_with_hubs(population: list[tuple[Degrees, np.ndarray]]) -> None:
    """Less 1 and without its condition on in-degrees it is violated: the guard is needed."""
    assert any((theory.seed1m(d) < phi - 1e-9).any() for d, phi in population)


@pytest.mark.parametrize("size", [3, 5, 10, 17])
def test_bounds_are_tight_for_regular_clusters_of_all_but_one(size: int) -> None:
    """For d = n - 1, phi is (1 / alpha - 1)^2 exactly, and so are the safe and the corrected first form."""
    graph = regular(size, size - 1)
    (phi,), degrees = theory.factors(graph), Degrees.of(graph)

    assert phi == pytest.approx((1 / (size - 1)) ** 2, abs=1e-12)
    assert theory.safe(degrees) == pytest.approx([phi], abs=1e-12)
    if size > 3:
        assert theory.seed1m(degrees) == pytest.approx([phi], abs=1e-12)


@pytest.mark.parametrize(("degree", "m"), [(6, 62), (7, 53), (8, 36), (9, 12), (10, 1)])
def test_the_table_of_seventy_devices(degree: int, m: int) -> None:
    """Seven regular clusters of ten with phi_max 0.06: 62, 53, 36, 12 or 1 devices."""
    degrees = Degrees.of(regular(10, degree))

    assert theory.devices_needed(70, float(theory.safe(degrees)[0]), 0.06) == m


@pytest.mark.parametrize("degree", [6, 7, 8, 9, 10])
def test_the_first_printed_form_bounds_one_more(degree: int) -> None:
    """It is 1 or more even for complete clusters, so that nearly everybody is sampled: 67 or more of 70."""
    degrees = Degrees.of(regular(10, degree))

    assert theory.seed1_printed(degrees)[0] == pytest.approx(1.0 + (10 / degree - 1) ** 2)
    assert theory.devices_needed(70, float(theory.seed1_printed(degrees)[0]), 0.06) >= 67


def test_the_second_printed_form_has_a_singularity() -> None:
    """Regular with d = n - 1: minus infinity, which the guard replaces by the safe bound; 1 for complete clusters."""
    degrees = Degrees.of(regular(10, 9))

    assert theory.seed2_printed(degrees)[0] == -np.inf
    assert theory.guarded(degrees, "seed2_printed") == pytest.approx(theory.safe(degrees))
    assert theory.seed2_printed(Degrees.of(regular(10, 10)))[0] == pytest.approx(1.0)
    assert np.isfinite(theory.seed2p(degrees)[0])


def test_singular_values_are_those_of_the_dense_matrix() -> None:
    """Three clusters of different sizes in one graph, and a lone device: against numpy on the whole matrix."""
    rng = np.random.default_rng(1)
    cluster = np.array([0, 1, 1, 2, 0, 2, 1, 2, 3, 0, 2])
    pairs = np.array([(j, i) for j in range(11) for i in range(11) if j != i and rng.random() < 0.6])
    graph = Digraph.of(cluster, pairs[:, 0], pairs[:, 1])
    dense = graph.mixing.toarray()
    top = theory.singular_values(graph)

    for label, members in enumerate(graph.members):
        sigma = np.linalg.svd(dense[np.ix_(members, members)], compute_uv=False)
        assert top[label] == pytest.approx(np.append(sigma, 0.0)[:2], abs=1e-12)
    assert theory.factors(graph)[graph.cluster[8]] == pytest.approx(0.0)


@given(st.integers(1, 200), st.floats(0.0, 5.0), st.floats(0.001, 2.0))
def test_the_closed_form_is_the_smallest_number_that_will_do(n: int, mean: float, largest: float) -> None:
    """Against trying 1, 2, ... one after the other."""
    tried = next((r for r in range(1, n + 1) if (n / r - 1.0) * mean <= largest * (1 + 1e-9) + 1e-12), n)

    assert abs(theory.devices_needed(n, mean, largest) - tried) <= (0 if mean > 1e-6 else 1)


def test_nothing_known_and_nothing_allowed_sample_everybody() -> None:
    """An infinite factor, or a threshold of 0, needs all n; no factor at all needs one."""
    assert theory.devices_needed(70, np.inf, 0.06) == 70
    assert theory.devices_needed(70, 0.5, 0.0) == 70
    assert theory.devices_needed(70, 0.0, 0.0) == 1


@given(st.integers(3, 8), st.integers(0, 2**32 - 1))
def test_mixing_shrinks_what_sampling_leaves_by_the_factor(size: int, seed: int) -> None:
    """Lemma 6: |A^T v - 1/s|^2 <= phi |v - 1/s|^2 for any stochastic v, strongly connected or not."""
    rng = np.random.default_rng(seed)
    graph = one_cluster(rng.random((size, size)) < 0.5)
    v = rng.dirichlet(np.full(size, 0.3))
    left = v - 1.0 / size

    mixed = graph.mixing.toarray().T @ v - 1.0 / size
    assert (mixed**2).sum() <= theory.factors(graph)[0] * (left**2).sum() + 1e-12
    assert (mixed**2).sum() == pytest.approx(left @ (graph.mixing @ graph.mixing.T).toarray() @ left, abs=1e-12)


def variance_bound(sampled: int, sizes: np.ndarray, phi: np.ndarray, squared_norms: np.ndarray) -> float:
    """Bound on E|x(t+1) - mean model|^2 of stratified sampling, (1/n) (n/m - 1) sum of n_l/n phi_l |delta_l|^2.

    Args:
        sampled: m, the number of sampled devices; each cluster has m n_l / n of them, an integer.
        sizes: [clusters] n_l.
        phi: [clusters] connectivity factors, or bounds on them.
        squared_norms: [clusters] squared Frobenius norms of the updates of each cluster before mixing.
    """
    n = int(sizes.sum())
    return float((n / sampled - 1.0) * (sizes / n * phi * squared_norms).sum() / n)


def stratified_variance(mixed: np.ndarray, cluster: np.ndarray, samples: np.ndarray) -> float:
    """Exact E|sum of n_l / (n s_l) Delta_i - mean|^2 when s_l devices of each cluster are drawn without replacement.

    Args:
        mixed: [devices, parameters] the mixed update Delta_i that each device would upload.
        cluster: [devices] the cluster of each.
        samples: [clusters] s_l, the number of devices drawn.
    """
    n, total = len(mixed), 0.0
    for label, s in enumerate(samples.tolist()):
        mine = mixed[cluster == label]
        if len(mine) > 1:
            spread = ((mine - mine.mean(axis=0)) ** 2).sum() / (len(mine) - 1)
            total += (len(mine) / n) ** 2 * (1.0 / s - 1.0 / len(mine)) * spread
    return total


@given(st.integers(0, 2**32 - 1))
def test_the_variance_of_stratified_sampling_stays_below_its_bound(seed: int) -> None:
    """Exact variance of two clusters of six, up to three of each sampled, against (1/n)(n/m - 1) sum n_l/n phi_l ..."""
    rng = np.random.default_rng(seed)
    cluster = np.repeat([0, 1], 6)
    pairs = np.array([(j, i) for j in range(12) for i in range(12) if j != i and rng.random() < 0.7])
    graph = Digraph.of(cluster, pairs[:, 0], pairs[:, 1])
    delta = rng.normal(size=(12, 4))
    each = int(rng.integers(1, 4))

    exact = stratified_variance(graph.mixing @ delta, graph.cluster, np.array([each, each]))
    norms = np.array([(delta[graph.cluster == label] ** 2).sum() for label in (0, 1)])
    assert exact <= variance_bound(2 * each, graph.sizes, theory.factors(graph), norms) * (1 + 1e-9)


def test_strong_components_are_those_of_networkx() -> None:
    """A second implementation on a random graph of sixty."""
    rng = np.random.default_rng(3)
    sender, receiver = rng.integers(60, size=(2, 90))
    graph = Digraph.of(np.zeros(60, np.int64), sender[sender != receiver], receiver[sender != receiver])
    labels = graph.strong_components()
    ours = {frozenset(np.flatnonzero(labels == label).tolist()) for label in np.unique(labels)}

    assert ours == {frozenset(part) for part in nx.strongly_connected_components(graph.networkx())}


def test_the_first_form_needs_more_than_half_of_the_cluster() -> None:
    """Of 4 devices 3 will do and 2 will not, nor an in-degree above the largest out-degree."""
    size, out, into = np.array([4, 4, 4]), np.array([3, 2, 3]), np.array([3, 2, 4])

    assert theory.seed1_valid(Degrees(size, out, out, into)).tolist() == [True, False, False]


def test_the_variance_of_stratified_sampling_over_all_draws() -> None:
    """Two of three, one of two, and a lone device: the mean square over all six draws is exact."""
    mixed = np.random.default_rng(5).normal(size=(6, 2))
    draws = [(*first, second, 5) for first in combinations(range(3), 2) for second in (3, 4)]
    weight = np.array([3 / 2, 3 / 2, 2, 1]) / 6
    squares = [np.square(weight @ mixed[list(draw)] - mixed.mean(0)).sum() for draw in draws]
    found = stratified_variance(mixed, np.array([0, 0, 0, 1, 1, 2]), np.array([2, 1, 1]))

    assert found == pytest.approx(np.mean(squares), rel=1e-12)


def test_the_second_form_by_hand() -> None:
    """Ten devices, out-degrees 8 to 9, in-degree up to 10: alpha_minus = varphi = 1/4, eps = 1/8, e = 13/32."""
    degrees = Degrees(*(np.array([number]) for number in (10, 8, 9, 10)))
    shared, e = Fraction(49, 64) * Fraction(15, 16), Fraction(13, 32)
    above = shared * (shared - Fraction(1, 4))
    printed, corrected = (
        Fraction(5, 2) - above / (10 * (1 + e) * (e + sign * Fraction(1, 4) + Fraction(1, 8))) for sign in (-1, 1)
    )

    assert theory.seed2_printed(degrees) == pytest.approx([float(printed)], rel=1e-12)
    assert theory.seed2p(degrees) == pytest.approx([float(corrected - 1)], rel=1e-12)


def test_nothing_over_nothing_is_guarded_in_silence() -> None:
    """Four devices that send to two, one hears three: the second form is 0 / 0, the safe bound takes its place."""
    degrees = Degrees(*(np.array([number]) for number in (4, 2, 2, 3)))
    with np.errstate(all="raise"):
        assert np.isnan(theory.seed2_printed(degrees)).all()
        assert theory.guarded(degrees, "seed2_printed") == pytest.approx([2.0])
