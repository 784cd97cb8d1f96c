"""What a compression is: how many bits n numbers take, and what the receiver reads of them."""

from __future__ import annotations

from abc import abstractmethod
from typing import NamedTuple

import numpy as np
from torch import Tensor

from fednet_emu.component.component import Component

FLOAT_BIT = 32
"""Bits of a number that is not compressed: single precision."""


class Message(NamedTuple):
    """A compressed vector: what the receiver reads of it [n], and its size in bits."""

    read: Tensor
    bit: int


class Compression(Component):
    """A way to send n numbers in fewer bits, and what the receiver reads of them.

    Bits count everything that a receiver needs beside n and the settings, which both ends know.
    """

    @abstractmethod
    def bit(self, n: int) -> int:
        """Bits of any message of n numbers; an upper bound where `depends_on_values`."""

    @abstractmethod
    def compress(self, v: Tensor, rng: np.random.Generator) -> Message:
        """Compress a vector [n] of at least one number, without changing it; `rng` decides what is random."""

    def growth(self, n: int) -> float:
        """Bound 1 + omega of E|C(v)|^2 / |v|^2 where the rounding is random and unbiased; 1 where nothing is random.

        C(v) divided by it is a contraction, which error feedback needs (Beznosikov, Horváth, Richtárik, Safaryan:
        "On Biased Compression for Distributed Learning", JMLR 2023).
        """
        return 1.0

    @property
    def depends_on_values(self) -> bool:
        """Whether the bits depend on the values, so that `bit` is a bound."""
        return False

    @property
    def feeds_back(self) -> bool:
        """Whether the sender remembers what a message leaves out, and adds it to the next one."""
        return bool(getattr(self, "error_feedback", False))


class NoCompression(Compression):
    """Single precision: every number as it is."""

    kind = "none"

    def bit(self, n: int) -> int:
        return FLOAT_BIT * n

    def compress(self, v: Tensor, rng: np.random.Generator) -> Message:
        return Message(v, self.bit(len(v)))


WHOLE = NoCompression()
"""Numbers as they are."""
