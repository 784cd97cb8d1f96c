"""FedPer: the base layers are averaged; the personal layers never leave the device.

Arivazhagan, Aggarwal, Singh, Choudhary: "Federated Learning with Personalization Layers", 2019,
https://arxiv.org/abs/1912.00818

Differences from the paper: a round may have a cohort instead of all devices.
"""

from __future__ import annotations

from fednet_emu.algorithms.base import Synchronous
from fednet_emu.federation import Deferred, Device, Federation, Process, computes_only
from fednet_emu.learning.models.layers import LayerName, Layers


class FedPer(Synchronous):
    """Each device trains its base and personal layers together, and sends only the base layers."""

    kind = "fedper"
    sends_models = True
    uses = Synchronous.uses ^ {"sums", "polls"}
    personal_layers: tuple[LayerName, ...] = (-1,)
    """Layers that stay on the device, by name, pattern or index; -1 is the last layer."""

    def run(self, fed: Federation) -> Process:
        layers, w = Layers(fed.task.model, self.personal_layers), fed.initial_model()
        fed.links.statistics[layers.n_shared] = layers.n_statistics
        own, base = [w] * fed.n_devices, fed.defer(layers.take, w, size=layers.n_shared)
        for t in fed.rounds():
            arrived = yield from self.round(fed, t, base, self.client, own, layers)
            base = arrived.average("uniform" if self.equal_weights else "samples")
            fed.end_of_round([fed.defer(layers.put, mine, base) for mine in own])

    @computes_only
    def client(
        self, fed: Federation, k: Device, base: Deferred, t: int, own: list[Deferred], layers: Layers
    ) -> Process:
        start = fed.defer(layers.put, own[k.index], base)
        trained = yield k.train(start, self.plan, t)
        own[k.index] = trained.params
        return fed.defer(layers.take, trained.params, size=layers.n_shared)
