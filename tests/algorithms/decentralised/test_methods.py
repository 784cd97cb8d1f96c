"""Decentralised methods, and mixing."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import product

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from fednet_emu.algorithms.decentralised import matcha
from fednet_emu.algorithms.decentralised.d_psgd import metropolis
from fednet_emu.algorithms.decentralised.gossip import Gossip
from fednet_emu.algorithms.decentralised.rounds import imbalance
from fednet_emu.algorithms.decentralised.sgp import pushed
from fednet_emu.federation.federation import Federation
from fednet_emu.learning.graph.deferred import Deferred
from fednet_emu.learning.graph.jobs import TrainData
from fednet_emu.network.topology import Digraph
from fednet_emu.records.laws import verify
from fednet_emu.testing import run_small, small_federation, small_scenario
from tests.algorithms.decentralised import oracle
from tests.algorithms.decentralised.graphs import (
    Pairs,
    complete,
    graph_of,
    hypercube,
    path,
    ring,
    sidelink,
    star,
    torus,
)
from tests.algorithms.heterogeneous.oracle import SKEWED, Vector, algorithm
from tests.algorithms.small import ENGINES

HOUSE = [*ring(6), (0, 3), (1, 4)]
"""Six devices with two or three neighbours each."""
ONE_WAY = [*ring(6), (0, 2), (3, 1), (5, 3)]
"""A directed ring with three chords."""
LOSSY = "message_loss: {kind: random, probability: 0.25}"
OF_FIVE = [*ring(5), (0, 2)]


def peers(kind: str, **more: object) -> str:
    """The setting of a method whose devices make two epochs in batches of ten."""
    return algorithm(kind, **more).replace("cohort: 3, ", "")


def models_of(fed: Federation, *settings: str) -> Vector:
    """Run the algorithm of the small scenario with these settings; the final models [devices, P]."""
    final = fed.run(small_scenario(*settings).algorithm)
    assert final is not None
    assert not isinstance(final, Deferred)
    return torch.stack([fed.read(own) for own in final]).double().numpy()


CASES: dict[str, tuple[str, str, Callable[[oracle.Played], Vector]]] = {
    "d-psgd": (
        peers("d-psgd"),
        sidelink(HOUSE, more=LOSSY),
        lambda its: oracle.d_psgd(its, HOUSE, paper=False, drop=True),
    ),
    "d-psgd, paper": (
        peers("d-psgd", order="paper"),
        sidelink(HOUSE, more=LOSSY),
        lambda its: oracle.d_psgd(its, HOUSE, paper=True, drop=True),
    ),
    "d-psgd, keep-own-weight": (
        peers("d-psgd", on_lost_message="keep-own-weight"),
        sidelink(HOUSE, more=LOSSY),
        lambda its: oracle.d_psgd(its, HOUSE, paper=False, drop=False),
    ),
    "sgp": (peers("sgp"), sidelink(ONE_WAY, directed=True, more=LOSSY), lambda its: oracle.sgp(its, ONE_WAY)),
    "gossip": (peers("gossip"), sidelink(HOUSE, more=LOSSY), oracle.gossip),
    "matcha": (
        peers("matcha", budget=0.6),
        sidelink(ring(6), more=LOSSY),
        lambda its: oracle.matcha(its, [ring(6)[::2], ring(6)[1::2]], 0.6),
    ),
    "ad-psgd": (peers("ad-psgd"), sidelink(HOUSE, more=LOSSY), oracle.ad_psgd),
}


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(("setting", "links", "loop"), CASES.values(), ids=CASES)
def test_six_rounds_are_those_of_the_paper(
    setting: str, links: str, loop: Callable[[oracle.Played], Vector], engine: str
) -> None:
    """All six models after six rounds, a quarter of the messages lost, agree to 1e-5, in both engines."""
    settings = (*SKEWED, setting, links, f"training.engine={engine}", "devices.speed.flop_per_s=1.3e6")
    fed = small_federation(*settings)
    found = models_of(fed, *settings)
    its = oracle.Played(fed)

    assert len(its.rounds) == 6
    assert (its.messages["loss_reason"] == "erased").any()
    assert np.abs(found - its.w).max() > 0.1
    assert np.abs(found - found.mean(0)).max() > 0.01
    np.testing.assert_allclose(found, loop(its), rtol=0, atol=1e-5)


def test_a_complete_graph_is_federated_averaging() -> None:
    """W = J / n: all models are that of FedAvg with all devices, in every round."""
    settings = ("devices.count=5", "data.n_samples=100", "stop.rounds=4", "evaluation.every_rounds=1")
    local = "lr: 0.1, batch_size: 8, local_steps: 3"
    server = small_federation(*settings, seen := f"algorithm={{kind: fedavg, cohort: 5, weighting: uniform, {local}}}")
    model = server.run(small_scenario(*settings, seen).algorithm)
    assert isinstance(model, Deferred)
    own = (*settings, sidelink(complete(5)), f"algorithm={{kind: d-psgd, {local}}}", "evaluation.consensus=true")
    fed = small_federation(*own)
    models = models_of(fed, *own)

    np.testing.assert_allclose(models, np.tile(server.read(model).numpy(), (5, 1)), rtol=0, atol=1e-6)
    losses = [run.ledger.frame("evaluations")["loss"].to_numpy() for run in (fed, server)]
    np.testing.assert_allclose(losses[0], losses[1], rtol=1e-5)
    assert fed.ledger.frame("evaluations")["consensus_distance"].max() < 1e-6


def test_ad_psgd_on_pairs_of_equal_speed_is_gossip() -> None:
    """Two pairs that finish at the same instant each time: pair by pair the models of gossip, round by round."""
    settings = (sidelink([(0, 1), (2, 3)]), "stop.rounds=5")
    found = []
    for kind in ("ad-psgd", "gossip"):
        its = (*settings, f"algorithm={{kind: {kind}, lr: 0.1, batch_size: 8, local_steps: 2}}")
        found.append(models_of(small_federation(*its), *its))

    assert np.abs(found[0][0] - found[0][2]).max() > 1e-3
    np.testing.assert_allclose(found[0], found[1], rtol=0, atol=1e-6)


# ---- quadratics ------------------------------------------------------------------------------------------------------


def quadratics(targets: Vector, *settings: str) -> tuple[Federation, Vector]:
    """The federation after a run, and the biases b_k [devices], where device k minimises (b_k - target_k)^2."""
    n = len(targets)
    its = (
        f"devices.count={n}",
        f"data={{kind: synthetic-regression, n_samples: {n}, n_test: {n}, features: 1}}",
        "evaluation={every_rounds: null, consensus: true}",
        *settings,
    )
    fed = small_federation(*its)
    fed.task.data = TrainData(torch.zeros(n, 1), torch.tensor(targets, dtype=torch.float32))
    return fed, models_of(fed, *its)[:, 1]


@pytest.mark.parametrize(
    ("order", "spread", "first"),
    [("paper", 0.561407599351, 0.211346648314), ("adapt-then-combine", 0.454614726463, 0.137248362761)],
)
def test_the_bias_of_d_psgd_is_known_to_the_digit(order: str, spread: float, first: float) -> None:
    """Ring of 16, targets cos i, step 0.1: fixed points ((1 + eta) I - W)^-1 eta C, (I - (1 - eta) W)^-1 eta W C."""
    c = np.cos(np.arange(16))
    one = f"algorithm={{kind: d-psgd, lr: 0.05, batch_size: null, order: {order}, on_lost_message: keep-own-weight}}"
    fed, found = quadratics(c, sidelink(ring(16)), one, "stop.rounds=110", "training.engine=batched")
    w = (np.eye(16) + np.roll(np.eye(16), 1, 0) + np.roll(np.eye(16), -1, 0)) / 3
    if order == "paper":
        fixed = np.linalg.solve(1.1 * np.eye(16) - w, 0.1 * c)
    else:
        fixed = np.linalg.solve(np.eye(16) - 0.9 * w, 0.1 * w @ c)
    evaluations = fed.ledger.frame("evaluations")

    np.testing.assert_allclose(found, fixed, rtol=0, atol=1e-6)
    assert found[0] == pytest.approx(first, abs=1e-6)
    assert found.max() - found.min() == pytest.approx(spread, abs=2e-6)
    assert found.mean() == pytest.approx(c.mean(), abs=1e-6)
    assert evaluations["consensus_distance"].iloc[-1] == pytest.approx(fixed.std(), abs=1e-6)


@pytest.mark.parametrize(("rounds", "error"), [(1, 3.0), (10, 0.147347270332), (30, 0.000418789561)])
def test_push_sum_in_the_air(rounds: int, error: float) -> None:
    """Five devices whose first step leads to 1, 2, 3, 4 and 10, and whose steps are next to nothing from then on."""
    step = "lr: 0.5, batch_size: null, lr_schedule: {kind: step, every_rounds: 1, gamma: 1e-12}"
    links, kind = sidelink(OF_FIVE, directed=True), f"algorithm={{kind: sgp, {step}}}"
    fed, found = quadratics(np.array([1.0, 2, 3, 4, 10]), links, kind, f"stop.rounds={rounds}")
    series = fed.ledger.series["mixing"]

    assert np.abs(found - 4).max() == pytest.approx(error, rel=1e-4, abs=2e-6)
    assert [row["mass"] for row in series] == pytest.approx([1.0] * rounds, abs=1e-12)
    assert rounds == 1 or series[-1]["min_weight"] < 0.7


# ---- losses, times ---------------------------------------------------------------------------------------------------


def test_losses_keep_the_mean_where_both_drop_what_either_lacks() -> None:
    """Steps of nothing from the second round on: `drop-pair` keeps the mean, `keep-own-weight` does not."""
    step = "lr: 0.5, batch_size: null, lr_schedule: {kind: step, every_rounds: 1, gamma: 1e-12}"
    links, c = sidelink(ring(8), more="message_loss: {kind: random, probability: 0.4}"), np.arange(8.0)
    means, worst = {}, {}
    for kind in (
        "d-psgd, on_lost_message: drop-pair",
        "d-psgd, on_lost_message: keep-own-weight",
        "gossip",
        "matcha",
        "sgp",
    ):
        fed, found = quadratics(c, links, f"algorithm={{kind: {kind}, {step}}}", "stop.rounds=12")
        means[kind] = found.mean()
        rows = fed.ledger.series["mixing"]
        worst[kind] = max(row.get("imbalance", 0.0) for row in rows)
        assert sum(row["used"] for row in rows) < sum(row["edges"] for row in rows)
        assert all(abs(row.get("mass", 1.0) - 1) < 1e-12 for row in rows)
    drifts = means.pop("d-psgd, on_lost_message: keep-own-weight")
    del means["sgp"]  # its ratios have another mean than its numerators until they agree

    assert list(means.values()) == pytest.approx([3.5] * 3, abs=1e-5)
    assert abs(drifts - 3.5) > 0.01
    assert worst["d-psgd, on_lost_message: keep-own-weight"] > 0.3
    assert worst["d-psgd, on_lost_message: drop-pair"] == worst["gossip"] == worst["matcha"] == 0.0


TWO = ("devices.count=2", "data.n_samples=40", sidelink([(0, 1)]))
STEP_S, MODEL_S, PLUS_S, BIT_S = 720e-6, 320e-6, 352e-6, 1e-6
"""A step; a model; a model and a number; an acknowledgement, which takes 1 us."""


@pytest.mark.parametrize(
    ("method", "round_s"),
    [
        ("d-psgd", STEP_S + 2 * PLUS_S + 2 * BIT_S),
        ("d-psgd, on_lost_message: keep-own-weight", STEP_S + 2 * PLUS_S),
        ("d-psgd, on_lost_message: keep-own-weight, order: paper", STEP_S),
        ("sgp", STEP_S + 2 * PLUS_S + 2 * BIT_S),
        ("gossip", STEP_S + 2 * MODEL_S + 2 * BIT_S),
        ("matcha, budget: 1", STEP_S + 2 * MODEL_S + 2 * BIT_S),
        ("ad-psgd", STEP_S + 2 * MODEL_S),
    ],
)
def test_a_round_of_two_lasts_as_long_as_its_messages(method: str, round_s: float) -> None:
    """Both make a step at once and then take turns on the air; in the paper's order they send meanwhile."""
    fed = run_small(*TWO, f"algorithm={{kind: {method}, lr: 0.1, batch_size: null}}", "stop.rounds=2")
    rounds = fed.ledger.frame("rounds")

    assert rounds["ended_s"].tolist() == pytest.approx([round_s, 2 * round_s], abs=1e-12)


