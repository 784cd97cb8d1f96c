"""The five methods in the emulator: against loops of their own, fixed points to the digit, times, losses, laws."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch

from fednet_emu.federation.federation import Federation
from fednet_emu.learning.graph.deferred import Deferred
from fednet_emu.learning.graph.jobs import TrainData
from fednet_emu.records.laws.verify import verify
from fednet_emu.testing import run_small, small_federation, small_scenario
from tests.algorithms.decentralised import oracle
from tests.algorithms.decentralised.graphs import complete, ring, sidelink
from tests.algorithms.heterogeneous.oracle import SKEWED, Vector, algorithm
from tests.algorithms.small import ENGINES

HOUSE = [*ring(6), (0, 3), (1, 4)]
"""Six devices with two or three neighbours each."""
ONE_WAY = [*ring(6), (0, 2), (3, 1), (5, 3)]
"""A directed ring with three chords."""
LOSSY = "loss: {kind: random, probability: 0.25}"
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
    "d-psgd, keep-home": (
        peers("d-psgd", loss="keep-home"),
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
    assert (its.messages["lost"] == "erased").any()
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
    losses = [run.ledger.frames()["evaluations"]["loss"].to_numpy() for run in (fed, server)]
    np.testing.assert_allclose(losses[0], losses[1], rtol=1e-5)
    assert fed.ledger.frames()["evaluations"]["consensus"].max() < 1e-6


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
    one = f"algorithm={{kind: d-psgd, lr: 0.05, batch_size: null, order: {order}, loss: keep-home}}"
    fed, found = quadratics(c, sidelink(ring(16)), one, "stop.rounds=110", "training.engine=batched")
    w = (np.eye(16) + np.roll(np.eye(16), 1, 0) + np.roll(np.eye(16), -1, 0)) / 3
    if order == "paper":
        fixed = np.linalg.solve(1.1 * np.eye(16) - w, 0.1 * c)
    else:
        fixed = np.linalg.solve(np.eye(16) - 0.9 * w, 0.1 * w @ c)
    evaluations = fed.ledger.frames()["evaluations"]

    np.testing.assert_allclose(found, fixed, rtol=0, atol=1e-6)
    assert found[0] == pytest.approx(first, abs=1e-6)
    assert found.max() - found.min() == pytest.approx(spread, abs=2e-6)
    assert found.mean() == pytest.approx(c.mean(), abs=1e-6)
    assert evaluations["consensus"].iloc[-1] == pytest.approx(fixed.std(), abs=1e-6)


@pytest.mark.parametrize(("rounds", "error"), [(1, 3.0), (10, 0.147347270332), (30, 0.000418789561)])
def test_push_sum_in_the_air(rounds: int, error: float) -> None:
    """Five devices whose first step leads to 1, 2, 3, 4 and 10, and whose steps are next to nothing from then on."""
    step = "lr: 0.5, batch_size: null, lr_schedule: {kind: step, every_rounds: 1, gamma: 1e-12}"
    links, kind = sidelink(OF_FIVE, directed=True), f"algorithm={{kind: sgp, {step}}}"
    fed, found = quadratics(np.array([1.0, 2, 3, 4, 10]), links, kind, f"stop.rounds={rounds}")
    series = fed.ledger.series["mixing"]

    assert np.abs(found - 4).max() == pytest.approx(error, rel=1e-4, abs=2e-6)
    assert [row["mass"] for row in series] == pytest.approx([1.0] * rounds, abs=1e-12)
    assert rounds == 1 or series[-1]["least_weight"] < 0.7


# ---- losses, times ---------------------------------------------------------------------------------------------------


def test_losses_keep_the_mean_where_both_drop_what_either_lacks() -> None:
    """Steps of nothing from the second round on: `drop-both` leaves the mean where it is, `keep-home` does not."""
    step = "lr: 0.5, batch_size: null, lr_schedule: {kind: step, every_rounds: 1, gamma: 1e-12}"
    links, c = sidelink(ring(8), more="loss: {kind: random, probability: 0.4}"), np.arange(8.0)
    means, worst = {}, {}
    for kind in ("d-psgd, loss: drop-both", "d-psgd, loss: keep-home", "gossip", "matcha", "sgp"):
        fed, found = quadratics(c, links, f"algorithm={{kind: {kind}, {step}}}", "stop.rounds=12")
        means[kind] = found.mean()
        rows = fed.ledger.series["mixing"]
        worst[kind] = max(row.get("imbalance", 0.0) for row in rows)
        assert sum(row["used"] for row in rows) < sum(row["edges"] for row in rows)
        assert all(abs(row.get("mass", 1.0) - 1) < 1e-12 for row in rows)
    drifts = means.pop("d-psgd, loss: keep-home")
    del means["sgp"]  # its ratios have another mean than its numerators until they agree

    assert list(means.values()) == pytest.approx([3.5] * 3, abs=1e-5)
    assert abs(drifts - 3.5) > 0.01
    assert worst["d-psgd, loss: keep-home"] > 0.3
    assert worst["d-psgd, loss: drop-both"] == worst["gossip"] == worst["matcha"] == 0.0


TWO = ("devices.count=2", "data.n_samples=40", sidelink([(0, 1)]))
STEP_S, MODEL_S, PLUS_S, BIT_S = 720e-6, 320e-6, 352e-6, 1e-6
"""A step; a model; a model and a number; an acknowledgement, which takes 1 us."""


@pytest.mark.parametrize(
    ("method", "round_s"),
    [
        ("d-psgd", STEP_S + 2 * PLUS_S + 2 * BIT_S),
        ("d-psgd, loss: keep-home", STEP_S + 2 * PLUS_S),
        ("d-psgd, loss: keep-home, order: paper", STEP_S),
        ("sgp", STEP_S + 2 * PLUS_S + 2 * BIT_S),
        ("gossip", STEP_S + 2 * MODEL_S + 2 * BIT_S),
        ("matcha, budget: 1", STEP_S + 2 * MODEL_S + 2 * BIT_S),
        ("ad-psgd", STEP_S + 2 * MODEL_S),
    ],
)
def test_a_round_of_two_lasts_as_long_as_its_messages(method: str, round_s: float) -> None:
    """Both make a step at once and then take turns on the air; in the paper's order they send meanwhile."""
    fed = run_small(*TWO, f"algorithm={{kind: {method}, lr: 0.1, batch_size: null}}", "stop.rounds=2")
    rounds = fed.ledger.frames()["rounds"]

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
    computes = fed.ledger.frames()["computes"]["device"].value_counts()
    series = fed.ledger.series["averaging"]

    assert fed.ledger.rounds.column("ended_ns")[-1] < 10 * 7.2e6
    assert computes[3] < computes[1] / 3
    assert max(row["staleness"] for row in series) >= 3
    assert sum(row["averages"] for row in series) == sum(row["exchanges"] for row in series) > 10


