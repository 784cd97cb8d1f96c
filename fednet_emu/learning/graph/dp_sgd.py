"""Local steps with differential privacy of single samples: DP-SGD.

Abadi, Chu, Goodfellow, McMahan, Mironov, Talwar, Zhang: "Deep Learning with Differential Privacy", CCS 2016,
https://arxiv.org/abs/1607.00133, Algorithm 1, with C `clip_norm` and sigma `noise_multiplier`. A device uses the
batches of its plan instead of Poisson batches.
"""

from __future__ import annotations

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from fednet_emu.component.component import Component


class PrivateSgd(Component):
    """The gradient of each sample is scaled down to `clip_norm`, and noise is added to the sum over a batch."""

    clip_norm: float = Field(gt=0)
    """Maximum Euclidean norm of the gradient of a sample (C); longer gradients are scaled down."""
    noise_multiplier: float = Field(ge=0)
    """Standard deviation of the noise on the sum over a batch, divided by `clip_norm` (sigma)."""
    delta: float = Field(1e-5, gt=0, lt=1)
    """Probability of a privacy loss above epsilon. Should be well below 1 / (number of samples of a device)."""

    def factors(self, gradients: Tensor) -> Tensor:
        """Return factors [...] that scale gradients [..., n] down to the maximum norm; 1 for shorter gradients."""
        factors: Tensor = self.clip_norm / gradients.norm(dim=-1).clamp(min=self.clip_norm)
        return factors

    def noise(self, rng: np.random.Generator, like: Tensor) -> Tensor:
        """Draw the noise [n] on the sum over a batch."""
        drawn = torch.from_numpy(rng.standard_normal(like.shape[-1])).to(like)
        return drawn * (self.noise_multiplier * self.clip_norm)
