"""Layers of many models at once, with hand-written gradients: dense layers, convolutions and max pooling.

Activations of dense layers have the shape [A, features, B] for A models and B samples. The axis of samples is the last
one, because matrix products with few outputs are then fastest on a CPU, and because gradients of weights then have the
same memory layout as the weights. Activations of images have the shape [A, channels, B, height, width]. A convolution
copies every patch of an image and then computes one matrix product per model, because grouped convolutions with many
groups are slow on a GPU.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, final

import torch
from torch import Tensor
from torch.nn.functional import max_pool2d, pad

Parameters = tuple[Tensor, ...]
"""The parameters of one layer in A models, as views in the shapes that the layer uses."""


class Layer(ABC):
    """Base class of layers in a stack of A models. By default, a layer has no parameters.

    In the methods, `x` is the input, `d` is the gradient of the loss with respect to the output, and `own` are the
    parameters as returned by `parameters`.
    """

    __slots__ = ()

    @property
    def size(self) -> int:
        """Number of parameters per model."""
        return 0

    def parameters(self, w: Tensor) -> Parameters:
        """Return views of the parameters `w` [A, size] in the shapes that the layer uses."""
        return ()

    @abstractmethod
    def forward(self, own: Parameters, x: Tensor) -> tuple[Tensor, Any]:
        """Return the output, and the values that `backward` and `learn` need later. The input `x` is not modified."""

    @abstractmethod
    def backward(self, own: Parameters, kept: Any, d: Tensor) -> Tensor:
        """Return the gradient of the loss with respect to the input."""

    def learn(self, own: Parameters, kept: Any, d: Tensor) -> None:  # noqa: B027
        """Add the gradient of the parameters to `own`, in place."""


@final
@dataclass(frozen=True, slots=True)
class Dense(Layer):
    """A linear layer that maps [A, inputs, B] to [A, outputs, B]."""

    inputs: int
    outputs: int
    has_bias: bool

    @property
    def size(self) -> int:
        """Number of parameters: weights [outputs, inputs] and biases [outputs]."""
        return self.outputs * (self.inputs + self.has_bias)

    def parameters(self, w: Tensor) -> Parameters:
        return matrices(w, self.outputs, self.inputs)

    def forward(self, own: Parameters, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return the output W x + b, and the input x."""
        weight, *bias = own
        if self.outputs <= x.shape[2]:
            y = torch.bmm(weight, x)
        else:  # a product is faster if its longer dimension comes last
            y = torch.bmm(x.transpose(1, 2), weight.transpose(1, 2)).transpose(1, 2)
        return (y.add_(*bias) if bias else y), x

    def backward(self, own: Parameters, kept: Tensor, d: Tensor) -> Tensor:
        """Return the gradient of the input, in the memory layout of the input.

        It is the transposed weights times `d`. The layer below can read the input and its gradient in the same order.
        """
        weight = own[0]
        if self.inputs <= d.shape[2]:
            return torch.bmm(weight.transpose(1, 2), d)
        return torch.bmm(d.transpose(1, 2), weight).transpose(1, 2)

    def learn(self, own: Parameters, kept: Tensor, d: Tensor) -> None:
        """Add the gradients to the parameters: `d` times the transposed input to weights, sums of `d` to biases."""
        learn(own, kept, d)


def matrices(w: Tensor, outputs: int, inputs: int) -> Parameters:
    """Return views of `w` [A, P] as matrices [A, outputs, inputs] and, if entries remain, columns [A, outputs, 1]."""
    weight, bias = w[:, : outputs * inputs], w[:, outputs * inputs :]
    shaped = weight.view(len(w), outputs, inputs)
    return (shaped, bias[:, :, None]) if bias.shape[1] else (shaped,)


def learn(own: Parameters, x: Tensor, d: Tensor) -> None:
    """Add d x', where x' is `x` transposed, to the weights in `own`, and the sums of `d` to the biases.

    `x` has the shape [A, inputs, n], and `d` has the shape [A, outputs, n].
    """
    weight, *bias = own
    weight.baddbmm_(d, x.transpose(1, 2))
    for b in bias:
        b.add_(d.sum(2, keepdim=True))


@final
@dataclass(frozen=True, slots=True)
class Relu(Layer):
    """The activation max(0, x)."""

    def forward(self, own: Parameters, x: Tensor) -> tuple[Tensor, Tensor]:
        y = torch.relu(x)
        return y, y

    def backward(self, own: Parameters, kept: Tensor, d: Tensor) -> Tensor:
        return torch.ops.aten.threshold_backward(d, kept, 0)  # type: ignore[no-any-return]


