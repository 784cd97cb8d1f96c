"""FedPer: the base layers are averaged, the personal ones never leave the device.

Arivazhagan, Aggarwal, Singh, Choudhary: "Federated Learning with Personalization Layers", 2019,
https://arxiv.org/abs/1912.00818

Differences from the paper: a round may have a cohort of fewer than all devices.
"""

from __future__ import annotations

from typing import ClassVar

from fednet_emu.algorithms.fedavg import average
from fednet_emu.algorithms.local_sgd import LocalSgd
from fednet_emu.federation import Deferred, Device, Federation, Process, Upload
from fednet_emu.learning.models.layers import LayerName, Layers


class FedPer(LocalSgd):
    """Each device trains base and personal layers together, and shares the base."""

    kind = "fedper"
    single_uploads: ClassVar[str] = ""
    moves: ClassVar[frozenset[str]] = frozenset({"uplink", "downlink"})
    private: tuple[LayerName, ...] = (-1,)
    """Layers that stay on the device, by name, pattern or index; -1 is the last layer."""

    def run(self, fed: Federation) -> Process:
        """The server: average the base."""
        layers = Layers(fed.task.model, self.private)
        w = fed.initial_model()
        own, base = [w] * fed.n_devices, fed.defer(layers.take, w, size=layers.n_shared)
        for t in fed.rounds():
            base = fed.published(base)
            cohort = yield fed.cohort(self.cohort, t)
            clients = (self.client(fed, k, base, own, layers, t) for k in cohort)
            replies, mean = yield fed.uplink_sum(base, clients, self.deadline_s)
            arrived = [(k, reply.payload) for k, reply in zip(cohort, replies, strict=True) if not reply.lost]
            if arrived:
                models, weights = [b_k for _, b_k in arrived], [k.n_samples for k, _ in arrived]
                base = fed.accumulate(average, models, base, weights, 1.0, mean)
            whole = [fed.defer(layers.put, mine, base) for mine in own]
            fed.end_of_round(whole, invited=len(cohort), arrived=len(arrived))

    def client(
        self, fed: Federation, k: Device, base: Deferred, own: list[Deferred], layers: Layers, t: int
    ) -> Process:
        """A device: combine the new base with its personal layers, train both, send the base."""
        got = yield fed.downlink(k, base)
        if got.lost:
            return got
        start = fed.defer(layers.put, own[k.index], got.payload)
        trained = yield k.compute(fed.train(k, start, self.plan, t))
        own[k.index] = trained.params
        mine = fed.defer(layers.take, trained.params, size=layers.n_shared)
        return Upload(k, mine, since=got.payload)
