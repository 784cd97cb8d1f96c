"""Asynchronous federated optimization.

Xie, Koyejo, Gupta: "Asynchronous Federated Optimization", 2019, https://arxiv.org/abs/1903.03934, Algorithm 1:

- a worker receives (w_t, t), minimises f(w) + rho / 2 |w - w_t|^2 by SGD on its own samples: `client`;
- at each reply of a worker, w <- (1 - alpha_t) w + alpha_t w_k with alpha_t = alpha s(staleness): `run`;
- meanwhile the scheduler triggers other workers: `next`.

Differences from the paper:

- The scheduler keeps `concurrency` devices busy; the paper does not specify which workers are triggered, and when.
- The staleness is the number of versions since the worker's model, so that s is 1 for the latest version.
- The server keeps the time stamps itself; messages do not contain them.
- Lost or late replies are left out, and their devices can be invited again.
"""

from __future__ import annotations

import torch
from pydantic import Field

from fednet_emu.algorithms.asynchronous.dispatcher import Concurrent, record_arrival
from fednet_emu.algorithms.asynchronous.staleness import AnyStaleness, Constant
from fednet_emu.federation import Deferred, Device, Federation, Process


class FedAsync(Concurrent):
    """The server mixes each arriving model into its own, and gives stale models less weight; each mix is a round."""

    kind = "fedasync"
    alpha: float = Field(0.6, ge=0, le=1)
    """Mixing weight of a fresh model; 0.6 in the paper's experiments."""
    staleness: AnyStaleness = Constant()
    """Factor by which `alpha` is multiplied, as a function of the staleness, which is the number of server versions
    since the device received its model."""
    rho: float = Field(0.0, ge=0)
    """Factor rho of the proximal term rho / 2 |w - w_t|^2, which keeps a device's model near the received model w_t."""

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
        del w  # lets the model be freed as soon as the training no longer needs it
        trained = yield training
        return trained.params
