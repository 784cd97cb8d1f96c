"""The encoding of messages, and the places of slices on their tracks."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import DebugAnnotation, TracePacket, TrackDescriptor

from fednet_emu.draw.trace.activity import Lanes, Turns
from fednet_emu.draw.trace.names import DEVICE, track_number, track_parts
from fednet_emu.draw.trace.packets import Form, blank_fixed, blank_number, interleaved, message, nested, varint
from fednet_emu.records.ledger import NEVER_NS

SPANS = st.lists(
    st.tuples(st.integers(0, 3), st.integers(0, 40), st.integers(0, 12)), max_size=60
)  # track, start, length
CUTS = st.lists(st.integers(0, 60), max_size=60)


@given(st.integers(0, 2**63 - 1), st.text(max_size=300))
def test_messages_are_read_as_written(number: int, name: str) -> None:
    """Numbers and texts of any size come back from the official reader, and the bytes are those that it writes."""
    written = message((1, number), (2, name))

    read = TrackDescriptor.FromString(written)

    assert (read.uuid, read.name) == (number, name)
    assert written == TrackDescriptor(uuid=number, name=name).SerializeToString(deterministic=True)
    assert varint(number) == message((1, number))[1:]


@given(
    st.lists(st.tuples(st.integers(0, 2**63 - 1), st.integers(0, 2**28 - 1), st.floats(allow_nan=False)), min_size=1)
)
def test_batches_are_read_as_written(rows: list[tuple[int, int, float]]) -> None:
    """Blanks of a batch keep every number up to their width, in messages inside of messages too."""
    time_ns, name, value = (np.array(column) for column in zip(*rows, strict=True))
    form = Form([*blank_number(8, 9), *nested(11, [*blank_number(10, 4), *nested(4, blank_fixed(5))])])

    packets = [TracePacket.FromString(row.tobytes()) for row in form.filled(time_ns, name, value)]

    read = [(each.timestamp, each.track_event.name_iid, each.track_event.debug_annotations[0]) for each in packets]
    assert read == [(at, iid, DebugAnnotation(double_value=number)) for at, iid, number in rows]


@given(st.permutations(range(30)))
def test_batches_of_different_lengths_are_joined_in_order(order: list[int]) -> None:
    """Each message is where its number says, whatever batch it is in."""
    short, long = Form([b"a", *blank_number(1, 1)]), Form([b"bc", *blank_number(1, 1)])
    numbers = np.array(order)

    joined = interleaved([numbers[:13], numbers[13:]], [short.filled(numbers[:13]), long.filled(numbers[13:])])

    expected = [(b"a" if order.index(place) < 13 else b"bc") + bytes([8, place]) for place in range(30)]
    assert joined == b"".join(expected)


def placed(spans: list[tuple[int, int, int]], cut_ns: int) -> list[tuple[int, int, int, int]]:
    """Track, start, end and lane of spans that come in two batches, those up to a time and those after it."""
    lanes, found = Lanes(), []
    for late in (False, True):
        batch = sorted((track, start, start + length) for track, start, length in spans if (start > cut_ns) == late)
        columns = np.array(batch, np.int64).reshape(-1, 3).T
        found += [(*span, lane) for span, lane in zip(batch, lanes.of(*columns).tolist(), strict=True)]
    return found


@given(SPANS, st.integers(0, 40))
def test_slices_on_a_lane_never_overlap_and_lanes_are_few(spans: list[tuple[int, int, int]], cut_ns: int) -> None:
    """On no lane does a slice start before the one before has ended; there are as many lanes as slices at once."""
    found = placed(spans, cut_ns)

    for track in range(4):
        mine = [(start, end, lane) for on, start, end, lane in found if on == track]
        for lane in {lane for _, _, lane in mine}:
            ends = [(start, end) for start, end, on in mine if on == lane]
            assert all(start >= before for (_, before), (start, _) in pairwise(ends))
        at_once = max((sum(start <= at < end for start, end, _ in mine) for at, _, _ in mine), default=0)
        assert len({lane for start, end, lane in mine if end > start}) <= max(at_once, 1)


@given(SPANS, CUTS, st.integers(0, 40))
def test_turns_are_the_unions_of_touching_slices(
    spans: list[tuple[int, int, int]], cuts: list[int], cut_ns: int
) -> None:
    """A turn begins where nothing lasts any more, or where everything before has just ended and a round has, too."""
    turns, begun = Turns(np.unique(np.array(cuts, np.int64))), []
    for late in (False, True):
        batch = sorted((track, start, start + length) for track, start, length in spans if (start > cut_ns) == late)
        columns = np.array(batch, np.int64).reshape(-1, 3).T
        begins, earlier_ns = turns.begin(*columns)
        begun += list(zip(batch, begins.tolist(), earlier_ns.tolist(), strict=True))

    for place, ((track, start, _), begins, earlier_ns) in enumerate(begun):
        before = max((end for (on, _, end), _, _ in begun[:place] if on == track), default=NEVER_NS)
        assert earlier_ns == before
        assert begins == (start > before or (start == before and start in cuts))


@given(st.integers(-1, 2**28 - 2), st.integers(0, 2**17 - 1))
def test_tracks_have_numbers_of_their_own(index: int, lane: int) -> None:
    """What a track belongs to is read from its number, which its varint of seven bytes can hold."""
    number = int(track_number(DEVICE, index, lane))

    assert track_parts(number) == (DEVICE, index)
    assert number < 2**49
