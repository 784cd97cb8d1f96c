"""Ditto: a global model by federated averaging, plus a personal model per device that is kept close to it.

Li, Hu, Beirami, Smith: "Ditto: Fair and Robust Federated Learning Through Personalization", ICML 2021,
https://proceedings.mlr.press/v139/li21h.html

Differences from the paper: none in the updates. The global and the personal model make the same number of steps, of the
same size.
"""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from fednet_emu.algorithms.fedavg import average
from fednet_emu.algorithms.local_sgd import LocalSgd
from fednet_emu.federation import Deferred, Device, Federation, Process, Upload


class Ditto(LocalSgd):
    """Personal models v_i minimise f_i(v_i) + pull / 2 ||v_i - w||^2 around the global model w."""

    single_uploads: ClassVar[str] = ""
    moves: ClassVar[frozenset[str]] = frozenset({"uplink", "downlink"})
    pull: float = Field(ge=0)
    """Factor of the proximal term that keeps a personal model close to the global one (lambda); with 0 every device
    trains its personal model alone."""

    def run(self, fed: Federation) -> Process:
        """The server: average the global model as in FedAvg; personal models never leave their devices."""
        w = fed.initial_model()
        own = [w] * fed.n_devices
        for t in fed.rounds():
            w = fed.published(w)
            cohort = yield fed.cohort(self.cohort, t)
            clients = (self.client(fed, k, w, own, t) for k in cohort)
            replies, mean = yield fed.uplink_sum(w, clients, self.deadline_s)
            arrived = [(k, reply.payload) for k, reply in zip(cohort, replies, strict=True) if not reply.lost]
            if arrived:
                models, weights = [w_k for _, w_k in arrived], [k.n_samples for k, _ in arrived]
                w = fed.accumulate(average, models, w, weights, 1.0, mean)
            fed.end_of_round(list(own), invited=len(cohort), arrived=len(arrived))

    def client(self, fed: Federation, k: Device, w: Deferred, own: list[Deferred], t: int) -> Process:
        """A device: train the global model, then the personal model around it; send only the global one."""
        got = yield fed.downlink(k, w)
        if got.lost:
            return got
        trained = yield k.compute(fed.train(k, got.payload, self.plan, t))
        mine = fed.train(k, own[k.index], self.plan, t, "own", prox=self.pull, anchor=got.payload)
        own[k.index] = (yield k.compute(mine)).params
        return Upload(k, trained.params, since=got.payload)
