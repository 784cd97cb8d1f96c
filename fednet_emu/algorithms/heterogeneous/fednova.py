"""FedNova: the server averages updates that are normalised by the number of local steps behind them.

Wang, Liu, Liang, Joshi, Poor: "Tackling the Objective Inconsistency Problem in Heterogeneous Federated Optimization",
NeurIPS 2020, https://arxiv.org/abs/2007.07481

Method: device i takes tau_i local steps, which move its model by -lr times a sum of gradients with weights a_i. Its
normalised update is d_i = (w - w_i) / |a_i|_1. The server steps to w - tau_eff sum_i p_i d_i, where p_i is the device's
share of the samples and tau_eff = sum_i p_i tau_i. For plain steps |a_i|_1 = tau_i; with a proximal term it is
(1 - (1 - lr prox)^tau_i) / (lr prox). If the optimizer is not plain SGD and there is no proximal term, tau_eff is the
mean of the |a_i|_1. With a proximal term, the authors' code uses sum_i p_i tau_i, even with momentum.

Differences from the paper: w_i is sent instead of d_i, together with tau_i, from which the server computes d_i: one
more scalar than in FedAvg. The shares p_i sum to 1 over the devices whose updates arrive, even with partial
participation. The server uses no momentum. Running statistics (batch norm) are averaged without normalisation.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from fednet_emu.algorithms.base import Synchronous
from fednet_emu.federation import Accumulation, Deferred, Device, Federation, LocalStep, Momentum, Process, Sgd, SgdPlan


class FedNova(Synchronous):
    """Devices may take different numbers of local steps; the model is not biased towards devices with many steps."""

    kind = "fednova"
    prox: float = Field(0.0, ge=0)
    """Factor mu of the proximal term mu / 2 |w - w_t|^2 in local steps, at most 1 / lr; 0 for no proximal term."""

    def _check(self) -> None:
        super()._check()
        own = self.local_optimizer
        adds_up = isinstance(own, Sgd | Momentum) and not own.weight_decay and self.clip_norm is None
        if not adds_up:
            raise ValueError(
                "the update must be a weighted sum of gradients, got "
                f"local_optimizer={own!r} and clip_norm={self.clip_norm}; use sgd or momentum alone"
            )
        if self.lr * self.prox > 1:
            raise ValueError(
                f"prox takes steps past the received model, got lr * prox = {self.lr * self.prox:g}; must be at most 1"
            )

    def run(self, fed: Federation) -> Process:
        w, n = fed.initial_model(), fed.task.model.n_trainable
        for t in fed.rounds():
            arrived = yield from self.round(fed, t, w, self.client, up=w.size + 1)
            w = arrived.model
            if arrived:
                plan = self.plan.in_round(t)
                weights = [gradient_weight(plan, steps, self.prox) for steps in arrived.part(1)]
                plain = [gradient_weight(self.plan, steps) for steps in arrived.part(1)]
                samples = arrived.weights("samples")
                w = fed.accumulate(normalised_average, arrived.models, w, samples, plain, weights, n)
            fed.end_of_round(w)

    @property
    def client(self) -> LocalStep:
        return LocalStep(self.plan, {"prox": self.prox}, reply=self.with_steps)

    def with_steps(self, fed: Federation, k: Device, params: Deferred, *_: Any) -> tuple[Deferred, int]:
        return params, self.plan.n_steps(k.n_samples)


@lru_cache(1024)
def gradient_weight(plan: SgdPlan, steps: int, prox: float = 0.0) -> float:
    """Return the sum |a|_1 of the weights with which the gradients of `steps` local steps enter the update.

    The sum is measured by a trial: in one dimension, with all gradients equal to 1, the plan's optimizer moves a
    parameter from 0 by minus the step size times the sum of the weights. No formula per optimizer is therefore needed.
    `prox` is the factor of the proximal term.
    """
    if not plan.lr:
        return float(steps)
    w = torch.zeros(1, dtype=torch.float64)
    move = plan.optimizer.start(w, plan.lr)
    for _ in range(steps):
        move(1.0 + prox * w)
    return -w.item() / plan.lr


def normalised_average(
    w: Tensor, samples: Sequence[int], steps: Sequence[float], weights: Sequence[float], n_trainable: int
) -> Accumulation:
    """Return `w` [P] plus the normalised mean of the models' differences from `w`; models are received one by one.

    In the order of the models, `samples` contains the number of samples of each device, `steps` the number of steps by
    which the device contributes to tau_eff (the mean of `steps` weighted by samples), and `weights` the sum |a|_1 of
    the device. The first `n_trainable` entries of `w` are parameters, the remaining entries running statistics.
    """
    shares = np.asarray(samples) / sum(samples)
    effective_steps = float(shares @ np.asarray(steps))
    update = torch.zeros_like(w)
    for share, weight in zip(shares.tolist(), weights, strict=True):
        difference = (yield) - w
        update[:n_trainable].add_(difference[:n_trainable], alpha=share * effective_steps / weight)
        update[n_trainable:].add_(difference[n_trainable:], alpha=share)
    return w + update
