"""Federated averaging.

McMahan, Moore, Ramage, Hampson, Agüera y Arcas: "Communication-Efficient Learning of Deep Networks from Decentralized
Data", AISTATS 2017, https://proceedings.mlr.press/v54/mcmahan17a.html

Differences from the paper: the server may scale the mean update (`server_lr`; the paper has 1), a round may have a
deadline, and lost uplinks may be sent again. Updates that do not arrive are left out of the mean.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor

from fednet_emu.algorithms.local_sgd import LocalSgd
from fednet_emu.federation import Accumulation, Deferred, Device, Federation, Process


class FedAvg(LocalSgd):
    """Each round a random cohort trains locally, and the server averages the models that arrive."""

    kind: Literal["fedavg"] = "fedavg"
    weighting: Literal["samples", "uniform"] = "samples"
    """Weight of a device in the mean: its number of samples, as in the paper, or the same for all devices."""
    server_lr: float = Field(1.0, ge=0)
    """Step size of the server: the factor of the mean update."""
    retries: int = Field(0, ge=0)
    """Number of times that a lost upload is sent again."""

    def run(self, fed: Federation) -> Process:
        """The server: invite a cohort, wait for its models, average them."""
        w = fed.initial_model()
        for t in fed.rounds():
            cohort = yield fed.cohort(self.cohort, t)
            replies = yield fed.gather((self.client(fed, k, w, t) for k in cohort), self.deadline_s)
            arrived = [(k, reply.payload) for k, reply in zip(cohort, replies, strict=True) if not reply.lost]
            if arrived:
                weights = [k.n_samples if self.weighting == "samples" else 1 for k, _ in arrived]
                w = fed.accumulate(average, [w_k for _, w_k in arrived], w, weights, self.server_lr)
            fed.end_of_round(w, invited=len(cohort), arrived=len(arrived))

    def client(self, fed: Federation, k: Device, w: Deferred, t: int) -> Process:
        """A device: receive the model, train, send the result."""
        got = yield fed.downlink(k, w)
        if got.lost:
            return got
        trained = yield k.compute(fed.train(k, got.payload, self.plan, t))
        return (yield fed.retry(lambda: fed.uplink(k, trained.params), attempts=1 + self.retries, pause_s=0))


def average(w: Tensor, weights: Sequence[float], server_lr: float = 1.0) -> Accumulation:
    """Move w [P] by server_lr times the weighted mean of the differences to it of the models that come one by one.

    Summing differences instead of models leaves w bit-identical when all models equal w.
    """
    update, total = torch.zeros_like(w), sum(weights)
    for weight in weights:
        update.add_((yield) - w, alpha=weight / total)
    return w + server_lr * update
