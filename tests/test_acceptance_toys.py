"""Two algorithms of other families, written on the foundation as it is: asynchronous, and device to device."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from fednet_emu.federation import average
from fednet_emu.federation.device import Device
from fednet_emu.federation.federation import Federation
from fednet_emu.kernel.clock import Process
from fednet_emu.kernel.inbox import Inbox
from fednet_emu.kernel.streams import Streams
from fednet_emu.learning.graph.deferred import Deferred
from fednet_emu.learning.graph.jobs import SgdPlan
from fednet_emu.records.laws import verify
from fednet_emu.testing import run_small, small_federation, small_scenario

PLAN = SgdPlan(lr=0.1, steps=1)
SIDE_BY_SIDE = ("network.uplink.access=ofdma", "network.downlink.access=ofdma", "network.downlink.mode=unicast")
LOSSY = tuple(f"network.{way}.message_loss={{kind: random, probability: 0.3}}" for way in ("uplink", "downlink"))


# ---- asynchronous ----------------------------------------------------------------------------------------------------


class Asynchronous:
    """The server acts on the first `active` arrivals and restarts those workers at once; none gets staler than allowed.

    The fewer have arrived, the smaller the step towards them: all together count as in federated averaging.
    Workers whose messages are lost send again when `patient`, and fall silent otherwise.
    """

    def __init__(self, active: int, max_delay: int = 10**6, *, patient: bool = True) -> None:
        self.active, self.max_delay, self.patient = active, max_delay, patient

    def run(self, fed: Federation) -> Process:
        """The server: collect, average, restart."""
        inbox, w = fed.inbox(), fed.initial_model()
        idle, given = list(fed.devices()), dict.fromkeys(fed.devices(), 0)
        for t in fed.rounds():
            for k in idle:
                given[k] = t
                fed.start(self.worker(fed, k, w, t, inbox))
            overdue = frozenset(k.index for k, step in given.items() if t - step >= self.max_delay)
            arrived = yield inbox.collect(at_least=self.active, including=overdue)
            idle = [k for k, _ in arrived]
            part = len(idle) / fed.n_devices
            w = fed.accumulate(average, [w_k for _, w_k in arrived], w, [k.n_samples for k in idle], part)
            for k in idle:
                fed.ledger.record("staleness", step=t, worker=k.index, staleness=t - given[k])
            fed.end_of_round(w, invited=self.active, arrived=len(arrived))

    def worker(self, fed: Federation, k: Device, w: Deferred, t: int, inbox: Inbox) -> Process:
        got = yield from self.insist(lambda: fed.downlink(k, w))
        if not got.lost:
            trained = yield k.train(got.payload, PLAN, t)
            sent = yield from self.insist(lambda: fed.uplink(k, trained.params))
            if not sent.lost:
                inbox.put(k.index, (k, sent.payload))

    def insist(self, send: Callable[[], Any]) -> Process:
        sent = yield send()
        while sent.lost and self.patient:
            sent = yield send()
        return sent


def asynchronous(algorithm: Asynchronous, *changes: str, timing_only: bool = False) -> Federation:
    """Play it on three devices whose work takes 1, 2 and 4 ms; a message takes 0.32 ms, whoever else sends."""
    speeds = "devices.speed={kind: list, flop_per_s: [0.72e6, 0.36e6, 0.18e6]}"
    fed = small_federation(
        "devices.count=3", "data.n_samples=60", speeds, *SIDE_BY_SIDE, *changes, timing_only=timing_only
    )
    fed.run(algorithm)
    return fed


def collected(fed: Federation) -> list[tuple[float, list[tuple[int, int]]]]:
    """When the server stepped, in ms, and whose arrivals of which staleness it took."""
    frames = fed.ledger.frames()
    groups = dict(iter(frames["staleness"].groupby("step")))
    return [
        (
            round(row.ended_s * 1e3, 6),
            list(zip(groups[row.round - 1]["worker"], groups[row.round - 1]["staleness"], strict=True)),
        )
        for row in frames["rounds"].itertuples()
    ]


def test_the_first_arrivals_are_taken_when_they_come() -> None:
    """With S = 1 and cycles of 1.64, 2.64 and 4.64 ms, each step is an arrival, at its very time and staleness."""
    assert collected(asynchronous(Asynchronous(1), "stop.rounds=6")) == [
        (1.64, [(0, 0)]), (2.64, [(1, 1)]), (3.28, [(0, 1)]), (4.64, [(2, 3)]), (4.92, [(0, 1)]), (5.28, [(1, 3)]),
    ]  # fmt: skip


def test_the_server_waits_for_the_second_of_two() -> None:
    """With S = 2 a step comes with the second arrival, and takes both in the order in which they came."""
    assert collected(asynchronous(Asynchronous(2), "stop.rounds=3")) == [
        (2.64, [(0, 0), (1, 0)]), (4.64, [(0, 0), (2, 1)]), (6.28, [(1, 1), (0, 0)]),
    ]  # fmt: skip


def test_nobody_gets_staler_than_allowed() -> None:
    """With a limit of 2 the server waits for the slow one at 4.64 ms instead of stepping a fourth time without it."""
    steps = collected(asynchronous(Asynchronous(1, max_delay=2), "stop.rounds=12"))

    assert steps[2] == (4.64, [(0, 1), (2, 2)])
    assert max(staleness for _, arrivals in steps for _, staleness in arrivals) == 2


def test_waiting_for_all_is_federated_averaging() -> None:
    """With S = N and equal devices, the asynchronous run has the events of FedAvg and its model bit for bit."""
    lock_step, fed = run_small("stop.rounds=5"), small_federation("stop.rounds=5")
    fed.run(Asynchronous(4))

    assert fed.ledger.event_digest() == lock_step.ledger.event_digest()
    assert fed.ledger.evaluations.column("loss").tolist() == lock_step.ledger.evaluations.column("loss").tolist()
    assert set(fed.ledger.frame("staleness")["staleness"]) == {0}


def test_training_is_batched_as_far_as_causality_allows() -> None:
    """Jobs of workers that do not wait for each other share a wavefront, though they end at different times."""
    fed = asynchronous(Asynchronous(1), "stop.rounds=12", "evaluation.every_rounds=12", "training.engine=batched")

    assert fed.graph.statistics.mean_wavefront > 1.5


def test_asynchronous_learning_approaches_the_optimum() -> None:
    """A hundred steps leave less than a twentieth of the initial loss."""
    losses = asynchronous(Asynchronous(1), "stop.rounds=100").ledger.evaluations.column("loss")

    assert losses[-1] < 0.05 * losses[0]


@pytest.mark.parametrize("active", [1, 2, 3])
def test_an_asynchronous_run_with_loss_ends(active: int) -> None:
    """At 30 % loss both ways, workers that insist keep the server going; no law is broken, with or without training."""
    fed = asynchronous(Asynchronous(active, max_delay=5), *LOSSY, "stop.rounds=30")
    timed = asynchronous(Asynchronous(active, max_delay=5), *LOSSY, "stop.rounds=30", timing_only=True)

    assert fed.round == 30
    assert not any(verify(fed.ledger, frozenset()).values())
    assert timed.ledger.event_digest() == fed.ledger.event_digest()


# ---- device to device ------------------------------------------------------------------------------------------------


class PushSum:
    """Every node trains, pushes its model to its out-neighbours and mixes what it holds; there is no server.

    Node j keeps the share that a neighbour did not receive, so the mixing matrix's columns sum to 1 whatever is lost.
    """

    def __init__(self, out: Sequence[Sequence[int]]) -> None:
        self.out = out
        self.models: list[Deferred] = []

    def run(self, fed: Federation) -> Process:
        """All nodes, in lock-step."""
        n = fed.n_devices
        self.models, mass = [fed.initial_model()] * n, np.ones(n)
        for t in fed.rounds():
            pushed = yield fed.gather(self.node(fed, i, self.models[i.index], t) for i in fed.devices())
            matrix = mixing(self.out, [heard for _, heard in pushed])
            shares = matrix * mass
            mass = shares.sum(axis=1)
            models = [model for model, _ in pushed]
            self.models = [
                fed.defer(mixed, (row / total).tolist(), models) for row, total in zip(shares, mass, strict=True)
            ]
            fed.ledger.record("mass", round=t, total=float(mass.sum()), smallest=float(mass.min()))
            fed.end_of_round(fed.defer(mixed, [1 / n] * n, self.models), invited=n, arrived=n)

    def node(self, fed: Federation, i: Device, x: Deferred, t: int) -> Process:
        """One node's round: its new model, and who has received it."""
        trained = yield i.train(x, PLAN, t)
        deliveries = yield fed.sidelink(i, [fed.device(j) for j in self.out[i.index]], trained.params)
        return trained.params, [delivery.receiver for delivery in deliveries if not delivery.lost]


