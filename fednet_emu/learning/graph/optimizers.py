"""Optimizers: what a training job makes of a gradient; their state lives as long as the job."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor

from fednet_emu.component import Component, Slot


class Optimizer(Component):
    """A rule of descent."""

    @abstractmethod
    def start(self, weights: Tensor, lr: float) -> Callable[[Tensor], None]:
        """The function that makes one step, in place, from the gradient [n] at the weights [n].

        It neither keeps nor changes the gradient that it is given.
        """


class Sgd(Optimizer):
    """A step is -lr times the gradient."""

    kind: Literal["sgd"] = "sgd"

    def start(self, weights: Tensor, lr: float) -> Callable[[Tensor], None]:
        """Nothing to set up: there is no state."""

        def move(gradient: Tensor) -> None:
            weights.sub_(gradient, alpha=lr)

        return move


class Adam(Optimizer):
    """Adam (Kingma and Ba, ICLR 2015, Algorithm 1), its moments zero at the start of every job.

    `l2` adds l2 times the weights to the gradient, before the moments are taken, as PyTorch's `weight_decay` does.
    """

    kind: Literal["adam"] = "adam"
    beta1: float = Field(0.9, ge=0, lt=1)
    """Decay of the mean of the gradients."""
    beta2: float = Field(0.999, ge=0, lt=1)
    """Decay of the mean of their squares."""
    eps: float = Field(1e-8, gt=0)
    """Added to the denominator."""
    l2: float = Field(0.0, ge=0)
    """So many times the parameters are added to the gradient."""

    def start(self, weights: Tensor, lr: float) -> Callable[[Tensor], None]:
        """The moments, which PyTorch makes at the first step and updates in one pass over the memory."""
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
