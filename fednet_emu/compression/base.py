"""Base class of compressions, which define the size of a message in bits and the vector that the receiver decodes."""

from __future__ import annotations

from abc import abstractmethod
from typing import NamedTuple

import numpy as np
from torch import Tensor

from fednet_emu.component.component import Component

FLOAT_BIT = 32
"""Size in bits of an uncompressed number: single precision."""


class Message(NamedTuple):
    """Result of a compression: the vector `read` [n] that the receiver decodes, and the message size in bits."""

    read: Tensor
    bit: int


class Compression(Component):
    """A lossy encoding of n numbers.

    The size in bits includes everything that a receiver needs except n and the settings, which both sides know.
    """

    @abstractmethod
    def bit(self, n: int) -> int:
        """Return the size in bits of a message of `n` numbers; an upper bound if `depends_on_values` is True."""

    @abstractmethod
    def compress(self, v: Tensor, rng: np.random.Generator) -> Message:
        """Compress a vector `v` [n] with n >= 1, without changing `v`. Random numbers are drawn from `rng`."""

    def growth(self, n: int) -> float:
        """Return an upper bound 1 + omega on E|C(v)|^2 / |v|^2, where C(v) is the decoded vector and v has n entries.

        The bound is 1 for a deterministic compression. C(v) divided by the bound is a contraction, as error feedback
        requires (Beznosikov, Horváth, Richtárik, Safaryan: "On Biased Compression for Distributed Learning", JMLR
        2023).
        """
        return 1.0

    @property
    def depends_on_values(self) -> bool:
        """Whether the size of a message depends on its values, so that `bit` returns an upper bound."""
        return False

    @property
    def feeds_back(self) -> bool:
        """Whether the sender adds the compression error of a message to the next message (error feedback)."""
        return bool(getattr(self, "error_feedback", False))


class NoCompression(Compression):
    """No compression: numbers in single precision."""

    kind = "none"

    def bit(self, n: int) -> int:
        return FLOAT_BIT * n

    def compress(self, v: Tensor, rng: np.random.Generator) -> Message:
        return Message(v, self.bit(len(v)))


WHOLE = NoCompression()
"""Compression that leaves numbers uncompressed."""