def mixing(out: Sequence[Sequence[int]], heard: Sequence[Sequence[int]]) -> np.ndarray[Any, Any]:
    """Column-stochastic matrix [n, n]: node j gives an equal share to each who heard it, and keeps the rest."""
    matrix = np.zeros((len(out), len(out)))
    for j, (wanted, reached) in enumerate(zip(out, heard, strict=True)):
        matrix[list(reached), j] = 1 / (1 + len(wanted))
        matrix[j, j] = 1 - len(reached) / (1 + len(wanted))
    return matrix


def mixed(shares: Sequence[float], models: Sequence[Tensor]) -> Tensor:
    return torch.stack([share * model for share, model in zip(shares, models, strict=True) if share]).sum(0)


OUT = ((1, 2), (2,), (3,), (0,), ())
"""Four nodes in a ring with a chord, and one on its own."""


def device_to_device(*changes: str, timing_only: bool = False) -> tuple[Federation, PushSum]:
    """Play it on five nodes that send side by side."""
    sidelink = "network.sidelink={channel: {include: ideal}, access: ofdma}"
    fed = small_federation("devices.count=5", "data.n_samples=100", sidelink, *changes, timing_only=timing_only)
    algorithm = PushSum(OUT)
    fed.run(algorithm)
    return fed, algorithm


