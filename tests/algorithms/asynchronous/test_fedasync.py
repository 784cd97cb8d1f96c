"""FedAsync against a simulator of a few lines, its story at exact times, and its limits."""

from __future__ import annotations

import heapq
from typing import Any

import pytest
import torch
from torch import Tensor

from fednet_emu.algorithms.asynchronous.staleness import Constant, Hinge, Polynomial, Staleness
from fednet_emu.errors import Deadlock
from fednet_emu.federation.federation import Federation
from fednet_emu.testing import run_small, small_federation
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
    """The setting of the algorithm."""
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
    order = fed.ledger.frames()["computes"]["device"].tolist()
    for k in order:
        expected = descended(fed, k, asked[k], expected)
        asked[k] += 1

    assert len(order) == 12
    assert set(order) == {0, 1, 2, 3}
    assert close(w, expected)


def test_the_proximal_term_holds_devices_back() -> None:
    """With a strong rho a device stays nearer to the model that it was given."""
    start = small_federation().task.model.initial().double()
    free, held = (trained(*IDEAL, fedasync(alpha=1, concurrency=1, rho=rho), "stop.rounds=1")[0] for rho in (0.0, 3.0))

    assert (held - start).norm() < 0.9 * (free - start).norm()


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
    downlinks = transfers[transfers["kind"] == "downlink"]

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
    downlinks = frames["transfers"].query("kind == 'downlink'")
    uplinks = frames["transfers"].query("kind == 'uplink' and sender == 1")
    first = next(row for row in fed.ledger.series["activations"] if row["device"] == 1)

    assert uplinks["lost"].tolist()[:1] == ["away"]
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


def test_a_run_in_which_nothing_arrives_ends() -> None:
    """When every answer is lost, the run ends with an error that says so, instead of never."""
    with pytest.raises(Deadlock, match="the server waits for an answer; 1000 in a row were lost"):
        run_small(*TWO, "network.uplink.loss={kind: random, probability: 0.9999999}", timing_only=True)


@pytest.mark.parametrize("concurrency", [1, 2, 3, 4])
def test_as_many_devices_as_asked_for_are_in_flight(concurrency: int) -> None:
    """At any time so many computations are under way, of different devices, once the links take no time."""
    fed = run_small(*IDEAL, fedasync(alpha=0.5, concurrency=concurrency), "stop.rounds=60", timing_only=True)
    computes = fed.ledger.frames()["computes"]
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


def test_the_server_mixes_exactly_at_both_ends() -> None:
    """With weight 1 the new model is that of the device, with 0 the old one, bit for bit."""
    w, w_k = torch.randn(50), torch.randn(50)

    assert torch.equal(torch.lerp(w, w_k, 1.0), w_k)
    assert torch.equal(torch.lerp(w, w_k, 0.0), w)
