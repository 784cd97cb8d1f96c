"""Optimizers, which turn gradients into training steps. The state of an optimizer lasts for one job."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from typing import Annotated, Any, ClassVar

import torch
from pydantic import Field, model_validator
from torch import Tensor

from fednet_emu.component.component import Component
from fednet_emu.component.slot import Slot, kinds


class Optimizer(Component):
    """A rule that turns a gradient into a step."""

    @abstractmethod
    def start(self, weights: Tensor, lr: float) -> Callable[[Tensor], None]:
        """Return a function that changes `weights` [n] in place by one step of size `lr`, given the gradient [n].

        The function must neither keep nor modify the gradient. Optimizers in `STACKED` also accept the weights [J, n]
        of J jobs. They then receive the gradients [A, n] of the A jobs that still have steps.
        """


class Sgd(Optimizer):
    """Plain gradient descent: a step is -lr times the gradient."""

    weight_decay: float = Field(0.0, ge=0)
    """Weight decay: the parameters times this factor are added to the gradient. 0 means no weight decay."""

    def start(self, weights: Tensor, lr: float) -> Callable[[Tensor], None]:
        def move(gradient: Tensor) -> None:
            own = weights[: len(gradient)]
            own.sub_(_with_decay(gradient, own, self.weight_decay), alpha=lr)

        return move


class Momentum(Optimizer):
    """SGD with momentum, as in PyTorch.

    A step is -lr v, where lr is the step size. The velocity v is initially zero, and is updated before each step by v
    <- beta v + gradient.
    """

    beta: float = Field(0.9, ge=0, lt=1)
    """Share beta of the velocity that is kept for the next step. It is called `momentum` in PyTorch."""
    nesterov: bool = False
    """Whether Nesterov's variant is used, in which a step is -lr (gradient + beta v) instead of -lr v."""
    weight_decay: float = Field(0.0, ge=0)
    """Weight decay: the parameters times this factor are added to the gradient. 0 means no weight decay."""

    def start(self, weights: Tensor, lr: float) -> Callable[[Tensor], None]:
        velocity = torch.zeros_like(weights)

        def move(gradient: Tensor) -> None:
            own, v = weights[: len(gradient)], velocity[: len(gradient)]
            gradient = _with_decay(gradient, own, self.weight_decay)
            v.mul_(self.beta).add_(gradient)
            own.sub_(gradient.add(v, alpha=self.beta) if self.nesterov else v, alpha=lr)

        return move


def _with_decay(gradient: Tensor, weights: Tensor, decay: float) -> Tensor:
    return gradient.add(weights, alpha=decay) if decay else gradient


class Adam(Optimizer):
    """Adam (Kingma and Ba, ICLR 2015, Algorithm 1).

    The moments are reset to zero at the start of every job. Weight decay is added to the gradient before the moments
    are updated, as in PyTorch's Adam.
    """

    beta1: float = Field(0.9, ge=0, lt=1)
    """Decay rate of the running mean of the gradients (beta_1)."""
    beta2: float = Field(0.999, ge=0, lt=1)
    """Decay rate of the running mean of the squared gradients (beta_2)."""
    eps: float = Field(1e-8, gt=0)
    """Constant added to the denominator for numerical stability (epsilon)."""
    weight_decay: float = Field(0.0, ge=0)
    """Weight decay: the parameters times this factor are added to the gradient. 0 means no weight decay."""

    @model_validator(mode="before")
    @classmethod
    def _one_name(cls, given: Any) -> Any:
        if isinstance(given, Mapping) and "l2" in given:
            raise ValueError(f"no such setting, got l2: {given['l2']}; write weight_decay: {given['l2']}")
        return given

    _made_by: ClassVar[type[torch.optim.Adam]] = torch.optim.Adam

    def start(self, weights: Tensor, lr: float) -> Callable[[Tensor], None]:
        """Return the step function of PyTorch's fused optimizer, which creates the moments at the first step."""
        adam = self._made_by([weights], lr, (self.beta1, self.beta2), self.eps, self.weight_decay, fused=True)

        def move(gradient: Tensor) -> None:
            weights.grad = gradient
            adam.step()
            weights.grad = None

        return move


class AdamW(Adam):
    """AdamW: Adam with decoupled weight decay (Loshchilov and Hutter, ICLR 2019).

    Before each step, the parameters are multiplied by 1 - lr weight_decay. The decay does not affect the moments.
    Source: https://arxiv.org/abs/1711.05101.
    """

    kind = "adamw"
    weight_decay: float = Field(0.01, ge=0)
    """Weight decay: before each step, the parameters are multiplied by 1 - lr weight_decay. The default is that of
    PyTorch."""
    _made_by = torch.optim.AdamW


def clip(gradient: Tensor, clip_norm: float, mask: Tensor | None = None) -> None:
    """Scale gradients [..., n] down to the norm `clip_norm` if their norm is larger, in place.

    The formula is that of PyTorch's `clip_grad_norm_`. Entries at which `mask` [..., n] is zero do not count.
    """
    norm = (gradient if mask is None else gradient * mask).norm(dim=-1, keepdim=True)
    gradient.mul_((clip_norm / (norm + 1e-6)).clamp_(max=1.0))


OPTIMIZERS: dict[str, type[Optimizer]] = kinds(Adam, AdamW, Momentum, Sgd)

STACKED = frozenset({Momentum, Sgd})
"""Optimizers that can update the parameters of many jobs in one call."""

AnyOptimizer = Annotated[Optimizer, Slot("optimizer", OPTIMIZERS)]
