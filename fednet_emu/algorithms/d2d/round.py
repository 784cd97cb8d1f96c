"""One cluster's part of a round of semi-decentralised learning: push to neighbours, agree on degrees, mix, upload.

Shared by the algorithms in which devices exchange models with their neighbours before some of them talk to the server.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from simpy.events import Event
from torch import Tensor

from fednet_emu.arrays import Array
from fednet_emu.federation import Deferred, Device, Digraph, Federation, Process, Retry, SgdPlan

INTEGER_BIT = 32
"""Device numbers and degrees in control messages."""


class Pushed(NamedTuple):
    """What a device has after its push: its trained model, if it got one to train, and who received it."""

    model: Deferred | None
    reached: Sequence[int]


class ClusterRound(NamedTuple):
    """What has become of a cluster in a round.

    Attributes:
        edges: (sender, receiver) over which models have arrived, as the access point counts them.
        uploads: the mixed updates that have arrived at the server, in order of their senders.
        told: whether the server has got the cluster's degrees.
        models: the trained model of each device that has one.
        senders: how many devices pushed to others, whether or not anything arrived.
        control_bit: size of the control messages, each counted once.
        imbalance: how far from 1 the parts that a device's update is added up with are together, at most.
    """

    edges: Sequence[tuple[int, int]]
    uploads: Sequence[tuple[int, Deferred]]
    told: bool
    models: Mapping[int, Deferred]
    senders: int
    control_bit: int
    imbalance: float = 0.0


NOTHING = ClusterRound((), (), told=False, models={}, senders=0, control_bit=0)
"""Of a cluster in which nobody has received the model, or which was late."""


@dataclass(frozen=True, slots=True)
class ClusterRounds:
    """A round of all clusters, from one model.

    Attributes:
        fed: the federation.
        graph: who may send to whom.
        model: the global model.
        number: the number of the round.
        plan: local training.
        retries: how often control messages and uploads are sent again.
    """

    fed: Federation
    graph: Digraph
    model: Deferred
    number: int
    plan: SgdPlan
    retries: int

    def play(self, cluster: int, chosen: Sequence[int]) -> Process:
        """A cluster's round; its result is a `ClusterRound`.

        Models are pushed to out-neighbours. Every device reports whom it has heard to the cluster's access point, the
        device with most neighbours, which sends everybody's out-degrees to all, and to the server. An edge counts only
        when its model and its receiver's report have arrived, so what a sender gives away is always 1 in all.
        """
        fed, members = self.fed, self.graph.members[cluster].tolist()
        pushes = yield fed.gather(self.push(cluster, fed.device(k)) for k in members)
        models = {k: push.model for k, push in zip(members, pushes, strict=True) if push.model is not None}
        if not models:
            return NOTHING
        heard = [(j, i) for j, push in zip(members, pushes, strict=True) for i in push.reached if i in models]
        point = access_point(list(models), heard)

        silent = yield from self.report(cluster, point, list(models), heard)
        edges = [(j, i) for j, i in heard if i not in silent]
        others = [k for k in models if k != point] if heard else []
        unaware = yield from self.tell(cluster, point, others)
        shares = equal_shares(models, edges)
        ready = [i for i in chosen if i in models and i not in unaware]
        summary_bit = 2 * INTEGER_BIT * len(members)
        told, *sent = yield self.persist(
            [
                lambda: fed.uplink(fed.device(point), None, summary_bit),
                *(partial(fed.uplink, fed.device(i), self.mixed(models, shares[i])) for i in ready),
            ]
        )
        uploads = [(i, reply.payload) for i, reply in zip(ready, sent, strict=True) if not reply.lost]
        listed = sum(i != point for _, i in heard) + len(others)
        control_bit = INTEGER_BIT * (listed + len(members) * (2 + bool(others)))
        senders = sum(bool(self.graph.receivers(k)) for k in models)
        return ClusterRound(edges, uploads, not told.lost, models, senders, control_bit, imbalance(shares))

    def push(self, cluster: int, k: Device) -> Process:
        """A device: receive the model, train, push to the out-neighbours; its result is a `Pushed`."""
        got = yield self.fed.downlink(k, self.model)
        if got.lost:
            return Pushed(None, ())
        trained = yield k.compute(self.fed.train(k, got.payload, self.plan, self.number))
        receivers = [self.fed.device(i) for i in self.graph.receivers(k.index)]
        deliveries = yield self.fed.sidelink(k, receivers, trained.params, cluster=cluster)
        return Pushed(trained.params, [delivery.receiver for delivery in deliveries if not delivery.lost])

    def report(self, cluster: int, point: int, members: Sequence[int], heard: Sequence[tuple[int, int]]) -> Process:
        """Everybody's list of in-neighbours goes to the access point; the result is whose list never arrived."""
        if not heard:
            return set()
        in_degree = dict.fromkeys(members, 1)
        for _, i in heard:
            in_degree[i] += 1
        reporters = [i for i in members if i != point]
        to = [self.fed.device(point)]
        sent = yield self.persist(
            [
                partial(self.fed.sidelink, self.fed.device(i), to, None, INTEGER_BIT * in_degree[i], cluster)
                for i in reporters
            ]
        )
        return {i for i, deliveries in zip(reporters, sent, strict=True) if deliveries[0].lost}

    def tell(self, cluster: int, point: int, members: Sequence[int]) -> Process:
        """The access point sends the list of degrees to all; the result is who never got it."""
        missing, size_bit = list(members), INTEGER_BIT * len(self.graph.members[cluster])
        for _ in range(1 + self.retries):
            if not missing:
                break
            to = [self.fed.device(i) for i in missing]
            deliveries = yield self.fed.sidelink(self.fed.device(point), to, None, size_bit, cluster)
            missing = [delivery.receiver for delivery in deliveries if delivery.lost]
        return set(missing)

    def persist(self, sends: Sequence[Callable[[], Event]]) -> Retry:
        """Send all of these, and again those that are lost while patience lasts."""
        return self.fed.retry(sends, attempts=1 + self.retries, pause_s=0)

    def mixed(self, models: Mapping[int, Deferred], shares: Sequence[tuple[int, float]]) -> Deferred:
        """The update that a device would upload, out of what it has heard."""
        return self.fed.defer(
            mixed_update, self.model, [models[j] for j, _ in shares], np.array([share for _, share in shares])
        )


