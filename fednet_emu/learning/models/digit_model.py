"""The convolutional network of FedUL's experiments on MNIST, and smaller ones of its shape."""

from __future__ import annotations

from itertools import pairwise
from typing import Annotated

from pydantic import Field, PositiveInt
from torch import Tensor, nn

from fednet_emu.errors import ScenarioError
from fednet_emu.learning.models.base import Model

COLOURS = 3


class DigitModel(Model):
    """Three 5x5 convolutions and three dense layers with batch norm and ReLU after all but the last.

    The first two convolutions are followed by 2x2 max pooling; grey images are repeated in three channels first. Lu et
    al., ICLR 2022, take the network from experiments on digits. By default, 28x28 images and ten classes make
    14,219,210 parameters and 5,632 running statistics; small `channels` and `units` make a network for a CPU.
    """

    channels: Annotated[tuple[PositiveInt, ...], Field(min_length=3, max_length=3)] = (64, 64, 128)
    """Number of output channels of each of the three convolutions."""
    units: Annotated[tuple[PositiveInt, ...], Field(min_length=2, max_length=2)] = (2048, 512)
    """Number of units of each of the two hidden dense layers."""

    def build(self, input_shape: tuple[int, ...], outputs: int) -> nn.Module:
        """The network for images [1 or 3, height, width] of at least 4x4 pixels."""
        if len(input_shape) != 3 or input_shape[0] not in (1, COLOURS) or min(input_shape[1:]) < 4:
            wanted = "samples must be images [1 or 3, height, width] of at least 4x4 pixels"
            remedy = "use image data, or a model such as mlp or softmax"
            raise ScenarioError(f"model: {wanted} for digit-model, got shape {list(input_shape)}; {remedy}")
        layers: list[nn.Module] = [_Colour()]
        for place, (n_in, n_out) in enumerate(pairwise((COLOURS, *self.channels))):
            layers += [nn.Conv2d(n_in, n_out, 5, padding=2), nn.BatchNorm2d(n_out), nn.ReLU()]
            layers += [nn.MaxPool2d(2)] if place < 2 else []
        layers.append(nn.Flatten())
        flat = self.channels[-1] * (input_shape[1] // 4) * (input_shape[2] // 4)
        for n_in, n_out in pairwise((flat, *self.units)):
            layers += [nn.Linear(n_in, n_out), nn.BatchNorm1d(n_out), nn.ReLU()]
        return nn.Sequential(*layers, nn.Linear(self.units[-1], outputs))


class _Colour(nn.Module):
    """Images with three channels: grey images are repeated three times, others are unchanged."""

    def forward(self, x: Tensor) -> Tensor:
        """From [B, 1 or 3, height, width] to [B, 3, height, width]."""
        return x.expand(-1, COLOURS, -1, -1)
