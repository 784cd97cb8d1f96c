"""Encode the packets of a Perfetto trace (tracks, names, slices, instants and counters), one by one or in batches.

A trace is a sequence of `TracePacket` messages. Field numbers are defined in google/perfetto,
protos/perfetto/trace/trace_packet.proto and protos/perfetto/trace/track_event/.

Two properties of the trace reader determine the order of packets. First, an END closes the last opened slice of its
track, so the slices of a track must be nested or disjoint. Second, packets are sorted by time with a stable sort, so on
every track an END must be written before a BEGIN with the same time.

Source of the encoding: the protobuf encoding guide. A number in a message may be a varint (7 bits per byte, lowest bits
first, the highest bit set in all bytes but the last). A varint may be longer than necessary. All messages of a form can
therefore have the same length, and a batch of messages is a matrix of bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache
from itertools import accumulate
from typing import Any

import numpy as np
from numpy.typing import NDArray

# ---- protobuf messages ----------------------------------------------------------------------------------------------

Bytes = NDArray[np.uint8]
BLOCK = 1 << 11
"""Number of messages that are encoded together, chosen to fit into the cache of the processor."""
VARINT, FIXED64, LENGTH = 0, 1, 2
"""Wire types: encodings of the value of a field."""


def varint(number: int) -> bytes:
    """Encode `number`, which is at least 0, as a varint."""
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)


def tag(field: int, wire_type: int) -> bytes:
    """Encode the number and the wire type of a field."""
    return varint(field << 3 | wire_type)


def message(*fields: tuple[int, int | str | bytes]) -> bytes:
    """Encode a message from its fields. A value is a number, a string or an encoded message."""
    encoded = b""
    for field, value in fields:
        if isinstance(value, int):
            encoded += tag(field, VARINT) + varint(value)
        else:
            content = value.encode() if isinstance(value, str) else value
            encoded += tag(field, LENGTH) + varint(len(content)) + content
    return encoded


class Blank:
    """A placeholder in a message template, for a value that differs between messages.

    Args:
        width: length of the encoded value in bytes.
        fixed: True for a little-endian value of 8 bytes, False for a varint of `width` bytes.
    """

    def __init__(self, width: int, *, fixed: bool = False) -> None:
        self.width, self.fixed = width, fixed

    def __len__(self) -> int:
        return self.width

    def fill(self, places: Bytes, values: NDArray[Any]) -> None:
        """Encode `values` [messages] into `places` [messages, width], the bytes of the placeholder in all messages."""
        if self.fixed:
            places[:] = np.ascontiguousarray(values).view(np.uint8).reshape(-1, 8)
            return
        rest = np.ascontiguousarray(values, np.int64)
        for byte in range(self.width - 1):
            places[:, byte] = rest.astype(np.uint8) | 0x80
            rest = rest >> 7
        places[:, -1] = rest


Part = bytes | Blank


def blank_number(field: int, width: int) -> list[Part]:
    """Return the template of a field with a placeholder for a number below 2^(7 `width`), encoded as a varint."""
    return [tag(field, VARINT), Blank(width)]


def blank_fixed(field: int) -> list[Part]:
    """Return the template of a field with a placeholder for a float64 or an unsigned 64-bit integer."""
    return [tag(field, FIXED64), Blank(8, fixed=True)]


def nested(field: int, parts: Sequence[Part]) -> list[Part]:
    """Return the template of a field whose value is an embedded protobuf message with the template `parts`."""
    return [tag(field, LENGTH) + varint(sum(map(len, parts))), *parts]


class Form:
    """A template for messages: constant bytes, and placeholders that are filled in for many messages at once."""

    def __init__(self, parts: Sequence[Part]) -> None:
        constant = b"".join(bytes(len(part)) if isinstance(part, Blank) else part for part in parts)
        self._constant = np.frombuffer(constant, np.uint8)
        ends = accumulate(map(len, parts))
        self._blanks = [(end, part) for end, part in zip(ends, parts, strict=True) if isinstance(part, Blank)]

    def filled(self, *values: Any) -> Bytes:
        """Return many encoded messages [messages, bytes]. `values` is one array [messages] for each placeholder."""
        rows = np.empty((len(values[0]), len(self._constant)), np.uint8)
        for first in range(0, len(rows), BLOCK):
            some = slice(first, first + BLOCK)
            rows[some] = self._constant
            for (end, blank), value in zip(self._blanks, values, strict=True):
                blank.fill(rows[some, end - blank.width : end], value[some])
        return rows


def interleaved(order: Sequence[NDArray[Any]], rows: Sequence[Bytes]) -> bytes:
    """Return the messages of several batches, sorted by common sort keys, as one string of bytes.

    Args:
        order: the sort keys [messages] of each batch. Messages are sorted in ascending order of their keys.
        rows: the batches, each [messages, bytes].
    """
    messages: list[bytes] = []
    for batch in rows:
        messages.extend(batch.view(f"V{batch.shape[1]}").ravel().tolist())
    return b"".join([messages[place] for place in np.argsort(np.concatenate(order)).tolist()])


# ---- packets --------------------------------------------------------------------------------------------------------

PACKET = 1
TIMESTAMP, SEQUENCE, FLAGS = 8, 10, 13
TRACK_EVENT, INTERNED, DESCRIPTOR = 11, 12, 60
"""Field numbers of a packet."""
FIRST, OTHERS = 1, 2
"""Sequence flags of the first packet, which clears all interned names, and of later packets, which use interned names.
"""
OURS = (SEQUENCE, 1)
EXPLICIT = 3
"""Code that makes Perfetto sort the tracks of a parent track by their rank."""

TYPE, TRACK, NAME, COUNTED, FLOW, ANNOTATION = 9, 11, 10, 44, 47, 4
"""Field numbers of a track event."""
BEGIN, END, INSTANT, COUNTER = 1, 2, 3, 4
"""Types of track events."""
EVENT_NAMES, ANNOTATION_NAMES = 2, 3
"""Field numbers of the interned data, which assign numbers to the names of events and annotations."""

TIME_BYTES, TRACK_BYTES, NAME_BYTES, COUNT_BYTES = 9, 7, 4, 6
"""Lengths in bytes of the varints for times (in ns, below 2^63), track numbers, name numbers, and row numbers."""

ANNOTATIONS = ("transfer", "compute", "size_bit", "rate_bps", "flop", "energy_j", "round", "arrived")
"""The annotations of slices, in the units of the recorded tables."""
_COUNTS = ("transfer", "compute", "size_bit", "round", "arrived")


def head(names: Iterable[tuple[int, str]]) -> bytes:
    """Return the first packet of a trace, which assigns numbers to the names of slices."""
    told = [(ANNOTATION_NAMES, message((1, place + 1), (2, name))) for place, name in enumerate(ANNOTATIONS)]
    return _packet((FLAGS, FIRST), (INTERNED, message(*told, *_names(names))))


def names_packet(names: Iterable[tuple[int, str]]) -> bytes:
    """Return a packet that assigns numbers to further names of slices."""
    return _packet((FLAGS, OTHERS), (INTERNED, message(*_names(names))))


def process(track: int, number: int, name: str) -> bytes:
    """Return a packet that describes a process, which is a group of tracks.

    Args:
        track: number of the process's own track.
        number: number of the process, from 1. Processes are displayed in this order.
    """
    return _packet((DESCRIPTOR, message((1, track), (3, message((1, number), (6, name))), (11, EXPLICIT))))


def track(number: int, parent: int, name: str, rank: int = 0, unit: str | None = None) -> bytes:
    """Return a packet that describes a track, or a counter track if `unit` is given.

    Args:
        number: number of the track in the trace.
        parent: number of the parent process or track. Tracks with the same parent and name are displayed as one.
        rank: position of the track among the tracks of its parent.
        unit: unit of the values of a counter; an empty text if they have none.
    """
    order_or_unit = (11, EXPLICIT) if unit is None else (8, message((6, unit)))
    return _packet((DESCRIPTOR, message((1, number), (5, parent), (2, name), order_or_unit, (12, rank))))


@cache
def slices(annotations: tuple[str, ...] = (), flows: int = 0) -> Form:
    """Return the template for slices. Each slice consists of a BEGIN and an END.

    The placeholders are the start time (ns), track, name, annotations and flows of the BEGIN, and the time (ns) and
    track of the END.
    """
    return Form([*_named(BEGIN, annotations, flows), *_event(END)])


@cache
def begins() -> Form:
    """Return the template for the BEGIN of an outer slice. The placeholders are time (ns), track and name."""
    return Form(_named(BEGIN))


@cache
def ends() -> Form:
    """Return the template for the END of a slice. The placeholders are time (ns) and track."""
    return Form(_event(END))


@cache
def instants(flows: int) -> Form:
    """Return the template for instant events. The placeholders are time (ns), track, name and flows."""
    return Form(_named(INSTANT, flows=flows))


@cache
def counts() -> Form:
    """Return the template for counter values. The placeholders are time (ns), track and value (float64)."""
    return Form(_event(COUNTER, blank_fixed(COUNTED)))


def _named(kind: int, annotations: Sequence[str] = (), flows: int = 0) -> list[Part]:
    more = blank_number(NAME, NAME_BYTES)
    for name in annotations:
        number = message((1, ANNOTATIONS.index(name) + 1))
        value = blank_number(3, COUNT_BYTES) if name in _COUNTS else blank_fixed(5)
        more += nested(ANNOTATION, [number, *value])
    return _event(kind, more + blank_fixed(FLOW) * flows, (FLAGS, OTHERS))


def _event(kind: int, more: Sequence[Part] = (), *flags: tuple[int, int]) -> list[Part]:
    event = [message((TYPE, kind)), *blank_number(TRACK, TRACK_BYTES), *more]
    return nested(PACKET, [*blank_number(TIMESTAMP, TIME_BYTES), message(OURS, *flags), *nested(TRACK_EVENT, event)])


def _names(names: Iterable[tuple[int, str]]) -> list[tuple[int, bytes]]:
    return [(EVENT_NAMES, message((1, number), (2, name))) for number, name in names]


def _packet(*fields: tuple[int, int | bytes]) -> bytes:
    return message((PACKET, message(OURS, *fields)))
