"""q-FFL: the weight of a device is the q-th power of its loss, so devices with a large loss count more.

Li, Sanjabi, Beirami, Smith: "Fair Resource Allocation in Federated Learning", ICLR 2020, Algorithm 2 (q-FedAvg),
https://arxiv.org/abs/1905.10497

Method: devices are drawn with probabilities p_k, their shares of the samples; device k computes its loss F_k(w) at the
received w, and its model w_k by local steps of size 1 / L. With D_k = L (w - w_k), the server moves to w - sum_k F_k^q
D_k / sum_k (q F_k^(q - 1) |D_k|^2 + L F_k^q).

Differences from the paper: a device sends w_k and F_k instead of F_k^q D_k and the k-th term of the denominator, which
have the same size and information. L is 1 / lr. The loss is the training loss over all samples of the device, and at
least 1e-10, since for q < 1 the term F_k^(q - 1) is infinite at 0. A cohort is drawn without replacement among the
devices that are present; updates that do not arrive are left out of both sums. Running statistics (batch norm) are
replaced by their mean, weighted by F_k^q, and are left out of |D_k|.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from fednet_emu.algorithms.base import Synchronous
from fednet_emu.algorithms.selection.cohort_sampler import CohortSampler
from fednet_emu.algorithms.selection.rules import Uniform
from fednet_emu.federation import Accumulation, Deferred, Device, Federation, Process, cohort_size, computes_only

_LEAST_LOSS = 1e-10


class QFfl(Synchronous):
    """Federated averaging that minimises the mean over devices of loss^(q + 1); a larger q makes losses more even."""

    plain_steps = True
    q: float = Field(1.0, ge=0)
    """Exponent q of the losses in the weights of devices; 0 gives equal weights (FedAvg with uniform weighting)."""
    sampling: Literal["samples", "uniform"] = "samples"
    """How the cohort is drawn. samples: in proportion to numbers of samples, as in the paper; uniform: with equal
    probabilities. The weights of updates depend only on the losses. If `selection` is not `uniform`, this setting must
    be uniform."""

    def _check(self) -> None:
        super()._check()
        if self.sampling != "uniform" and type(self.selection) is not Uniform:
            raise ValueError(
                "sampling and selection both choose devices, got "
                f"{self.sampling} and {type(self.selection).__name__}; give sampling: uniform"
            )

    def run(self, fed: Federation) -> Process:
        w = fed.initial_model()
        for t in fed.rounds():
            arrived = yield from self.round(fed, t, w, self.client, up=w.size + 1)
            w = arrived.model
            if arrived:
                parts = [part for _, (w_k, loss) in arrived for part in (loss, w_k)]
                w = fed.accumulate(fair_step, parts, w, len(arrived), self.q, self.lr, fed.n_statistics)
            fed.end_of_round(w)

    @computes_only
    def client(self, fed: Federation, k: Device, w: Deferred, t: int) -> Process:
        loss = yield k.loss(w, t, "loss")
        trained = yield k.train(w, self.plan, t)
        return trained.params, loss

    @property
    def asks_selection(self) -> bool:
        return self.sampling == "uniform"

    def invited(self, fed: Federation, t: int, message: Any, sampler: CohortSampler) -> Process:
        if self.sampling == "uniform":
            return (yield from super().invited(fed, t, message, sampler))
        there = yield fed.cohort(fed.n_devices, t)
        share = np.array([k.n_samples for k in there], dtype=float)
        size = min(cohort_size(self.cohort, fed.n_devices), len(there))
        places = fed.streams("q-ffl", t).choice(len(there), size, replace=False, p=share / share.sum())
        return (yield from sampler.planned(t, [there[place] for place in np.sort(places)]))


def fair_step(w: Tensor, count: int, q: float, lr: float, statistics: int = 0) -> Accumulation:
    """Return the model [P] after a step of q-FedAvg from `w` [P], with exponent `q` and step size `lr` of devices.

    The loss and then the model of each of `count` devices are received one by one. Both sums of the paper are
    multiplied by `lr`, so that they stay finite if `lr` is 0.
    """
    update, total, weights, n = torch.zeros_like(w), 0.0, 0.0, len(w) - statistics
    for _ in range(count):
        loss = max(float((yield)), _LEAST_LOSS)
        difference = (yield) - w
        weight = loss**q
        update.add_(difference, alpha=weight)
        total += weight
        weights += weight
        if q and lr:
            total += q * weight / loss * difference[:n].square().sum().item() / lr
    if statistics and weights:
        update[n:] *= total / weights
    return w + update / total
