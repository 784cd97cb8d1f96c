"""Local steps with differential privacy of single samples: DP-SGD.

Abadi, Chu, Goodfellow, McMahan, Mironov, Talwar, Zhang: "Deep Learning with Differential Privacy", CCS 2016,
https://arxiv.org/abs/1607.00133, Algorithm 1, with C `clip_norm` and sigma `noise_multiplier`. A device takes the
batches of its plan instead of Poisson batches.
"""

from __future__ import annotations

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from fednet_emu.component.component import Component


class PrivateSgd(Component):
    """The gradient of each sample is scaled down to `clip_norm`, and their sum has noise before it is divided."""

    clip_norm: float = Field(gt=0)
    """Largest Euclidean norm of the gradient of a sample (C); a longer one is scaled down."""
    noise_multiplier: float = Field(ge=0)
    """Standard deviation of the noise on the sum over a batch, over `clip_norm` (z)."""
    delta: float = Field(1e-5, gt=0, lt=1)
    """Probability of a loss of privacy above epsilon; well below one over the number of samples of a device."""

    def factors(self, gradients: Tensor) -> Tensor:
        """Factors [...] that scale gradients [..., n] down to the norm where they are longer."""
        factors: Tensor = self.clip_norm / gradients.norm(dim=-1).clamp(min=self.clip_norm)
        return factors

    def noise(self, rng: np.random.Generator, like: Tensor) -> Tensor:
        """The noise [n] on the sum of a batch."""
        drawn = torch.from_numpy(rng.standard_normal(like.shape[-1])).to(like)
        return drawn * (self.noise_multiplier * self.clip_norm)