@final
@dataclass(frozen=True, slots=True)
class Flatten(Layer):
    """Flattens inputs [A, channels, B, ...] to [A, features, B]. Flat inputs are unchanged."""

    shape: tuple[int, ...]  # [channels, ...] of one sample

    def forward(self, own: Parameters, x: Tensor) -> tuple[Tensor, Tensor]:
        return x.movedim(2, -1).reshape(len(x), math.prod(self.shape), x.shape[2]), x

    def backward(self, own: Parameters, kept: Tensor, d: Tensor) -> Tensor:
        return d.reshape(len(d), *self.shape, d.shape[2]).movedim(-1, 2)


Pair = tuple[int, int]


@final
@dataclass(frozen=True, slots=True)
class Convolution(Layer):
    """A two-dimensional convolution with zero padding, without groups or dilation."""

    image: Pair
    inputs: int
    outputs: int
    kernel: Pair
    stride: Pair
    padding: Pair
    has_bias: bool

    @property
    def size(self) -> int:
        """Number of parameters: weights [outputs, inputs, kernel height, kernel width] and biases [outputs]."""
        return self.outputs * (self._patch + self.has_bias)

    @property
    def _patch(self) -> int:
        return self.inputs * self.kernel[0] * self.kernel[1]

    def parameters(self, w: Tensor) -> Parameters:
        """Return views of the weights [A, outputs, patch] and, if there are any, of the biases [A, outputs, 1]."""
        return matrices(w, self.outputs, self._patch)

    def forward(self, own: Parameters, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return the output, and the patches of the input [A, patch, B * output height * output width]."""
        (down, right), (down_by, right_by) = self.padding, self.stride
        padded = pad(x, (right, right, down, down))
        windows = padded.unfold(3, self.kernel[0], down_by).unfold(4, self.kernel[1], right_by)
        patches = windows.permute(0, 1, 5, 6, 2, 3, 4).reshape(len(x), self._patch, -1)
        weight, *bias = own
        y = torch.bmm(weight, patches)
        for b in bias:
            y.add_(b)
        return y.view(len(x), self.outputs, *windows.shape[2:5]), patches

    def backward(self, own: Parameters, kept: Tensor, d: Tensor) -> Tensor:
        """Return the gradient of the input, summed from the gradients of all patches that contain each pixel."""
        n_jobs, _, n_samples, height, width = d.shape
        slopes = torch.bmm(own[0].transpose(1, 2), d.reshape(n_jobs, self.outputs, -1))
        slopes = slopes.view(n_jobs, self.inputs, *self.kernel, n_samples, height, width)
        (down, right), (down_by, right_by) = self.padding, self.stride
        tall, wide = self.image
        padded = d.new_zeros((n_jobs, self.inputs, n_samples, tall + 2 * down, wide + 2 * right))
        for row in range(self.kernel[0]):
            for column in range(self.kernel[1]):
                rows = slice(row, row + (height - 1) * down_by + 1, down_by)
                columns = slice(column, column + (width - 1) * right_by + 1, right_by)
                padded[..., rows, columns].add_(slopes[:, :, row, column])
        return padded[..., down : down + tall, right : right + wide]

    def learn(self, own: Parameters, kept: Tensor, d: Tensor) -> None:
        """Add the gradients to the parameters: `d` times the transposed patches to weights, sums of `d` to biases."""
        learn(own, kept, d.reshape(len(d), self.outputs, -1))


@final
@dataclass(frozen=True, slots=True)
class MaxPool(Layer):
    """Max pooling without padding or dilation."""

    kernel: Pair
    stride: Pair

    def forward(self, own: Parameters, x: Tensor) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """Return the maxima, and the data for the backward pass: the input and the indices of the maxima."""
        flat = x.reshape(-1, *x.shape[2:])
        y, places = max_pool2d(flat, self.kernel, self.stride, return_indices=True)
        return y.view(*x.shape[:2], *y.shape[1:]), (flat, places)

    def backward(self, own: Parameters, kept: tuple[Tensor, Tensor], d: Tensor) -> Tensor:
        """Return the gradient of the input, which is that of the output at the maxima, and zero elsewhere."""
        flat, places = kept
        shape = (d.shape[0], d.shape[1], *flat.shape[1:])
        d = d.reshape(places.shape)
        options = self.kernel, self.stride, (0, 0), (1, 1), False
        before: Tensor = torch.ops.aten.max_pool2d_with_indices_backward(d, flat, *options, places)
        return before.view(shape)
