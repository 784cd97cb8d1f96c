"""Sizes and computing costs of both parts of a model that is split between device and server."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor, nn

from fednet_emu.errors import ScenarioError
from fednet_emu.learning.models.base import torch_seed
from fednet_emu.learning.models.flat import FlatModel
from fednet_emu.learning.models.flops import FlopCount
from fednet_emu.learning.models.layers import Layers


@final
@dataclass(frozen=True, eq=False)
class Cut:
    """A model that is split into two parts; the first part runs on the device, and the second on the server.

    The operations of both parts for one sample add up to `FlatModel.flop_per_sample`.
    """

    device: Layers  # which entries of the flat vector belong to the device
    width: int  # number of activations per sample that cross the cut; equally many gradients return
    forward_flop: float  # device's operations per sample in the forward pass
    server_flop: float  # server's operations per sample, forward and backward
    backward_flop: float  # device's operations per sample in the backward pass


def cuts_of(model: FlatModel) -> list[Cut]:
    """Return all possible cuts of a model: after the first layer with parameters, after the second, and so on.

    Layers without parameters, such as pooling, belong to the same part as the layer before them.
    """
    with torch_seed(0):  # dropout draws random numbers
        layers = [copy.deepcopy(layer).cpu() for layer in model.layers]
        places = [place for place, layer in enumerate(layers) if _trained(layer)]
        if len(places) < 2:
            what = f"has nothing to cut, got {len(places)} layer with parameters"
            raise ScenarioError(f"model: {what}; give a sequence of two or more, as an mlp with hidden layers has")
        return [_cut(model, layers[:place], layers[place:]) for place in places[1:]]


def _cut(model: FlatModel, front: Sequence[nn.Module], back: Sequence[nn.Module]) -> Cut:
    dtype = model.dtype if model.vocabulary is None else torch.long
    n_samples = 2  # batch norm needs at least two samples
    with FlopCount() as forward:
        smashed = nn.Sequential(*front)(torch.zeros(n_samples, *model.input_shape, dtype=dtype))
    received = smashed.detach().requires_grad_()
    with FlopCount() as server:
        nn.Sequential(*back)(received).sum().backward()
    with FlopCount() as backward:
        smashed.backward(received.grad)
    width = smashed.numel() // n_samples
    flop = (counted.total / n_samples for counted in (forward, server, backward))
    return Cut(Layers(model, _names(model, front, back)), width, *flop)


def _trained(layer: nn.Module) -> list[Tensor]:
    return [parameter for parameter in layer.parameters() if parameter.requires_grad]


def _statistics(layer: nn.Module) -> list[Tensor]:
    return [buffer for buffer in layer.buffers() if buffer.is_floating_point()]


def _names(model: FlatModel, front: Sequence[nn.Module], back: Sequence[nn.Module]) -> list[str]:
    """Return the names of the server's parameters, then of its running statistics, each in the order of the layers."""
    in_layers = sum(parameter.numel() for layer in (*front, *back) for parameter in _trained(layer))
    if in_layers > model.n_trainable:
        what = f"layers share parameters, got {in_layers} of them in its layers for {model.n_trainable} that are sent"
        raise ScenarioError(f"model: {what}; choose a model without tied weights")
    names, first = list(model.unflatten(model.initial())), 0
    theirs: list[str] = []
    for kind in (_trained, _statistics):
        ours, others = (sum(len(kind(layer)) for layer in part) for part in (front, back))
        theirs += names[first + ours : first + ours + others]
        first += ours + others
    if first != len(names):
        what = f"cannot be cut, got {first} parameters and buffers in its layers for {len(names)} that are sent"
        raise ScenarioError(f"model: {what}; leave out buffers that training does not change")
    return theirs
