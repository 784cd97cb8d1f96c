"""Collaborative relaying for federated learning over intermittently connected networks (COLREL).

Yemini, Saha, Ozfatura, Gündüz, Goldsmith: "Semi-Decentralized Federated Learning with Collaborative Relaying",
ISIT 2022, https://arxiv.org/abs/2205.10998

Differences from the paper: an upload arrives if its device is invited (`cohort`) and the network does not lose it,
instead of by a separate random blockage; the probabilities of device-to-device links are estimated from draws of the
topology; the two directions of a link fail independently unless `reciprocal`; no momentum at the server; devices
without samples take no part; with a deadline, a late cluster is left out as a whole.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, ClassVar, NamedTuple

import numpy as np
from pydantic import Field

from fednet_emu.algorithms.base import Algorithm
from fednet_emu.algorithms.d2d.colrel_weights import best_weights, variance
from fednet_emu.algorithms.d2d.round import ClusterRounds, Pushed, mixed_update
from fednet_emu.arrays import Array, Mask
from fednet_emu.errors import ScenarioError
from fednet_emu.federation import (
    CohortSize,
    Deferred,
    Delivery,
    Digraph,
    Federation,
    Process,
    SgdPlan,
    cohort_size,
    moved_by_sum,
)

Probability = Annotated[float, Field(gt=0, le=1)]


class Colrel(Algorithm):
    """Devices relay weighted sums of their neighbours' updates, so that the server's update is unbiased.

    The scenario needs `network.sidelink.topology`, which determines who sends to whom in each round.
    """

    uses: ClassVar[frozenset[str]] = frozenset({"sidelink"})
    cohort: CohortSize
    """Devices invited to upload per round: an int is their number, a float their share of all devices, 1.0 for all;
    fewer if fewer are present."""
    deadline_s: float | None = Field(None, gt=0)
    """Longest time that the server waits for the devices of a round (simulated s); late devices are cancelled and left
    out of the round. Null waits for all devices."""
    lr: float = Field(ge=0)
    """Step size of the devices."""
    batch_size: int | None = Field(gt=0)
    """Samples per step; null takes all of the device's samples at once."""
    local_steps: int = Field(gt=0)
    """Gradient steps per round."""
    uplink_arrives: Probability | tuple[Probability, ...] = 1.0
    """Probability, assumed by the relay weights, that the upload of an invited device arrives: one number for all
    devices, or one per device. It does not change the network itself."""
    sidelink_arrives: float = Field(1.0, gt=0, le=1)
    """Probability, assumed by the relay weights, that a model sent over an edge of the topology arrives."""
    reciprocal: bool = False
    """Whether the relay weights assume that the two directions of a link work in the same rounds, instead of
    independently."""
    survey: int = Field(50, gt=0)
    """Number of draws of the topology from which the relay weights estimate the probability of each edge."""

    def demands(self) -> Iterator[tuple[str, str, int]]:
        """Settings that need a minimum number of devices, as (key, what is wrong with fewer, that minimum)."""
        yield from super().demands()
        if isinstance(self.uplink_arrives, tuple):
            yield "uplink_arrives", "has more entries than there are devices", len(self.uplink_arrives)

    def run(self, fed: Federation) -> Process:
        """The server: compute the relay weights once; then in each round invite devices and add their uploads."""
        plan, takes_part = (
            SgdPlan(lr=self.lr, batch_size=self.batch_size, steps=self.local_steps),
            fed.task.n_samples > 0,
        )
        devices, size = np.flatnonzero(takes_part), cohort_size(self.cohort, fed.n_devices)
        a = self.relay_weights(fed, takes_part)
        x = fed.initial_model()
        for t in fed.rounds():
            yield fed.somebody_there()
            graph = fed.digraph(t).among(takes_part)
            invited = devices[np.argsort(fed.streams("sample", t).random(fed.n_devices)[devices])][:size]
            rounds, chosen = ClusterRounds(fed, graph, x, t, plan, retries=0), set(invited.tolist())
            clusters = (
                self.cluster(rounds, number, [k for k in members.tolist() if k in chosen], a)
                for number, members in enumerate(graph.members)
            )
            ended = yield fed.gather(clusters, self.deadline_s)
            done = [Relayed((), 0, 0) if isinstance(cluster, Delivery) else cluster for cluster in ended]
            uploads = [update for cluster in done for update in cluster.uploads]
            if uploads:
                own = [1.0 / len(devices)] * len(uploads)
                x = fed.accumulate(moved_by_sum, uploads, x, own, 1.0, fed.n_statistics)
            fed.record(
                "relaying",
                sampled=len(invited),
                uploads=len(uploads),
                d2d_senders=sum(cluster.senders for cluster in done),
                d2d_receptions=sum(cluster.receptions for cluster in done),
            )
            fed.end_of_round(x, invited=len(invited), arrived=len(uploads))

    def relay_weights(self, fed: Federation, takes_part: Mask) -> Array:
        """Minimum-variance weights [relays, sources] for this network's link probabilities; records their variance.

        Raises:
            ScenarioError: `uplink_arrives` does not have one entry per device.
        """
        graphs = [fed.digraph(number, 1).among(takes_part) for number in range(self.survey)]
        reach = edge_frequencies(graphs) * self.sidelink_arrives
        np.fill_diagonal(reach, 1.0)
        if isinstance(self.uplink_arrives, tuple) and len(self.uplink_arrives) != fed.n_devices:
            raise ScenarioError(
                f"algorithm.uplink_arrives: not one for each device, got {len(self.uplink_arrives)}; "
                f"give one number or {fed.n_devices}"
            )
        arrives = np.broadcast_to(self.uplink_arrives, takes_part.shape)
        p = np.where(takes_part, min(1.0, cohort_size(self.cohort, fed.n_devices) / takes_part.sum()) * arrives, 0.0)
        a = best_weights(p, reach, reciprocal=self.reciprocal)
        alone = np.diag(np.divide(1.0, p, out=np.zeros_like(p), where=p > 0))
        fed.ledger.record("relay_weights", variance=variance(a, p, reach), variance_alone=variance(alone, p, reach))
        return a

    def cluster(self, rounds: ClusterRounds, number: int, chosen: Sequence[int], a: Array) -> Process:
        """A cluster's round: devices push to their neighbours; invited devices upload their weighted sums."""
        fed, members = rounds.fed, rounds.graph.members[number].tolist()
        pushes = yield fed.gather(rounds.push(number, fed.device(k)) for k in members)
        models = {k: push.model for k, push in zip(members, pushes, strict=True) if push.model is not None}
        heard = heard_by(models, dict(zip(members, pushes, strict=True)))
        ready = [i for i in chosen if i in models]
        sent = yield fed.all_of(
            [fed.uplink(fed.device(i), relayed(fed, rounds.model, models, heard[i], a[i])) for i in ready]
        )
        return Relayed(
            [reply.payload for reply in sent if not reply.lost],
            sum(bool(rounds.graph.receivers(k)) for k in models),
            sum(len(sources) - 1 for sources in heard.values()),
        )


class Relayed(NamedTuple):
    """Result of a cluster's round: uploads that arrived, number of devices that pushed, number of models received."""

    uploads: Sequence[Deferred]
    senders: int
    receptions: int


def heard_by(models: Mapping[int, Deferred], pushes: Mapping[int, Pushed]) -> dict[int, list[int]]:
    """For each device that has trained: the devices whose models it has, itself first."""
    heard = {i: [i] for i in models}
    for j, push in pushes.items():
        for i in push.reached:
            if i in heard:
                heard[i].append(j)
    return heard


def relayed(
    fed: Federation, x: Deferred, models: Mapping[int, Deferred], sources: Sequence[int], weights: Array
) -> Deferred:
    """The weighted sum of the updates that a device has received (deferred)."""
    return fed.defer(mixed_update, x, [models[j] for j in sources], weights[sources], fed.n_statistics)


def edge_frequencies(graphs: Sequence[Digraph]) -> Array:
    """The fraction of the graphs in which each edge exists, [senders, receivers]."""
    count = np.zeros((graphs[0].n_devices, graphs[0].n_devices))
    for graph in graphs:
        count[graph.sender, graph.receiver] += 1.0
    return count / len(graphs)
