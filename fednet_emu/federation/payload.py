"""Payloads of messages and their sizes."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from fednet_emu.learning.graph.deferred import Deferred


class Shared(NamedTuple):
    """A payload that one transmission sends to several devices, and the number that identifies the broadcast."""

    payload: Any
    number: int


def n_scalars(payload: Any) -> int:
    """Number of scalars in a payload: a deferred value, a number, an array, None (0), or tuples and lists of these."""
    if type(payload) is Deferred:
        return payload.size
    if isinstance(payload, (tuple, list)):
        return sum([item.size if type(item) is Deferred else n_scalars(item) for item in payload])
    if isinstance(payload, np.ndarray):
        return int(payload.size)
    if payload is None:
        return 0
    if isinstance(payload, int | float | np.generic):
        return 1
    raise TypeError(f"the size is unknown of a {type(payload).__name__}; give size_bit")


def whole_bit(size_bit: float) -> int:
    """Return the size in bits as an integer; raise a `ValueError` if it is not a whole number."""
    if not (size_bit >= 0 and size_bit % 1 == 0):
        raise ValueError(
            f"size_bit: no whole number of bits, got {size_bit}; must be 0, 1, 2, ..., by math.ceil for example"
        )
    return int(size_bit)
