"""The interface of a training step for many models at once, and its implementation by PyTorch's `vmap`."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property, partial
from typing import NamedTuple, Protocol, final

import torch
from torch import Tensor
from torch.func import grad_and_value, vmap

from fednet_emu.learning.graph.dp_sgd import PrivateSgd
from fednet_emu.learning.models.flat import FlatModel


class Batch(NamedTuple):
    """The batches of A jobs in one step: `x` [A, B, ...], `y` [A, B, ...] and the weights of the samples [A, B].

    The weights are None if the batches are not padded.
    """

    x: Tensor
    y: Tensor
    weight: Tensor | None


Step = Callable[[Batch, Tensor], Tensor]
"""Function that takes a batch and `factor` [A], and adds `factor` times the gradient of each job's loss to a tensor
that was passed to `Form.on`. It returns the losses [A]. If squares were requested, the function returns an array [2, A]
with the losses and the sums of the samples' squared losses."""


class Form(Protocol):
    """An implementation of one training step for many jobs of one model."""

    def on(self, w: Tensor, into: Tensor | None = None, *, squares: bool = False, base: Tensor | None = None) -> Step:
        """Return the function that performs one training step at parameters `w` [A, P].

        The step adds gradients to `into` [A, P], or to `w` if `into` is None. The rows of these tensors must be
        contiguous. If `squares` is True, the step also returns sums of squared losses. All jobs use the same frozen
        weights `base` [base_size] of layers with adapters.
        """
        ...

    def byte_per_job(self, width: int) -> int:
        """Return the memory in bytes that a step with `width` samples needs per job, excluding the parameters."""
        ...


@final
class VmapForm:
    """The training step for any batchable model, with PyTorch's gradients vectorised over the jobs.

    The step has its own copy of the model. PyTorch replaces the parameters of the module during a call, and steps may
    run in parallel threads. If `private` is given, the gradient of each sample is scaled separately (DP-SGD).
    """

    def __init__(self, model: FlatModel, private: PrivateSgd | None = None) -> None:
        self._model, self._private = model, private

    @cached_property
    def _own(self) -> FlatModel:
        return self._model.copied()

    @cached_property
    def works(self) -> bool:
        """Whether PyTorch can vectorise the model. The first check takes seconds, because PyTorch loads 80 MB."""
        return self._model.vectorises()

    def on(self, w: Tensor, into: Tensor | None = None, *, squares: bool = False, base: Tensor | None = None) -> Step:
        total = w if into is None else into
        if self._private is not None:
            return self._private_step(self._private, w, total, base, squares=squares)
        loss = self._own.loss_and_squares if squares else self._own.loss
        gradient = vmap(grad_and_value(partial(loss, base=base), has_aux=squares))

        def step(batch: Batch, factor: Tensor) -> Tensor:
            g, told = gradient(w, *((batch.x, batch.y) if batch.weight is None else batch))
            losses: Tensor = torch.stack(told) if squares else told
            total.addcmul_(g, factor[:, None])
            return losses

        return step

    def _private_step(
        self, private: PrivateSgd, w: Tensor, total: Tensor, base: Tensor | None, *, squares: bool
    ) -> Step:
        def loss(vector: Tensor, x: Tensor, y: Tensor) -> Tensor:
            return self._own.loss(vector, x[None], y[None], base=base)

        gradient = vmap(vmap(grad_and_value(loss), (None, 0, 0)))

        def step(batch: Batch, factor: Tensor) -> Tensor:
            g, losses = gradient(w, batch.x, batch.y)
            weight = torch.ones_like(losses) if batch.weight is None else batch.weight
            count = weight.sum(1)
            total.addcmul_(torch.einsum("abp,ab->ap", g, weight * private.factors(g)), (factor / count)[:, None])
            mean = (losses * weight).sum(1) / count
            return torch.stack((mean, (losses.square() * weight).sum(1))) if squares else mean

        return step

    def byte_per_job(self, width: int) -> int:
        """Return the memory in bytes of two copies of all gradients, and of two copies of a batch's activations."""
        model, gradients = self._model, 1 if self._private is None else width
        return 2 * gradients * model.size * model.dtype.itemsize + 2 * width * model.activation_byte_per_sample
