"""The training step with hand-written gradients, for models that are plain sequences (chains) of layers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate, pairwise
from typing import Any, final

import torch
from torch import Tensor, nn

from fednet_emu.learning.engines.stacks.form import Batch, Step
from fednet_emu.learning.engines.stacks.layers import Convolution, Dense, Flatten, Layer, MaxPool, Relu
from fednet_emu.learning.models.flat import FlatModel, has_hooks

Slope = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]
"""Function from outputs [A, outputs, B] and targets [A, B, ...] to losses [A, B] and their gradients [A, outputs, B],
for A jobs and B samples."""


@final
class ChainForm:
    """The training step of a sequence of dense, convolution, pooling and activation layers, with a known loss.

    After the gradient has been propagated to the layer below, a layer immediately adds its gradient to its parameters.
    The gradients of all layers are therefore never stored together, unless the step adds them to `into`.
    """

    def __init__(self, layers: Sequence[Layer], slope: Slope, value_per_sample: int, itemsize: int) -> None:
        self._layers = layers
        self._slope = slope
        self._byte_per_sample = value_per_sample * itemsize
        self._places = [slice(a, b) for a, b in pairwise(accumulate((layer.size for layer in layers), initial=0))]
        self._first = next(place for place, layer in enumerate(layers) if layer.size)

    @property
    def is_dense(self) -> bool:
        return not any(isinstance(layer, Convolution) for layer in self._layers)

    def on(self, w: Tensor, into: Tensor | None = None, *, squares: bool = False, base: Tensor | None = None) -> Step:
        assert base is None, "a chain has no adapters"
        total = w if into is None else into
        stages = [
            (layer, layer.parameters(w[:, place]), layer.parameters(total[:, place]))
            for layer, place in zip(self._layers, self._places, strict=True)
        ]
        first = self._first

        def step(batch: Batch, factor: Tensor) -> Tensor:
            x, trail = batch.x.transpose(1, 2), []
            for layer, own, _ in stages:
                x, kept = layer.forward(own, x)
                trail.append(kept)
            losses, d = self._slope(x, batch.y)
            loss, share = _mean(losses, batch.weight)
            if squares:
                loss = torch.stack((loss, _squares(losses, batch.weight)))
            d.mul_(factor.view(-1, 1, 1) * share)
            for (layer, own, learnt), kept in zip(stages[:first:-1], trail[:first:-1], strict=True):
                below = layer.backward(own, kept, d)
                layer.learn(learnt, kept, d)
                d = below
            layer, _, learnt = stages[first]
            layer.learn(learnt, trail[first], d)
            return loss

        return step

    def byte_per_job(self, width: int) -> int:
        """Return the memory in bytes of the values that layers keep for a batch, and of their gradients."""
        return width * self._byte_per_sample


def chain_form(model: FlatModel) -> ChainForm | None:
    """Return the training step for a model that is a sequence of supported layers; None for other models."""
    slope = _SLOPES.get(model.loss_name)
    if slope is None:
        return None
    layers: list[Layer] = []
    sample = model.initial().new_zeros((1, *model.input_shape))
    values = 0
    with torch.no_grad():
        for module in model.layers:
            make = _LAYERS.get(type(module))
            layer = None if make is None or has_hooks(module) else make(module, sample)
            if layer is None:
                return None
            sample = module(sample)
            patch = layer.size // layer.outputs if isinstance(layer, Convolution) else 0
            values += (2 + 2 * patch // max(1, sample.shape[1])) * sample.numel()
            layers.append(layer)
    if sample.ndim != 2 or sum(layer.size for layer in layers) != model.size:
        return None
    return ChainForm(layers, slope, values, model.dtype.itemsize)


def _mean(losses: Tensor, weight: Tensor | None) -> tuple[Tensor, Tensor | float]:
    """Return the mean loss [A] of a batch, and its samples' weights: [A, 1, B], or a number if they are equal."""
    if weight is None:
        return losses.mean(1), 1 / losses.shape[1]
    share = weight / weight.sum(1, keepdim=True)
    return (losses * share).sum(1), share[:, None]


def _squares(losses: Tensor, weight: Tensor | None) -> Tensor:
    """Return the sums [A] of the squared losses of the samples, excluding padding."""
    squared = losses.square()
    return (squared if weight is None else squared * weight).sum(1)


def _cross_entropy(z: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Return the losses -log p[y] and their gradients p - onehot(y), where p is the softmax of the logits `z`."""
    chosen = y[:, None]
    log_p = torch.log_softmax(z, 1)
    losses = log_p.gather(1, chosen)[:, 0].neg()
    p = log_p.exp_()
    return losses, p.scatter_(1, chosen, -1.0, reduce="add")


def _squared_error(z: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Return the losses |z - y|^2 and their gradients 2 (z - y), for the outputs `z` and the targets `y`."""
    error = z - y.reshape(z.shape[0], z.shape[2], z.shape[1]).transpose(1, 2)
    return error.square().sum(1), error.mul_(2)


_SLOPES: Mapping[str, Slope] = {"cross-entropy": _cross_entropy, "squared-error": _squared_error}


def _dense(module: nn.Linear, sample: Tensor) -> Dense | None:
    return Dense(module.in_features, module.out_features, module.bias is not None) if sample.ndim == 2 else None


def _flatten(module: nn.Flatten, sample: Tensor) -> Flatten | None:
    return Flatten(tuple(sample.shape[1:])) if (module.start_dim, module.end_dim) == (1, -1) else None


def _convolution(module: nn.Conv2d, sample: Tensor) -> Convolution | None:
    plain = module.groups == 1 and module.padding_mode == "zeros" and _pair(module.dilation) == (1, 1)
    if not plain or isinstance(module.padding, str) or sample.ndim != 4:
        return None
    windows = _pair(module.kernel_size), _pair(module.stride), _pair(module.padding)
    return Convolution(
        _pair(tuple(sample.shape[2:])), module.in_channels, module.out_channels, *windows, module.bias is not None
    )


def _max_pool(module: nn.MaxPool2d, sample: Tensor) -> MaxPool | None:
    plain = _pair(module.padding) == (0, 0) and _pair(module.dilation) == (1, 1) and not module.ceil_mode
    if not plain or module.return_indices or sample.ndim != 4:
        return None
    return MaxPool(_pair(module.kernel_size), _pair(module.stride))


def _pair(value: Any) -> tuple[int, int]:
    return (value[0], value[1]) if isinstance(value, tuple) else (value, value)


_LAYERS: Mapping[type[nn.Module], Callable[[Any, Tensor], Layer | None]] = {
    nn.Linear: _dense,
    nn.Flatten: _flatten,
    nn.ReLU: lambda _module, _sample: Relu(),
    nn.Conv2d: _convolution,
    nn.MaxPool2d: _max_pool,
}
"""Constructors of layers, by the type of the PyTorch layer. A constructor returns None for unsupported settings."""
