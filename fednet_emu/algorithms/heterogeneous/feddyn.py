"""FedDyn: local objectives are adapted from round to round, so that their minima agree with the global minimum.

Acar, Zhao, Matas, Mattina, Whatmough, Saligrama: "Federated Learning Based on Dynamic Regularization", ICLR 2021,
Algorithm 1, https://openreview.net/forum?id=B7v4QMR6Z9w

Method: device k minimises L_k(v) - <g_k, v> + alpha / 2 |v - w|^2 from the received w. The device stores g_k <- g_k -
alpha (v_k - w), which is the gradient of L_k at the minimum v_k, and sends v_k. The server sets h <- h - alpha / m
sum_k (v_k - w), where m is the number of all devices, so that h is the mean of all g_k. The next model is the mean of
the v_k minus h / alpha.

Differences from the paper: the local minimum is approximated by the local steps of the plan. A device whose upload does
not arrive, for any reason, keeps its old g_k, so that h stays the mean of all g_k; a free acknowledgement tells the
device whether its upload has arrived. m counts the devices that have samples. Running statistics (batch norm) are
averaged.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor

from fednet_emu.algorithms.base import Synchronous
from fednet_emu.federation import Accumulation, Deferred, Device, Federation, LocalStep, Process


class FedDyn(Synchronous):
    """Each device stores the gradient at its last model, and the server stores the mean of these gradients.

    Only models are sent, with as many bits as in FedAvg.
    """

    kind = "feddyn"
    alpha: float = Field(0.01, gt=0)
    """Factor alpha of the proximal term, and of the change of the model in the update of a stored gradient."""
    evaluated: Literal["mean", "server"] = "mean"
    """The model that is evaluated and returned by the run. mean: the mean of the models that arrived in the latest
    round with arrivals; server: the server's model, which is sent to the devices."""

    def run(self, fed: Federation) -> Process:
        w = mean = fed.initial_model()
        h, m = fed.zeros(), fed.n_trainers
        minus_g: dict[Device, Deferred] = defaultdict(fed.zeros)  # -g_k of the devices that have taken part
        for t in fed.rounds():
            arrived = yield from self.round(fed, t, w, self.client, minus_g)
            w = arrived.model
            if arrived:
                for k, v in arrived:
                    minus_g[k] = fed.defer(remembered, minus_g[k], v, w, self.alpha)
                h = fed.accumulate(drifted, arrived.models, h, w, len(arrived), self.alpha / m)
                mean = arrived.average("uniform")
                w = fed.defer(corrected, mean, h, self.alpha)
            fed.end_of_round(mean if self.evaluated == "mean" else w)

    @property
    def client(self) -> LocalStep:
        return LocalStep(self.plan, {"prox": self.alpha}, own=own_gradient)


def own_gradient(
    fed: Federation, k: Device, w: Deferred, t: int, minus_g: dict[Device, Deferred]
) -> dict[str, Deferred]:
    """Return the linear term of the objective of device `k`, as a dict of keyword arguments for the local steps."""
    return {"linear": minus_g[k]}


def remembered(minus_g: Tensor, v: Tensor, w: Tensor, alpha: float) -> Tensor:
    """Return the negative gradient [n] stored after training from `w` to `v` [P]: `minus_g` + `alpha` (v - w)."""
    return minus_g + alpha * (v - w)[: len(minus_g)]


def drifted(h: Tensor, w: Tensor, count: int, factor: float) -> Accumulation:
    """Return the server's `h` [n] - `factor` times the sum of v - `w` over the models v [P], received one by one."""
    total = torch.zeros_like(h)
    for _ in range(count):
        total.add_(((yield) - w)[: len(h)])
    return h - factor * total


def corrected(mean: Tensor, h: Tensor, alpha: float) -> Tensor:
    """Return the server's model [P]: `mean`, minus `h` [n] / `alpha` in its first n entries (parameters)."""
    model = mean.clone()
    model[: len(h)] -= h / alpha
    return model
