"""Sparsification: some entries are sent, and all other entries are decoded as zero.

Stich, Cordonnier, Jaggi: "Sparsified SGD with Memory", NeurIPS 2018, https://arxiv.org/abs/1809.07599; Sattler,
Wiedemann, Müller, Samek: "Robust and Communication-Efficient Federated Learning from Non-i.i.d. Data", IEEE TNNLS 2020,
https://arxiv.org/abs/1903.02891

If k of n entries are sent, both kinds are contractions: |v - C(v)|^2 <= (1 - k/n) |v|^2. For random entries, this holds
in expectation, and with equality. If error feedback is used, the sender compresses p = v + e, where e is the
compression error p - C(p) of its previous message.

Differences from the papers: in a `chain`, the next stage encodes the entries; otherwise an entry takes 32 bits.
"""

from __future__ import annotations

from abc import abstractmethod

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from fednet_emu.compression.base import WHOLE, Compression, Message

SEED_BIT = 32


class Sparse(Compression):
    """Base class of compressions that select the entries to be sent; another compression may encode these entries."""

    share: float = Field(0.1, gt=0, le=1)
    """Share of the entries that are sent: k is share * n, rounded, and at least 1."""

    def kept(self, n: int) -> int:
        return max(1, round(self.share * n))

    @abstractmethod
    def place_bit(self, n: int) -> int:
        """Return the size in bits of the positions of the sent entries, for a vector of `n` entries."""

    @abstractmethod
    def places(self, v: Tensor, rng: np.random.Generator) -> Tensor:
        """Return the positions [k] of the entries of `v` [n] that are sent, in ascending order."""

    def factor(self, n: int) -> float:
        return 1.0

    def bit(self, n: int, values: Compression = WHOLE) -> int:
        return self.place_bit(n) + values.bit(self.kept(n))

    def compress(self, v: Tensor, rng: np.random.Generator, values: Compression = WHOLE) -> Message:
        places = self.places(v, rng)
        entries = values.compress(v[places], rng)
        read = torch.zeros_like(v)
        read[places] = entries.read * self.factor(len(v))
        return Message(read, self.place_bit(len(v)) + entries.bit)

    def growth(self, n: int, values: Compression = WHOLE) -> float:
        return self.factor(n) * values.growth(self.kept(n))


class TopK(Sparse):
    """Sends the entries of largest magnitude, with their positions: k (32 + ceil(log2 n)) bits.

    The largest 5 % of the entries of a long Gaussian vector hold 27.9 % of its energy.
    """

    error_feedback: bool = True
    """Whether the sender adds the compression error to the next message."""

    def place_bit(self, n: int) -> int:
        return self.kept(n) * (n - 1).bit_length()

    def places(self, v: Tensor, rng: np.random.Generator) -> Tensor:
        return v.abs().topk(self.kept(len(v)), sorted=False).indices.sort().values


class RandomK(Sparse):
    """Sends random entries, whose positions sender and receiver draw from the same seed: 32 k + 32 bits.

    Without error feedback the receiver multiplies the entries by n / k, so that the decoded vector is unbiased.
    """

    error_feedback: bool = False
    """Whether the sender adds the compression error to the next message."""

    def place_bit(self, n: int) -> int:
        return SEED_BIT

    def places(self, v: Tensor, rng: np.random.Generator) -> Tensor:
        drawn = np.random.Generator(np.random.PCG64(int(rng.integers(2**SEED_BIT))))
        places = drawn.choice(len(v), self.kept(len(v)), replace=False, shuffle=False)
        return torch.from_numpy(np.sort(places)).to(v.device)

    def factor(self, n: int) -> float:
        return n / self.kept(n)
