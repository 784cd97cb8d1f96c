"""Per-FedAvg: a shared model that each device adapts to its own data by one gradient step.

Fallah, Mokhtari, Ozdaglar: "Personalized Federated Learning with Theoretical Guarantees: A Model-Agnostic Meta-Learning
Approach", NeurIPS 2020, Algorithm 1, https://arxiv.org/abs/2002.07948

Method: a device takes local steps w <- w - beta [I - alpha H(w)] g(w - alpha g(w)), with separate batches for each of
the two gradients g and the Hessian H. The server averages. `order: first` omits H (FO); `hessian-free` approximates
H(w) v by (g(w + delta v) - g(w - delta v)) / (2 delta) (HF).

Differences from the paper: none in the updates. The evaluated model of a device is the shared model after one step of
size alpha on one of the device's batches, which takes no simulated time.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import numpy as np
from pydantic import Field
from torch import Tensor

from fednet_emu.algorithms.base import Synchronous
from fednet_emu.federation import Deferred, Device, Federation, Process, computes_only


class PerFedAvg(Synchronous):
    """A shared model that each device adapts by one step on its own samples before the model is evaluated."""

    kind = "per-fedavg"
    equal_weights = True
    uses = Synchronous.uses | {"sums"}
    plain_steps = True
    adapt_lr: float | None = Field(None, ge=0)
    """Step size of the adaptation (alpha); null is `lr`, the step size of the local steps (beta)."""
    order: Literal["first", "hessian-free"] = "first"
    """How the Hessian in a local step is computed. first: it is omitted (two gradients per step); hessian-free: it is
    estimated by differences of gradients (four gradients per step)."""
    delta: float = Field(0.01, gt=0)
    """Factor delta of the Hessian estimate, for which gradients are taken at the model plus and minus delta times a
    gradient."""

    @property
    def alpha(self) -> float:
        return self.lr if self.adapt_lr is None else self.adapt_lr

    def run(self, fed: Federation) -> Process:
        w, able = fed.initial_model(), np.flatnonzero(fed.task.n_samples).tolist()
        adapt = replace(self.plan, lr=self.alpha, steps=1, epochs=None)
        for t in fed.rounds():
            arrived = yield from self.round(fed, t, w, self.client)
            w = arrived.average("uniform")
            own = [w] * fed.n_devices
            for k in map(fed.device, able):
                own[k.index] = k.training(w, adapt, t, "own").result.params
            fed.end_of_round(own)

    @computes_only
    def client(self, fed: Federation, k: Device, w: Deferred, t: int) -> Process:
        one, n = replace(self.plan, lr=1.0, steps=1, epochs=None), fed.n_statistics
        for step in range(self.plan.n_steps(k.n_samples)):
            near = yield k.train(w, replace(one, lr=self.alpha), t, step, "adapt")
            after = yield k.train(near.params, one, t, step, "outer")
            gradient = fed.defer(Tensor.sub, near.params, after.params)
            if self.order == "hessian-free":
                ends = [fed.defer(moved, w, gradient, part, w, n) for part in (self.delta, -self.delta)]
                made = []
                for end in ends:
                    made.append((yield k.train(end, one, t, step, "hessian")).params)
                gradient = fed.defer(corrected, gradient, *ends, *made, self.alpha / (2 * self.delta))
            w = fed.defer(moved, w, gradient, -self.lr, after.params, n)
        return w


def moved(w: Tensor, gradient: Tensor, part: float, seen: Tensor, statistics: int = 0) -> Tensor:
    """Return `w` [P] + `part` * `gradient` [P]; the last `statistics` entries (running statistics) come from `seen`."""
    after = w + part * gradient
    if statistics:
        after[-statistics:] = seen[-statistics:]
    return after


def corrected(gradient: Tensor, one: Tensor, other: Tensor, after: Tensor, after_other: Tensor, part: float) -> Tensor:
    """Return `gradient` [P] minus alpha times an estimate of the Hessian times `gradient`.

    The gradients at the models `one` and `other`, which are delta times `gradient` above and below the current model,
    are `one` - `after` and `other` - `after_other`. `part` is alpha / (2 delta).
    """
    return gradient - part * ((one - after) - (other - after_other))
