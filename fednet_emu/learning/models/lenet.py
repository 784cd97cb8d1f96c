"""Small convolutional networks with 6 and 16 channels: LeNet-5, and the network of NIID-Bench."""

from __future__ import annotations

from typing import ClassVar

from torch import nn

from fednet_emu.errors import ScenarioError
from fednet_emu.learning.models.base import Model


class _SixAndSixteen(Model):
    """Two 5x5 convolutions of 6 and 16 channels with ReLU and 2x2 max pooling, 120 and 84 units, and the outputs."""

    PADDING: ClassVar[int]
    """Pixels added on each side of the image before the first convolution."""

    def build(self, input_shape: tuple[int, ...], outputs: int) -> nn.Module:
        """The network for images [channels, height, width]."""
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

    As it is used today: ReLU, max pooling, and all connections between the convolutions; 28x28 images are padded to
    32x32. Grey 28x28 images and ten classes make 61,706 parameters.
    """

    PADDING = 2
    kind = "lenet"


class NiidBenchCnn(_SixAndSixteen):
    """The `simple-cnn` of NIID-Bench (Li, Diao, Chen, He, ICDE 2022): LeNet-5 without padding.

    Grey 28x28 images and ten classes make 44,426 parameters.
    """

    PADDING = 0
