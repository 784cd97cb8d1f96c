"""FedAsync, FedBuff, their dispatcher and the staleness of updates."""

from __future__ import annotations

import heapq
import weakref
from collections import Counter
from typing import Any

import pytest
from torch import Tensor

from fednet_emu.algorithms.asynchronous.staleness import Constant, Hinge, Polynomial, Staleness
from fednet_emu.federation.federation import Federation
from fednet_emu.records.laws import verify
from fednet_emu.testing import run_small, small_federation, small_scenario
from tests.algorithms.asynchronous.by_hand import (
    FLOP,
    FOUR_SPEEDS,
    INSTANT_LINKS,
    LOCAL,
    SPEEDS,
    close,
    descended,
    trained,
)
from tests.algorithms.small import ENGINES

IDEAL = (SPEEDS, *INSTANT_LINKS)


def fedasync(**settings: Any) -> str:
    more = ", ".join(f"{key}: {value}" for key, value in settings.items())
    return f"algorithm={{kind: fedasync, {LOCAL}, {more}}}"


def simulated(fed: Federation, alpha: float, s: Staleness, rho: float, versions: int) -> tuple[Tensor, list[int]]:
    """Algorithm 1 with all four devices in flight: who has the least time goes next. The last w, and all staleness."""
    w, stale = fed.task.model.initial().double(), []
    given, asked = [(w, 0)] * 4, [0] * 4
    queue = [(FLOP / speed, k) for k, speed in enumerate(FOUR_SPEEDS)]
    heapq.heapify(queue)
    for t in range(versions):
        at_s, k = heapq.heappop(queue)
        start, version = given[k]
        alpha_t = alpha * s.weight(t - version)
        w = (1 - alpha_t) * w + alpha_t * descended(fed, k, asked[k], start, rho)
        stale.append(t - version)
        given[k], asked[k] = (w, t + 1), asked[k] + 1
        heapq.heappush(queue, (at_s + FLOP / FOUR_SPEEDS[k], k))
    return w, stale


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(
    ("staleness", "s", "rho"),
    [
        ("constant", Constant(), 0.0),
        ("{kind: polynomial, a: 0.5}", Polynomial(a=0.5), 0.3),
        ("{kind: hinge, a: 2, b: 1}", Hinge(a=2, b=1), 0.0),
    ],
)
def test_it_is_the_algorithm_of_the_paper(staleness: str, s: Staleness, rho: float, engine: str) -> None:
    """Twenty updates of four devices of different speeds are those of a queue and the formula."""
    settings = fedasync(alpha=0.6, staleness=staleness, rho=rho)
    w, fed = trained(*IDEAL, settings, "stop.rounds=20", f"training.engine={engine}", "evaluation.every_rounds=7")
    expected, stale = simulated(fed, 0.6, s, rho, 20)

    assert [row["staleness"] for row in fed.ledger.series["activations"]] == stale
    assert max(stale) >= 6
    assert close(w, expected)


def test_one_at_a_time_with_alpha_1_is_sequential_training() -> None:
    """With concurrency 1 each device goes on from where the one before it ended."""
    w, fed = trained(*IDEAL, fedasync(alpha=1, concurrency=1), "stop.rounds=12")
    expected, asked = fed.task.model.initial().double(), [0] * 4
    order = fed.ledger.frame("computes")["device"].tolist()
    for k in order:
        expected = descended(fed, k, asked[k], expected)
        asked[k] += 1

    assert len(order) == 12
    assert set(order) == {0, 1, 2, 3}
    assert close(w, expected)


# ---- what happens when -----------------------------------------------------------------------------------------------

TWO = (
    "devices.count=2",
    "data.n_samples=40",
    "devices.speed={kind: list, flop_per_s: [1e6, 0.5e6]}",
    "algorithm={kind: fedasync, alpha: 0.5, lr: 0.1, batch_size: null, local_steps: 1}",
)


def test_the_story_of_three_updates() -> None:
    """Messages take 320 us, computing 720 and 1440: version 1 is of dev-0, 2 of dev-1 and one stale, 3 of dev-0."""
    fed = run_small(*TWO, timing_only=True)
    frames = fed.ledger.frames()
    transfers = frames["transfers"]
    downlinks = transfers[transfers["direction"] == "downlink"]

    assert frames["rounds"]["ended_s"].tolist() == pytest.approx([1.36e-3, 2.08e-3, 2.72e-3], abs=1e-12)
    assert frames["rounds"][["invited", "arrived"]].values.tolist() == [[1, 1]] * 3
    assert downlinks["started_s"].tolist() == pytest.approx([0, 1.36e-3, 2.08e-3], abs=1e-12)
    assert [(row["device"], row["staleness"]) for row in fed.ledger.series["activations"]] == [(0, 0), (1, 1), (0, 1)]


