"""FlexLoRA: the server averages the LoRA products B_k A_k, and factorises the mean for devices with several ranks.

Bai, Chen, Qian, Yao, Li: "Federated Fine-tuning of Large Language Models under Heterogeneous Tasks and Client
Resources", NeurIPS 2024, https://arxiv.org/abs/2402.11505

Let M = sum p_k B_k A_k, with the singular value decomposition M = U S V'. A device of rank r starts from B = U_r S_r
and A = V_r', whose product is the best approximation of M with rank r (Eckart and Young, 1936).

Differences from the paper: the server also keeps M only up to the rank of the model's adapters. All devices use the
factor alpha / rank of the global model. Trained parameters outside adapters are averaged.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.functional import pad

from fednet_emu.algorithms.adapters.ranked import Ranked
from fednet_emu.learning.models.low_rank import Adapters, Factors, Part


class FlexLora(Ranked):
    """The server averages the products B_k A_k of the devices' LoRA adapters, and factorises the mean."""

    kind = "flexlora"

    def merged(
        self, adapters: Adapters, w: Tensor, parts: Sequence[Part], models: Sequence[Tensor], weights: Sequence[int]
    ) -> Tensor:
        whole = [part.padded(x, len(w)) for part, x in zip(parts, models, strict=True)]
        share = [weight / sum(weights) for weight in weights]
        mean = w + sum(p * (x - w) for p, x in zip(share, whole, strict=True))
        layers = zip(*map(adapters.factors, whole), strict=True)
        rest = torch.where(adapters.others.to(w.device), mean, w)
        return adapters.put(rest, [split(own, share, adapters.rank) for own in layers])


def split(own: Sequence[Factors], weights: Sequence[float], rank: int) -> Factors:
    """Return factors B and A of rank `rank` whose product is nearest to the weighted sum of products B A [m, n].

    The sum itself is never computed. The norms of the columns of B [m, rank] are the singular values in descending
    order; the rows of A [rank, n] have norm 1.
    """
    left, right = (
        torch.linalg.qr(torch.cat(stacked, 1))
        for stacked in ([p * its.b for p, its in zip(weights, own, strict=True)], [its.a.T for its in own])
    )
    u, s, v = torch.linalg.svd(left.R @ right.R.T, full_matrices=False)
    short = max(0, rank - len(s))
    b, a = left.Q @ (u * s)[:, :rank], v[:rank] @ right.Q.T
    return Factors(pad(b, (0, short)), pad(a, (0, 0, 0, short)))
