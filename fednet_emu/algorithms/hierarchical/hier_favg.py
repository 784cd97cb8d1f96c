"""HierFAVG: edge servers average the models of their devices, and the cloud averages the models of edge servers.

Liu, Zhang, Song, Letaief: "Client-Edge-Cloud Hierarchical Federated Learning", ICC 2020,
https://arxiv.org/abs/1905.06641, Algorithm 1

Method: every device takes k1 local steps (`local_steps`). Each edge server then averages the models of its devices,
weighted by their samples, and sends the mean to the devices. After k2 such edge rounds (`edge_rounds`) the cloud
averages the models of the edge servers, weighted by the number of samples of their devices, and sends the mean to the
edge servers. A round here ends with an average in the cloud: it contains k1 k2 local steps.

If `edge_rounds` is 1 and the backhaul is ideal, the algorithm is equivalent to `fedavg` over the same base stations:
events are the same and, with one edge server, models are bit-identical. With several edge servers, floating-point sums
have a different order.

Differences from the paper: edge servers do not wait for each other between two averages in the cloud. An edge server
sends the change of its model instead of the model, with the same number of bits, and the cloud adds the weighted
changes to its own model. There may be a cohort instead of all devices, a deadline in every edge round, and messages
that are lost:

- In an edge round an edge server invites those devices of the cohort that it serves when the round begins, except
  devices that are still busy for another edge server. If there are no such devices, the edge round ends immediately.
- A device that was handed over while it trained uploads to the edge server that now serves the device. This edge server
  forwards the model over the backhaul, through the cloud, to the edge server for which the model was trained.
- The weight of an edge server in the cloud is the total number of samples of all models that the edge server has
  averaged since it received the cloud's model; if devices do not move and no message is lost, this is the paper's
  weight. An edge server that has received no models sends nothing.
- If an edge server does not receive the cloud's model, the edge server and its devices do nothing until the next round.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal, NamedTuple

import torch
from pydantic import Field
from simpy.events import Event
from torch import Tensor

from fednet_emu.algorithms.base import EVENTS, Invited, LocalTraining
from fednet_emu.federation import (
    Accumulation,
    Deferred,
    Device,
    EdgeServers,
    Federation,
    Process,
    mean_update,
    moved_by_sum,
)


class HierFAvg(LocalTraining):
    """Devices train; edge servers average the devices' models several times per round, and the cloud once."""

    kind = "hier-favg"
    uses = frozenset({"uplink-compression", "edges"})
    cohort: Invited = 0.5
    deadline_s: float | None = Field(None, gt=0)
    """Maximum time that an edge server waits for its devices in an edge round (simulated s); late devices are cancelled
    and left out of the edge round. Null waits for all devices."""
    edge_rounds: int = Field(4, gt=0)
    """Number of averages in an edge server per average in the cloud (k2), each after k1 local steps (`local_steps`).
    The paper's experiments use, for example, 4 with 15 local steps."""
    weighting: Literal["samples", "uniform"] = "samples"
    """Weight of a device in the means: its number of samples (samples), as in the paper, or equal weights (uniform)."""
    retries: int = Field(0, ge=0)
    """Maximum number of times that a device sends a lost upload again."""
    backhaul_retries: int = Field(3, ge=0)
    """Maximum number of times that a message lost on the backhaul is sent again, in either direction."""

    def events(self, n_samples: int | None) -> int:
        return EVENTS * self.edge_rounds

    def run(self, fed: Federation) -> Process:
        w, edges = fed.initial_model(), EdgeServers(fed)
        for t in fed.rounds():
            interval = Interval(t, (yield fed.cohort(self.cohort, t)))
            replies = yield fed.gather(self.edge(fed, edges, e, w, interval) for e in range(edges.count))
            moved = [reply for reply in replies if reply.arrived]
            if moved:
                total = sum(reply.weight for reply in moved)
                weights = [reply.weight / total for reply in moved]
                w = fed.accumulate(moved_by_sum, [reply.update for reply in moved], w, weights)
            fed.end_of_round(w, invited=interval.invited, arrived=sum(reply.arrived for reply in moved))

    def edge(self, fed: Federation, edges: EdgeServers, e: int, w: Deferred, interval: Interval) -> Process:
        """Process of edge server `e`: receive the cloud's model, average device models k2 times, and send an update."""
        got = yield from self.resent(fed, partial(edges.down, e, w))
        if got.lost:
            return EdgeReply()
        update, weight, count = None, 0, 0
        for r in range(self.edge_rounds):
            w_e = got.payload if update is None else fed.defer(torch.add, got.payload, update)
            here = interval.invite([k for k in interval.cohort if edges.of(k) == e])
            number = interval.t * self.edge_rounds + r
            arrived = yield from fed.exchange(here, w_e, self.client, edges, e, number, deadline_s=self.deadline_s)
            interval.free(here)
            if arrived:
                weights = arrived.weights(self.weighting)
                update = fed.accumulate(moved_further, arrived.models, w_e, update, weights, size=w.size)
                weight, count = weight + sum(weights), count + len(arrived)
            fed.record("edge_rounds", edge=e, edge_round=r + 1, invited=len(here), arrived=len(arrived))
        if update is None:
            return EdgeReply()
        sent = yield from self.resent(fed, partial(edges.up, e, update))
        return EdgeReply() if sent.lost else EdgeReply(sent.payload, weight, count)

    def client(self, fed: Federation, k: Device, w_e: Deferred, edges: EdgeServers, e: int, number: int) -> Process:
        """Process of device `k`: train the model of edge server `e`, and upload it, perhaps to another edge server."""
        trained = yield k.train(w_e, self.plan, number)
        reached = e

        def send() -> Event:
            nonlocal reached
            reached = edges.of(k)
            return fed.uplink(k, trained.params, since=w_e)

        sent = yield from fed.retry(send, attempts=1 + self.retries, pause_s=0)
        if not sent.lost and reached != e:
            sent = yield from self.resent(fed, partial(edges.up, reached, sent.payload))
            if not sent.lost:
                sent = yield from self.resent(fed, partial(edges.down, e, sent.payload))
        return sent

    def resent(self, fed: Federation, send: Callable[[], Event]) -> Process:
        """Send a message on the backhaul; a lost message is sent again up to `backhaul_retries` times."""
        return fed.retry(send, attempts=1 + self.backhaul_retries, pause_s=0)


class EdgeReply(NamedTuple):
    """The reply of an edge server: its update, the weight of the update, and the number of models in it."""

    update: Any = None
    weight: int = 0
    arrived: int = 0


@dataclass
class Interval:
    """State of the interval between two averages in the cloud: its index, its cohort, busy devices, invitations."""

    t: int
    cohort: Sequence[Device]
    at_work: set[int] = field(default_factory=set)
    invited: int = 0

    def invite(self, devices: Sequence[Device]) -> list[Device]:
        """Invite and return the members of `devices` that are not busy for any edge server."""
        invited = [k for k in devices if k.index not in self.at_work]
        self.at_work.update(k.index for k in invited)
        self.invited += len(invited)
        return invited

    def free(self, devices: Sequence[Device]) -> None:
        self.at_work.difference_update(k.index for k in devices)


def moved_further(w_e: Tensor, update: Tensor | None, weights: Sequence[float]) -> Accumulation:
    """Return the total change of the cloud's model on an edge server after one more edge round from `w_e` [P].

    `update` is the total change before this edge round, and None if there was none. The models of the devices are
    received one by one, and averaged with the given weights.
    """
    further = yield from mean_update(w_e, weights)
    return further if update is None else update + further
