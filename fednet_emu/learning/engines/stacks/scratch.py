"""Reusable memory for large tensors, which avoids the page faults of repeated allocation."""

from __future__ import annotations

import math
from typing import final

from torch import Tensor


@final
class Scratch:
    """A set of buffers, one for each role, which grow on demand.

    A tensor is valid until `take` is called again with the same role.
    """

    def __init__(self) -> None:
        self._buffers: dict[str, Tensor] = {}

    def take(self, role: str, shape: tuple[int, ...], like: Tensor) -> Tensor:
        """Return an uninitialised tensor of the given shape, with the dtype and torch device of `like`."""
        size, buffer = math.prod(shape), self._buffers.get(role)
        if buffer is None or buffer.numel() < size or buffer.dtype != like.dtype or buffer.device != like.device:
            buffer = self._buffers[role] = like.new_empty(size)
        return buffer[:size].view(shape)
