"""Convolution and max pooling for many models at once, with hand-written gradients.

Activations have the shape [A, channels, B, height, width] for A models and B samples. A convolution copies every patch
of an image and then computes one matrix product per model. Matrix products are fast on a GPU, whereas grouped
convolutions with many groups are slow.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor
from torch.nn.functional import max_pool2d, pad

from fednet_emu.learning.engines.stacks.layers import Parameters, Unlearnt, learn, matrices

Pair = tuple[int, int]


@final
@dataclass(frozen=True, slots=True)
class Convolution:
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
class MaxPool(Unlearnt):
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
