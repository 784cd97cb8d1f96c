"""Collaborative relaying for federated learning over intermittently connected networks (COLREL).

Yemini, Saha, Ozfatura, Gündüz, Goldsmith: "Semi-Decentralized Federated Learning with Collaborative Relaying",
ISIT 2022, https://arxiv.org/abs/2205.10998

Differences from the paper: an upload arrives if its device is invited (`cohort`) and the network does not lose the
upload, whereas in the paper it arrives with a given probability. The probabilities of device-to-device links are
estimated from random topologies. The two directions of a link fail independently unless `reciprocal`. The server uses
no momentum. Devices without samples are left out. If there is a deadline, all updates of a late cluster are left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Annotated

import numpy as np
from pydantic import Field

from fednet_emu.algorithms.d2d.round import ClusterRound, ClusterRounds, ClusterTraining, stepped
from fednet_emu.arrays import Array, Mask, bisected
from fednet_emu.errors import ScenarioError
from fednet_emu.federation import CohortSize, Digraph, Federation, Process, cohort_size

Probability = Annotated[float, Field(gt=0, le=1)]


class Colrel(ClusterTraining):
    """Devices relay weighted sums of their neighbours' updates, so that the server's update is unbiased.

    The scenario needs `network.sidelink.topology`, which determines the links of each round.
    """

    cohort: CohortSize
    """Devices invited to upload per round: an int is the number of devices, a float is the share of all devices. Fewer
    are invited if fewer are present."""
    uplink_arrives: Probability | tuple[Probability, ...] = 1.0
    """Probability that the upload of an invited device arrives, as assumed in the computation of the relay weights: one
    number for all devices, or one number per device. This setting does not cause losses in the network."""
    sidelink_arrives: float = Field(1.0, gt=0, le=1)
    """Probability that a model sent over an edge of the topology arrives, as assumed in the computation of the relay
    weights."""
    reciprocal: bool = False
    """Whether the relay weights assume that the two directions of a link always work or fail together; if false, they
    assume that the directions fail independently."""
    survey: int = Field(50, gt=0)
    """Number of random topologies from which the probability of each edge is estimated for the relay weights."""

    def demands(self) -> Iterator[tuple[str, str, int]]:
        yield from super().demands()
        if isinstance(self.uplink_arrives, tuple):
            yield "uplink_arrives", "has more entries than there are devices", len(self.uplink_arrives)

    def run(self, fed: Federation) -> Process:
        takes_part, size = fed.task.n_samples > 0, cohort_size(self.cohort, fed.n_devices)
        devices, a = np.flatnonzero(takes_part), self.relay_weights(fed, takes_part)
        x = fed.initial_model()
        for t in fed.rounds():
            invited = devices[np.argsort(fed.streams("sample", t).random(fed.n_devices)[devices])][:size]
            choose = partial(among, invited=set(invited.tolist()))
            _, _, done = yield from self.clusters(fed, t, x, choose, partial(self.cluster, a=a))
            arrived = sum(len(cluster.uploads) for cluster in done)
            x = stepped(fed, x, done, [1.0 / len(devices)] * arrived)
            fed.record(
                "relaying",
                sampled=len(invited),
                uploads=arrived,
                d2d_senders=sum(cluster.senders for cluster in done),
                d2d_receptions=sum(len(cluster.edges) for cluster in done),
            )
            fed.end_of_round(x, invited=len(invited), arrived=arrived)

    def relay_weights(self, fed: Federation, takes_part: Mask) -> Array:
        """Return the relay weights [relays, sources] with minimum variance, and record this variance."""
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
        """Process of a cluster: devices send models to neighbours; `chosen` devices upload sums weighted by `a`."""
        fed, members = rounds.fed, rounds.graph.members[number].tolist()
        models, heard = yield from rounds.push_all(members)
        ready = [i for i in chosen if i in models]
        sources = {i: [i, *(j for j, receiver in heard if receiver == i)] for i in ready}
        sent = yield fed.all_of(
            [fed.uplink(fed.device(i), rounds.mixed(models, [(j, a[i, j]) for j in sources[i]])) for i in ready]
        )
        uploads = [(i, reply.payload) for i, reply in zip(ready, sent, strict=True) if not reply.lost]
        senders = sum(bool(rounds.graph.receivers(k)) for k in models)
        return ClusterRound(heard, uploads, models=models, senders=senders)


def among(graph: Digraph, invited: set[int]) -> list[list[int]]:
    """Return, for each cluster of `graph`, the indices of its devices that are in `invited`."""
    return [[k for k in members.tolist() if k in invited] for members in graph.members]


def edge_frequencies(graphs: Sequence[Digraph]) -> Array:
    """Return the fraction [senders, receivers] of the `graphs` that contain each edge."""
    count = np.zeros((graphs[0].n_devices, graphs[0].n_devices))
    for graph in graphs:
        count[graph.sender, graph.receiver] += 1.0
    return count / len(graphs)


_BISECTIONS = 60


def start_weights(p: Array, reach: Array) -> Array:
    """Return initial unbiased relay weights [relays, sources], with equal shares for all usable relays of a source.

    `p` [devices] are the upload probabilities, and `reach` [sources, relays] the link probabilities.
    """
    chance = (reach * p[None, :]).T
    usable = chance > 0
    count = np.maximum(usable.sum(axis=0), 1)
    return np.where(usable, 1.0 / (count * np.where(usable, chance, 1.0)), 0.0)


def variance(a: Array, p: Array, reach: Array, *, reciprocal: bool = False) -> float:
    """Return the paper's S(p, P, A), to which the variance of the server's update is proportional.

    A is `a` [relays, sources], the relay weights. `p` [devices] contains the probabilities that an upload arrives. P is
    `reach` [sources, relays], the probabilities of links. If `reciprocal` is True, the two directions of a link fail
    together, otherwise independently.
    """
    heard = reach.T
    relayed = (heard * a).sum(axis=1)
    through_server = (p * (1.0 - p) * relayed**2).sum()
    between = (p[:, None] * heard * (1.0 - heard) * a**2).sum()
    both = (p[:, None] * p[None, :] * heard * (1.0 - heard) * a * a.T).sum() if reciprocal else 0.0
    return float(through_server + between + both)


def best_weights(p: Array, reach: Array, *, reciprocal: bool = False, sweeps: int = 50) -> Array:
    """Return the unbiased, non-negative relay weights [relays, sources] that minimise `variance`.

    The method is Gauss-Seidel over sources, in at most `sweeps` sweeps. With all other weights fixed, the optimal
    weights of a source are max(0, (mu - c_j) / d_j) for relay j, where c_j and d_j are the coefficients of the
    variance. Bisection finds the multiplier mu for which the weights are unbiased. The iteration stops early if a sweep
    improves the variance by less than a relative 1e-9.
    """
    a = start_weights(p, reach)
    last = variance(a, p, reach, reciprocal=reciprocal)
    for _ in range(sweeps):
        for source in range(len(p)):
            _renew(a, p, reach, source, reciprocal=reciprocal)
        now = variance(a, p, reach, reciprocal=reciprocal)
        if last - now <= 1e-9 * abs(last):
            break
        last = now
    return a


def _renew(a: Array, p: Array, reach: Array, source: int, *, reciprocal: bool) -> None:
    """Replace the relay weights of one source by their optimal values, in place."""
    heard = reach[source]
    relays = np.flatnonzero(heard * p > 0)
    if not len(relays):
        return
    p_j, h_j = p[relays], heard[relays]
    chance = p_j * h_j
    free = chance >= 1.0
    if free.any():  # relays that never fail add no variance
        a[:, source] = 0.0
        a[relays[free], source] = 1.0 / free.sum()
        return
    others = (reach[:, relays].T * a[relays]).sum(axis=1) - h_j * a[relays, source]
    cost = (1.0 - p_j) * others
    if reciprocal:
        cost += np.where(relays == source, 0.0, p[source] * (1.0 - h_j) * a[source, relays])
    a[relays, source] = unbiased(cost, 1.0 - chance, chance)


def unbiased(cost: Array, steepness: Array, chance: Array) -> Array:
    """Return weights max(0, (mu - cost) / steepness) [relays], where mu is such that sum(`chance` * weights) is 1."""

    def too_low(mu: float) -> bool:
        return bool((chance * np.maximum(0.0, (mu - cost) / steepness)).sum() < 1.0)

    highest = float(cost.max() + (steepness / chance).max() + 1.0)
    _, mu = bisected(too_low, float(cost.min()), highest, _BISECTIONS)
    weights = np.maximum(0.0, (mu - cost) / steepness)
    return np.asarray(weights / (chance * weights).sum())
