"""Reusable memory, because repeated allocation of large tensors would cost page faults every time."""

from __future__ import annotations

import math
from typing import final

from torch import Tensor


@final
class Scratch:
    """One buffer per role, which grows on demand. A tensor is valid until the next `take` of the same role."""

    def __init__(self) -> None:
        self._buffers: dict[str, Tensor] = {}

    def take(self, role: str, shape: tuple[int, ...], like: Tensor) -> Tensor:
        """Return an uninitialised tensor of this shape, with the dtype and torch device of `like`."""
        size, buffer = math.prod(shape), self._buffers.get(role)
        if buffer is None or buffer.numel() < size or buffer.dtype != like.dtype or buffer.device != like.device:
            buffer = self._buffers[role] = like.new_empty(size)
        return buffer[:size].view(shape)
