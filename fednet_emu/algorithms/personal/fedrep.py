"""FedRep: a shared representation, and a head per device that is fitted to the representation before each round.

Collins, Hassani, Mokhtari, Shakkottai: "Exploiting Shared Representations for Personalized Federated Learning",
ICML 2021, https://proceedings.mlr.press/v139/collins21a.html

Differences from the paper: steps on one part of the model cost as much compute as full steps. A model is evaluated as
the shared representation with the current head of its device, without fitting the head again.
"""

from __future__ import annotations

from dataclasses import replace

from pydantic import Field

from fednet_emu.algorithms.personal.fedper import FedPer
from fednet_emu.federation import Deferred, Device, Federation, Process, computes_only
from fednet_emu.learning.models.layers import Layers


class FedRep(FedPer):
    """Each device fits its head with the representation frozen, then trains the representation with the head frozen."""

    kind = "fedrep"
    equal_weights = True
    head_epochs: int = Field(gt=0)
    """Number of passes over the device's samples to fit the head, before the local steps on the representation."""

    @computes_only
    def client(
        self, fed: Federation, k: Device, body: Deferred, t: int, own: list[Deferred], layers: Layers
    ) -> Process:
        start = fed.defer(layers.put, own[k.index], body)
        head = replace(self.plan, steps=None, epochs=self.head_epochs)
        fitted = yield k.train(start, head, t, "head", mask=layers.personal)
        trained = yield k.train(fitted.params, self.plan, t, mask=layers.shared)
        own[k.index] = trained.params
        return fed.defer(layers.take, trained.params, size=layers.n_shared)
