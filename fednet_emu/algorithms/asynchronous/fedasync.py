"""Asynchronous federated optimization.

Xie, Koyejo, Gupta: "Asynchronous Federated Optimization", 2019, https://arxiv.org/abs/1903.03934, Algorithm 1:

- a worker receives (w_t, t), minimises f(w) + rho / 2 |w - w_t|^2 by SGD on its own samples: `client`;
- at each reply of a worker, w <- (1 - alpha_t) w + alpha_t w_k with alpha_t = alpha s(staleness): `run`;
- the scheduler triggers further workers meanwhile: `next`.

Differences from the paper:

- The scheduler keeps `concurrency` devices at work; the paper does not specify which workers it triggers, and when.
- The staleness counts the versions since the worker's model, so that s is 1 for the latest version.
- The server keeps the time stamps itself: they are not part of the messages.
- Lost or late replies are left out, and their device is free again.
"""

from __future__ import annotations

import torch
from pydantic import Field

from fednet_emu.algorithms.asynchronous.dispatcher import Concurrent, record_arrival
from fednet_emu.algorithms.asynchronous.staleness import AnyStaleness, Constant
from fednet_emu.federation import Deferred, Device, Federation, Process


class FedAsync(Concurrent):
    """The server mixes each model that arrives into its own, the less the staler it is; a round is one such update."""

    kind = "fedasync"
    alpha: float = Field(0.6, ge=0, le=1)
    """Mixing weight of a fresh model; 0.6 in the paper's experiments."""
    staleness: AnyStaleness = Constant()
    """Factor of `alpha` by staleness, the versions that the server has made since the device was sent its model."""
    rho: float = Field(0.0, ge=0)
    """Strength of the proximal term that holds a device's model near the one that it received."""

    def answers(self, count: int) -> int:
        return 1

    def run(self, fed: Federation) -> Process:
        w = fed.initial_model()
        for t in fed.rounds():
            w = fed.published(w)
            arrival = yield from self.next(fed, t, w, self.client)
            alpha_t = self.alpha * self.staleness.weight(record_arrival(fed, t, arrival))
            w = fed.defer(torch.lerp, w, arrival.payload, alpha_t)  # (1 - alpha_t) w + alpha_t w_k
            fed.end_of_round(w)

    def client(self, fed: Federation, k: Device, w: Deferred, n: int) -> Process:
        training = k.train(w, self.plan, n, prox=self.rho)
        del w  # a model is in memory no longer than the training needs it
        trained = yield training
        return trained.params
