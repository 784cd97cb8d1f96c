"""Rounds without a server: each device takes local steps, sends its model to neighbours, and mixes received models.

The methods differ in the senders and receivers of a round, and in the weight of a received model:

    x_i <- x_i + sum over the used edges j -> i of w_ij (x_j - x_i).

A device adds the weight of a lost model to its own weight, so that rows always sum to 1. Where a loss also affects the
sender, each receiver acknowledges a model by a message of one bit, and an edge is used only if the model and the
acknowledgement have arrived. As in all algorithms, a sender learns from its link at no cost whether a message arrived.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from fednet_emu.algorithms.base import LocalTraining
from fednet_emu.algorithms.d2d.round import pushed
from fednet_emu.arrays import Array
from fednet_emu.compression.base import FLOAT_BIT
from fednet_emu.federation import Deferred, Device, Digraph, Federation, Process

ACKNOWLEDGEMENT_BIT = 1
"""Size in bits of the message by which a device acknowledges a received model."""


class Decentralised(LocalTraining):
    """An algorithm without a server: each device has its own model, and exchanges models over the sidelink."""

    uses = frozenset({"sidelink", "consensus"})
    ships_no_base = "no server sends anything"

    def conflicts(self, scenario: Any) -> Iterator[tuple[str, str]]:
        yield from super().conflicts(scenario)
        sidelink = scenario.network.sidelink
        if sidelink is None or sidelink.topology is None:
            got = "no sidelink" if sidelink is None else "a sidelink without one"
            yield "kind", f"devices send to their neighbours in network.sidelink.topology, got {got}; give one"


@dataclass(frozen=True, slots=True)
class Turn:
    """State of a round in progress: models before and after local steps, and the models that have arrived."""

    t: int
    graph: Digraph
    models: Sequence[Deferred]  # models of all devices at the start of the round
    stepped: dict[int, Deferred] = field(default_factory=dict)  # models after local steps, by device
    heard: set[tuple[int, int]] = field(default_factory=set)  # (sender, receiver) of each accepted model


class Mixing(Decentralised):
    """Rounds of local steps and one exchange between neighbours; all devices wait for the end of the round."""

    deadline_s: float | None = Field(None, gt=0)
    """Maximum duration of a round (simulated s); steps and messages that are not finished by then are cancelled. A
    device that has not finished its steps keeps its model, and a model that has not arrived is not mixed. If null, a
    round ends when all devices have finished."""

    extra_scalars: ClassVar[int] = 0
    """Number of scalars in a message in addition to the model."""
    overlapped: ClassVar[bool] = False
    """Whether a device sends its model while it computes its local steps; the steps are then added after mixing."""
    acknowledged: ClassVar[bool] = True
    """Whether a received model is mixed only if its sender has received an acknowledgement of the model."""

    @abstractmethod
    def links(self, fed: Federation, graph: Digraph, t: int) -> Digraph:
        """Return the edges of the topology over which devices send in round `t`."""

    @abstractmethod
    def weights(self, fed: Federation, graph: Digraph, used: Digraph) -> tuple[Array, Mapping[str, float]]:
        """Return the weights w_ij of the `used` edges j -> i, in order of edges, and values for the series `mixing`."""

    def step(self, fed: Federation, k: Device, x: Deferred, trained: Deferred) -> Deferred:
        """Return the model of a device after local steps, which have changed the device's model `x` to `trained`."""
        return trained

    def usable(self, heard: Digraph) -> Digraph:
        """Return the edges of `heard` over which models are mixed; if `acknowledged`, only bidirectional edges."""
        return heard.mutual() if self.acknowledged else heard

    def run(self, fed: Federation) -> Process:
        models = [fed.initial_model()] * fed.n_devices
        for t in fed.rounds():
            cohort = yield fed.cohort(fed.n_devices, t)
            there = np.zeros(fed.n_devices, np.bool_)
            there[[k.index for k in cohort]] = True
            turn = Turn(t, self.links(fed, fed.digraph(t).among(there), t), models)
            yield fed.gather((self.device(fed, k, turn) for k in cohort), self.deadline_s)
            models = self.mixed(fed, turn)
            fed.end_of_round(models, invited=len(cohort), arrived=len(turn.stepped))

    def device(self, fed: Federation, k: Device, turn: Turn) -> Process:
        """Process of device `k`: take local steps and send the model, in sequence or in parallel (`overlapped`)."""
        if self.overlapped:
            yield fed.gather([self.train(fed, k, turn), self.push(fed, k, turn.models[k.index], turn)])
        else:
            yield from self.train(fed, k, turn)
            yield from self.push(fed, k, turn.stepped[k.index], turn)

    def train(self, fed: Federation, k: Device, turn: Turn) -> Process:
        x = turn.models[k.index]
        trained = yield k.train(x, self.plan, turn.t)
        turn.stepped[k.index] = self.step(fed, k, x, trained.params)

    def push(self, fed: Federation, k: Device, x: Deferred, turn: Turn) -> Process:
        """Send model `x` from device `k` to its neighbours, which acknowledge it if `acknowledged` is True."""
        if not turn.graph.receivers(k.index):
            return
        reached = yield from pushed(fed, turn.graph, k, x, (x.size + self.extra_scalars) * FLOAT_BIT)
        if self.acknowledged:
            yield fed.gather(self.acknowledge(fed, fed.device(i), k, turn) for i in reached)
        else:
            turn.heard.update((k.index, i) for i in reached)

    def acknowledge(self, fed: Federation, i: Device, k: Device, turn: Turn) -> Process:
        cluster = int(turn.graph.cluster[i.index])
        [told] = yield fed.sidelink(i, [k], None, ACKNOWLEDGEMENT_BIT, cluster)
        if not told.lost:
            turn.heard.add((k.index, i.index))

    def mixed(self, fed: Federation, turn: Turn) -> list[Deferred]:
        """Return the models of all devices after the round, and record a row of the series `mixing`."""
        graph, stepped = turn.graph, [turn.stepped.get(k, x) for k, x in enumerate(turn.models)]
        edges = zip(graph.sender.tolist(), graph.receiver.tolist(), strict=True)
        used = self.usable(graph.kept(np.fromiter((edge in turn.heard for edge in edges), np.bool_, len(graph.sender))))
        weights, told = self.weights(fed, graph, used)
        fed.record("mixing", edges=len(graph.sender), used=len(used.sender), **told)
        sent, models = turn.models if self.overlapped else stepped, list(stepped)
        for i in np.unique(used.receiver).tolist():
            mine = used.receiver == i
            others = [sent[j] for j in used.sender[mine].tolist()]
            models[i] = fed.defer(moved, stepped[i], sent[i], others, weights[mine], fed.n_statistics)
        return models


def moved(x: Tensor, own: Tensor, others: Sequence[Tensor], weights: Array, statistics: int = 0) -> Tensor:
    """Return a device's mixed model [P]: `x` + sum over neighbours j of w_j (x_j - `own`).

    Here `x` [P] is the model of the device after its local steps, `own` is the model that the device has sent, `others`
    are the received models x_j, and `weights` are the w_j. In the last `statistics` entries (running statistics), `own`
    is replaced by `x`.
    """
    if statistics:
        own = torch.cat([own[:-statistics], x[-statistics:]])
    shares = torch.as_tensor(weights, dtype=x.dtype, device=x.device)
    return x + shares @ (torch.stack(list(others)) - own)


def imbalance(used: Digraph, weights: Array) -> float:
    """Return the maximum difference of a column sum of the mixing matrix from 1; if 0, mixing preserves the mean."""
    given = np.bincount(used.sender, weights, used.n_devices)
    return float(np.abs(given - np.bincount(used.receiver, weights, used.n_devices)).max(initial=0.0))
