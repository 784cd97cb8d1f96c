"""Feedforward networks: linear models, multilayer perceptrons, convolutional networks and residual networks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Annotated, ClassVar, Literal

from pydantic import Field, PositiveInt
from torch import Tensor, nn

from fednet_emu.errors import ScenarioError
from fednet_emu.learning.models.base import Model, check_images


class Softmax(Model):
    """Softmax (multinomial logistic) regression, a single linear layer on the flattened sample.

    The outputs are logits.
    """

    def build(self, input_shape: tuple[int, ...], outputs: int) -> nn.Module:
        return _linear(input_shape, outputs)


class Linear(Model):
    """Linear regression, or support vector machine with a hinge loss: a single linear layer on the flattened sample."""

    bias: bool = True
    """Whether the layer has a constant term (bias)."""
    loss: Literal["squared-hinge"] | None = None
    """Loss function. squared-hinge: 1/2 max(0, 1 - margin)^2, for data of two classes; the model then has a single
    output, which is positive for the second class. Null uses the usual loss of the data."""

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
    """Multilayer perceptron: fully connected layers with ReLU on the flattened sample.

    For example, the network of Wang, Yan and Oates (IJCNN 2017) has `hidden` [500, 500, 500] and `dropout` [0.1, 0.2,
    0.2, 0.3].
    """

    hidden: tuple[PositiveInt, ...] = (300, 300)
    """Number of units of each hidden layer."""
    dropout: tuple[Annotated[float, Field(ge=0, lt=1)], ...] = ()
    """Dropout rate before each layer, including the output layer. The list has one more entry than `hidden`, or is
    empty for no dropout."""

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


def _check_images(kind: str, shape: tuple[int, ...], least: int, channels: Sequence[int] = ()) -> None:
    """Refuse samples other than images with sides of at least `least` pixels, and `channels`, which may be any."""
    if len(shape) != 3 or min(shape[1:]) < least or (channels and shape[0] not in channels):
        several = " or ".join(map(str, channels)) or "channels"
        wanted = f"samples must be images [{several}, height, width] of at least {least}x{least} pixels"
        remedy = "use image data, or a model such as mlp or softmax"
        raise ScenarioError(f"model: {wanted} for {kind}, got shape {list(shape)}; {remedy}")


class _TwoConvolutions(Model):
    """Base class of networks with two 5x5 convolutions, each followed by ReLU and 2x2 max pooling, and dense layers."""

    CHANNELS: ClassVar[tuple[int, int]] = (6, 16)
    """Number of output channels of each convolution."""
    PADDING: ClassVar[tuple[int, int]]
    """Number of pixels added on each side of the input of each convolution."""
    UNITS: ClassVar[tuple[int, ...]] = (120, 84)
    """Number of units of each dense layer before the output layer, with ReLU."""

    def build(self, input_shape: tuple[int, ...], outputs: int) -> nn.Module:
        first, second = self.PADDING
        _check_images(self.kind, input_shape, 16 - 2 * first - 4 * second)
        layers: list[nn.Module] = []
        channels, *sides = input_shape
        for n_in, n_out, padding in zip((channels, self.CHANNELS[0]), self.CHANNELS, self.PADDING, strict=True):
            layers += [nn.Conv2d(n_in, n_out, 5, padding=padding), nn.MaxPool2d(2), nn.ReLU()]
            sides = [(side + 2 * padding - 4) // 2 for side in sides]
        layers.append(nn.Flatten())
        for n_in, n_out in pairwise((self.CHANNELS[1] * math.prod(sides), *self.UNITS)):
            layers += [nn.Linear(n_in, n_out), nn.ReLU()]
        return nn.Sequential(*layers, nn.Linear(self.UNITS[-1], outputs))


class McMahanCnn(_TwoConvolutions):
    """The convolutional network of McMahan et al. (AISTATS 2017) for MNIST.

    It has two 5x5 convolutions with 32 and 64 channels, each followed by ReLU and 2x2 max pooling, then a dense layer
    of 512 units with ReLU, and the output layer.

    Convolutions are padded, so that they keep the image size. With grey 28x28 images and ten classes, the network has
    1,663,370 parameters, as stated in the paper.
    """

    kind = "mcmahan-cnn"
    CHANNELS = (32, 64)
    PADDING = (2, 2)
    UNITS = (512,)


class LeNet(_TwoConvolutions):
    """LeNet-5, a small convolutional network for images (LeCun, Bottou, Bengio, Haffner, 1998).

    This is today's usual variant, with ReLU, max pooling, and all connections between the convolutions. Images of 28x28
    pixels are padded to 32x32. With grey 28x28 images and ten classes, the network has 61,706 parameters. Source:
    "Gradient-based learning applied to document recognition".
    """

    kind = "lenet"
    PADDING = (2, 0)


class NiidBenchCnn(_TwoConvolutions):
    """The `simple-cnn` of NIID-Bench (Li, Diao, Chen, He, ICDE 2022): LeNet-5 without padding.

    With grey 28x28 images and ten classes, the network has 44,426 parameters.
    """

    PADDING = (0, 0)


COLOURS = 3


class DigitModel(Model):
    """The network for digits in FedUL (Lu et al., ICLR 2022), with three convolutions and three dense layers.

    Convolutions are 5x5. All layers except the last one are followed by batch norm and ReLU.

    The first two convolutions are also followed by 2x2 max pooling. Grey images are first copied to three channels.
    With the default settings, 28x28 images and ten classes, the network has 14,219,210 parameters and 5,632 running
    statistics. With smaller `channels` and `units`, a CPU can train it.
    """

    channels: Annotated[tuple[PositiveInt, ...], Field(min_length=3, max_length=3)] = (64, 64, 128)
    """Number of output channels of each of the three convolutions."""
    units: Annotated[tuple[PositiveInt, ...], Field(min_length=2, max_length=2)] = (2048, 512)
    """Number of units of each of the two hidden dense layers."""

    def build(self, input_shape: tuple[int, ...], outputs: int) -> nn.Module:
        _check_images(self.kind, input_shape, 4, (1, COLOURS))
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
    """Layer that converts grey images to three channels. Colour images are unchanged."""

    def forward(self, x: Tensor) -> Tensor:
        return x.expand(-1, COLOURS, -1, -1)


class _Block(nn.Module):
    """Residual block of two 3x3 convolutions and a shortcut, which is a 1x1 convolution if the shape changes."""

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
    """Base class of residual networks for small images.

    The network has a 3x3 convolution, stages of residual blocks, mean pooling, and the output layer. Each stage after
    the first one halves the resolution.
    """

    WIDTHS: ClassVar[tuple[int, ...]]
    """Number of channels in each stage."""
    BLOCKS: ClassVar[int]
    """Number of residual blocks in each stage."""
    norm: Literal["group", "batch"] = "group"
    """Type of the normalisation layers. group: over groups of channels of each sample; batch: over the samples of a
    batch."""
    groups: int = Field(2, gt=0)
    """Number of groups of channels in group norm. Must divide the numbers of channels of all stages."""

    def _check(self) -> None:
        if self.WIDTHS[0] % self.groups:
            raise ValueError(f"groups: must divide {self.WIDTHS[0]} channels, got {self.groups}; give 2, 4, 8 or 16")

    def normalised(self, channels: int) -> nn.Module:
        return nn.GroupNorm(self.groups, channels) if self.norm == "group" else nn.BatchNorm2d(channels)

    def build(self, input_shape: tuple[int, ...], outputs: int) -> nn.Module:
        check_images(self.kind, input_shape)
        n_in = self.WIDTHS[0]
        first = nn.Conv2d(input_shape[0], n_in, 3, 1, 1, bias=False)
        layers: list[nn.Module] = [first, self.normalised(n_in), nn.ReLU()]
        for stage, width in enumerate(self.WIDTHS):
            for block in range(self.BLOCKS):
                layers.append(_Block(self, n_in, width, 2 if stage and not block else 1))
                n_in = width
        return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(n_in, outputs))


class ResNet18(_ResNet):
    """ResNet-18 for small images, whose first layer is a 3x3 convolution without pooling, instead of 7x7 with pooling.

    With colour images and ten classes, the network has 11,173,962 parameters.
    """

    kind = "resnet-18"
    WIDTHS = (64, 128, 256, 512)
    BLOCKS = 2


class ResNet20(_ResNet):
    """ResNet-20 (He, Zhang, Ren, Sun, CVPR 2016) for small images.

    It is the network in section 4.2 of the paper, except that shortcuts are 1x1 convolutions where the shape changes.

    With colour images and ten classes, the network has 272,474 parameters.
    """

    kind = "resnet-20"
    WIDTHS = (16, 32, 64)
    BLOCKS = 3
