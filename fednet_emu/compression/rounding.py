"""Quantisation: random rounding to levels, short floating-point formats, and signs."""

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
"""Largest finite number in IEEE half precision."""
_LEAST_NORM = 2.0**-110
"""Norms below this value count as zero, because dividing the number of levels by such a norm can overflow."""


def randomly_rounded(x: Tensor, top: int, rng: np.random.Generator) -> Tensor:
    """Round each entry of `x` [n] at random to an integer from 0 to `top`, so that the mean is the entry itself."""
    uniform = torch.from_numpy(rng.random(len(x), dtype=np.float32)).to(x.device)
    return (x + uniform).floor_().clamp_(0, top)


class Qsgd(Compression):
    """QSGD: sends the norm of the vector, and for each entry its sign and its magnitude, rounded at random to a level.

    Alistarh, Grubic, Li, Tomioka, Vojnović: "QSGD: Communication-Efficient SGD via Gradient Quantization and Encoding",
    NeurIPS 2017, https://arxiv.org/abs/1610.02132. The receiver decodes entry v_i as norm sign(v_i) l_i / s, where the
    level l_i is an integer from 0 to s. The decoded vector is unbiased. Its variance is norm^2 sum p_i (1 - p_i) / s^2,
    where p_i is the fractional part of s |v_i| / norm; this is at most min(n / s^2, sqrt(n) / s) norm^2. A message with
    fixed coding has 32 + n (2 + floor(log2 s)) bits.

    Differences from the paper: the number of non-zero levels is sent before their Elias codes. With `coding: elias`,
    the sender uses the shorter of the two codings and sends one bit to indicate the choice, so that a message is at
    most one bit longer than with fixed coding.
    """

    levels: int = Field(15, gt=0, le=2**15)
    """Number s of levels above zero. With fixed coding, 1, 3, 7, 15, ... levels make full use of 2, 3, 4, 5, ... bits
    per entry, including the sign."""
    coding: Literal["fixed", "elias"] = "fixed"
    """Coding of the levels. fixed: a fixed number of bits per entry; elias: only the levels above zero and the gaps
    between them are sent, in Elias' omega code, which is short for small numbers. If the coding is elias, the size of a
    message depends on its values. The simulation of the message must therefore wait for the result of the training, and
    a timing-only run counts the maximum number of bits."""

    def bit(self, n: int) -> int:
        return FLOAT_BIT + n * (1 + self.levels.bit_length()) + self.depends_on_values

    def compress(self, v: Tensor, rng: np.random.Generator) -> Message:
        norm = float(torch.linalg.vector_norm(v, dtype=torch.float64).float())  # in single precision, as in the message
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


class Uniform(Compression):
    """Stochastic rounding to 2^bits levels between the minimum and the maximum; a message has n * bits + 64 bits.

    The decoded vector is unbiased. Its variance is at most n (max - min)^2 / (4 (2^bits - 1)^2), and therefore at most
    n / (2 (2^bits - 1)^2) times the squared norm of the vector.
    """

    bits: Literal[2, 4, 8] = 8
    """Number of bits per entry."""

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
    """IEEE half precision: 16 n bits; magnitudes above 65504 are clipped.

    The relative error is at most 2^-11 for magnitudes above 6e-5, and the absolute error at most 2^-25 below 6e-5.
    """

    def bit(self, n: int) -> int:
        return 16 * n

    def compress(self, v: Tensor, rng: np.random.Generator) -> Message:
        return Message(v.clamp(-LARGEST_HALF, LARGEST_HALF).half().to(v.dtype), self.bit(len(v)))


class BFloat16(Compression):
    """The upper 16 bits of single precision: 16 n bits, the same range, and a relative error of at most 2^-8."""

    kind = "bfloat16"

    def bit(self, n: int) -> int:
        return 16 * n

    def compress(self, v: Tensor, rng: np.random.Generator) -> Message:
        return Message(v.bfloat16().to(v.dtype), self.bit(len(v)))


class Sign(Compression):
    """Sends the sign of each entry, and the mean magnitude of the entries, in n + 32 bits.

    Each entry is decoded as its sign times the mean magnitude; zero counts as positive. Sign is a contraction: |v -
    C(v)|^2 = |v|^2 - |v|_1^2 / n. Bernstein, Wang, Azizzadenesheli, Anandkumar: "signSGD: Compressed Optimisation for
    Non-Convex Problems", ICML 2018, https://arxiv.org/abs/1802.04434; Karimireddy, Rebjock, Stich, Jaggi: "Error
    Feedback Fixes SignSGD and other Gradient Compression Schemes", ICML 2019, https://arxiv.org/abs/1901.09847.
    """

    error_feedback: bool = True
    """Whether the sender adds the compression error to the next message (EF-signSGD)."""
    magnitude: float | None = Field(None, gt=0)
    """Decoded magnitude of every entry, which is the step size of signSGD and is not sent. If null, the mean magnitude
    of the entries is sent. A number is allowed only without error feedback."""

    def _check(self) -> None:
        if self.error_feedback and self.magnitude is not None:
            raise ValueError(
                f"error feedback needs the magnitude of the entries themselves, got {self.magnitude:g}; leave out "
                "magnitude or set error_feedback: false"
            )

    def bit(self, n: int) -> int:
        return n + (FLOAT_BIT if self.magnitude is None else 0)

    def compress(self, v: Tensor, rng: np.random.Generator) -> Message:
        size = v.abs().mean(dtype=torch.float64).to(v.dtype) if self.magnitude is None else v.new_tensor(self.magnitude)
        return Message(torch.where(v >= 0, size, -size), self.bit(len(v)))


def omega_bit(numbers: IntArray) -> IntArray:
    """Return the length in bits of Elias' omega code of each number [n] >= 1, such as 1, 3, 3, 6 bits for 1 to 4.

    The code consists of the binary digits of the number, preceded by the code of (number of digits - 1), down to 1, and
    followed by a zero. Elias: "Universal codeword sets and representations of the integers", IEEE Transactions on
    Information Theory 21, 1975.
    """
    length, rest = np.ones_like(numbers), numbers.copy()
    while (more := rest > 1).any():
        digits = np.frexp(rest)[1].astype(rest.dtype)  # exact below 2^53
        length += np.where(more, digits, 0)
        rest = np.where(more, digits - 1, 1)
    return length


def sparse_bit(levels: IntArray) -> int:
    """Return the size in bits of Elias-coded `levels` [n].

    The message consists of the number of non-zero levels, and of the gap, the sign and the value of each of them.
    """
    places = np.flatnonzero(levels)
    gaps = np.diff(places, prepend=-1)
    count = omega_bit(np.array([len(places) + 1]))
    return int(count.sum() + omega_bit(gaps).sum() + len(places) + omega_bit(levels[places]).sum())
