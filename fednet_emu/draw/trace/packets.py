"""The packets of a Perfetto trace: tracks, names, slices, instants and counters.

A trace is a sequence of `TracePacket` messages. Field numbers are those of google/perfetto,
protos/perfetto/trace/trace_packet.proto and protos/perfetto/trace/track_event/.

Two properties of the reader shape this file. An END closes the slice that was opened last on its track, so slices on
one track must be nested or disjoint. Packets are sorted by time, and those of the same time keep their order in the
file, so on every track an END must be written before a BEGIN of the same time.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache

from fednet_emu.draw.trace.wire import Form, Part, blank_fixed, blank_number, message, nested, tag, varint

PACKET = 1
TIMESTAMP, SEQUENCE, FLAGS = 8, 10, 13
TRACK_EVENT, INTERNED, DESCRIPTOR = 11, 12, 60
"""Fields of a packet."""
FIRST, OTHERS = 1, 2
"""Sequence flags: of the packet before which no names are known, and of those that use names."""
OURS = (SEQUENCE, 1)

TYPE, TRACK, NAME, COUNTED, FLOW, ANNOTATION = 9, 11, 10, 44, 47, 4
"""Fields of a track event."""
BEGIN, END, INSTANT, COUNTER = 1, 2, 3, 4
"""Types of track events."""
EVENT_NAMES, ANNOTATION_NAMES = 2, 3
"""Fields of interned data, which give a number to each name."""

TIME_BYTES, TRACK_BYTES, NAME_BYTES, COUNT_BYTES = 9, 7, 4, 6
"""Bytes of varints: times in ns below 2^63, numbers of tracks, of names, and of rows in tables."""

ANNOTATIONS = ("transfer", "compute", "size_bit", "rate_bps", "flop", "energy_j", "round", "arrived")
"""What is told about slices, in the units of the tables."""
_COUNTS = ("transfer", "compute", "size_bit", "round", "arrived")


def head(names: Iterable[tuple[int, str]]) -> bytes:
    """The first packet of a trace.

    Args:
        names: names of slices with their numbers.
    """
    told = [(ANNOTATION_NAMES, message((1, place + 1), (2, name))) for place, name in enumerate(ANNOTATIONS)]
    return _packet(OURS, (FLAGS, FIRST), (INTERNED, message(*told, *_names(names))))


def names_packet(names: Iterable[tuple[int, str]]) -> bytes:
    """A packet with more names of slices, each with its number."""
    return _packet(OURS, (FLAGS, OTHERS), (INTERNED, message(*_names(names))))


def process(track: int, number: int, name: str) -> bytes:
    """A packet that describes a process, a group of tracks.

    Args:
        track: number of its own track.
        number: number of the process, from 1; processes are shown in this order.
        name: what is shown.
    """
    return _described((1, track), (3, message((1, number), (6, name))), (11, EXPLICIT))


def track(number: int, parent: int, name: str, rank: int = 0) -> bytes:
    """A packet that describes a track.

    Args:
        number: its number in the trace.
        parent: the process or track below which it is shown; tracks with the same parent and name are shown as one.
        name: what is shown.
        rank: its place among the tracks of its parent.
    """
    return _described((1, number), (5, parent), (2, name), (11, EXPLICIT), (12, rank))


def counter_track(number: int, parent: int, name: str, unit: str, rank: int = 0) -> bytes:
    """A packet that describes a track whose value changes over time; the arguments are those of `track`."""
    return _described((1, number), (5, parent), (2, name), (8, message((6, unit))), (12, rank))


EXPLICIT = 3
"""The order of tracks below another one: by their ranks."""


@cache
def slices(annotations: tuple[str, ...] = (), flows: int = 0) -> Form:
    """Slices, each a BEGIN followed by its END.

    The blanks are time (ns), track, name, the annotations, the flows; time and track of the end.
    """
    return Form([*_begin(annotations, flows), *_end()])


@cache
def begins(annotations: tuple[str, ...] = ()) -> Form:
    """Beginnings of slices that contain other slices; the blanks are time (ns), track, name and the annotations."""
    return Form(_begin(annotations, 0))


@cache
def ends() -> Form:
    """Ends of slices; the blanks are time (ns) and track."""
    return Form(_end())


@cache
def instants(annotations: tuple[str, ...] = (), flows: int = 0) -> Form:
    """Instants; the blanks are time (ns), track, name, the annotations and the flows."""
    return Form(_begin(annotations, flows, INSTANT))


@cache
def counts() -> Form:
    """New values of counters; the blanks are time (ns), track and value (float64)."""
    return Form(_event(COUNTER, blank_fixed(COUNTED), named=False))


def _begin(annotations: Sequence[str], flows: int, kind: int = BEGIN) -> list[Part]:
    more = blank_number(NAME, NAME_BYTES)
    for name in annotations:
        number = message((1, ANNOTATIONS.index(name) + 1))
        value = blank_number(3, COUNT_BYTES) if name in _COUNTS else blank_fixed(5)
        more += nested(ANNOTATION, [number, *value])
    return _event(kind, more + blank_fixed(FLOW) * flows)


def _end() -> list[Part]:
    return _event(END, [], named=False)


def _event(kind: int, more: Sequence[Part], *, named: bool = True) -> list[Part]:
    event = [message((TYPE, kind)), *blank_number(TRACK, TRACK_BYTES), *more]
    flags = message(OURS, (FLAGS, OTHERS)) if named else message(OURS)
    return nested(PACKET, [*blank_number(TIMESTAMP, TIME_BYTES), flags, *nested(TRACK_EVENT, event)])


def _names(names: Iterable[tuple[int, str]]) -> list[tuple[int, bytes]]:
    return [(EVENT_NAMES, message((1, number), (2, name))) for number, name in names]


def _described(*fields: tuple[int, int | str | bytes]) -> bytes:
    return _packet(OURS, (DESCRIPTOR, message(*fields)))


def _packet(*fields: tuple[int, int | str | bytes]) -> bytes:
    content = message(*fields)
    return tag(PACKET, 2) + varint(len(content)) + content
