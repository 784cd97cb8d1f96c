"""A network with adapters that scenarios name by its import path, and local steps without an engine."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

import fednet_emu as fe
from fednet_emu.learning.data.datasets.base import Samples


class Adapted(nn.Module):
    """A linear layer with an adapter, whose bias is trained too."""

    def __init__(self, features: int, outputs: int, rank: int, base: Any = "float32") -> None:
        super().__init__()
        self.layer = fe.add_lora_adapters(
            nn.Linear(features, outputs), rank, targets=["*"], alpha=4, train=["bias"], base=base
        )

    def forward(self, x: Tensor) -> Tensor:
        scores: Tensor = self.layer(x.flatten(1))
        return scores


def two_steps(network: nn.Module, samples: Samples, owner: int) -> None:
    """Two steps of size 0.5 on all texts of an owner, of 80 different characters; the network is changed."""
    rows = torch.from_numpy(samples.train_group == owner)
    parts = [part for part in network.parameters() if part.requires_grad]
    for _ in range(2):
        loss = cross_entropy(network(samples.train_x[rows]).reshape(-1, 80), samples.train_y[rows].reshape(-1))
        for part, slope in zip(parts, torch.autograd.grad(loss, parts), strict=True):
            part.data -= 0.5 * slope
