"""FedRep: a shared representation, and a head per device that is fitted to it at the start of each round.

Collins, Hassani, Mokhtari, Shakkottai: "Exploiting Shared Representations for Personalized Federated Learning",
ICML 2021, https://proceedings.mlr.press/v139/collins21a.html

Differences from the paper: steps on one part of the model cost as much compute as full steps. A model is evaluated as
the shared representation with the current head of its device, without fitting the head again.
"""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

from pydantic import Field

from fednet_emu.algorithms.fedavg import average
from fednet_emu.algorithms.local_sgd import LocalSgd
from fednet_emu.federation import Deferred, Device, Federation, Process, Upload
from fednet_emu.learning.models.layers import LayerName, Layers


class FedRep(LocalSgd):
    """Each device fits its head with the representation frozen, then trains the representation with the head frozen."""

    kind = "fedrep"
    single_uploads: ClassVar[str] = ""
    moves: ClassVar[frozenset[str]] = frozenset({"uplink", "downlink"})
    private: tuple[LayerName, ...] = (-1,)
    """The head: layers that stay on the device, by name, pattern or index; -1 is the last layer."""
    head_epochs: int = Field(gt=0)
    """Passes over the device's samples to fit the head, before the local steps on the representation."""

    def run(self, fed: Federation) -> Process:
        """The server: average the representation, with equal weights for all devices."""
        layers = Layers(fed.task.model, self.private)
        w = fed.initial_model()
        own, body = [w] * fed.n_devices, fed.defer(layers.take, w, size=layers.n_shared)
        for t in fed.rounds():
            body = fed.published(body)
            cohort = yield fed.cohort(self.cohort, t)
            clients = (self.client(fed, k, body, own, layers, t) for k in cohort)
            replies, mean = yield fed.uplink_sum(body, clients, self.deadline_s)
            arrived = [reply.payload for reply in replies if not reply.lost]
            if arrived:
                body = fed.accumulate(average, arrived, body, [1] * len(arrived), 1.0, mean)
            whole = [fed.defer(layers.put, mine, body) for mine in own]
            fed.end_of_round(whole, invited=len(cohort), arrived=len(arrived))

    def client(
        self, fed: Federation, k: Device, body: Deferred, own: list[Deferred], layers: Layers, t: int
    ) -> Process:
        """A device: fit the head to the new representation, then train the representation and send it."""
        got = yield fed.downlink(k, body)
        if got.lost:
            return got
        start = fed.defer(layers.put, own[k.index], got.payload)
        head = replace(self.plan, steps=None, epochs=self.head_epochs)
        fitted = yield k.compute(fed.train(k, start, head, t, "head", mask=layers.private))
        trained = yield k.compute(fed.train(k, fitted.params, self.plan, t, mask=layers.shared))
        own[k.index] = trained.params
        mine = fed.defer(layers.take, trained.params, size=layers.n_shared)
        return Upload(k, mine, since=got.payload)