@pytest.mark.parametrize(
    ("deadline_s", "trained", "used"), [(7e-4, 0, 0), (1.4e-3, 2, 0), (1.4245e-3, 2, 0), (1.5e-3, 2, 2)]
)
def test_a_deadline_cuts_what_is_not_done(deadline_s: float, trained: int, used: int) -> None:
    """Before the step; before the second model; before its acknowledgement; after all."""
    late = f"algorithm={{kind: d-psgd, lr: 0.1, batch_size: null, deadline_s: {deadline_s}}}"
    fed = run_small(*TWO, late, "stop.rounds=1")

    assert fed.ledger.rounds.column("arrived").tolist() == [trained]
    assert fed.ledger.series["mixing"][0]["used"] == used
    assert not any(verify(fed.ledger, frozenset({"sidelink"})).values())


def test_edges_of_one_direction_are_for_sgp_alone() -> None:
    """On a directed ring it mixes, and the others find nobody."""
    links = sidelink(ring(4), directed=True)
    for kind in ("sgp", "d-psgd", "gossip", "matcha", "ad-psgd"):
        fed = run_small(links, f"algorithm={{kind: {kind}, lr: 0.1, batch_size: null}}", "stop.rounds=2")
        assert (fed.ledger.sent_bit[2] > 0) == (kind == "sgp")


