"""A network with adapters that scenarios name by its import path."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

import fednet_emu as fe


class Adapted(nn.Module):
    """A linear layer with an adapter, whose bias is trained too."""

    def __init__(self, features: int, outputs: int, rank: int, base: Any = "float32") -> None:
        super().__init__()
        self.layer = fe.Lora(nn.Linear(features, outputs), rank, targets=["*"], alpha=4, train=["bias"], base=base)

    def forward(self, x: Tensor) -> Tensor:
        """The scores [n, outputs]."""
        scores: Tensor = self.layer(x.flatten(1))
        return scores
