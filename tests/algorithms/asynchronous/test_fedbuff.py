"""FedBuff against a simulator of a few lines, its story at exact times, and its synchronous limit."""

from __future__ import annotations

import heapq
from typing import Any

import pytest
import torch
from torch import Tensor

from fednet_emu.algorithms.asynchronous.staleness import Constant, Polynomial, Staleness
from fednet_emu.federation import accumulated, moved_by_sum
from fednet_emu.federation.federation import Federation
from fednet_emu.records.laws.verify import verify
from fednet_emu.testing import run_small
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


def fedbuff(**settings: Any) -> str:
    """The setting of the algorithm."""
    more = ", ".join(f"{key}: {value}" for key, value in settings.items())
    return f"algorithm={{kind: fedbuff, {LOCAL}, {more}}}"


def simulated(fed: Federation, size: int, lr: float, s: Staleness, steps: int) -> tuple[Tensor, list[int]]:
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
def test_it_is_the_algorithm_of_the_paper(more: dict[str, Any], s: Staleness, engine: str) -> None:
    """Ten steps of three updates each, of four devices of different speeds, are those of a queue and the formula."""
    settings = (*IDEAL, fedbuff(buffer_size=3, **more), "stop.rounds=10", f"training.engine={engine}")
    w, fed = trained(*settings, "evaluation.every_rounds=4")
    expected, stale = simulated(fed, 3, more.get("server_lr", 1.0), s, 10)

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


def test_one_update_at_a_time_is_a_step_along_it() -> None:
    """With K = 1 and concurrency 1 each device goes on from where the one before it ended."""
    w, fed = trained(*IDEAL, fedbuff(buffer_size=1, concurrency=1), "stop.rounds=8")
    expected, asked = fed.task.model.initial().double(), [0] * 4
    for k in fed.ledger.frames()["computes"]["device"].tolist():
        expected = descended(fed, k, asked[k], expected)
        asked[k] += 1

    assert close(w, expected)


def test_the_step_by_hand() -> None:
    """From (1, 1): 0.5 times the sum of 0.5 (2, 4) and 0.25 (4, 0)."""
    updates = [torch.tensor([2.0, 4.0]), torch.tensor([4.0, 0.0])]

    assert accumulated(moved_by_sum(torch.ones(2), [0.5, 0.25], 0.5), updates).tolist() == [2.0, 2.0]


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
    downlinks = frames["transfers"].query("kind == 'downlink'")
    told = [(row["step"], row["device"], row["staleness"]) for row in fed.ledger.series["activations"]]
    came_s = [row["arrived_s"] for row in fed.ledger.series["activations"]]

    assert frames["rounds"]["ended_s"].tolist() == pytest.approx([2.08e-3, 4.08e-3], abs=1e-12)
    assert downlinks["started_s"].tolist()[:3] == pytest.approx([0, 1.36e-3, 2.08e-3], abs=1e-12)
    assert downlinks["payload"].tolist()[0] == downlinks["payload"].tolist()[1] != downlinks["payload"].tolist()[2]
    assert came_s == pytest.approx([1.36e-3, 2.08e-3, 2.72e-3, 4.08e-3], abs=1e-12)
    assert told == [(1, 0, 0), (1, 1, 0), (2, 0, 1), (2, 0, 0)]


def test_what_is_lost_is_not_counted() -> None:
    """Half of the uploads are lost: every step still has its three updates, and those that were lost are told."""
    loss = "network.uplink.loss={kind: random, probability: 0.5}"
    fed = run_small(fedbuff(buffer_size=3), loss, "stop.rounds=20", timing_only=True)
    rounds = fed.ledger.frames()["rounds"]

    assert set(rounds["arrived"]) == {3}
    assert 100 <= rounds["invited"].sum() <= 150
    assert not any(verify(fed.ledger, frozenset({"uplink", "downlink"})).values())