def test_a_slow_device_holds_up_nobody_in_ad_psgd() -> None:
    """One needs ten times as long as the others, whose updates fill the rounds; its own steps get stale."""
    speed = "devices.speed={kind: list, flop_per_s: [1e6, 1e6, 1e6, 1e5]}"
    fed = run_small(sidelink(ring(4)), speed, "algorithm={kind: ad-psgd, lr: 0.1, batch_size: null}", "stop.rounds=10")
    computes = fed.ledger.frame("computes")["device"].value_counts()
    series = fed.ledger.series["averaging"]

    assert fed.ledger.rounds.column("ended_ns")[-1] < 10 * 7.2e6
    assert computes[3] < computes[1] / 3
    assert max(row["staleness"] for row in series) >= 3
    assert sum(row["averages"] for row in series) == sum(row["exchanges"] for row in series) > 10


def test_ad_psgd_uses_edges_between_an_even_and_an_odd_number() -> None:
    """Of four devices, all with all, those with both numbers even or both odd send each other nothing."""
    links = sidelink(complete(4))
    fed = run_small(links, "algorithm={kind: ad-psgd, lr: 0.1, batch_size: null}", "stop.rounds=20")
    sent = fed.ledger.frame("transfers")

    assert set(zip(sent["sender"], sent["receiver"], strict=True)) == {
        (0, 1), (1, 0), (1, 2), (2, 1), (2, 3), (3, 2), (0, 3), (3, 0)
    }  # fmt: skip