def access_point(devices: Sequence[int], edges: Sequence[tuple[int, int]]) -> int:
    """The device with most edges from and to others, the first one of equals."""
    count = dict.fromkeys(devices, 0)
    for ends in edges:
        for k in ends:
            count[k] += 1
    return max(count, key=lambda k: count[k])


def equal_shares(
    devices: Sequence[int] | Mapping[int, Any], edges: Sequence[tuple[int, int]]
) -> dict[int, list[tuple[int, float]]]:
    """For each device i whose updates it adds up, and which part of each: (j, 1 / out-degree of j), itself first."""
    out_degree = dict.fromkeys(devices, 1)
    for j, _ in edges:
        out_degree[j] += 1
    shares = {i: [(i, 1.0 / degree)] for i, degree in out_degree.items()}
    for j, i in edges:
        shares[i].append((j, 1.0 / out_degree[j]))
    return shares


def imbalance(shares: Mapping[int, Sequence[tuple[int, float]]]) -> float:
    """The largest |sum over i of share_ij - 1| of a device j: how far the mixing conserves no mass."""
    given = dict.fromkeys(shares, 0.0)
    for parts in shares.values():
        for j, part in parts:
            given[j] += part
    return max(abs(total - 1.0) for total in given.values())


def mixed_update(x: Tensor, models: Sequence[Tensor], shares: Array) -> Tensor:
    """Delta_i = sum over in-neighbours j of share_j (x_j - x), for a model x [P] and trained models x_j."""
    return torch.as_tensor(shares, dtype=x.dtype, device=x.device) @ (torch.stack(list(models)) - x)


def stepped(x: Tensor, updates: Sequence[Tensor], weights: Sequence[float]) -> Tensor:
    """X + sum of weights times updates; no update leaves x bit for bit as it is."""
    total = torch.zeros_like(x)
    for update, weight in zip(updates, weights, strict=True):
        total.add_(update, alpha=weight)
    return x + total


def edges_of(graph: Digraph, rounds: Sequence[ClusterRound]) -> Digraph:
    """The same clusters with the edges that count."""
    pairs = [edge for done in rounds for edge in done.edges]
    sender, receiver = np.array(pairs, np.int64).reshape(-1, 2).T
    return Digraph.of(graph.cluster, sender, receiver)
