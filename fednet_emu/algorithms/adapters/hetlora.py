"""HetLoRA: adapters of several ranks, padded with zeros and weighted by the norm of their products.

Cho, Liu, Xu, Fahrezi, Joshi: "Heterogeneous LoRA for Federated Fine-tuning of On-Device Foundation Models", EMNLP 2024,
https://arxiv.org/abs/2401.06432

Differences from the paper: ranks are constant (no self-pruning). The weight of a device is the Frobenius norm over all
its products B_k A_k together. If `per_row` is set, adapter rows that a device lacks do not count as zeros.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from fednet_emu.algorithms.adapters.ranked import Ranked
from fednet_emu.learning.models.low_rank import Adapters, Part


class HetLora(Ranked):
    """The server pads LoRA adapters with zeros and averages them, weighted by the norms of their products B A."""

    kind = "hetlora"
    per_row: bool = False
    """Whether each adapter row is averaged only over the devices that have the row. If false, as in the paper, a row
    counts as zero on devices that lack the row, so that rows held by few devices shrink from round to round."""

    def merged(
        self, adapters: Adapters, w: Tensor, parts: Sequence[Part], models: Sequence[Tensor], weights: Sequence[int]
    ) -> Tensor:
        size = len(w)
        padded = torch.stack([part.padded(x, size) for part, x in zip(parts, models, strict=True)])
        share = norms(adapters, padded)[:, None].to(w.dtype)
        if self.per_row:
            ones = [part.padded(torch.ones_like(x), size) for part, x in zip(parts, models, strict=True)]
            share = share * torch.stack(ones)
        total = share.sum(0)
        return w + (share * (padded - w)).sum(0) / torch.where(total > 0, total, 1)


def norms(adapters: Adapters, models: Tensor) -> Tensor:
    """Return the Frobenius norm [n] over all products B A of each of the `models` [n, P]; all 1 if all norms are 0."""
    squares = [
        sum(((its.b.T @ its.b) * (its.a @ its.a.T)).sum() for its in adapters.factors(model)) for model in models
    ]
    found = torch.stack([torch.as_tensor(square) for square in squares]).clamp(min=0).sqrt()
    return found if found.any() else torch.ones_like(found)
