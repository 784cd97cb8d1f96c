"""Memory that is used again and again: large tensors that come and go would cost page faults every time."""

from __future__ import annotations

import math
from typing import final

from torch import Tensor


@final
class Scratch:
    """One buffer for each role, which grows when it has to; a tensor is good until its role is taken again."""

    def __init__(self) -> None:
        self._buffers: dict[str, Tensor] = {}

    def take(self, role: str, shape: tuple[int, ...], like: Tensor) -> Tensor:
        """A tensor of this shape, of the type and on the device of another, with whatever is in it."""
        size, buffer = math.prod(shape), self._buffers.get(role)
        if buffer is None or buffer.numel() < size or buffer.dtype != like.dtype or buffer.device != like.device:
            buffer = self._buffers[role] = like.new_empty(size)
        return buffer[:size].view(shape)
