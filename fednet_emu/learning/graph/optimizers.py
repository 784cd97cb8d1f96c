"""Optimizers: how a training job turns gradients into steps; their state lasts for one job."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor

from fednet_emu.component import Component, Slot


class Optimizer(Component):
    """A rule that turns a gradient into a step."""

    @abstractmethod
    def start(self, weights: Tensor, lr: float) -> Callable[[Tensor], None]:
        """The function that makes one step, in place, from the gradient [n] at the weights [n].

        The function must neither keep nor modify the gradient.
        """


class Sgd(Optimizer):
    """A step is -lr times the gradient."""

    kind: Literal["sgd"] = "sgd"

    def start(self, weights: Tensor, lr: float) -> Callable[[Tensor], None]:
        """The step function; plain SGD has no state."""

        def move(gradient: Tensor) -> None:
            weights.sub_(gradient, alpha=lr)

        return move


class Adam(Optimizer):
    """Adam (Kingma and Ba, ICLR 2015, Algorithm 1), with moments reset to zero at the start of every job.

    `l2` adds l2 times the weights to the gradient, before the moments are taken, as PyTorch's `weight_decay` does.
    """

    kind: Literal["adam"] = "adam"
    beta1: float = Field(0.9, ge=0, lt=1)
    """Decay rate of the running mean of the gradients (beta_1)."""
    beta2: float = Field(0.999, ge=0, lt=1)
    """Decay rate of the running mean of the squared gradients (beta_2)."""
    eps: float = Field(1e-8, gt=0)
    """Constant added to the denominator for numerical stability (epsilon)."""
    l2: float = Field(0.0, ge=0)
    """Weight decay: this factor times the parameters is added to the gradient; 0 for none."""

    def start(self, weights: Tensor, lr: float) -> Callable[[Tensor], None]:
        """The step function of PyTorch's fused Adam, which creates the moments at the first step."""
        adam = torch.optim.Adam([weights], lr, (self.beta1, self.beta2), self.eps, self.l2, fused=True)

        def move(gradient: Tensor) -> None:
            weights.grad = gradient
            adam.step()
            weights.grad = None

        return move


OPTIMIZERS: dict[str, type[Optimizer]] = {"adam": Adam, "sgd": Sgd}
"""Every kind of optimizer that is built in."""

AnyOptimizer = Annotated[Optimizer, Slot("optimizer", OPTIMIZERS)]
"""Type of a field that holds one optimizer."""