def test_who_returns_is_given_the_latest_model() -> None:
    """Dev-1 leaves while it computes: its answer is lost, and at its return at 10 ms it is asked with what is new then.

    Meanwhile dev-0 made version 1 at 1.36 ms and one more every 1.36 ms.
    """
    away = "devices.availability={kind: windows, devices: {1: [[0, 0.001], [0.01, 1]]}}"
    fed = run_small(*TWO, away, "stop.rounds=12", timing_only=True)
    frames = fed.ledger.frames()
    downlinks = frames["transfers"].query("direction == 'downlink'")
    uplinks = frames["transfers"].query("direction == 'uplink' and sender == 1")
    first = next(row for row in fed.ledger.series["activations"] if row["device"] == 1)

    assert uplinks["loss_reason"].tolist()[:1] == ["away"]
    assert 0.01 in downlinks["started_s"].round(12).tolist()
    assert first["arrived_s"] == pytest.approx(12.08e-3, abs=0.7e-3)
    assert first["staleness"] <= 2
    assert frames["rounds"]["invited"].sum() == frames["rounds"]["arrived"].sum() + 1


def test_who_is_late_makes_room_for_another() -> None:
    """With a deadline of 2 ms, dev-1, which needs minutes, is cancelled and asked anew, and never heard."""
    slow = "devices.speed={kind: list, flop_per_s: [1e6, 1]}"
    fed = run_small(*TWO, slow, "algorithm.deadline_s=0.002", "stop.rounds=30", timing_only=True)
    frames = fed.ledger.frames()
    late = frames["computes"].query("device == 1")

    assert {row["device"] for row in fed.ledger.series["activations"]} == {0}
    assert set(late["stopped"][:-1]) == {"deadline"}
    assert (late["ended_s"] - late["started_s"]).max() <= 0.002
    assert 15 <= len(late) <= 21


@pytest.mark.parametrize("concurrency", [1, 2, 3, 4])
def test_as_many_devices_as_asked_for_are_in_flight(concurrency: int) -> None:
    """At any time so many computations are under way, of different devices, once the links take no time."""
    fed = run_small(*IDEAL, fedasync(alpha=0.5, concurrency=concurrency), "stop.rounds=60", timing_only=True)
    computes = fed.ledger.frame("computes")
    instants = computes["ended_s"] - 1e-6
    under_way = [((computes["started_s"] < at) & (at < computes["ended_s"])).sum() for at in instants]

    assert set(under_way) == {concurrency}
    assert set(computes["device"]) == {0, 1, 2, 3}


# ---- memory and batches ----------------------------------------------------------------------------------------------


def test_updates_of_devices_in_flight_train_together() -> None:
    """Forty updates with four devices in flight need about ten wavefronts, not forty."""
    _, fed = trained(*INSTANT_LINKS, fedasync(alpha=0.5), "stop.rounds=40", "evaluation.every_rounds=40")

    assert fed.graph.statistics.jobs >= 40
    assert fed.graph.statistics.wavefronts <= 12


def fedbuff(**settings: Any) -> str:
    more = ", ".join(f"{key}: {value}" for key, value in settings.items())
    return f"algorithm={{kind: fedbuff, {LOCAL}, {more}}}"