@pytest.mark.parametrize(("access", "round_us"), [("ofdma", 720 + 320), ("tdma", 720 + 4 * 320)])
def test_a_device_to_device_round_takes_the_closed_form(access: str, round_us: int) -> None:
    """Compute, then four pushes side by side or in turn; two neighbours take one broadcast, no neighbour none."""
    fed, _ = device_to_device(f"network.sidelink.access={access}", "stop.rounds=3")

    assert fed.clock.now == 3 * round_us * 1000
    assert fed.ledger.sent_bit == [0, 0, 3 * 4 * 320]


def test_an_isolated_node_keeps_its_own_update() -> None:
    """Node 4 ends where its own data alone leads it."""
    fed, algorithm = device_to_device("stop.rounds=5")
    rows = fed.task.slice_of(4)
    alone = fed.task.model.initial()
    for _ in range(5):
        alone = alone.clone().requires_grad_()
        (gradient,) = torch.autograd.grad(
            fed.task.model.loss(alone, fed.task.data.x[rows], fed.task.data.y[rows]), alone
        )
        alone = (alone - 0.1 * gradient).detach()

    assert torch.allclose(fed.read(algorithm.models[4]), alone, atol=1e-6)


@pytest.mark.parametrize("loss", ["none", "{kind: random, probability: 0.3}"])
def test_device_to_device_learning_approaches_the_optimum_and_keeps_its_mass(loss: str) -> None:
    """With and without loss, connected nodes agree near the least squares solution, and the total mass stays 5."""
    fed, algorithm = device_to_device(
        f"network.sidelink.message_loss={loss}", "stop.rounds=60", "evaluation.every_rounds=60"
    )
    optimum = small_scenario("data.n_samples=100").data.load(None, Streams(0)("data")).optimum
    assert optimum is not None
    start_error = (fed.task.model.initial() - optimum).norm()
    errors = [(fed.read(model) - optimum).norm() / start_error for model in algorithm.models[:4]]
    mass = fed.ledger.frame("mass")

    assert max(errors) < 0.1
    assert mass["total"].tolist() == pytest.approx([5.0] * 60)
    assert mass["smallest"].min() > 0
    assert not any(verify(fed.ledger, frozenset()).values())


def test_all_nodes_train_in_one_wavefront() -> None:
    """Five nodes, five jobs at a time."""
    fed, _ = device_to_device("stop.rounds=8", "evaluation.every_rounds=8", "training.engine=batched")

    assert fed.graph.statistics.mean_wavefront == 5


def test_device_to_device_events_do_not_depend_on_training() -> None:
    """Timing alone has the same events under loss."""
    lossy = ("network.sidelink.message_loss={kind: random, probability: 0.3}", "stop.rounds=10")

    assert device_to_device(*lossy)[0].ledger.event_digest() == (
        device_to_device(*lossy, timing_only=True)[0].ledger.event_digest()
    )
