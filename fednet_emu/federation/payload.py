"""Payloads of messages and their sizes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from fednet_emu.compression.base import FLOAT_BIT
from fednet_emu.learning.graph.deferred import Deferred
from fednet_emu.network.air.transfer import Message


class Shared(NamedTuple):
    """A payload for several devices in one transmission, with the number of this broadcast."""

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
    """A size as an integer; a `ValueError` if it is not a whole number of bits."""
    if not (size_bit >= 0 and size_bit % 1 == 0):
        raise ValueError(
            f"size_bit: no whole number of bits, got {size_bit}; must be 0, 1, 2, ..., by math.ceil for example"
        )
    return int(size_bit)


def parcel(payload: Any, size_bit: int | None, wire_bit: Callable[[int], int]) -> Message:
    """The message that carries a payload of this size; `wire_bit` gives the bits of a payload and its headers."""
    if type(payload) is Deferred:
        number: int = payload.number
        bits = payload.size * FLOAT_BIT if size_bit is None else whole_bit(size_bit)
        return Message(payload, wire_bit(bits), number, number)
    group = None
    if type(payload) is Shared:
        payload, shared = payload
        group = "shared", shared
    number = payload.number if type(payload) is Deferred else -1
    bits = n_scalars(payload) * FLOAT_BIT if size_bit is None else whole_bit(size_bit)
    return Message(payload, wire_bit(bits), number, group)
