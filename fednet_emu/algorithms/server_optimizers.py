"""Server optimizers: how the server moves its model along the aggregated update.

Plain steps are federated averaging; with another step size they are known as "FedAvg with server learning rate".
Momentum is FedAvgM: Hsu, Qi, Brown, "Measuring the Effects of Non-Identical Data Distribution for Federated Visual
Classification", 2019, https://arxiv.org/abs/1909.06335. Adagrad, Adam and Yogi are FedAdagrad, FedAdam and FedYogi:
Reddi, Charles, Zaheer, Garrett, Rush, Konečný, Kumar, McMahan, "Adaptive Federated Optimization", ICLR 2021,
https://openreview.net/forum?id=LkFG3lB13U5, Algorithm 2.

Symbols of Algorithm 2: w is x_t, update is Delta_t, m is m_t, v is v_t, lr is eta, tau is tau. As in Algorithm 2, m
starts at 0 and v at tau^2, and neither has a bias correction.

Differences from the papers: in a round without updates, the server takes no step, and m and v do not change. The update
is the result of the aggregation, which need not be a mean.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Annotated, ClassVar

import torch
from pydantic import Field
from torch import Tensor

from fednet_emu.component.component import Component
from fednet_emu.component.slot import Slot, kinds

Memory = tuple[Tensor, ...]
"""State of a server optimizer between rounds: vectors [P] with one entry per parameter."""


class ServerOptimizer(Component):
    """A rule by which the server moves its model along an update."""

    vectors: ClassVar[int] = 0
    """Number of vectors in the optimizer's state between rounds."""

    def start(self, w: Tensor) -> Memory:
        return ()

    @abstractmethod
    def step(self, w: Tensor, update: Tensor, memory: Memory) -> tuple[Tensor, Memory]:
        """Return the new model [P] and state after a step along `update` [P]; the arguments are not modified."""


class ServerSgd(ServerOptimizer):
    """Federated averaging: the update, multiplied by a step size, is added to the model."""

    kind = "sgd"
    lr: float = Field(1.0, ge=0)
    """Step size of the server, by which it multiplies the update."""

    def step(self, w: Tensor, update: Tensor, memory: Memory) -> tuple[Tensor, Memory]:
        return w + self.lr * update, memory


class ServerMomentum(ServerOptimizer):
    """FedAvgM: a decaying sum of the updates, multiplied by a step size, is added to the model."""

    kind = "momentum"
    lr: float = Field(1.0, ge=0)
    """Step size of the server; 1 in the paper of FedAvgM."""
    beta: float = Field(0.9, ge=0, lt=1)
    """Momentum beta: the factor by which the decaying sum is multiplied in each round."""
    vectors = 1

    def start(self, w: Tensor) -> Memory:
        return (torch.zeros_like(w),)

    def step(self, w: Tensor, update: Tensor, memory: Memory) -> tuple[Tensor, Memory]:
        """Return the model w + lr m and the new state m, where m <- beta m + update is the decaying sum of updates."""
        m = self.beta * memory[0] + update
        return w + self.lr * m, (m,)


class AdaptiveServer(ServerOptimizer):
    """Base class of Algorithm 2 of Reddi et al.: steps lr m / (sqrt(v) + tau), with one v for each parameter."""

    lr: float = Field(0.01, ge=0)
    """Step size of the server (eta)."""
    beta1: float = Field(0.9, ge=0, lt=1)
    """Decay rate of the running mean of the updates (beta_1)."""
    tau: float = Field(1e-3, gt=0)
    """Constant added to the denominator (tau); larger values make step sizes less adaptive."""
    vectors = 2

    def start(self, w: Tensor) -> Memory:
        return torch.zeros_like(w), torch.full_like(w, self.tau**2)

    def step(self, w: Tensor, update: Tensor, memory: Memory) -> tuple[Tensor, Memory]:
        """Return the model w + lr m / (sqrt(v) + tau) and the new state, m <- beta1 m + (1 - beta1) update and v."""
        m = self.beta1 * memory[0] + (1 - self.beta1) * update
        v = self.spread(memory[1], update.square())
        return w + self.lr * m / (v.sqrt() + self.tau), (m, v)

    @abstractmethod
    def spread(self, v: Tensor, square: Tensor) -> Tensor:
        """Return the new denominator state v [P], from the previous `v` and the squared update `square` [P]."""


class ServerAdagrad(AdaptiveServer):
    """FedAdagrad: the denominator contains the sum of squared updates."""

    kind = "adagrad"
    beta1: float = Field(0.0, ge=0, lt=1)
    """Decay rate of the running mean of the updates (beta_1); 0 in the experiments of the paper."""

    def spread(self, v: Tensor, square: Tensor) -> Tensor:
        return v + square


class ServerAdam(AdaptiveServer):
    """FedAdam: the denominator contains a running mean of squared updates."""

    kind = "adam"
    beta2: float = Field(0.99, ge=0, lt=1)
    """Decay rate of the running mean of the squared updates (beta_2)."""

    def spread(self, v: Tensor, square: Tensor) -> Tensor:
        return self.beta2 * v + (1 - self.beta2) * square


class ServerYogi(AdaptiveServer):
    """FedYogi: like FedAdam, but the size of each change of v does not depend on v itself."""

    kind = "yogi"
    beta2: float = Field(0.99, ge=0, lt=1)
    """Rate beta_2 of the squared updates: the state v of the denominator changes by at most (1 - beta_2) times the
    squared update."""

    def spread(self, v: Tensor, square: Tensor) -> Tensor:
        return v - (1 - self.beta2) * square * torch.sign(v - square)


SERVER_OPTIMIZERS: dict[str, type[ServerOptimizer]] = kinds(
    ServerAdagrad, ServerAdam, ServerMomentum, ServerSgd, ServerYogi
)

AnyServerOptimizer = Annotated[ServerOptimizer, Slot("server_optimizer", SERVER_OPTIMIZERS)]
