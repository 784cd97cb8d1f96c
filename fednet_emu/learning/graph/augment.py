"""Data augmentation: random changes of the samples of a batch before a training step."""

from __future__ import annotations

from abc import abstractmethod
from math import radians
from typing import Annotated

import numpy as np
import torch
from pydantic import Field
from torch import Tensor
from torch.nn.functional import affine_grid, grid_sample

from fednet_emu.component.component import Component
from fednet_emu.component.slot import Slot, kinds


class Augmentation(Component):
    """Base class of random changes of samples.

    The random numbers of all steps are drawn before the first one, so that one copy brings them to a GPU.
    """

    def unfit(self, input_shape: tuple[int, ...]) -> str | None:
        """Return the reason why samples of shape `input_shape` cannot be augmented; None if they can."""
        return None

    @abstractmethod
    def draw(self, rng: np.random.Generator, shape: tuple[int, int]) -> Tensor:
        """Draw the random numbers [steps, width, ...] for `steps` batches of up to `width` samples.

        `shape` is (steps, width).
        """

    @abstractmethod
    def apply(self, x: Tensor, drawn: Tensor) -> Tensor:
        """Return the samples `x` [B, ...], changed as the random numbers `drawn` [B, ...] determine."""


class Rotation(Augmentation):
    """Each image is rotated about its centre by an angle drawn uniformly between -max_degree and +max_degree.

    Pixels are interpolated bilinearly. Pixels from outside the image have the value of the nearest border pixel.
    """

    max_degree: float = Field(20.0, ge=0, le=180)
    """Maximum angle in either direction, in degrees."""

    def unfit(self, input_shape: tuple[int, ...]) -> str | None:
        if len(input_shape) == 3:
            return None
        return f"turns images [channels, height, width], got samples of shape {list(input_shape)}; leave it out"

    def draw(self, rng: np.random.Generator, shape: tuple[int, int]) -> Tensor:
        """Draw a rotation matrix for each sample of each step, as an array [steps, width, 2, 2]."""
        angle = rng.uniform(-radians(self.max_degree), radians(self.max_degree), shape)
        cos, sin = np.cos(angle), np.sin(angle)
        return torch.from_numpy(np.stack([cos, -sin, sin, cos], axis=-1).reshape(*shape, 2, 2))

    def apply(self, x: Tensor, drawn: Tensor) -> Tensor:
        """Rotate images `x` [B, channels, height, width]; `drawn` [B, 2, 2] map output to input positions."""
        height, width = x.shape[-2:]
        aspect = x.new_tensor([[1.0, height / width], [width / height, 1.0]]) if height != width else 1.0
        theta = torch.cat([drawn * aspect, drawn.new_zeros(len(x), 2, 1)], dim=2)
        return grid_sample(x, affine_grid(theta, list(x.shape), align_corners=False), "bilinear", "border", False)


AUGMENTATIONS: dict[str, type[Augmentation]] = kinds(Rotation)

AnyAugmentation = Annotated[Augmentation, Slot("augmentation", AUGMENTATIONS)]
