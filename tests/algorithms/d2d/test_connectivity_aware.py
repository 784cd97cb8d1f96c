"""Connectivity-aware D2D learning, and its bounds."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import networkx as nx
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fednet_emu.algorithms.d2d import connectivity_bounds as theory
from fednet_emu.algorithms.d2d.connectivity_aware import ConnectivityAware, known, sampled, weights
from fednet_emu.algorithms.d2d.connectivity_bounds import BOUNDS, Degrees
from fednet_emu.algorithms.d2d.round import ClusterRound, access_point, equal_shares, imbalance
from fednet_emu.algorithms.fedavg import FedAvg
from fednet_emu.federation import accumulated, moved_by_sum
from fednet_emu.federation.federation import Federation
from fednet_emu.kernel.streams import Streams
from fednet_emu.network.topology import Digraph
from fednet_emu.records.laws import verify
from fednet_emu.testing import small_federation


def clusters_of(
    *changes: str, count: int = 12, degree: int = 3, clusters: int = 3, deletion: float = 0.0
) -> Federation:
    """A federation with a device-to-device band at 1 Mbit/s and random regular clusters."""
    topology = (
        f"{{edges: {{kind: random-regular, degree: {degree}, deletion: {deletion}}}, "
        f"clusters: {{kind: equal, count: {clusters}}}}}"
    )
    return small_federation(
        f"devices.count={count}",
        f"data.n_samples={20 * count}",
        f"network.sidelink={{channel: {{include: ideal}}, access: spatial-reuse, topology: {topology}}}",
        *changes,
    )


def mixing(graph: Digraph) -> np.ndarray:
    """Matrix A, whose columns sum to 1: A[i, j] is 1 / (out-degree of j) if j sends to i or j = i, else 0."""
    matrix = np.eye(graph.n_devices)
    matrix[graph.receiver, graph.sender] = 1.0
    return matrix / graph.out_degree


def algorithm(**changes: Any) -> ConnectivityAware:
    """One step of gradient descent with all samples, unless changed."""
    return ConnectivityAware(**{"lr": 0.1, "batch_size": None, "local_steps": 1, "phi_max": 0.06, **changes})


def column(fed: Federation, name: str, series: str = "connectivity") -> list[Any]:
    return [row[name] for row in fed.ledger.series[series]]


def final(fed: Federation, run: ConnectivityAware | FedAvg) -> torch.Tensor:
    model = fed.run(run)
    assert model is not None
    value: torch.Tensor = fed.read(model)
    return value


def fedavg_of_all(count: int) -> FedAvg:
    return FedAvg(cohort=count, lr=0.1, batch_size=None, local_steps=1, weighting="uniform")


LOSSY = (
    "network.sidelink.message_loss={kind: random, probability: 0.3}",
    "network.uplink.message_loss={kind: random, probability: 0.3}",
    "network.downlink.message_loss={kind: random, probability: 0.3}",
)


@pytest.mark.parametrize("losses", [(), LOSSY], ids=["ideal", "30 % loss"])
def test_columns_sum_to_one_in_every_round(losses: Sequence[str]) -> None:
    """To 1e-12, with 30 % loss of everything too; then edges are missing, and the conservation laws hold."""
    fed = clusters_of("stop.rounds=12", *losses, deletion=0.1)
    fed.run(algorithm())

    assert max(column(fed, "worst_column")) <= 1e-12
    assert (np.mean(column(fed, "d2d_receptions")) < 17) == bool(losses)
    assert not any(verify(fed.ledger, frozenset(), frozenset({"sidelink"})).values())


def test_a_push_that_nobody_hears_is_a_push() -> None:
    """Twelve senders a round are counted at 60 % loss of the sidelink, as many as the ledger has broadcasts of."""
    fed = clusters_of("stop.rounds=5", "network.sidelink.message_loss={kind: random, probability: 0.6}")
    fed.run(algorithm())
    transfers = fed.ledger.frame("transfers")

    assert column(fed, "d2d_senders") == [12] * 5
    assert ((transfers["direction"] == "sidelink") & (transfers["value_id"] >= 0)).sum() == 60


def test_shares_that_give_too_much_are_noticed() -> None:
    """Device 0 gives a half to itself and a half to each of two others, as if it had counted one of them only."""
    shares = {0: [(0, 0.5)], 1: [(1, 1.0), (0, 0.5)], 2: [(2, 1.0), (0, 0.5)]}

    assert imbalance(shares) == 0.5
    assert imbalance(equal_shares(range(3), [(0, 1), (0, 2)])) <= 1e-15


@pytest.mark.parametrize(("degree", "deletion"), [(1, 0.0), (2, 0.0), (3, 0.2), (4, 0.0)])
def test_sampling_everybody_is_full_federated_averaging(degree: int, deletion: float) -> None:
    """phi_max 0 means m = n: the same model as FedAvg of all to 1e-6, for any digraph."""
    redraw = "network.sidelink.topology.edges.redraw=false"
    fed = clusters_of("stop.rounds=5", redraw, degree=degree, deletion=deletion)
    model = final(fed, algorithm(phi_max=0.0))
    reference = final(clusters_of("stop.rounds=5"), fedavg_of_all(12))

    assert column(fed, "m") == [12] * 5 or degree == 4
    assert torch.allclose(model, reference, rtol=1e-6, atol=1e-7)


def test_complete_clusters_need_one_upload_each() -> None:
    """Degree n_l: phi = 0 and m = 1, three uploads a round, and still the model of FedAvg with all twelve."""
    fed = clusters_of("stop.rounds=5", degree=4)
    model = final(fed, algorithm(cohort=1))
    reference = final(clusters_of("stop.rounds=5"), fedavg_of_all(12))

    assert column(fed, "uploads") == [3] * 5
    assert column(fed, "mean_phi") == pytest.approx([0.0] * 5, abs=1e-12)
    assert torch.allclose(model, reference, rtol=1e-6, atol=1e-7)


UNEVEN = Digraph.of(
    np.repeat(np.arange(8), [10, 10, 10, 10, 10, 10, 7, 3]), np.empty(0, np.int64), np.empty(0, np.int64)
)


def expected_step(normalisation: str, graph: Digraph, m: int, draws: int) -> tuple[np.ndarray, np.ndarray]:
    """Mean weight of each device's update over draws, with its standard error, out of the algorithm's own parts."""
    total, square = np.zeros((2, graph.n_devices))
    matrix, streams = mixing(graph), Streams(1)
    for draw in range(draws):
        chosen = sampled(graph, m, streams, draw)
        done = [ClusterRound((), [(i, None) for i in own], True, {}, 0, 0) for own in chosen]  # type: ignore[list-item]
        vector = np.zeros(graph.n_devices)
        vector[[i for own in chosen for i in own]] = weights(normalisation, m, graph.sizes, done)
        got = matrix.T @ vector
        total += got
        square += got**2
    mean = total / draws
    return mean, np.sqrt(np.maximum(square / draws - mean**2, 1e-30) / draws)


def test_stratified_sampling_is_unbiased() -> None:
    """Sizes 10 x 6, 7, 3 and m = 12, over an uneven digraph: every update counts 1/70 on average.

    Of 70 means at most a few are more than 3 standard errors off; their mean square is about 1, as in eight clusters
    there are at least eight independent ones.
    """
    rng = np.random.default_rng(5)
    sender, receiver = np.nonzero((rng.random((70, 70)) < 0.1) & ~np.eye(70, dtype=bool))
    graph = Digraph.of(UNEVEN.cluster, sender, receiver)
    mean, error = expected_step("stratified", graph, 12, 4000)
    z = (mean - 1 / 70) / error

    assert np.mean(np.abs(z) < 3) > 0.95
    assert np.mean(z**2) == pytest.approx(1.0, abs=3 * np.sqrt(2 / 8))


@pytest.mark.parametrize("normalisation", ["paper", "count"])
def test_other_normalisations_are_biased_where_shares_are_no_whole_numbers(normalisation: str) -> None:
    """M n_l / n of the cluster of 3 is 0.51: its one upload counts too much; the printed form inflates steps."""
    mean, error = expected_step(normalisation, UNEVEN, 12, 4000)
    uploads = 6 * 2 + 2 + 1

    assert np.abs(mean[67:] - 1 / 70).min() > 3 * error[67:].max()
    assert mean.sum() == pytest.approx(uploads / 12 if normalisation == "paper" else 1.0)


def test_normalisations_agree_where_shares_are_whole_numbers() -> None:
    """Seven clusters of ten and m = 14: two of each, and all weights are 1/14."""
    done = [ClusterRound((), [(0, None), (1, None)], True, {}, 0, 0)] * 7  # type: ignore[list-item]
    sizes = np.full(7, 10)

    assert weights("stratified", 14, sizes, done) == pytest.approx([1 / 14] * 14)
    assert weights("paper", 14, sizes, done) == weights("count", 14, sizes, done) == [1 / 14] * 14


@pytest.mark.parametrize("normalisation", ["paper", "count", "stratified"])
def test_a_round_without_uploads_has_no_weights(normalisation: str) -> None:
    """All clusters may be later than the deadline."""
    assert weights(normalisation, 2, np.full(3, 4), [ClusterRound()] * 3) == []


def test_stratified_uploads_share_their_clusters_weight() -> None:
    """Clusters of 6 and 2 with two and one uploads: 6/8 is shared by two, 2/8 belongs to one."""
    done = [ClusterRound((), [(k, None) for k in range(n)], True, {}, 0, 0) for n in (2, 1)]  # type: ignore[misc]

    assert weights("stratified", 3, np.array([6, 2]), done) == pytest.approx([3 / 8, 3 / 8, 1 / 4])


def test_the_number_sampled_follows_the_bound() -> None:
    """m(t + 1) comes from the degrees of round t, and the realised factor stays below the bound."""
    fed = clusters_of("stop.rounds=8", count=20, clusters=2, degree=9, deletion=0.05)
    fed.run(algorithm())
    mean_psi, m = column(fed, "mean_psi"), column(fed, "m")

    assert m[0] == 20
    assert m[1:] == [theory.devices_needed(20, psi, 0.06) for psi in mean_psi[:-1]]
    for factor in ("phi", "psi"):
        mean = column(fed, f"mean_{factor}")
        assert column(fed, factor) == pytest.approx([(20 / k - 1) * part for k, part in zip(m, mean, strict=True)])
    assert all(phi <= psi + 1e-12 for phi, psi in zip(column(fed, "phi"), column(fed, "psi"), strict=True))
    assert column(fed, "sampled") == [2 * -(-number * 10 // 20) for number in m]


def test_without_edges_everybody_counts_for_itself() -> None:
    """The variant without device-to-device links: psi = 1, so that m = ceil(n / (1 + phi_max)); no control lists."""
    fed = clusters_of("stop.rounds=3", "network.sidelink.topology.edges=none")
    fed.run(algorithm(phi_max=0.5))

    assert column(fed, "m") == [12, 8, 8]
    assert fed.ledger.sent_bit[2] == 0


def test_a_round_takes_the_closed_form() -> None:
    """Two complete clusters of two side by side, m = 1: model down, step, two pushes in turn, list, degrees, uploads.

    A model is 320 bit at 1 Mbit/s. Reports carry 2 x 32 bit, degree lists 2 x 32 bit, summaries 2 x 64 bit; the uplink
    is TDMA: each access point's summary and one model.
    """
    fed = clusters_of("stop.rounds=1", count=4, clusters=2, degree=2)
    fed.run(algorithm(cohort=1))
    transfers = fed.ledger.frame("transfers")

    exchange_us = 2 * 320 + 64 + 64
    assert fed.clock.now == (320 + 720 + exchange_us + 2 * (128 + 320)) * 1000
    control = transfers[transfers["value_id"] == -1]
    assert int((control["size_bit"]).sum()) == column(fed, "control_bit")[0] == 2 * (64 + 64 + 128)
    assert fed.ledger.sent_bit == [2 * (128 + 320), 320, 2 * (2 * 320 + 64 + 64)]


def test_a_cluster_that_never_told_its_degrees_may_be_anything() -> None:
    """Its factor is infinite, so that all are sampled next."""
    silent = ClusterRound((), (), False, {}, 0, 0)

    assert known(np.array([0.1, 0.2]), [silent, silent._replace(told=True)]).tolist() == [np.inf, 0.2]


def test_the_access_point_has_most_neighbours() -> None:
    """The first one of equals; alone it is itself."""
    assert access_point([3, 4, 5], [(3, 4), (5, 4)]) == 4
    assert access_point([7, 9], []) == 7


def test_no_update_changes_nothing() -> None:
    """Bit for bit, and a step by hand: 1 + 0.5 * 4 = 3."""
    x = torch.tensor([1.0, -0.1])

    assert torch.equal(accumulated(moved_by_sum(x, []), []), x)
    assert accumulated(moved_by_sum(torch.ones(1), [0.5]), [torch.full((1,), 4.0)]).tolist() == [3.0]


def test_devices_without_samples_take_no_part() -> None:
    """They neither compute nor count: a partition that leaves some with nothing still runs, and columns sum to 1."""
    fed = clusters_of(
        "data={kind: synthetic, n_samples: 60, n_test: 30, features: 9, classes: 3}",
        "model=softmax",
        "partition={kind: dirichlet, alpha: 0.05, min_samples: 0}",
    )
    empty = set(np.flatnonzero(fed.task.n_samples == 0).tolist())
    fed.run(algorithm())
    transfers = fed.ledger.frame("transfers")

    assert empty
    assert not empty & set(transfers["sender"])
    assert max(column(fed, "worst_column")) <= 1e-12


def test_snapshots_name_every_device_once() -> None:
    """Every second round, each cluster with its devices, their places, and the edges over which models came."""
    fed = clusters_of("stop.rounds=4")
    fed.run(algorithm(snapshot_every=2))
    rows = fed.ledger.series["d2d_clusters"]

    assert [row["round"] for row in rows] == [1] * 3 + [3] * 3
    assert sorted(k for row in rows[:3] for k in row["devices"]) == list(range(12))
    assert all(len(row["x_m"]) == 4 and len(row["sender"]) == 8 for row in rows)
    assert all(set(row["sampled"]) <= set(row["devices"]) for row in rows)
    assert [sum(len(row["sampled"]) for row in rows[k : k + 3]) for k in (0, 3)] == column(fed, "sampled")[::2]


@pytest.mark.parametrize(
    ("cohort", "demands"), [(None, []), (7, [("cohort", "invites more devices than there are", 7)])]
)
def test_a_first_sample_needs_its_devices(cohort, demands):
    """A scenario with fewer devices than that is refused; all devices are never too many."""
    assert list(ConnectivityAware.model_construct(cohort=cohort).demands()) == demands


def test_an_exact_server_knows_the_factor_itself() -> None:
    """With psi: exact the recorded bound is phi in every round; the safe bound of these clusters is above it."""
    exact, safe = clusters_of("stop.rounds=2"), clusters_of("stop.rounds=2")
    exact.run(algorithm(psi="exact"))
    safe.run(algorithm())

    assert column(exact, "mean_psi") == column(exact, "mean_phi")
    assert all(psi > phi for psi, phi in zip(column(safe, "mean_psi"), column(safe, "mean_phi"), strict=True))


def test_a_snapshot_says_where_everybody_is() -> None:
    """Positions are those of the network, device by device."""
    fed = clusters_of("stop.rounds=1")
    fed.run(algorithm(snapshot_every=1))
    xy_m = fed.network.positions_m()
    seen = {device: (x_m, y_m) for row in fed.ledger.series["d2d_clusters"]
            for device, x_m, y_m in zip(row["devices"], row["x_m"], row["y_m"], strict=True)}  # fmt: skip

    assert seen == {device: tuple(xy_m[device].tolist()) for device in range(12)}


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
    dense = mixing(graph)
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


def test_strong_components_are_those_of_networkx() -> None:
    """A second implementation on a random graph of sixty."""
    rng = np.random.default_rng(3)
    sender, receiver = rng.integers(60, size=(2, 90))
    graph = Digraph.of(np.zeros(60, np.int64), sender[sender != receiver], receiver[sender != receiver])
    labels = graph.strong_components()
    ours = {frozenset(np.flatnonzero(labels == label).tolist()) for label in np.unique(labels)}

    other = nx.DiGraph(list(zip(graph.sender.tolist(), graph.receiver.tolist(), strict=True)))
    other.add_nodes_from(range(60))
    assert ours == {frozenset(part) for part in nx.strongly_connected_components(other)}


def test_the_first_form_needs_more_than_half_of_the_cluster() -> None:
    """Of 4 devices 3 will do and 2 will not, nor an in-degree above the largest out-degree."""
    size, out, into = np.array([4, 4, 4]), np.array([3, 2, 3]), np.array([3, 2, 4])

    assert theory.seed1_valid(Degrees(size, out, out, into)).tolist() == [True, False, False]


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
