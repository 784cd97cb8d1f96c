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
    """A compressed vector: the decoded vector [n], and the size of the message in bits."""

    read: Tensor
    bit: int


class Compression(Component):
    """A lossy encoding of n numbers.

    The size in bits includes everything that a receiver needs except n and the settings, which both sides know.
    """

    @abstractmethod
    def bit(self, n: int) -> int:
        """Size in bits of a message of `n` numbers; an upper bound if `depends_on_values`."""

    @abstractmethod
    def compress(self, v: Tensor, rng: np.random.Generator) -> Message:
        """Compress a vector `v` [n] with n >= 1, without changing `v`; all random numbers come from `rng`."""

    def growth(self, n: int) -> float:
        """Upper bound 1 + omega on E|C(v)|^2 / |v|^2, where C(v) is the vector decoded from the message for `v`.

        The bound is 1 for a deterministic compression. C(v) divided by the bound is a contraction, as error feedback
        requires (Beznosikov, Horváth, Richtárik, Safaryan: "On Biased Compression for Distributed Learning", JMLR
        2023).
        """
        return 1.0

    @property
    def depends_on_values(self) -> bool:
        """True if the size of a message depends on its values, so that `bit` is an upper bound."""
        return False

    @property
    def feeds_back(self) -> bool:
        """True if the sender adds the compression error of a message to the next message."""
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
