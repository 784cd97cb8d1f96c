"""What a way of stepping many models at once is, and the way that works for every model: `vmap`."""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import cached_property
from typing import NamedTuple, Protocol, final

from torch import Tensor
from torch.func import grad_and_value, vmap

from fednet_emu.learning.models.flat import FlatModel


class Batch(NamedTuple):
    """One step of A jobs: x [A, B, ...], y [A, B, ...] and weights [A, B], None when no batch is ragged."""

    x: Tensor
    y: Tensor
    weight: Tensor | None


Step = Callable[[Batch, Tensor], Tensor]
"""Adds factor [A] times the gradient of each job's loss to its parameters, in place; returns the losses [A]."""


class Form(Protocol):
    """A way to make one step of many jobs of one model."""

    def on(self, w: Tensor) -> Step:
        """The step on the parameters w [A, P], whose rows are contiguous."""
        ...

    def byte_per_job(self, width: int) -> int:
        """Memory that a step takes for each job with batches of so many samples, beside its parameters."""
        ...


@final
class VmapForm:
    """Any batchable model: PyTorch's own gradient, vectorised over the jobs.

    It has a copy of the model to itself: PyTorch puts the parameters of a call into the module while the call runs, and
    forms run side by side in threads.
    """

    def __init__(self, model: FlatModel) -> None:
        self._model = model

    @cached_property
    def _gradient(self) -> Callable[..., tuple[Tensor, Tensor]]:
        return vmap(grad_and_value(copy.deepcopy(self._model).loss))

    @cached_property
    def works(self) -> bool:
        """Whether PyTorch can vectorise the model; to ask makes it load 80 MB, in seconds."""
        return self._model.vectorises()

    def on(self, w: Tensor) -> Step:
        """The step on the parameters w [A, P]."""

        def step(batch: Batch, factor: Tensor) -> Tensor:
            x, y, weight = batch
            g, losses = self._gradient(w, x, y) if weight is None else self._gradient(w, x, y, weight)
            w.addcmul_(g, factor[:, None])
            return losses

        return step

    def byte_per_job(self, width: int) -> int:
        """Two gradients, which exist while one is put together, and twice the activations of a batch."""
        model = self._model
        return 2 * model.size * model.dtype.itemsize + 2 * width * model.activation_byte_per_sample
