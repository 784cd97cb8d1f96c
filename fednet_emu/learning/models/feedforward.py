"""Feedforward networks: linear models, the multilayer perceptron, convolutional and residual networks for images."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Annotated, ClassVar, Literal

from pydantic import Field, PositiveInt
from torch import Tensor, nn

from fednet_emu.errors import ScenarioError
from fednet_emu.learning.models.base import Model


class Softmax(Model):
    """Softmax (multinomial logistic) regression: one linear layer on the flattened sample; the outputs are logits."""

    def build(self, input_shape: tuple[int, ...], outputs: int) -> nn.Module:
        return _linear(input_shape, outputs)


class Linear(Model):
    """One linear layer on the flattened sample: a linear regression, or a support vector machine with a hinge loss."""

    bias: bool = True
    """Whether the model has a constant term."""
    loss: Literal["squared-hinge"] | None = None
    """Loss function. squared-hinge: 1/2 max(0, 1 - margin)^2 for data of two classes, where the model has one score
    that is positive for the second class. Null is the usual loss of the data."""

    @property
    def own_loss(self) -> str | None:
        return self.loss

    def build(self, input_shape: tuple[int, ...], outputs: int) -> nn.Module:
        if self.loss is not None and outputs != 2:
            raise ScenarioError(f"model.loss: {self.loss} separates two classes, got {outputs}; leave it out")
        return _linear(input_shape, outputs if self.loss is None else 1, bias=self.bias)


def _linear(input_shape: tuple[int, ...], outputs: int, *, bias: bool = True) -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(math.prod(input_shape), outputs, bias=bias))


class Mlp(Model):
    """Fully connected layers with ReLU between them, on the flattened sample; `hidden` are the widths of hidden layers.

    The network of Wang, Yan and Oates (IJCNN 2017) has `hidden` [500, 500, 500] and `dropout` [0.1, 0.2, 0.2, 0.3].
    """

    hidden: tuple[PositiveInt, ...] = (300, 300)
    """Number of units of each hidden layer."""
    dropout: tuple[Annotated[float, Field(ge=0, lt=1)], ...] = ()
    """Dropout rate before each layer, including the output layer (one more entry than `hidden`); empty for no
    dropout."""

    def _check(self) -> None:
        if len(self.dropout) not in (0, len(self.hidden) + 1):
            raise ValueError(f"dropout: not one share per layer, got {len(self.dropout)}; give {len(self.hidden) + 1}")

    def build(self, input_shape: tuple[int, ...], outputs: int) -> nn.Module:
        layers: list[nn.Module] = [nn.Flatten()]
        widths = (math.prod(input_shape), *self.hidden, outputs)
        for layer, (n_in, n_out) in enumerate(pairwise(widths)):
            layers += [nn.ReLU()] if layer else []
            layers += [nn.Dropout(self.dropout[layer])] if self.dropout else []
            layers.append(nn.Linear(n_in, n_out))
        return nn.Sequential(*layers)


class McMahanCnn(Model):
    """Two 5x5 convolutions of 32 and 64 channels, each with ReLU and 2x2 max pooling, then 512 ReLU units and outputs.

    Convolutions keep the image size. With 28x28 grey images and ten classes, the network has the 1,663,370 parameters
    that the paper states.
    """

    kind = "mcmahan-cnn"

    def build(self, input_shape: tuple[int, ...], outputs: int) -> nn.Module:
        if len(input_shape) != 3 or min(input_shape[1:]) < 4:
            wanted = "samples must be images [channels, height, width] of at least 4x4 pixels"
            remedy = "use image data, or a model such as mlp or softmax"
            raise ScenarioError(f"model: {wanted} for mcmahan-cnn, got shape {list(input_shape)}; {remedy}")
        channels, height, width = input_shape
        return nn.Sequential(
            nn.Conv2d(channels, 32, 5, padding=2),
            nn.MaxPool2d(2),
            nn.ReLU(),
            nn.Conv2d(32, 64, 5, padding=2),
            nn.MaxPool2d(2),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(64 * (height // 4) * (width // 4), 512),
            nn.ReLU(),
            nn.Linear(512, outputs),
        )


class _SixAndSixteen(Model):
    """Two 5x5 convolutions of 6 and 16 channels with ReLU and 2x2 max pooling, 120 and 84 units, and the outputs."""

    PADDING: ClassVar[int]
    """Number of pixels added on each side of the image before the first convolution."""

    def build(self, input_shape: tuple[int, ...], outputs: int) -> nn.Module:
        smallest = 16 - 2 * self.PADDING
        if len(input_shape) != 3 or min(input_shape[1:]) < smallest:
            kind = self.kind
            wanted = f"samples must be images [channels, height, width] of at least {smallest}x{smallest} pixels"
            remedy = "use image data, or a model such as mlp or softmax"
            raise ScenarioError(f"model: {wanted} for {kind}, got shape {list(input_shape)}; {remedy}")
        channels, *sides = input_shape
        height, width = (((side + 2 * self.PADDING - 4) // 2 - 4) // 2 for side in sides)
        return nn.Sequential(
            nn.Conv2d(channels, 6, 5, padding=self.PADDING),
            nn.MaxPool2d(2),
            nn.ReLU(),
            nn.Conv2d(6, 16, 5),
            nn.MaxPool2d(2),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(16 * height * width, 120),
            nn.ReLU(),
            nn.Linear(120, 84),
            nn.ReLU(),
            nn.Linear(84, outputs),
        )


class LeNet(_SixAndSixteen):
    """LeNet-5 (LeCun, Bottou, Bengio, Haffner: "Gradient-based learning applied to document recognition", 1998).

    The network is today's usual variant, with ReLU, max pooling, and all connections between the convolutions; 28x28
    images are padded to 32x32. With grey 28x28 images and ten classes, it has 61,706 parameters.
    """

    PADDING = 2
    kind = "lenet"


class NiidBenchCnn(_SixAndSixteen):
    """The `simple-cnn` of NIID-Bench (Li, Diao, Chen, He, ICDE 2022): LeNet-5 without padding.

    With grey 28x28 images and ten classes, the network has 44,426 parameters.
    """

    PADDING = 0


COLOURS = 3


class DigitModel(Model):
    """Three 5x5 convolutions and three dense layers; all layers except the last have batch norm and ReLU.

    The first two convolutions are followed by 2x2 max pooling. Grey images are first repeated in three channels. The
    network is the one that Lu et al., ICLR 2022, take from experiments on digits. By default, with 28x28 images and ten
    classes, it has 14,219,210 parameters and 5,632 running statistics; smaller `channels` and `units` give a network
    that a CPU can train.
    """

    channels: Annotated[tuple[PositiveInt, ...], Field(min_length=3, max_length=3)] = (64, 64, 128)
    """Number of output channels of each of the three convolutions."""
    units: Annotated[tuple[PositiveInt, ...], Field(min_length=2, max_length=2)] = (2048, 512)
    """Number of units of each of the two hidden dense layers."""

    def build(self, input_shape: tuple[int, ...], outputs: int) -> nn.Module:
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
    """Layer that makes three-channel images: grey images are repeated three times, colour images are unchanged."""

    def forward(self, x: Tensor) -> Tensor:
        return x.expand(-1, COLOURS, -1, -1)


class _Block(nn.Module):
    """Two 3x3 convolutions and a shortcut around them. The shortcut is a 1x1 convolution if the shape changes."""

    def __init__(self, norm: _ResNet, n_in: int, n_out: int, stride: int) -> None:
        super().__init__()
        self.path = nn.Sequential(
            nn.Conv2d(n_in, n_out, 3, stride, 1, bias=False),
            norm.normalised(n_out),
            nn.ReLU(),
            nn.Conv2d(n_out, n_out, 3, 1, 1, bias=False),
            norm.normalised(n_out),
        )
        same = stride == 1 and n_in == n_out
        projection = nn.Conv2d(n_in, n_out, 1, stride, bias=False)
        self.shortcut = nn.Identity() if same else nn.Sequential(projection, norm.normalised(n_out))
        self.relu = nn.ReLU()

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.relu(self.path(x) + self.shortcut(x))
        return out


class _ResNet(Model):
    """A 3x3 convolution, stages of residual blocks (each later stage at half the resolution), mean pooling, outputs."""

    WIDTHS: ClassVar[tuple[int, ...]]
    """Number of channels in each stage."""
    BLOCKS: ClassVar[int]
    """Number of residual blocks in each stage."""
    norm: Literal["group", "batch"] = "group"
    """Normalisation. group: over groups of channels of each sample; batch: over the samples of a batch."""
    groups: int = Field(2, gt=0)
    """Number of channel groups of group norm. Must divide the widths of all stages."""

    def _check(self) -> None:
        if self.WIDTHS[0] % self.groups:
            raise ValueError(f"groups: must divide {self.WIDTHS[0]} channels, got {self.groups}; give 2, 4, 8 or 16")

    def normalised(self, channels: int) -> nn.Module:
        return nn.GroupNorm(self.groups, channels) if self.norm == "group" else nn.BatchNorm2d(channels)

    def build(self, input_shape: tuple[int, ...], outputs: int) -> nn.Module:
        if len(input_shape) != 3:
            kind = self.kind
            wanted = f"samples must be images [channels, height, width] for {kind}"
            raise ScenarioError(f"model: {wanted}, got shape {list(input_shape)}; use image data, or mlp or softmax")
        n_in = self.WIDTHS[0]
        first = nn.Conv2d(input_shape[0], n_in, 3, 1, 1, bias=False)
        layers: list[nn.Module] = [first, self.normalised(n_in), nn.ReLU()]
        for stage, width in enumerate(self.WIDTHS):
            for block in range(self.BLOCKS):
                layers.append(_Block(self, n_in, width, 2 if stage and not block else 1))
                n_in = width
        return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(n_in, outputs))


class ResNet18(_ResNet):
    """ResNet-18 with a first layer for small images: a 3x3 convolution instead of 7x7, and no pooling.

    With colour images and ten classes, the network has 11,173,962 parameters.
    """

    kind = "resnet-18"
    WIDTHS = (64, 128, 256, 512)
    BLOCKS = 2


class ResNet20(_ResNet):
    """ResNet-20 as in section 4.2 of the paper, but with projection shortcuts where the shape changes.

    With colour images and ten classes, the network has 272,474 parameters.
    """

    kind = "resnet-20"
    WIDTHS = (16, 32, 64)
    BLOCKS = 3
