"""FedMD: devices exchange the scores of public samples instead of models.

Li, Wang: "FedMD: Heterogenous Federated Learning via Model Distillation", 2019, https://arxiv.org/abs/1910.03581

Method: a device sends the class scores of its model on all public samples. The server sends their mean, the
consensus. A device trains towards the consensus on public samples (digest), then on its own (revisit).

Differences from the paper: all models have one architecture, although no message depends on the architecture, and the
same initial values. Models are not trained on labelled public samples before the first round. A round lasts from one
consensus to the next. In the first round there is no consensus yet, so devices train only on their own samples. All
public samples are used in every round. The loss of the digest step is the Kullback-Leibler divergence, as in FedDF.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from fednet_emu.algorithms.base import Synchronous
from fednet_emu.algorithms.distilled.public import PublicSamples
from fednet_emu.federation import Deferred, Device, Federation, Process, Work, computes_only
from fednet_emu.learning.models.evaluate import outputs_of


class FedMD(PublicSamples, Synchronous):
    """Each device keeps its model, sends only scores of public samples, and learns from the mean of all scores."""

    kind = "fedmd"
    exchanges_models = False
    uses = frozenset({"server-samples"})

    def events(self, n_samples: int | None) -> int:
        return 5

    def run(self, fed: Federation) -> Process:
        x, n = self.public(fed), self.n_scores(fed)
        own, consensus = [fed.initial_model()] * fed.n_devices, None
        for t in fed.rounds():
            arrived = yield from self.round(fed, t, consensus, self.client, own, x, down=n)
            if arrived:
                consensus = fed.defer(mean, arrived.models)
            fed.end_of_round(list(own))

    @computes_only
    def client(
        self, fed: Federation, k: Device, consensus: Deferred | None, t: int, own: list[Deferred], x: Tensor
    ) -> Process:
        w = own[k.index]
        if consensus is not None:
            digested = yield self.distil(fed, k, w, consensus, t)
            w = digested.params
        trained = yield k.train(w, self.plan, t)
        own[k.index] = trained.params
        scores = fed.defer(outputs_of, fed.task.model, trained.params, x, size=self.n_scores(fed))
        flop = fed.task.model.forward_flop_per_sample * fed.server.n_samples
        return (yield k.compute(Work(flop, scores, trained.params.number, scores.number)))


def mean(scores: Sequence[Tensor]) -> Tensor:
    """Return the mean [M, classes] of the `scores`, each [M, classes]."""
    return torch.stack(list(scores)).mean(0)
