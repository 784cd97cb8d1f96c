"""One cluster's part of a round of semi-decentralised learning: push to neighbours, share degrees, mix, upload.

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
from fednet_emu.federation import Deferred, Device, Digraph, Federation, Process, SgdPlan, shares_of

INTEGER_BIT = 32
"""Size of a device number or a degree in control messages (bit)."""


class Pushed(NamedTuple):
    """Result of a device's push: its trained model (None if it received none to train), and who received it."""

    model: Deferred | None
    reached: Sequence[int]


class ClusterRound(NamedTuple):
    """Result of a cluster's round.

    Attributes:
        edges: (sender, receiver) of the models that arrived and were reported to the access point.
        uploads: (sender, mixed update) of the uploads that arrived at the server, in order of their senders.
        told: whether the server received the cluster's degrees.
        models: the trained model of each device that has one.
        senders: how many devices pushed to others, whether or not anything arrived.
        control_bit: total size of the control messages, each counted once (bit).
        imbalance: largest deviation of a column sum of the mixing matrix from 1.
    """

    edges: Sequence[tuple[int, int]]
    uploads: Sequence[tuple[int, Deferred]]
    told: bool
    models: Mapping[int, Deferred]
    senders: int
    control_bit: int
    imbalance: float = 0.0


NOTHING = ClusterRound((), (), told=False, models={}, senders=0, control_bit=0)
"""Result of a cluster in which no device received the model, or which missed the deadline."""


@dataclass(frozen=True, slots=True)
class ClusterRounds:
    """A round of all clusters, starting from one global model.

    Attributes:
        fed: the federation.
        graph: who may send to whom.
        model: the global model.
        number: the number of the round.
        plan: steps of local training.
        retries: number of times that a lost control message or upload is sent again.
    """

    fed: Federation
    graph: Digraph
    model: Deferred
    number: int
    plan: SgdPlan
    retries: int

    def play(self, cluster: int, chosen: Sequence[int]) -> Process:
        """A cluster's round; its result is a `ClusterRound`.

        Devices push their models to their out-neighbours. Every device reports its in-neighbours to the cluster's
        access point, the device with the most neighbours, which sends all out-degrees to the devices, and a summary of
        the degrees to the server. An edge counts only if both its model and its receiver's report arrived, so the
        columns of the mixing matrix always sum to 1.

        Args:
            cluster: index of the cluster.
            chosen: devices of the cluster that the server has sampled to upload.
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
        told, *sent = yield from self.persist(
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
        """A device: receive the model, train, push it to the out-neighbours; the result is a `Pushed`."""
        got = yield self.fed.downlink(k, self.model)
        if got.lost:
            return Pushed(None, ())
        trained = yield k.train(got.payload, self.plan, self.number)
        receivers = [self.fed.device(i) for i in self.graph.receivers(k.index)]
        deliveries = yield self.fed.sidelink(k, receivers, trained.params, cluster=cluster)
        return Pushed(trained.params, [delivery.receiver for delivery in deliveries if not delivery.lost])

    def report(self, cluster: int, point: int, members: Sequence[int], heard: Sequence[tuple[int, int]]) -> Process:
        """Devices send their lists of in-neighbours to the access point; the result is the set whose lists got lost."""
        if not heard:
            return set()
        in_degree = dict.fromkeys(members, 1)
        for _, i in heard:
            in_degree[i] += 1
        reporters = [i for i in members if i != point]
        to = [self.fed.device(point)]
        sent = yield from self.persist(
            [
                partial(self.fed.sidelink, self.fed.device(i), to, None, INTEGER_BIT * in_degree[i], cluster)
                for i in reporters
            ]
        )
        return {i for i, deliveries in zip(reporters, sent, strict=True) if deliveries[0].lost}

    def tell(self, cluster: int, point: int, members: Sequence[int]) -> Process:
        """The access point sends the list of degrees to all; the result is the set of devices that did not get it."""
        missing, size_bit = list(members), INTEGER_BIT * len(self.graph.members[cluster])
        for _ in range(1 + self.retries):
            if not missing:
                break
            to = [self.fed.device(i) for i in missing]
            deliveries = yield self.fed.sidelink(self.fed.device(point), to, None, size_bit, cluster)
            missing = [delivery.receiver for delivery in deliveries if delivery.lost]
        return set(missing)

    def persist(self, sends: Sequence[Callable[[], Event]]) -> Process:
        """Send all of these messages, and send lost ones again at once, at most `retries` times."""
        return self.fed.retry(sends, attempts=1 + self.retries, pause_s=0)

    def mixed(self, models: Mapping[int, Deferred], shares: Sequence[tuple[int, float]]) -> Deferred:
        """The mixed update that a device would upload, from the models that it has received."""
        return self.fed.defer(
            mixed_update,
            self.model,
            [models[j] for j, _ in shares],
            np.array([share for _, share in shares]),
            self.fed.n_statistics,
        )


def access_point(devices: Sequence[int], edges: Sequence[tuple[int, int]]) -> int:
    """The device with the most edges from and to others; the first one if several tie."""
    count = dict.fromkeys(devices, 0)
    for ends in edges:
        for k in ends:
            count[k] += 1
    return max(count, key=lambda k: count[k])


def equal_shares(
    devices: Sequence[int] | Mapping[int, Any], edges: Sequence[tuple[int, int]]
) -> dict[int, list[tuple[int, float]]]:
    """For each device i, the sources of its mixed update and their shares: (j, 1 / out-degree of j), itself first."""
    out_degree = dict.fromkeys(devices, 1)
    for j, _ in edges:
        out_degree[j] += 1
    shares = {i: [(i, 1.0 / degree)] for i, degree in out_degree.items()}
    for j, i in edges:
        shares[i].append((j, 1.0 / out_degree[j]))
    return shares


def imbalance(shares: Mapping[int, Sequence[tuple[int, float]]]) -> float:
    """Largest deviation of a column sum of the mixing matrix from 1: max over j of |sum over i of share_ij - 1|."""
    given = dict.fromkeys(shares, 0.0)
    for parts in shares.values():
        for j, part in parts:
            given[j] += part
    return max(abs(total - 1.0) for total in given.values())


def mixed_update(x: Tensor, models: Sequence[Tensor], shares: Array, statistics: int = 0) -> Tensor:
    """Delta_i = sum over in-neighbours j of share_j (x_j - x), for a model x [P] and trained models x_j.

    The last `statistics` entries are running statistics, of which it is the weighted mean.
    """
    updates = torch.stack(list(models)) - x
    update = torch.as_tensor(shares, dtype=x.dtype, device=x.device) @ updates
    if statistics:
        update[-statistics:] = x.new_tensor(shares_of(shares.tolist())) @ updates[:, -statistics:]
    return update


def edges_of(graph: Digraph, rounds: Sequence[ClusterRound]) -> Digraph:
    """The digraph of the same clusters with only the edges over which models arrived and were reported."""
    pairs = [edge for done in rounds for edge in done.edges]
    sender, receiver = np.array(pairs, np.int64).reshape(-1, 2).T
    return Digraph.of(graph.cluster, sender, receiver)
