"""Claims about connectivity-aware learning: mass, full participation, bias, timing, and the messages it costs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch

from fednet_emu.algorithms.d2d import connectivity_bounds as theory
from fednet_emu.algorithms.d2d.connectivity_aware import ConnectivityAware, known, sampled, weights
from fednet_emu.algorithms.d2d.round import ClusterRound, access_point, equal_shares, imbalance, mixed_update
from fednet_emu.algorithms.fedavg import FedAvg
from fednet_emu.errors import ScenarioError
from fednet_emu.federation import accumulated, moved_by_sum
from fednet_emu.federation.federation import Federation
from fednet_emu.kernel.streams import Streams
from fednet_emu.network.topology import Digraph
from fednet_emu.records.laws.verify import verify
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


def algorithm(**changes: Any) -> ConnectivityAware:
    """One step of gradient descent with all samples, unless changed."""
    return ConnectivityAware(**{"lr": 0.1, "batch_size": None, "local_steps": 1, "phi_max": 0.06, **changes})


def column(fed: Federation, name: str, series: str = "connectivity") -> list[Any]:
    """A column of the algorithm's own series."""
    return [row[name] for row in fed.ledger.series[series]]


def final(fed: Federation, run: ConnectivityAware | FedAvg) -> torch.Tensor:
    """The model after the run."""
    model = fed.run(run)
    assert model is not None
    value: torch.Tensor = fed.read(model)
    return value


def fedavg_of_all(count: int) -> FedAvg:
    """Full participation, every device alike."""
    return FedAvg(cohort=count, lr=0.1, batch_size=None, local_steps=1, weighting="uniform")


LOSSY = (
    "network.sidelink.loss={kind: random, probability: 0.3}",
    "network.uplink.loss={kind: random, probability: 0.3}",
    "network.downlink.loss={kind: random, probability: 0.3}",
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
    fed = clusters_of("stop.rounds=5", "network.sidelink.loss={kind: random, probability: 0.6}")
    fed.run(algorithm())
    transfers = fed.ledger.frames()["transfers"]

    assert column(fed, "d2d_senders") == [12] * 5
    assert ((transfers["kind"] == "sidelink") & (transfers["payload"] >= 0)).sum() == 60


def test_shares_that_give_too_much_are_noticed() -> None:
    """Device 0 gives a half to itself and a half to each of two others, as if it had counted one of them only."""
    shares = {0: [(0, 0.5)], 1: [(1, 1.0), (0, 0.5)], 2: [(2, 1.0), (0, 0.5)]}

    assert imbalance(shares) == 0.5
    assert imbalance(equal_shares(range(3), [(0, 1), (0, 2)])) <= 1e-15


def test_mixing_conserves_the_total_under_loss() -> None:
    """The sum of mixed updates is the sum of updates, whatever arrived: by the very functions of a round."""
    rng = np.random.default_rng(0)
    models = [torch.tensor(rng.normal(size=5)) for _ in range(8)]
    x = torch.tensor(rng.normal(size=5))
    edges = [(j, i) for j in range(8) for i in range(8) if j != i and rng.random() < 0.4]
    shares = equal_shares(range(8), edges)
    mixed = [
        mixed_update(x, [models[j] for j, _ in own], np.array([share for _, share in own])) for own in shares.values()
    ]

    assert torch.allclose(sum(mixed), sum(model - x for model in models), atol=1e-12)


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
    mixing = graph.mixing.toarray()
    streams = Streams(1)
    for draw in range(draws):
        chosen = sampled(graph, m, streams, draw)
        done = [ClusterRound((), [(i, None) for i in own], True, {}, 0, 0) for own in chosen]  # type: ignore[list-item]
        vector = np.zeros(graph.n_devices)
        vector[[i for own in chosen for i in own]] = weights(normalisation, m, graph.sizes, done)
        got = mixing.T @ vector
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
    transfers = fed.ledger.frames()["transfers"]

    exchange_us = 2 * 320 + 64 + 64
    assert fed.clock.now == (320 + 720 + exchange_us + 2 * (128 + 320)) * 1000
    control = transfers[transfers["payload"] == -1]
    assert int((control["size_bit"]).sum()) == column(fed, "control_bit")[0] == 2 * (64 + 64 + 128)
    assert fed.ledger.sent_bit == [2 * (128 + 320), 320, 2 * (2 * 320 + 64 + 64)]


def test_control_bits_are_those_of_the_messages() -> None:
    """Lists of in-neighbours, of which that of the access point is not sent, degrees and summaries; nothing is lost."""
    fed = clusters_of("stop.rounds=1")
    fed.run(algorithm())
    transfers = fed.ledger.frames()["transfers"]

    assert column(fed, "control_bit") == [transfers["size_bit"][transfers["payload"] == -1].sum()]


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
    transfers = fed.ledger.frames()["transfers"]

    assert empty
    assert not empty & set(transfers["sender"])
    assert max(column(fed, "worst_column")) <= 1e-12


def test_who_sends_to_whom_must_be_said() -> None:
    """Without a topology the error names the setting."""
    fed = small_federation("network.sidelink={channel: {include: ideal}}")

    with pytest.raises(ScenarioError, match=r"network\.sidelink\.topology: is required"):
        fed.run(algorithm())


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
