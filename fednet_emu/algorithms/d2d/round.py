"""Rounds of semi-decentralised learning: devices send models to neighbours, share degrees, mix models, and upload.

The algorithms in this folder share these rounds: devices exchange models with neighbours before some devices upload.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from fednet_emu.algorithms.base import Deadline, LocalSteps
from fednet_emu.arrays import Array
from fednet_emu.federation import (
    Deferred,
    Delivery,
    Device,
    Digraph,
    Federation,
    Process,
    SgdPlan,
    moved_by_sum,
    shares_of,
)

INTEGER_BIT = 32
"""Size in bits of a device index or a degree in control messages."""


class ClusterRound(NamedTuple):
    """Result of a cluster's round; the defaults are for a cluster that lacks the model or missed the deadline."""

    edges: Sequence[tuple[int, int]] = ()  # (sender, receiver) of each received and reported model
    uploads: Sequence[tuple[int, Deferred]] = ()  # (sender, mixed update) of each upload that arrived, by sender
    told: bool = False  # True if the server received the cluster's degrees
    models: Mapping[int, Deferred] = {}  # the trained model of each device that has one
    senders: int = 0  # number of devices that pushed to others, whether or not anything arrived
    control_bit: int = 0  # total size of the control messages in bit, each message counted once
    imbalance: float = 0.0  # maximum of |column sum of the mixing matrix - 1|


class ClusterTraining(LocalSteps):
    """An algorithm in which the devices of a cluster exchange trained models before some of the devices upload."""

    uses = frozenset({"sidelink"})
    deadline_s: Deadline = None

    def clusters(
        self,
        fed: Federation,
        t: int,
        x: Deferred,
        choose: Callable[[Digraph], Sequence[Sequence[int]]],
        play: Callable[[ClusterRounds, int, Sequence[int]], Process],
        retries: int = 0,
    ) -> Process:
        """Run round `t` of all clusters from model `x`; return the graph, the chosen devices, and all results.

        `choose` selects the devices of each cluster that upload. `play(rounds, cluster, chosen)` is the process of one
        cluster's round, which returns a `ClusterRound`. The returned lists have one entry per cluster.
        """
        yield fed.somebody_there()
        graph = fed.digraph(t).among(fed.task.n_samples > 0)
        chosen, rounds = choose(graph), ClusterRounds(fed, graph, x, t, self.plan, retries)
        ended = yield fed.gather((play(rounds, number, own) for number, own in enumerate(chosen)), self.deadline_s)
        return graph, chosen, [ClusterRound() if isinstance(cluster, Delivery) else cluster for cluster in ended]


def stepped(fed: Federation, x: Deferred, done: Sequence[ClusterRound], weights: Sequence[float]) -> Deferred:
    """Return model `x` moved by the weighted sum of the uploads of a round."""
    uploads = [update for cluster in done for _, update in cluster.uploads]
    return fed.accumulate(moved_by_sum, uploads, x, weights, 1.0, fed.n_statistics) if uploads else x


