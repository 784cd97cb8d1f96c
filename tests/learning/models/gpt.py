"""A small GPT in plain PyTorch, with the names of GPT-2's layers."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class Block(nn.Module):
    """Causal attention and a layer of 4 times the width, each behind a norm and beside a bypass."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads, self.norm_1, self.norm_2 = heads, nn.LayerNorm(width), nn.LayerNorm(width)
        self.c_attn, self.c_proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.c_fc, self.c_back = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        n, length, width = x.shape
        parts = self.c_attn(self.norm_1(x)).view(n, length, 3, self.heads, width // self.heads)
        q, k, v = parts.permute(2, 0, 3, 1, 4)
        later = torch.ones(length, length).triu(1) * -1e9
        shares = (q @ k.transpose(-2, -1) / (width // self.heads) ** 0.5 + later).softmax(-1)
        x = x + self.c_proj((shares @ v).transpose(1, 2).reshape(n, length, width))
        return x + self.c_back(nn.functional.gelu(self.c_fc(self.norm_2(x))))


class Gpt(nn.Module):
    """Scores [n, length, tokens] of the next token at every position of windows [n, length]."""

    def __init__(self, tokens: int, length: int, width: int, layers: int, heads: int) -> None:
        super().__init__()
        self.wte, self.wpe = nn.Embedding(tokens, width), nn.Embedding(length, width)
        self.h = nn.Sequential(*(Block(width, heads) for _ in range(layers)))
        self.norm, self.lm_head = nn.LayerNorm(width), nn.Linear(width, tokens, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        scores: Tensor = self.lm_head(self.norm(self.h(self.wte(x) + self.wpe.weight)))
        return scores


class DigitReader(nn.Module):
    """A GPT that reads an 8 x 8 image of 17 grey levels as 64 tokens, and scores its class at the last."""

    def __init__(self) -> None:
        super().__init__()
        self.gpt, self.score = Gpt(17, 64, 32, 1, 2), nn.Linear(17, 10)

    def forward(self, x: Tensor) -> Tensor:
        """The scores [n, 10] of images [n, 1, 8, 8] from 0 to 1."""
        scores: Tensor = self.score(self.gpt((x.flatten(1).clamp(0, 1) * 16).round().long())[:, -1])
        return scores
