"""The interface of a training step for many models at once, and an implementation for all batchable models: `vmap`."""

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
    """The samples of one step of A jobs: `x` [A, B, ...], `y` [A, B, ...], and weights [A, B], or None if unpadded."""

    x: Tensor
    y: Tensor
    weight: Tensor | None


Step = Callable[[Batch, Tensor], Tensor]
"""Function (batch, `factor` [A]) that adds `factor` times the gradient of each job's loss to the tensor that `Form.on`
names, in place, and returns the losses [A].

With squares, the function returns [2, A]: the losses, and the sums of the squared losses of the samples."""


class Form(Protocol):
    """An implementation of one training step for many jobs of one model."""

    def on(self, w: Tensor, into: Tensor | None = None, *, squares: bool = False, base: Tensor | None = None) -> Step:
        """Return the step at parameters `w` [A, P].

        The step adds gradients to `into` [A, P], or to `w` if `into` is None. Rows must be contiguous. With `squares`,
        the step also returns sums of squared losses. All jobs have the same `base` [base_size].
        """
        ...

    def byte_per_job(self, width: int) -> int:
        """Return the memory of a step per job in bytes, without the parameters, for batches of `width` samples."""
        ...


@final
class VmapForm:
    """The training step for any batchable model: PyTorch's own gradient, vectorised over the jobs.

    The step has its own copy of the model, because PyTorch replaces the parameters of the module during a call, and
    steps run in parallel threads. With `private`, the gradient of each sample is scaled separately.
    """

    def __init__(self, model: FlatModel, private: PrivateSgd | None = None) -> None:
        self._model, self._private = model, private

    @cached_property
    def _own(self) -> FlatModel:
        return self._model.copied()

    @cached_property
    def works(self) -> bool:
        """Whether PyTorch can vectorise the model. The first check loads 80 MB, which takes seconds."""
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
        """Return the memory of two copies of all gradients, and of twice the activations of a batch, in bytes."""
        model, gradients = self._model, 1 if self._private is None else width
        return 2 * gradients * model.size * model.dtype.itemsize + 2 * width * model.activation_byte_per_sample