@dataclass(frozen=True, slots=True)
class ClusterRounds:
    """A round of all clusters of the device-to-device graph, which starts from one global model."""

    fed: Federation
    graph: Digraph
    model: Deferred
    number: int
    plan: SgdPlan
    retries: int  # maximum number of times that a lost control message or upload is resent

    def play(self, cluster: int, chosen: Sequence[int]) -> Process:
        """Simulate one round of a cluster in which the devices `chosen` upload; return a `ClusterRound`.

        Devices send their models to their out-neighbours. Every device reports its in-neighbours to the cluster's
        access point, the device with the most neighbours. The access point sends all out-degrees to the devices, and a
        summary of the degrees to the server. An edge is used only if both the model and the receiver's report arrived,
        so the columns of the mixing matrix always sum to 1.
        """
        fed, members = self.fed, self.graph.members[cluster].tolist()
        models, heard = yield from self.push_all(members)
        if not models:
            return ClusterRound()
        point = access_point(list(models), heard)

        silent = yield from self.report(cluster, point, list(models), heard)
        edges = [(j, i) for j, i in heard if i not in silent]
        others = [k for k in models if k != point] if heard else []
        unaware = yield from self.tell(cluster, point, others)
        shares = equal_shares(models, edges)
        ready = [i for i in chosen if i in models and i not in unaware]
        summary_bit = 2 * INTEGER_BIT * len(members)
        summary = partial(fed.uplink, fed.device(point), None, summary_bit)
        updates = (partial(fed.uplink, fed.device(i), self.mixed(models, shares[i])) for i in ready)
        told, *sent = yield from fed.retry([summary, *updates], attempts=1 + self.retries, pause_s=0)
        uploads = [(i, reply.payload) for i, reply in zip(ready, sent, strict=True) if not reply.lost]
        listed = sum(i != point for _, i in heard) + len(others)
        control_bit = INTEGER_BIT * (listed + len(members) * (2 + bool(others)))
        senders = sum(bool(self.graph.receivers(k)) for k in models)
        return ClusterRound(edges, uploads, not told.lost, models, senders, control_bit, imbalance(shares))

    def push_all(self, members: Sequence[int]) -> Process:
        """Let a cluster's devices train and send; return the models, and the (sender, receiver) pairs of arrivals."""
        pushes = yield self.fed.gather(self.push(self.fed.device(k)) for k in members)
        models = {k: model for k, (model, _) in zip(members, pushes, strict=True) if model is not None}
        heard = [(j, i) for j, (_, reached) in zip(members, pushes, strict=True) for i in reached if i in models]
        return models, heard

    def push(self, k: Device) -> Process:
        """Process of device `k`: receive the model, train, and send it; return the model, if any, and its receivers."""
        got = yield self.fed.downlink(k, self.model)
        if got.lost:
            return None, ()
        trained = yield k.train(got.payload, self.plan, self.number)
        return trained.params, (yield from pushed(self.fed, self.graph, k, trained.params))

    def report(self, cluster: int, point: int, members: Sequence[int], heard: Sequence[tuple[int, int]]) -> Process:
        """Send each device's in-neighbours to the access point `point`; return the devices whose lists were lost."""
        if not heard:
            return set()
        in_degree = Counter([*members, *(i for _, i in heard)])
        reporters = [i for i in members if i != point]
        fed, to = self.fed, [self.fed.device(point)]
        sends = [partial(fed.sidelink, fed.device(i), to, None, INTEGER_BIT * in_degree[i], cluster) for i in reporters]
        sent = yield from fed.retry(sends, attempts=1 + self.retries, pause_s=0)
        return {i for i, deliveries in zip(reporters, sent, strict=True) if deliveries[0].lost}

    def tell(self, cluster: int, point: int, members: Sequence[int]) -> Process:
        """Send the list of degrees from the access point `point` to `members`; return the devices that miss it."""
        missing, size_bit = list(members), INTEGER_BIT * len(self.graph.members[cluster])
        for _ in range(1 + self.retries):
            if not missing:
                break
            to = [self.fed.device(i) for i in missing]
            deliveries = yield self.fed.sidelink(self.fed.device(point), to, None, size_bit, cluster)
            missing = [delivery.receiver for delivery in deliveries if delivery.lost]
        return set(missing)

    def mixed(self, models: Mapping[int, Deferred], shares: Sequence[tuple[int, float]]) -> Deferred:
        """Return the mixed update that a device would upload: the sum of updates weighted by its `shares`."""
        received, parts = [models[j] for j, _ in shares], np.array([share for _, share in shares])
        return self.fed.defer(mixed_update, self.model, received, parts, self.fed.n_statistics)


def pushed(fed: Federation, graph: Digraph, k: Device, x: Deferred, size_bit: int | None = None) -> Process:
    """Send a model from device `k` to its out-neighbours; return the indices of the devices that received the model."""
    receivers = [fed.device(i) for i in graph.receivers(k.index)]
    deliveries = yield fed.sidelink(k, receivers, x, size_bit, int(graph.cluster[k.index]))
    return [delivery.receiver for delivery in deliveries if not delivery.lost]


def access_point(devices: Sequence[int], edges: Sequence[tuple[int, int]]) -> int:
    """Return the device with the most edges from and to other devices; ties go to the first device."""
    count = Counter(chain.from_iterable(edges))
    return max(devices, key=lambda k: count[k])


def equal_shares(
    devices: Sequence[int] | Mapping[int, Any], edges: Sequence[tuple[int, int]]
) -> dict[int, list[tuple[int, float]]]:
    """Return, for each device i, pairs (j, 1 / out-degree of j) of the devices j in its mixed update, i first."""
    out_degree = Counter([*devices, *(j for j, _ in edges)])
    shares = {i: [(i, 1.0 / out_degree[i])] for i in devices}
    for j, i in edges:
        shares[i].append((j, 1.0 / out_degree[j]))
    return shares


def imbalance(shares: Mapping[int, Sequence[tuple[int, float]]]) -> float:
    """Return the maximum difference of a column sum of the mixing matrix from 1, i.e. max_j |sum_i share_ij - 1|."""
    given = dict.fromkeys(shares, 0.0)
    for j, part in chain.from_iterable(shares.values()):
        given[j] += part
    return max(abs(total - 1.0) for total in given.values())


def mixed_update(x: Tensor, models: Sequence[Tensor], shares: Array, statistics: int = 0) -> Tensor:
    """Return a device's mixed update [P], sum_j share_j (x_j - x), for model `x` [P] and the received models x_j.

    The last `statistics` entries (running statistics) are the weighted mean of x_j - x.
    """
    updates = torch.stack(list(models)) - x
    update = torch.as_tensor(shares, dtype=x.dtype, device=x.device) @ updates
    if statistics:
        update[-statistics:] = x.new_tensor(shares_of(shares.tolist())) @ updates[:, -statistics:]
    return update


def edges_of(graph: Digraph, rounds: Sequence[ClusterRound]) -> Digraph:
    """Return the digraph with the clusters of `graph` and the edges over which models arrived and were reported."""
    pairs = [edge for done in rounds for edge in done.edges]
    sender, receiver = np.array(pairs, np.int64).reshape(-1, 2).T
    return Digraph.of(graph.cluster, sender, receiver)