def simulated_of_fedbuff(fed: Federation, size: int, lr: float, s: Staleness, steps: int) -> tuple[Tensor, list[int]]:
    """Algorithm 1 with all four devices in flight: who has the least time goes next. The last w, and all staleness."""
    w, t, buffered, total, stale = fed.task.model.initial().double(), 0, 0, 0.0, []
    given, asked = [(w, 0)] * 4, [0] * 4
    queue = [(FLOP / speed, k) for k, speed in enumerate(FOUR_SPEEDS)]
    heapq.heapify(queue)
    while t < steps:
        at_s, k = heapq.heappop(queue)
        start, version = given[k]
        total = total + s.weight(t - version) * (descended(fed, k, asked[k], start) - start)
        stale.append(t - version)
        buffered += 1
        if buffered == size:
            w, t, buffered, total = w + lr * total / size, t + 1, 0, 0.0
        given[k], asked[k] = (w, t), asked[k] + 1
        heapq.heappush(queue, (at_s + FLOP / FOUR_SPEEDS[k], k))
    return w, stale


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(
    ("more", "s"),
    [({}, Polynomial(a=0.5)), ({"staleness": "constant"}, Constant()), ({"server_lr": 0.7}, Polynomial(a=0.5))],
)
def test_it_is_the_algorithm_of_the_paper_fedbuff(more: dict[str, Any], s: Staleness, engine: str) -> None:
    """Ten steps of three updates each, of four devices of different speeds, are those of a queue and the formula."""
    settings = (*IDEAL, fedbuff(buffer_size=3, **more), "stop.rounds=10", f"training.engine={engine}")
    w, fed = trained(*settings, "evaluation.every_rounds=4")
    expected, stale = simulated_of_fedbuff(fed, 3, more.get("server_lr", 1.0), s, 10)

    assert [row["staleness"] for row in fed.ledger.series["activations"]] == stale
    assert len(stale) == 30
    assert max(stale) >= 2
    assert close(w, expected)


def test_everybody_at_equal_speed_is_federated_averaging() -> None:
    """With K = concurrency = all, and answers that come together, it is synchronous FedAvg of equal weights."""
    together = ("network.uplink.access=ofdma", "stop.rounds=6")
    fedavg = f"algorithm={{kind: fedavg, cohort: 4, weighting: uniform, server_lr: 0.8, {LOCAL}}}"
    w, fed = trained(*together, fedbuff(buffer_size=4, concurrency=4, server_lr=0.8))
    expected, synchronous = trained(*together, fedavg)

    assert fed.clock.now == synchronous.clock.now
    assert fed.ledger.sent_bit == synchronous.ledger.sent_bit
    assert {row["staleness"] for row in fed.ledger.series["activations"]} == {0}
    assert close(w, expected)


def test_the_story_of_two_steps() -> None:
    """Messages take 320 us, computing 720 of dev-0 and 1440 of dev-1; every second answer makes a step.

    Dev-0 answers at 1.36 ms, and is asked again with the model that is still the first one; dev-1 at 2.08 ms, which
    makes the first step; dev-0 at 2.72 ms, stale by one, is asked with the second model and answers at 4.08 ms.
    """
    fed = run_small(
        "devices.count=2",
        "data.n_samples=40",
        "devices.speed={kind: list, flop_per_s: [1e6, 0.5e6]}",
        "algorithm={kind: fedbuff, buffer_size: 2, lr: 0.1, batch_size: null, local_steps: 1}",
        "stop.rounds=2",
        timing_only=True,
    )
    frames = fed.ledger.frames()
    downlinks = frames["transfers"].query("direction == 'downlink'")
    told = [(row["step"], row["device"], row["staleness"]) for row in fed.ledger.series["activations"]]
    came_s = [row["arrived_s"] for row in fed.ledger.series["activations"]]

    assert frames["rounds"]["ended_s"].tolist() == pytest.approx([2.08e-3, 4.08e-3], abs=1e-12)
    assert downlinks["started_s"].tolist()[:3] == pytest.approx([0, 1.36e-3, 2.08e-3], abs=1e-12)
    assert downlinks["value_id"].tolist()[0] == downlinks["value_id"].tolist()[1] != downlinks["value_id"].tolist()[2]
    assert came_s == pytest.approx([1.36e-3, 2.08e-3, 2.72e-3, 4.08e-3], abs=1e-12)
    assert told == [(1, 0, 0), (1, 1, 0), (2, 0, 1), (2, 0, 0)]


def test_what_is_lost_is_not_counted() -> None:
    """Half of the uploads are lost: every step still has its three updates, and those that were lost are told."""
    loss = "network.uplink.message_loss={kind: random, probability: 0.5}"
    fed = run_small(fedbuff(buffer_size=3), loss, "stop.rounds=20", timing_only=True)
    rounds = fed.ledger.frame("rounds")

    assert set(rounds["arrived"]) == {3}
    assert 100 <= rounds["invited"].sum() <= 150
    assert not any(verify(fed.ledger, frozenset({"uplink", "downlink"})).values())


WORK = "lr: 0.1, batch_size: null, local_steps: 1"
TEN = ("devices.count=10", "data.n_samples=200")


def dispatched(concurrency: int, more: str = "") -> str:
    """The setting of FedAsync with so many devices in flight."""
    return f"algorithm={{kind: fedasync, alpha: 0.5, concurrency: {concurrency}, {WORK}, {more}}}"


