"""The packets of a Perfetto trace: tracks, names, slices, instants and counters, single or in batches of equal form.

A trace is a sequence of `TracePacket` messages. Field numbers are defined in google/perfetto,
protos/perfetto/trace/trace_packet.proto and protos/perfetto/trace/track_event/.

Two properties of the reader determine this file. An END closes the last opened slice of its track, so slices on one
track must be nested or disjoint. Packets are sorted by time, stably, so on every track an END must be written before a
BEGIN of the same time.

Source of the encoding: the protobuf encoding guide. A number in a message may be a varint (7 bits per byte, lowest
first, the highest bit set in all bytes but the last). A varint may be longer than necessary; so all messages of a form
have the same length, and a batch of them is a matrix of bytes.
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
"""Number of messages that are encoded together, chosen for the processor's cache."""
VARINT, FIXED64, LENGTH = 0, 1, 2
"""Wire types: encodings of the value of a field."""


def varint(number: int) -> bytes:
    """Encode a number of at least 0 as a varint."""
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)


def tag(field: int, wire_type: int) -> bytes:
    """Encode the number and wire type of a field."""
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


class Blank:
    """A variable part of a message.

    Args:
        width: its length in bytes.
        fixed: whether it holds 8 bytes, little-endian, instead of a varint of `width` bytes.
    """

    def __init__(self, width: int, *, fixed: bool = False) -> None:
        self.width, self.fixed = width, fixed

    def __len__(self) -> int:
        return self.width

    def fill(self, places: Bytes, values: NDArray[Any]) -> None:
        """Encode values [messages] into their places, [messages, width]."""
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
    """A variable field with a number below 2^(7 width)."""
    return [tag(field, VARINT), Blank(width)]


def blank_fixed(field: int) -> list[Part]:
    """A variable field with a float64 or an unsigned number of 64 bits."""
    return [tag(field, FIXED64), Blank(8, fixed=True)]


def nested(field: int, parts: Sequence[Part]) -> list[Part]:
    """A field with a message made of the given parts."""
    return [tag(field, LENGTH) + varint(sum(map(len, parts))), *parts]


class Form:
    """Messages of one form: constant bytes, and blanks that are filled in for many messages at once."""

    def __init__(self, parts: Sequence[Part]) -> None:
        constant = b"".join(bytes(len(part)) if isinstance(part, Blank) else part for part in parts)
        self._constant = np.frombuffer(constant, np.uint8)
        ends = accumulate(map(len, parts))
        self._blanks = [(end, part) for end, part in zip(ends, parts, strict=True) if isinstance(part, Blank)]

    def filled(self, *values: Any) -> Bytes:
        """Encode many messages, [messages, bytes], from one array [messages] for each blank, in order."""
        rows = np.empty((len(values[0]), len(self._constant)), np.uint8)
        for first in range(0, len(rows), BLOCK):
            some = slice(first, first + BLOCK)
            rows[some] = self._constant
            for (end, blank), value in zip(self._blanks, values, strict=True):
                blank.fill(rows[some, end - blank.width : end], value[some])
        return rows


def interleaved(order: Sequence[NDArray[Any]], rows: Sequence[Bytes]) -> bytes:
    """Join batches of messages in a common order.

    Args:
        order: a number for each message of each batch; the result is in ascending order of them.
        rows: the batches, each [messages, size].
    """
    messages: list[bytes] = []
    for batch in rows:
        messages.extend(batch.view(f"V{batch.shape[1]}").ravel().tolist())
    return b"".join([messages[place] for place in np.argsort(np.concatenate(order)).tolist()])


# ---- packets --------------------------------------------------------------------------------------------------------

PACKET = 1
TIMESTAMP, SEQUENCE, FLAGS = 8, 10, 13
TRACK_EVENT, INTERNED, DESCRIPTOR = 11, 12, 60
"""Fields of a packet."""
FIRST, OTHERS = 1, 2
"""Sequence flags: of the first packet, before which no names are known, and of packets that use names."""
OURS = (SEQUENCE, 1)
EXPLICIT = 3
"""The order of tracks below another one: by rank."""

TYPE, TRACK, NAME, COUNTED, FLOW, ANNOTATION = 9, 11, 10, 44, 47, 4
"""Fields of a track event."""
BEGIN, END, INSTANT, COUNTER = 1, 2, 3, 4
"""Types of track events."""
EVENT_NAMES, ANNOTATION_NAMES = 2, 3
"""Fields of interned data, which assign numbers to names."""

TIME_BYTES, TRACK_BYTES, NAME_BYTES, COUNT_BYTES = 9, 7, 4, 6
"""Bytes of varints: times in ns below 2^63, numbers of tracks, of names, and of rows in tables."""

ANNOTATIONS = ("transfer", "compute", "size_bit", "rate_bps", "flop", "energy_j", "round", "arrived")
"""The annotations of slices, in the units of the tables."""
_COUNTS = ("transfer", "compute", "size_bit", "round", "arrived")


def head(names: Iterable[tuple[int, str]]) -> bytes:
    """The first packet of a trace, with names of slices and their numbers."""
    told = [(ANNOTATION_NAMES, message((1, place + 1), (2, name))) for place, name in enumerate(ANNOTATIONS)]
    return _packet((FLAGS, FIRST), (INTERNED, message(*told, *_names(names))))


def names_packet(names: Iterable[tuple[int, str]]) -> bytes:
    """A packet with further names of slices, each with its number."""
    return _packet((FLAGS, OTHERS), (INTERNED, message(*_names(names))))


def process(track: int, number: int, name: str) -> bytes:
    """A packet that describes a process, a group of tracks.

    Args:
        track: number of its own track.
        number: number of the process, from 1; processes are shown in this order.
        name: its shown name.
    """
    return _packet((DESCRIPTOR, message((1, track), (3, message((1, number), (6, name))), (11, EXPLICIT))))


def track(number: int, parent: int, name: str, rank: int = 0) -> bytes:
    """A packet that describes a track.

    Args:
        number: its number in the trace.
        parent: the parent process or track; tracks with the same parent and name are shown as one.
        name: its shown name.
        rank: its position among the tracks of its parent.
    """
    return _packet((DESCRIPTOR, message((1, number), (5, parent), (2, name), (11, EXPLICIT), (12, rank))))


def counter_track(number: int, parent: int, name: str, unit: str, rank: int = 0) -> bytes:
    """A packet that describes a counter track; see `track` for the arguments."""
    return _packet((DESCRIPTOR, message((1, number), (5, parent), (2, name), (8, message((6, unit))), (12, rank))))


@cache
def slices(annotations: tuple[str, ...] = (), flows: int = 0) -> Form:
    """Slices, each a BEGIN followed by its END.

    The blanks are time (ns), track, name, the annotations, the flows; time and track of the end.
    """
    return Form([*_named(BEGIN, annotations, flows), *_event(END)])


@cache
def begins() -> Form:
    """Beginnings of slices that contain other slices; the blanks are time (ns), track and name."""
    return Form(_named(BEGIN))


@cache
def ends() -> Form:
    """Ends of slices; the blanks are time (ns) and track."""
    return Form(_event(END))


@cache
def instants(flows: int) -> Form:
    """Instants; the blanks are time (ns), track, name and the flows."""
    return Form(_named(INSTANT, flows=flows))


@cache
def counts() -> Form:
    """New values of counters; the blanks are time (ns), track and value (float64)."""
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
