"""The size of what is sent."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from fednet_emu.compression.base import FLOAT_BIT
from fednet_emu.learning.graph.deferred import Deferred


class Shared(NamedTuple):
    """A payload that several devices may be sent by one transmission, and the number that tells it from others."""

    payload: Any
    number: int


def n_scalars(payload: Any) -> int:
    """Number of scalars in a payload: a deferred value, a number, or tuples and lists of them; None carries nothing."""
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
    raise TypeError(f"cannot tell the size of a {type(payload).__name__}; give size_bit")


def whole_bit(size_bit: float) -> int:
    """A size that was given, as an integer.

    Raises:
        ValueError: it is no whole number of bits.
    """
    if not (size_bit >= 0 and size_bit % 1 == 0):
        raise ValueError(
            f"size_bit: no whole number of bits, got {size_bit}; must be 0, 1, 2, ..., by math.ceil for example"
        )
    return int(size_bit)


def parcel(payload: Any, size_bit: int | None, wire_bit: Callable[[int], int]) -> tuple[Any, int | None, int, int]:
    """What is delivered, the group of its broadcast, its number in the records, and the bits on the air.

    `wire_bit` gives the bits of a payload and its headers.
    """
    group, number = None, -1
    if type(payload) is Shared:
        payload, group = payload
        group = -group
    if type(payload) is Deferred:
        number = payload.number
        if group is None:
            group = number
    bits = n_scalars(payload) * FLOAT_BIT if size_bit is None else whole_bit(size_bit)
    return payload, group, number, wire_bit(bits)
