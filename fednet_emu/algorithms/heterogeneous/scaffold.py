"""SCAFFOLD: local steps that are corrected for the drift of the device by control variates.

Karimireddy, Kale, Mohri, Reddi, Stich, Suresh: "SCAFFOLD: Stochastic Controlled Averaging for Federated Learning", ICML
2020, Algorithm 1, https://proceedings.mlr.press/v119/karimireddy20a.html

Method: the server sends (x, c). A device takes K steps y_i <- y_i - lr (g_i(y_i) - c_i + c). Its new control variate is
c_i+ = g_i(x) (option I) or c_i - c + (x - y_i) / (K lr) (option II); it sends y_i and c_i+ - c_i. The server moves x by
`server_lr` times the mean of y_i - x, and c by the sum of c_i+ - c_i over N, the number of devices.

Differences from the paper: y_i is sent instead of y_i - x, which has the same size and information. K may differ
between devices. Option I takes the gradient on all samples of the device. Means are over the uploads that arrive. A
device whose upload does not arrive, for any reason, keeps its old c_i, so that c stays the mean of all c_i; a free
acknowledgement tells the device whether its upload has arrived. N is the number of devices that have samples. Running
statistics (batch norm) have no control variates and are averaged like parameters.

Momentum is allowed in the local steps, as in NIID-Bench (Li, Diao, Chen, He, ICDE 2022, arXiv 2102.02079), though the
paper's analysis is for plain steps. The optimizer steps along g_i alone; then y_i moves by -lr (c - c_i), without
momentum. Option II still divides by K lr, so with momentum beta the new c_i+ is up to 1 / (1 - beta) times a mean
gradient. Weight decay is part of g_i. With a step-size schedule, lr is the step size of the round. NIID-Bench weights
models by samples (`weighting: samples`), and adds c_i+ - c_i of each device to c with weight 1/N. The reproduction in
Flower weights both models and control variates by samples.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import Literal

from pydantic import Field
from torch import Tensor

from fednet_emu.algorithms.base import Synchronous
from fednet_emu.federation import (
    AnyOptimizer,
    Deferred,
    Device,
    Federation,
    LocalStep,
    Momentum,
    Process,
    Sgd,
    SgdPlan,
    Terms,
    computes_only,
    moved_by_sum,
)

Variates = defaultdict[Device, Deferred]
"""The control variate c_i of each device; initially 0."""


class Scaffold(Synchronous):
    """Each device corrects its steps by the difference between the server's control variate and its own.

    Models and control variates are sent in both directions: twice the bits of FedAvg. Control variates are not
    compressed.
    """

    option: Literal["I", "II"] = "II"
    """The new control variate of a device. I: its gradient at the server's model, for which the device passes over all
    its samples once more; II: the mean gradient of its local steps, which needs no further computation."""
    server_lr: float = Field(1.0, ge=0)
    """Step size of the server (eta_g), by which it multiplies the mean update."""
    weighting: Literal["samples", "uniform"] = "uniform"
    """Weights of devices in the mean update; control variates have equal weights. NIID-Bench uses samples."""

    def _check(self) -> None:
        super()._check()
        if not isinstance(self.local_optimizer, Sgd | Momentum) or self.clip_norm is not None:
            raise ValueError(
                "control variates correct steps along gradients, got "
                f"local_optimizer={self.local_optimizer!r} and clip_norm={self.clip_norm}; use sgd or momentum alone"
            )

    def run(self, fed: Federation) -> Process:
        x, c, n = fed.initial_model(), fed.zeros(), fed.n_trainers
        own: Variates = defaultdict(fed.zeros)  # c_i of the devices that have taken part
        for t in fed.rounds():
            arrived = yield from self.round(fed, t, (x, c), self.client, own)
            for k, (_, change) in arrived:
                own[k] = own[k] + change
            c = fed.accumulate(moved_by_sum, arrived.part(1), c, [1.0] * len(arrived), 1 / n)
            x = arrived.average(self.weighting, self.server_lr)
            fed.end_of_round(x)

    @property
    def client(self) -> Callable[..., Process]:
        if self.option == "I":
            return self.with_a_gradient
        return LocalStep(self.plan, own=self.correction, reply=self.with_a_mean_gradient)

    @computes_only
    def with_a_gradient(self, fed: Federation, k: Device, x: Deferred, c: Deferred, t: int, own: Variates) -> Process:
        at_x = yield k.train(x, one_gradient(self.local_optimizer), t, "control")
        trained = yield k.train(x, self.plan, t, **self.correction(fed, k, x, c, t, own))
        return trained.params, fed.defer(control_change, x, at_x.params, own[k], 1.0, size=c.size)

    def with_a_mean_gradient(
        self, fed: Federation, k: Device, params: Deferred, x: Deferred, c: Deferred, t: int, own: Variates
    ) -> tuple[Deferred, Deferred]:
        distance = self.plan.n_steps(k.n_samples) * self.plan.in_round(t).lr
        return params, fed.defer(control_change, x, params, c, distance, size=c.size)

    def correction(self, fed: Federation, k: Device, x: Deferred, c: Deferred, t: int, own: Variates) -> Terms:
        """Return the correction c - c_i of each step: as `linear` for plain SGD, else as `drift` without momentum."""
        correction = c - own[k]
        return {"linear": correction} if isinstance(self.local_optimizer, Sgd) else {"drift": correction}


def one_gradient(own: AnyOptimizer) -> SgdPlan:
    """Return the plan of one SGD step from x to x - g_i(x) on all samples, with the weight decay of `own`."""
    decay = own.weight_decay if isinstance(own, Sgd | Momentum) else 0.0
    return SgdPlan(lr=1.0, steps=1, optimizer=Sgd(weight_decay=decay))


def control_change(x: Tensor, y: Tensor, known: Tensor, distance: float) -> Tensor:
    """Return the mean gradient (x - y) / `distance` of steps from `x` to `y` [P], minus the variate `known` [n].

    `distance` is the sum of the step sizes; if it is 0, x equals y and the gradient is zero. If `known` is the device's
    control variate c_i, the result is c_i+ - c_i of option I. If `known` is the server's control variate c, the result
    is c_i+ - c_i of option II, where c_i cancels.
    """
    gradient = (x - y)[: len(known)]
    return (gradient / distance if distance else gradient) - known
