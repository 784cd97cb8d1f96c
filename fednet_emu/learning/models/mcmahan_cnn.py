"""The convolutional network of McMahan et al., "Communication-efficient learning of deep networks", AISTATS 2017."""

from __future__ import annotations

from torch import nn

from fednet_emu.errors import ScenarioError
from fednet_emu.learning.models.base import Model


class McMahanCnn(Model):
    """Two 5x5 convolutions of 32 and 64 channels, each with ReLU and 2x2 max pooling, 512 units with ReLU, outputs.

    Convolutions keep the image size, so that 28x28 grey images and ten classes make the 1,663,370 parameters that the
    paper states.
    """

    kind = "mcmahan-cnn"

    def build(self, input_shape: tuple[int, ...], outputs: int) -> nn.Module:
        """The network for images [channels, height, width] of at least 4x4 pixels."""
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
