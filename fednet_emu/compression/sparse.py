"""Sparsification: some entries are sent, and the others are read as zero.

Stich, Cordonnier, Jaggi: "Sparsified SGD with Memory", NeurIPS 2018, https://arxiv.org/abs/1809.07599; Sattler,
Wiedemann, Müller, Samek: "Robust and Communication-Efficient Federated Learning from Non-i.i.d. Data", IEEE TNNLS 2020,
https://arxiv.org/abs/1903.02891

With k of n entries, both are contractions: |v - C(v)|^2 <= (1 - k/n) |v|^2, for random entries in expectation and with
equality. With error feedback p = v + e is compressed, and e = p - C(p) is added to what is sent next.

Differences from the papers: the entries need not be numbers of 32 bits; in a `chain` the next stage writes them.
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
    """Some of the entries, which another compression may write."""

    share: float = Field(0.1, gt=0, le=1)
    """Share of the entries that are sent: k = share n, rounded, at least one."""

    def kept(self, n: int) -> int:
        """The number k of entries that are sent."""
        return max(1, round(self.share * n))

    @abstractmethod
    def place_bit(self, n: int) -> int:
        """Bits that tell which entries are sent."""

    @abstractmethod
    def places(self, v: Tensor, rng: np.random.Generator) -> Tensor:
        """Numbers [k] of the entries that are sent, in ascending order."""

    def factor(self, n: int) -> float:
        """What the receiver multiplies the entries by."""
        return 1.0

    def bit(self, n: int, values: Compression = WHOLE) -> int:
        """The bits of the places, and of k values as another compression writes them."""
        return self.place_bit(n) + values.bit(self.kept(n))

    def compress(self, v: Tensor, rng: np.random.Generator, values: Compression = WHOLE) -> Message:
        """The entries as another compression reads them, times the factor, and zeros elsewhere."""
        places = self.places(v, rng)
        entries = values.compress(v[places], rng)
        read = torch.zeros_like(v)
        read[places] = entries.read * self.factor(len(v))
        return Message(read, self.place_bit(len(v)) + entries.bit)

    def growth(self, n: int, values: Compression = WHOLE) -> float:
        """That of the factor times that of the compression of the entries."""
        return self.factor(n) * values.growth(self.kept(n))


class TopK(Sparse):
    """The entries of largest magnitude, with their places: k (32 + ceil(log2 n)) bits.

    Of a long Gaussian vector the largest 5 % hold 27.9 % of the energy.
    """

    error_feedback: bool = True
    """Whether the sender adds what was left out to the next message."""

    def place_bit(self, n: int) -> int:
        return self.kept(n) * (n - 1).bit_length()

    def places(self, v: Tensor, rng: np.random.Generator) -> Tensor:
        return v.abs().topk(self.kept(len(v)), sorted=False).indices.sort().values


class RandomK(Sparse):
    """Random entries, from which both ends find the places by the same seed: 32 k + 32 bits.

    Without error feedback the receiver multiplies them by n / k, which is unbiased; with it, it takes them as they are.
    """

    error_feedback: bool = False
    """Whether the sender adds what was left out to the next message."""

    def place_bit(self, n: int) -> int:
        return SEED_BIT

    def places(self, v: Tensor, rng: np.random.Generator) -> Tensor:
        drawn = np.random.Generator(np.random.PCG64(int(rng.integers(2**SEED_BIT))))
        places = drawn.choice(len(v), self.kept(len(v)), replace=False, shuffle=False)
        return torch.from_numpy(np.sort(places)).to(v.device)

    def factor(self, n: int) -> float:
        return n / self.kept(n)
