"""Encode protobuf messages: single ones of any shape, and many of equal shape at once with NumPy.

Source: the protobuf encoding guide. A number in a message may be a varint (7 bits in each byte, the lowest first, the
highest bit set in all bytes but the last). A varint may be longer than necessary; that gives all messages of a shape
the same length, so that a batch of them is a matrix of bytes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]
BLOCK = 1 << 11
"""Messages that are encoded at a time, so that they stay in the processor's cache."""
VARINT, FIXED64, LENGTH = 0, 1, 2
"""Wire types: how the value of a field is encoded."""


def varint(number: int) -> bytes:
    """Encode a number of at least 0 as a varint."""
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)


def tag(field: int, wire_type: int) -> bytes:
    """Encode what comes before the value of a field: its number and its wire type."""
    return varint(field << 3 | wire_type)


def message(*fields: tuple[int, int | str | bytes]) -> bytes:
    """Encode one message from its fields, each a field number and a number, a text or another message."""
    encoded = b""
    for field, value in fields:
        if isinstance(value, int):
            encoded += tag(field, VARINT) + varint(value)
        else:
            content = value.encode() if isinstance(value, str) else value
            encoded += tag(field, LENGTH) + varint(len(content)) + content
    return encoded


@dataclass(frozen=True)
class Blank:
    """A place in a message that differs from message to message.

    Attributes:
        width: its length in bytes.
        fixed: whether it holds 8 bytes as they are in memory, little-endian, instead of a varint of `width` bytes.
    """

    width: int
    fixed: bool = False


Part = bytes | Blank
FIXED = Blank(8, fixed=True)


def blank_number(field: int, width: int) -> list[Part]:
    """A field with a number below 2^(7 width) that differs from message to message."""
    return [tag(field, VARINT), Blank(width)]


def blank_fixed(field: int) -> list[Part]:
    """A field with a float64 or an unsigned number of 64 bits that differs from message to message."""
    return [tag(field, FIXED64), FIXED]


def nested(field: int, parts: Sequence[Part]) -> list[Part]:
    """A field with a message made of the given parts."""
    return [tag(field, LENGTH) + varint(_size(parts)), *parts]


class Form:
    """Messages of one shape: constant bytes, and blanks that are filled in for many messages at once."""

    def __init__(self, parts: Sequence[Part]) -> None:
        self.size = _size(parts)
        self._constant = np.frombuffer(b"".join(bytes(_width(part)) if isinstance(part, Blank) else part
                                                for part in parts), np.uint8)  # fmt: skip
        self._blanks = list(_places(parts))

    def filled(self, *values: Any) -> Bytes:
        """Encode many messages.

        Args:
            values: one array [messages] for each blank, in their order.

        Returns:
            Encoded messages, [messages, size].
        """
        rows = np.empty((len(values[0]), self.size), np.uint8)
        for first in range(0, len(rows), BLOCK):
            block = slice(first, first + BLOCK)
            self._fill(rows[block], [value[block] for value in values])
        return rows

    def _fill(self, rows: Bytes, values: Sequence[Any]) -> None:
        rows[:] = self._constant
        for (place, blank), value in zip(self._blanks, values, strict=True):
            if blank.fixed:
                rows[:, place : place + 8] = np.ascontiguousarray(value).view(np.uint8).reshape(-1, 8)
                continue
            rest = np.ascontiguousarray(value, np.int64)
            for byte in range(place, place + blank.width - 1):
                rows[:, byte] = rest.astype(np.uint8) | 0x80
                rest = rest >> 7
            rows[:, place + blank.width - 1] = rest


def interleaved(order: Sequence[NDArray[Any]], rows: Sequence[Bytes]) -> bytes:
    """Join batches of messages in a common order.

    Args:
        order: for each batch, a number for each message; the result is in ascending order of them.
        rows: the batches, each [messages, size].
    """
    messages: list[bytes] = []
    for batch in rows:
        messages.extend(batch.view(f"V{batch.shape[1]}").ravel().tolist())
    return b"".join([messages[place] for place in np.argsort(np.concatenate(order)).tolist()])


def _width(part: Part) -> int:
    return part.width if isinstance(part, Blank) else len(part)


def _size(parts: Sequence[Part]) -> int:
    return sum(map(_width, parts))


def _places(parts: Sequence[Part]) -> Iterator[tuple[int, Blank]]:
    place = 0
    for part in parts:
        if isinstance(part, Blank):
            yield place, part
        place += _width(part)
