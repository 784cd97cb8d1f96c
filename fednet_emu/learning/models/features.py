"""Features of a model: the inputs of its last layer."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from fednet_emu.errors import ScenarioError
from fednet_emu.learning.models.flat import FlatModel


class Featured(NamedTuple):
    """A model whose outputs are followed by the features of each sample, which are the inputs of its last layer."""

    model: FlatModel  # maps the same vectors and a batch to outputs and features [B, outputs + size]
    outputs: int  # number of outputs
    size: int  # number of features per sample (d)


def with_features(model: FlatModel, outputs: int) -> Featured:
    """Return a model that also outputs features, which are the inputs of its last layer with parameters.

    `model` has `outputs` outputs. A `ScenarioError` is raised if the forward pass does not call this layer.
    """
    exposed = FlatModel(_Exposed(model.live().module), model.loss_name, model.input_shape, model.vocabulary)
    one = torch.zeros(1, *model.input_shape, dtype=model.dtype if model.vocabulary is None else torch.int64)
    with torch.no_grad():
        told = exposed.forward(exposed.initial(), one.to(model.device))
    return Featured(exposed, outputs, told.shape[1] - outputs)


class _Exposed(nn.Module):
    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module
        self.last = [name.rpartition(".")[0] for name, _ in module.named_parameters()][-1]

    def forward(self, x: Tensor) -> Tensor:
        received: list[Tensor] = []

        def keep(_layer: nn.Module, given: tuple[Any, ...]) -> None:
            received.append(given[0])

        hook = self.module.get_submodule(self.last).register_forward_pre_hook(keep)
        try:
            outputs = self.module(x)
        finally:
            hook.remove()
        if not received:
            what = "fedproto reads the input of its last layer, got one that is not called as a module"
            raise ScenarioError(f"model: {what}, {self.last or 'the model'}; choose one whose last layer is called")
        return torch.cat([outputs, received[-1].flatten(1)], 1)
