"""Reads traces as Perfetto's own reader does: packets sorted by time, slices nested by a stack on every track."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace, TrackEvent


@dataclass
class Slice:
    """A slice or instant of a trace.

    Attributes:
        track: names of its process and of all tracks down to its own.
        lane: number of its own track.
        depth: how many slices of the same track contain it.
    """

    track: tuple[str, ...]
    lane: int
    name: str
    started_ns: int
    depth: int
    told: dict[str, Any]
    flows: tuple[int, ...]
    ended_ns: int = -1


@dataclass
class Read:
    """What a trace holds; counters are pairs of time (ns) and value by the names of their tracks."""

    slices: list[Slice] = field(default_factory=list)
    counters: dict[tuple[str, ...], list[tuple[int, float]]] = field(default_factory=lambda: defaultdict(list))
    units: dict[tuple[str, ...], str] = field(default_factory=dict)

    def on(self, *track: str) -> list[Slice]:
        """Slices of the tracks whose names end like this."""
        return [one for one in self.slices if one.track[-len(track) :] == track]

    def arrows(self) -> set[tuple[int, int]]:
        """Pairs of slices, by their places in `slices`, that are linked by a flow, in the order of time."""
        linked = defaultdict(list)
        for place, one in enumerate(self.slices):
            for flow in one.flows:
                linked[flow].append(place)
        return {pair for places in linked.values() for pair in pairwise(places)}


def read(path: Path) -> Read:
    """Read a trace with the official protos; fails where the reader of Perfetto would report an error."""
    trace = Trace.FromString(path.read_bytes())
    names: dict[int, str] = {}
    words: dict[int, str] = {}
    tracks: dict[int, tuple[str, ...]] = {}
    found = Read()
    events = []
    for packet in trace.packet:
        assert packet.trusted_packet_sequence_id == 1
        names |= {each.iid: each.name for each in packet.interned_data.event_names}
        words |= {each.iid: each.name for each in packet.interned_data.debug_annotation_names}
        if packet.HasField("track_descriptor"):
            track = packet.track_descriptor
            assert track.uuid not in tracks
            above = tracks[track.parent_uuid] if track.parent_uuid else ()
            tracks[track.uuid] = (*above, track.name or track.process.process_name)
            if track.HasField("counter"):
                found.units[tracks[track.uuid]] = track.counter.unit_name
        elif packet.HasField("track_event"):
            assert packet.track_event.track_uuid in tracks
            events.append(packet)
    stacks: dict[int, list[Slice]] = defaultdict(list)
    for packet in sorted(events, key=lambda packet: packet.timestamp):
        event, at_ns = packet.track_event, packet.timestamp
        track, stack = tracks[event.track_uuid], stacks[event.track_uuid]
        if event.type == TrackEvent.TYPE_COUNTER:
            found.counters[track].append((at_ns, event.double_counter_value))
        elif event.type == TrackEvent.TYPE_SLICE_END:
            stack.pop().ended_ns = at_ns
        else:
            told = {words[each.name_iid]: each.uint_value if each.HasField("uint_value") else each.double_value
                    for each in event.debug_annotations}  # fmt: skip
            name, flows = names[event.name_iid], tuple(event.flow_ids)
            found.slices.append(Slice(track, event.track_uuid, name, at_ns, len(stack), told, flows))
            if event.type == TrackEvent.TYPE_SLICE_BEGIN:
                stack.append(found.slices[-1])
            else:
                found.slices[-1].ended_ns = at_ns
    assert not any(stacks.values()), "slices that never end"
    return found


@pytest.fixture(scope="session")
def read_trace() -> Callable[[Path], Read]:
    return read
