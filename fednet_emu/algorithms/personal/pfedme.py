"""pFedMe: personal models that are kept near a shared model by the penalty of a Moreau envelope.

Dinh, Tran, Nguyen: "Personalized Federated Learning with Moreau Envelopes", NeurIPS 2020, Algorithm 1,
https://arxiv.org/abs/2006.08848

Method: a device sets w_k to the w that it receives. R times it approximates the minimiser theta_k of
f_k(theta) + lambda/2 ||theta - w_k||^2 by the local steps of its plan, and sets
w_k <- w_k - eta lambda (w_k - theta_k). The server sets w <- (1 - beta) w + beta mean w_k.

Differences from the paper: each local step draws a new batch, whereas the paper uses one batch for all steps towards a
theta_k. A device outside the cohort computes nothing; in the paper all devices compute and some do not send. The
personal models theta_k are evaluated, and running statistics (batch norm) are taken from theta_k.
"""

from __future__ import annotations

from pydantic import Field
from torch import Tensor

from fednet_emu.algorithms.base import Synchronous
from fednet_emu.federation import Deferred, Device, Federation, Process, computes_only


class PFedMe(Synchronous):
    """A penalty keeps each device's personal model near its local model; the server averages the local models."""

    kind = "pfedme"
    equal_weights = True
    uses = Synchronous.uses | {"sums"}
    sends_models = True
    pull: float = Field(15.0, gt=0)
    """Factor lambda of the proximal term that keeps a personal model near its device's local model; 15 in the paper."""
    local_model_lr: float = Field(0.005, ge=0)
    """Step size of the local model towards the personal model (eta)."""
    local_model_steps: int = Field(1, gt=0)
    """Number R of steps of the local model towards the personal model in a round; SGD steps precede each of them."""
    server_lr: float = Field(1.0, ge=0)
    """Step size of the server towards the mean of the local models (beta)."""

    def run(self, fed: Federation) -> Process:
        w = fed.initial_model()
        own = [w] * fed.n_devices
        for t in fed.rounds():
            arrived = yield from self.round(fed, t, w, self.client, own)
            w = arrived.average("uniform", self.server_lr)
            fed.end_of_round(list(own))

    @computes_only
    def client(self, fed: Federation, k: Device, w: Deferred, t: int, own: list[Deferred]) -> Process:
        for step in range(self.local_model_steps):
            personal = yield k.train(w, self.plan, t, step, prox=self.pull)
            own[k.index] = personal.params
            w = fed.defer(stepped, w, personal.params, self.local_model_lr * self.pull, fed.n_statistics)
        return w


def stepped(w: Tensor, personal: Tensor, factor: float, statistics: int = 0) -> Tensor:
    """Return local model `w` [P] after a step towards `personal` [P], from which running statistics are taken."""
    after = w - factor * (w - personal)
    if statistics:
        after[-statistics:] = personal[-statistics:]
    return after
