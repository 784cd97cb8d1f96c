"""FedDyn: a local objective that changes, so that the devices' minima and the server's agree.

Acar, Zhao, Matas, Mattina, Whatmough, Saligrama: "Federated Learning Based on Dynamic Regularization", ICLR 2021,
Algorithm 1, https://openreview.net/forum?id=B7v4QMR6Z9w

Line by line: device k minimises L_k(v) - <g_k, v> + alpha / 2 |v - w|^2 from the received w; it keeps
g_k <- g_k - alpha (v_k - w), which is the gradient of L_k at the minimum; it sends v_k. The server moves
h <- h - alpha / m sum_k (v_k - w), m being the number of all devices, so that h is the mean of all g_k; the next model
is the mean of the v_k minus h / alpha.

Differences from the paper: the local minimum is approached by the local steps of the plan. A device whose upload does
not arrive, for whatever reason, keeps its old g_k, so that h stays the mean of all g_k; it learns this by an
acknowledgement that costs nothing. m counts the devices that have samples. Running statistics, as of batch norm, are
averaged.
"""

from __future__ import annotations

from typing import ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor

from fednet_emu.algorithms.chosen import ChosenCohort
from fednet_emu.algorithms.fedavg import average
from fednet_emu.federation import Accumulation, Deferred, Device, Federation, Process


class FedDyn(ChosenCohort):
    """Each device remembers the gradient at its last model, and the server the mean of these gradients.

    Only models travel: as many bits as FedAvg.
    """

    kind = "feddyn"
    single_uploads: ClassVar[str] = "corrects the mean by a memory, in which the noise of a sum would add up"
    moves: ClassVar[frozenset[str]] = frozenset({"uplink", "downlink"})
    alpha: float = Field(0.01, gt=0)
    """Factor of the proximal term, and of the memories of the gradients (alpha)."""
    evaluated: Literal["mean", "server"] = "mean"
    """The model that is evaluated, and the result: the mean of the latest models that arrived, or the
    server's model, which is sent to the devices."""

    def run(self, fed: Federation) -> Process:
        """The server: average what arrives, and correct the mean by the mean of all remembered gradients."""
        w = mean = fed.initial_model()
        size = fed.task.model.n_trainable
        h = zero = fed.defer(torch.Tensor.new_zeros, w, size, size=size)
        minus_g: dict[int, Deferred] = {}  # -g_k of the devices that have taken part
        m = sum(k.n_samples > 0 for k in fed.devices())
        asking = self.asking(fed, down=w.size, up=w.size)
        for t in fed.rounds():
            w = fed.published(w)
            cohort = yield from asking.cohort(t, w)
            clients = (self.client(fed, k, w, minus_g.get(k.index, zero), t) for k in cohort)
            replies = yield fed.gather(clients, self.deadline_s)
            arrived = asking.arrived(cohort, replies)
            if arrived:
                for k, v in arrived:
                    minus_g[k.index] = fed.defer(remembered, minus_g.get(k.index, zero), v, w, self.alpha)
                models = [v for _, v in arrived]
                h = fed.accumulate(drifted, models, h, w, len(models), self.alpha / m)
                mean = fed.accumulate(average, models, w, [1] * len(models))
                w = fed.defer(corrected, mean, h, self.alpha)
            shown = mean if self.evaluated == "mean" else w
            fed.end_of_round(shown, invited=len(cohort), arrived=len(arrived))

    def client(self, fed: Federation, k: Device, w: Deferred, minus_g: Deferred, t: int) -> Process:
        """A device: receive the model, approach the minimum of the dynamic objective, send where it came to."""
        got = yield fed.downlink(k, w)
        if got.lost:
            return got
        work = fed.train(k, got.payload, self.plan, t, linear=minus_g, prox=self.alpha)
        trained = yield k.compute(work)
        return (yield fed.uplink(k, trained.params, since=got.payload))


def remembered(minus_g: Tensor, v: Tensor, w: Tensor, alpha: float) -> Tensor:
    """The negative gradient [n] that a device keeps after its way from w to v [P]: -g + alpha (v - w)."""
    return minus_g + alpha * (v - w)[: len(minus_g)]


def drifted(h: Tensor, w: Tensor, count: int, factor: float) -> Accumulation:
    """The server's h [n] minus `factor` times the sum of the differences to w [P] of models that come one by one."""
    total = torch.zeros_like(h)
    for _ in range(count):
        total.add_(((yield) - w)[: len(h)])
    return h - factor * total


def corrected(mean: Tensor, h: Tensor, alpha: float) -> Tensor:
    """The server's model [P]: the mean of the models minus h [n] / alpha, where there are gradients."""
    model = mean.clone()
    model[: len(h)] -= h / alpha
    return model
