"""Augmentation: what happens to the samples of a batch before a training step sees them."""

from __future__ import annotations

from abc import abstractmethod
from math import radians
from typing import Annotated, Literal

import numpy as np
import torch
from pydantic import Field
from torch import Tensor
from torch.nn.functional import affine_grid, grid_sample

from fednet_emu.component import Component, Slot


class Augmentation(Component):
    """A random change of samples. Drawing is apart from applying, so that all draws of a job reach a GPU in one go."""

    @abstractmethod
    def draw(self, rng: np.random.Generator, shape: tuple[int, int]) -> Tensor:
        """What is drawn for samples [steps, width], as numbers [steps, width, ...]."""

    @abstractmethod
    def apply(self, x: Tensor, drawn: Tensor) -> Tensor:
        """The samples x [B, ...] changed by what was drawn for them, [B, ...]."""


class Rotation(Augmentation):
    """Each image is turned about its centre by an angle drawn uniformly between -max_degree and +max_degree.

    Pixels are interpolated bilinearly; what comes in from outside continues the pixels of the border.
    """

    kind: Literal["rotation"] = "rotation"
    max_degree: float = Field(20.0, ge=0, le=180)
    """Largest angle to either side."""

    def draw(self, rng: np.random.Generator, shape: tuple[int, int]) -> Tensor:
        """Rotation matrices [steps, width, 2, 2]."""
        angle = rng.uniform(-radians(self.max_degree), radians(self.max_degree), shape)
        cos, sin = np.cos(angle), np.sin(angle)
        return torch.from_numpy(np.stack([cos, -sin, sin, cos], axis=-1).reshape(*shape, 2, 2))

    def apply(self, x: Tensor, drawn: Tensor) -> Tensor:
        """The images x [B, channels, height, width], turned; `drawn` [B, 2, 2] maps places to where they came from."""
        height, width = x.shape[-2:]
        aspect = x.new_tensor([[1.0, height / width], [width / height, 1.0]]) if height != width else 1.0
        theta = torch.cat([drawn * aspect, drawn.new_zeros(len(x), 2, 1)], dim=2)
        return grid_sample(x, affine_grid(theta, list(x.shape), align_corners=False), "bilinear", "border", False)


AUGMENTATIONS: dict[str, type[Augmentation]] = {"rotation": Rotation}
"""Every kind of augmentation that is built in."""

AnyAugmentation = Annotated[Augmentation, Slot("augmentation", AUGMENTATIONS)]
"""Type of a field that holds one augmentation."""
