"""Ditto: a global model by federated averaging, plus a personal model per device that stays close to the global model.

Li, Hu, Beirami, Smith: "Ditto: Fair and Robust Federated Learning Through Personalization", ICML 2021,
https://proceedings.mlr.press/v139/li21h.html

Differences from the paper: none in the updates. The global and the personal model are trained with the same number of
steps and the same step size.
"""

from __future__ import annotations

from pydantic import Field

from fednet_emu.algorithms.base import Synchronous
from fednet_emu.federation import Deferred, Device, Federation, Process, computes_only


class Ditto(Synchronous):
    """Each device trains a personal model that stays close to the global model.

    The personal model v_i of device i minimises f_i(v_i) + pull / 2 ||v_i - w||^2, where f_i is the loss of the device
    and w the global model.
    """

    sends_models = True
    uses = Synchronous.uses | {"sums"}
    pull: float = Field(ge=0)
    """Factor of the proximal term that keeps a personal model close to the global model (lambda); if it is 0, every
    device trains its personal model independently."""

    def run(self, fed: Federation) -> Process:
        w = fed.initial_model()
        own = [w] * fed.n_devices
        for t in fed.rounds():
            arrived = yield from self.round(fed, t, w, self.client, own)
            w = arrived.average()
            fed.end_of_round(list(own))

    @computes_only
    def client(self, fed: Federation, k: Device, w: Deferred, t: int, own: list[Deferred]) -> Process:
        trained = yield k.train(w, self.plan, t)
        mine = yield k.train(own[k.index], self.plan, t, "own", prox=self.pull, anchor=w)
        own[k.index] = mine.params
        return trained.params
