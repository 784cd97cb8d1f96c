"""DP-SGD: local training steps that are differentially private with respect to single samples.

Abadi, Chu, Goodfellow, McMahan, Mironov, Talwar, Zhang: "Deep Learning with Differential Privacy", CCS 2016,
https://arxiv.org/abs/1607.00133, Algorithm 1. The paper's C is `clip_norm`, and its sigma is `noise_multiplier`. A
device uses the batches of its training plan instead of Poisson-sampled ones.
"""

from __future__ import annotations

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from fednet_emu.component.component import Component


class PrivateSgd(Component):
    """DP-SGD: limits the norm of each sample's gradient, and adds Gaussian noise to the sum over a batch."""

    clip_norm: float = Field(gt=0)
    """Maximum Euclidean norm C of the gradient of a sample. Longer gradients are scaled down to this norm."""
    noise_multiplier: float = Field(ge=0)
    """Standard deviation of the noise on the sum of a batch's gradients, divided by `clip_norm`; sigma in the paper."""
    delta: float = Field(1e-5, gt=0, lt=1)
    """Parameter delta of the (epsilon, delta) privacy guarantee. Should be well below 1 / (number of samples of a
    device)."""

    def factors(self, gradients: Tensor) -> Tensor:
        """Return the factors [...] that scale gradients [..., n] down to the maximum norm; 1 for shorter gradients."""
        factors: Tensor = self.clip_norm / gradients.norm(dim=-1).clamp(min=self.clip_norm)
        return factors

    def noise(self, rng: np.random.Generator, like: Tensor) -> Tensor:
        """Draw the noise [n] for the sum of a batch's gradients, with the dtype and torch device of `like` [..., n]."""
        drawn = torch.from_numpy(rng.standard_normal(like.shape[-1])).to(like)
        return drawn * (self.noise_multiplier * self.clip_norm)