def test_staleness_counts_the_averages_amid_the_steps_of_a_device() -> None:
    """Device 1 needs 7.2 ms a step, device 0 0.6 ms and 0.64 ms for an exchange: its answers amid a step."""
    speed = "devices.speed={kind: list, flop_per_s: [1.2e6, 1e5]}"
    local = "algorithm={kind: ad-psgd, lr: 0.1, batch_size: null}"
    fed = run_small("devices.count=2", "data.n_samples=40", sidelink([(0, 1)]), speed, local, "stop.rounds=40")
    frames, series = fed.ledger.frames(), fed.ledger.series["averaging"]
    answers = frames["transfers"].query("sender == 1 and loss_reason == ''")["ended_s"]
    steps = frames["computes"].query("device == 1")
    amid = [((answers > row.started_s) & (answers < row.ended_s)).sum() for row in steps.itertuples()]
    rounds = frames["rounds"]
    ends = [int((rounds["ended_s"] < end_s).sum()) for end_s in steps["ended_s"]]
    known = {t: n for t, n, stopped in zip(ends, amid, steps["stopped"], strict=True) if not stopped}

    assert len(known) > 3
    assert max(known.values()) > 2
    assert {t: row["staleness"] for t, row in enumerate(series) if row["staleness"]} == known


# ---- settings, evaluation --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["ad-psgd", "d-psgd", "gossip", "matcha", "sgp"])
def test_a_topology_is_required(kind: str) -> None:
    """Without a sidelink, or without a graph on it, devices have no neighbours: refused before the run."""
    method = f"algorithm={{kind: {kind}, lr: 0.1}}"
    for got, more in (
        ("no sidelink", []),
        ("a sidelink without one", ["network.sidelink={channel: {include: ideal}}"]),
    ):
        told = dict(small_scenario(method, *more).contradictions())
        assert told[("algorithm", "kind")] == (
            f"devices send to their neighbours in network.sidelink.topology, got {got}; give one"
        )


