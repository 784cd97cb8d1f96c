"""Residual networks (He, Zhang, Ren, Sun: "Deep Residual Learning for Image Recognition", CVPR 2016) for small images.

With group norm instead of batch norm by default, as federated learning needs it: statistics of a batch differ from
device to device (Hsieh, Phanishayee, Mutlu, Gibbons: "The Non-IID Data Quagmire", ICML 2020).
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Literal

from pydantic import Field, model_validator
from torch import Tensor, nn

from fednet_emu.errors import ScenarioError
from fednet_emu.learning.models.base import Model


class _Block(nn.Module):
    """Two 3x3 convolutions and a shortcut, which is a 1x1 convolution where the shape changes."""

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
        """Add what the convolutions make of x to x."""
        out: Tensor = self.relu(self.path(x) + self.shortcut(x))
        return out


class _ResNet(Model):
    """A 3x3 convolution, stages of residual blocks, later ones at half the resolution, mean pooling, outputs."""

    norm: Literal["group", "batch"] = "group"
    """Normalisation: over groups of channels of each sample, or over the batch."""
    groups: int = Field(2, gt=0)
    """Number of groups of channels of group norm; a divisor of all widths."""

    @abstractmethod
    def stages(self) -> tuple[tuple[int, ...], int]:
        """Widths of the stages, and the number of blocks in each."""

    @model_validator(mode="after")
    def _groups_divide_the_widths(self) -> _ResNet:
        if self.stages()[0][0] % self.groups:
            raise ValueError(
                f"groups: must divide {self.stages()[0][0]} channels, got {self.groups}; give 2, 4, 8 or 16"
            )
        return self

    def normalised(self, channels: int) -> nn.Module:
        """A normalisation of this many channels."""
        return nn.GroupNorm(self.groups, channels) if self.norm == "group" else nn.BatchNorm2d(channels)

    def build(self, input_shape: tuple[int, ...], outputs: int) -> nn.Module:
        """The network for images [channels, height, width] of any size."""
        if len(input_shape) != 3:
            kind = self.kind
            wanted = f"samples must be images [channels, height, width] for {kind}"
            raise ScenarioError(f"model: {wanted}, got shape {list(input_shape)}; use image data, or mlp or softmax")
        widths, blocks = self.stages()
        first = nn.Conv2d(input_shape[0], widths[0], 3, 1, 1, bias=False)
        layers: list[nn.Module] = [first, self.normalised(widths[0]), nn.ReLU()]
        n_in = widths[0]
        for stage, width in enumerate(widths):
            for block in range(blocks):
                layers.append(_Block(self, n_in, width, 2 if stage and not block else 1))
                n_in = width
        return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(n_in, outputs))


class ResNet18(_ResNet):
    """ResNet-18 with the first layer of the small-image variant: 3x3 instead of 7x7, without pooling.

    Colour images and ten classes make 11,173,962 parameters.
    """

    kind = "resnet-18"

    def stages(self) -> tuple[tuple[int, ...], int]:
        """Four stages of two blocks."""
        return (64, 128, 256, 512), 2


class ResNet20(_ResNet):
    """ResNet-20 of section 4.2 of the paper, with projections where the shape changes.

    Colour images and ten classes make 272,474 parameters.
    """

    kind = "resnet-20"

    def stages(self) -> tuple[tuple[int, ...], int]:
        """Three stages of three blocks."""
        return (16, 32, 64), 3