def test_the_next_one_is_drawn_uniformly() -> None:
    """With three of ten equal devices in flight for 3,000 updates, counts stay within five deviations of 300."""
    fed = run_small(*TEN, *INSTANT_LINKS, dispatched(3), "stop.rounds=3000", timing_only=True)
    counts = Counter(fed.ledger.computes.column("device").tolist())

    assert set(counts) == set(range(10))
    assert all(abs(count - 300) < 5 * 17 for count in counts.values())


def test_another_seed_asks_others() -> None:
    """The draw is the seed's."""
    first, other = (
        run_small(*TEN, dispatched(3), f"seed={seed}", "stop.rounds=20", timing_only=True) for seed in (0, 1)
    )

    assert first.ledger.computes.column("device").tolist() != other.ledger.computes.column("device").tolist()


def test_more_in_flight_than_there_are_is_everybody() -> None:
    """With room for 50 all ten are asked at once, each once, by one broadcast."""
    fed = run_small(*TEN, dispatched(50), "stop.rounds=1", timing_only=True)
    transfers = fed.ledger.frame("transfers")

    assert transfers.query("direction == 'downlink' and started_s == 0")["receivers"].tolist() == [10]
    assert small_scenario(*TEN, dispatched(50)).algorithm.participants(10) == 10


def test_nobody_waits_while_somebody_is_idle_and_there() -> None:
    """Devices come and go: two are in flight whenever two of four are there, but for the time that answers take."""
    away = "devices.availability={kind: windows, devices: {0: [[0, 0.02]], 1: [[0, 0.01], [0.03, 1]], 2: [[0, 0.02]]}}"
    fed = run_small(dispatched(2), away, "stop.rounds=60", "stop.simulated_s=0.06", timing_only=True)
    computes = fed.ledger.frame("computes")
    late = computes.query("started_s > 0.0205")

    assert set(late["device"]) == {1, 3}
    assert late.query("device == 1")["started_s"].min() == pytest.approx(0.03, abs=0.7e-3)
    assert late.query("device == 3")["started_s"].diff().max() < 2.1e-3


def test_all_that_comes_in_one_instant_is_known_to_those_asked_then() -> None:
    """Four equal devices answer at once: four versions, and then one broadcast of the last one to all four."""
    fed = run_small(dispatched(4), "network.uplink.access=ofdma", "stop.rounds=8", timing_only=True)
    frames = fed.ledger.frames()

    assert frames["rounds"]["ended_s"].nunique() == 2
    assert frames["transfers"].query("direction == 'downlink'")["receivers"].tolist()[:2] == [4, 4]
    assert [row["staleness"] for row in fed.ledger.series["activations"]] == [0, 1, 2, 3] * 2


@pytest.mark.parametrize(
    "kind", ["fedasync, alpha: 0.5", "fedbuff, buffer_size: 2", "safa, selected_fraction: 0.5, lag_tolerance: 9"]
)
def test_an_old_model_lives_no_longer_than_its_training(kind: str) -> None:
    """Three fast devices never keep more than four versions, and one that needs minutes keeps none."""
    slow = "devices.speed={kind: list, flop_per_s: [1e6, 1e6, 1e6, 1]}"
    settings = (*INSTANT_LINKS, f"algorithm={{kind: {kind}, {WORK}}}", slow, "stop.rounds=30")
    fed = small_federation(*settings)
    models: list[weakref.ref[Any]] = []
    alive: list[int] = []

    def count(fed: Federation) -> None:
        models.append(weakref.ref(fed.latest))
        alive.append(sum(model() is not None for model in models))

    fed.observers.append(count)
    fed.run(small_scenario(*settings).algorithm)

    assert len(alive) == 30
    assert 2 <= max(alive) <= 4


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (Constant(), [1, 1, 1, 1, 1]),
        (Polynomial(a=0.5), [1, 2**-0.5, 3**-0.5, 0.5, 0.1]),
        (Polynomial(a=2), [1, 1 / 4, 1 / 9, 1 / 16, 1e-4]),
        (Hinge(a=10, b=2), [1, 1, 1, 1 / 11, 1 / 971]),
        (Hinge(a=0.5, b=0), [1, 1 / 1.5, 1 / 2, 1 / 2.5, 1 / 50.5]),
    ],
)
def test_weights_by_hand(function: Staleness, expected: list[float]) -> None:
    """At staleness 0, 1, 2, 3 and 99."""
    assert [function.weight(tau) for tau in (0, 1, 2, 3, 99)] == pytest.approx(expected, rel=1e-12)