def test_consensus_is_for_devices_with_models_of_their_own() -> None:
    """FedAvg has one model."""
    assert ("evaluation", "consensus") in dict(small_scenario("evaluation.consensus=true").contradictions())


def test_the_mean_model_is_scored_and_the_distance_to_it_recorded() -> None:
    """Loss of the mean of those that have samples, on the whole test set; per device its own loss and distance."""
    settings = (
        *SKEWED,
        sidelink(HOUSE),
        peers("d-psgd"),
        "stop.rounds=2",
        "partition={kind: dirichlet, alpha: 0.05, min_samples: 0}",
        "devices.count=12",
        "evaluation={consensus: true, per_device: true}",
    )
    fed = small_federation(*settings)
    models = models_of(fed, *settings)
    has = fed.task.n_samples > 0
    mean = models[has].mean(0)
    far = np.linalg.norm(models - mean, axis=1)
    expected = fed.task.score(torch.tensor(mean, dtype=torch.float32), per_device=False).pooled
    own = fed.task.score_own([torch.tensor(x, dtype=torch.float32) for x in models], per_device=True).by_device
    assert own is not None
    frames = fed.ledger.frames()
    row, devices = frames["evaluations"].iloc[-1], frames["device_evaluations"]
    last = devices[devices["round"] == 2]

    assert not has.all()
    assert row["loss"] == pytest.approx(expected.loss, rel=1e-5)
    assert row["accuracy"] == expected.accuracy
    assert row["consensus_distance"] == pytest.approx(np.sqrt((far[has] ** 2).mean()), rel=1e-4)
    assert last["consensus_distance"].to_numpy() == pytest.approx(far[last["device"]], rel=1e-3, abs=1e-6)
    assert last["loss"].to_numpy() == pytest.approx(own.loss[last["device"]], rel=1e-5)
    each = [fed.task.score(torch.tensor(x, dtype=torch.float32), per_device=False).pooled.accuracy for x in models]
    assert last["local_model_accuracy"].to_numpy() == pytest.approx(np.array(each)[last["device"]])
    assert row["local_model_accuracy"] == pytest.approx(np.array(each)[has].mean())
    assert frames["evaluations"]["consensus_distance"].iloc[0] == pytest.approx(0, abs=1e-12)


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


def test_imbalance_is_the_worst_column() -> None:
    """An edge of one direction takes its weight from one column and gives it to another."""
    graph = graph_of(3, [(0, 1), (1, 0), (1, 2)], directed=True)
    weights = np.array([0.25, 0.25, 0.5])

    assert imbalance(graph, weights) == pytest.approx(np.abs(matrix(graph, weights).sum(0) - 1).max())
    assert imbalance(graph, weights) == 0.5


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
