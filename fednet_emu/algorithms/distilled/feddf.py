"""FedDF: the server distils the ensemble of the received models into the mean of these models.

Lin, Kong, Stich, Jaggi: "Ensemble Distillation for Robust Model Fusion in Federated Learning", NeurIPS 2020,
https://arxiv.org/abs/2006.07242

Method: devices train locally and send models; the server averages the models, weighted by samples. It then trains the
mean model on samples without labels towards softmax(mean of the scores of the received models), with the
Kullback-Leibler divergence as the loss.

Differences from the paper: all models have one architecture. The server takes a fixed number of plain SGD steps, and
uses the model after the last step.
"""

from __future__ import annotations

from torch import Tensor

from fednet_emu.algorithms.base import NO_SERVER_SPEED, Synchronous
from fednet_emu.algorithms.distilled.public import PublicSamples
from fednet_emu.federation import Accumulation, Federation, LocalStep, Process, Work
from fednet_emu.learning.models.evaluate import outputs_of
from fednet_emu.learning.models.flat import FlatModel


class FedDF(PublicSamples, Synchronous):
    """Federated averaging, after which the server trains the mean model towards the mean scores of received models."""

    kind = "feddf"
    sends_models = True
    uses = Synchronous.uses | {"server-samples", "server-speed"}
    excludes = (NO_SERVER_SPEED,)

    def run(self, fed: Federation) -> Process:
        w, x, model = fed.initial_model(), self.public(fed), fed.task.model
        for t in fed.rounds():
            arrived = yield from self.round(fed, t, w, self.client)
            if arrived:
                n, models = len(arrived), arrived.models
                scores = fed.accumulate(ensemble, models, model, x, n, size=self.n_scores(fed))
                w = arrived.average()
                yield fed.server.compute(Work(n * len(x) * model.forward_flop_per_sample, scores, output=scores.number))
                distilled = yield self.distil(fed, fed.server, w, scores, t)
                w = distilled.params
            fed.end_of_round(w)

    @property
    def client(self) -> LocalStep:
        return LocalStep(self.plan)


def ensemble(model: FlatModel, x: Tensor, n: int) -> Accumulation:
    """Return the mean scores [M, classes] of `n` models, received one by one, on the samples `x` [M, ...]."""
    total = outputs_of(model, (yield), x)
    for _ in range(n - 1):
        total = total + outputs_of(model, (yield), x)
    return total / n
