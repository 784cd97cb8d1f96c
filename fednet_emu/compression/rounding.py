"""Fewer bits per number: random rounding to levels, and short floating-point formats."""

from __future__ import annotations

import math
from typing import Literal

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from fednet_emu.arrays import IntArray
from fednet_emu.compression.base import FLOAT_BIT, Compression, Message

LARGEST_HALF = 65504.0
"""Largest number of IEEE half precision."""
_LEAST_NORM = 2.0**-110
"""Norms below this count as zero: in single precision the levels over them are infinite."""


def randomly_rounded(x: Tensor, top: int, rng: np.random.Generator) -> Tensor:
    """Numbers [n] from 0 to `top`, rounded up with the probability of their fraction, so that the mean stays."""
    uniform = torch.from_numpy(rng.random(len(x), dtype=np.float32)).to(x.device)
    return (x + uniform).floor_().clamp_(0, top)


class Qsgd(Compression):
    """QSGD: the norm, and for each entry its sign and its part of the norm, rounded at random to one of the levels.

    Alistarh, Grubic, Li, Tomioka, Vojnović: "QSGD: Communication-Efficient SGD via Gradient Quantization and Encoding",
    NeurIPS 2017, https://arxiv.org/abs/1610.02132. The receiver reads norm sign(v_i) l_i / s with the level l_i in 0 to
    s; it is unbiased, and its variance is norm^2 sum p_i (1 - p_i) / s^2, where p_i is the fraction of s |v_i| / norm,
    at most min(n / s^2, sqrt(n) / s) norm^2. Fixed coding takes 32 + n (2 + floor(log2 s)) bits.

    Differences from the paper: the count of non-zero levels precedes their Elias codes, and a bit says which coding
    follows, the shorter one, so that a message is never more than one bit longer than with fixed coding.
    """

    levels: int = Field(15, gt=0, le=2**15)
    """The number s of levels above zero; 1, 3, 7, 15, ... use all of their 2, 3, 4, 5, ... bits."""
    coding: Literal["fixed", "elias"] = "fixed"
    """How levels are written: `fixed`, each in as many bits; `elias`, only those above zero, with the gaps between
    them, in Elias' omega code, which is shorter for small numbers. Then the bits depend on the values: each message
    waits for its training, and a timing-only run counts the largest possible number of bits."""

    def bit(self, n: int) -> int:
        return FLOAT_BIT + n * (1 + self.levels.bit_length()) + self.depends_on_values

    def compress(self, v: Tensor, rng: np.random.Generator) -> Message:
        norm = _norm(v)
        level = randomly_rounded(v.abs() * (self.levels / norm if norm >= _LEAST_NORM else 0.0), self.levels, rng)
        bit = self.bit(len(v))
        if self.coding == "elias":
            bit = 1 + min(bit - 1, FLOAT_BIT + sparse_bit(level.cpu().numpy().astype(np.int64)))
        return Message(v.sign() * level * (norm / self.levels), bit)

    def growth(self, n: int) -> float:
        return 1.0 + min(n / self.levels**2, math.sqrt(n) / self.levels)

    @property
    def depends_on_values(self) -> bool:
        return self.coding == "elias"


def _norm(v: Tensor) -> float:
    """The Euclidean norm in single precision, as it is sent."""
    return float(torch.linalg.vector_norm(v, dtype=torch.float64).float())


class Uniform(Compression):
    """Smallest and largest entry, and each entry rounded at random to one of 2^bits equal steps between: n bits + 64.

    The receiver reads an unbiased vector; its variance is at most n (max - min)^2 / (4 (2^bits - 1)^2), and so at most
    n / (2 (2^bits - 1)^2) of the squared norm.
    """

    bits: Literal[2, 4, 8] = 8
    """Bits of an entry."""

    def bit(self, n: int) -> int:
        return 2 * FLOAT_BIT + self.bits * n

    def compress(self, v: Tensor, rng: np.random.Generator) -> Message:
        top = 2**self.bits - 1
        low, high = v.min(), v.max()
        step = (high - low) / top
        code = randomly_rounded((v - low) / step, top, rng) if step > 0 else torch.zeros_like(v)
        return Message(low + step * code, self.bit(len(v)))

    def growth(self, n: int) -> float:
        return 1.0 + n / (2 * (2**self.bits - 1) ** 2)


class Float16(Compression):
    """IEEE half precision: 16 n bits, a relative error of at most 2^-11 above 6e-5; larger than 65504 is read as that.

    Numbers below 6e-5 have an absolute error of at most 2^-25.
    """

    def bit(self, n: int) -> int:
        return 16 * n

    def compress(self, v: Tensor, rng: np.random.Generator) -> Message:
        return Message(v.clamp(-LARGEST_HALF, LARGEST_HALF).half().to(v.dtype), self.bit(len(v)))


class BFloat16(Compression):
    """The first 16 bits of single precision: 16 n bits, the same range, a relative error of at most 2^-8."""

    kind = "bfloat16"

    def bit(self, n: int) -> int:
        return 16 * n

    def compress(self, v: Tensor, rng: np.random.Generator) -> Message:
        return Message(v.bfloat16().to(v.dtype), self.bit(len(v)))


def omega_bit(numbers: IntArray) -> IntArray:
    """Length in bits of the code of each number [n], 1 or more: 1, 3, 3, 6, 6, 6, 6, 7, ... for 1, 2, 3, ...

    The code of a number is its binary digits, before which comes that of their count less one, down to a count of one;
    a zero ends it. Elias: "Universal codeword sets and representations of the integers", IEEE Transactions on
    Information Theory 21, 1975.
    """
    length, rest = np.ones_like(numbers), numbers.copy()
    while (more := rest > 1).any():
        digits = np.frexp(rest)[1].astype(rest.dtype)  # exact below 2^53
        length += np.where(more, digits, 0)
        rest = np.where(more, digits - 1, 1)
    return length


def sparse_bit(levels: IntArray) -> int:
    """Bits of the levels [n], 0 or more, and signs: the count, and each that is not zero after the gap before it."""
    places = np.flatnonzero(levels)
    gaps = np.diff(places, prepend=-1)
    count = omega_bit(np.array([len(places) + 1]))
    return int(count.sum() + omega_bit(gaps).sum() + len(places) + omega_bit(levels[places]).sum())