def test_ad_psgd_uses_edges_between_an_even_and_an_odd_number() -> None:
    """Of four devices, all with all, those with both numbers even or both odd send each other nothing."""
    links = sidelink(complete(4))
    fed = run_small(links, "algorithm={kind: ad-psgd, lr: 0.1, batch_size: null}", "stop.rounds=20")
    sent = fed.ledger.frames()["transfers"]

    assert set(zip(sent["sender"], sent["receiver"], strict=True)) == {
        (0, 1), (1, 0), (1, 2), (2, 1), (2, 3), (3, 2), (0, 3), (3, 0)
    }  # fmt: skip


def test_staleness_counts_the_averages_amid_the_steps_of_a_device() -> None:
    """Device 1 needs 7.2 ms a step, device 0 0.6 ms and 0.64 ms for an exchange: its answers amid a step."""
    speed = "devices.speed={kind: list, flop_per_s: [1.2e6, 1e5]}"
    local = "algorithm={kind: ad-psgd, lr: 0.1, batch_size: null}"
    fed = run_small("devices.count=2", "data.n_samples=40", sidelink([(0, 1)]), speed, local, "stop.rounds=40")
    frames, series = fed.ledger.frames(), fed.ledger.series["averaging"]
    answers = frames["transfers"].query("sender == 1 and lost == ''")["ended_s"]
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
    assert row["consensus"] == pytest.approx(np.sqrt((far[has] ** 2).mean()), rel=1e-4)
    assert last["consensus"].to_numpy() == pytest.approx(far[last["device"]], rel=1e-3, abs=1e-6)
    assert last["loss"].to_numpy() == pytest.approx(own.loss[last["device"]], rel=1e-5)
    each = [fed.task.score(torch.tensor(x, dtype=torch.float32), per_device=False).pooled.accuracy for x in models]
    assert last["own_accuracy"].to_numpy() == pytest.approx(np.array(each)[last["device"]])
    assert row["own_accuracy"] == pytest.approx(np.array(each)[has].mean())
    assert frames["evaluations"]["consensus"].iloc[0] == pytest.approx(0, abs=1e-12)
