"""Write the activities of devices and media (the bands of cells) to a Perfetto trace, in batches by time.

A track is a row of the trace, such as the row of a device. A slice is an activity with a start and an end on a track.
Overlapping slices of a track are placed in separate lanes. Successive slices without a gap between them form a turn.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from heapq import heapify, heappop, heappush
from typing import IO, NamedTuple

import numpy as np
import pandas as pd

from fednet_emu.arrays import IntArray, Mask
from fednet_emu.draw.trace import names, packets
from fednet_emu.draw.trace.feed import COMPUTING, SIDELINK, UPLINK, WAITING, Rows
from fednet_emu.draw.trace.feed import ON_AIR as TRANSFER
from fednet_emu.draw.trace.names import DEVICE, ON_AIR, Tracks, track_number
from fednet_emu.draw.trace.packets import Bytes, interleaved
from fednet_emu.records.ledger import NEVER_NS, SEVERAL
from fednet_emu.records.rows import KINDS

TOLD = {
    TRANSFER: ("transfer", "size_bit", "rate_bps", "energy_j"),
    COMPUTING: ("compute", "flop", "energy_j"),
    WAITING: ("transfer",),
}
"""Names of the annotations of a slice (an activity in a trace) of a device, by the type of the activity."""
Batch = tuple[IntArray, Bytes]
"""Sort keys [messages] and encoded trace messages [messages, bytes]. The keys determine the order in the file."""
_COLUMNS = {"transfer": "row", "compute": "row", "size_bit": "amount", "flop": "amount"}


class Activity:
    """Writer of the slices (activities) of devices and radio media to a trace file.

    Args:
        cuts_ns: times in ns at which rounds end. Two slices that meet at such a time belong to different turns.
        named: function that returns the name numbers of turns, given the times in ns at which they begin.
    """

    def __init__(
        self, file: IO[bytes], tracks: Tracks, cuts_ns: IntArray, named: Callable[[IntArray], IntArray]
    ) -> None:
        self._file, self._tracks, self._named = file, tracks, named
        self._turns, self._lanes, self._air_lanes = Turns(cuts_ns), Lanes(), Lanes()
        self.slices = 0

    def write(self, rows: Rows, sent: Rows, receivers: Mapping[int, IntArray]) -> None:
        """Write slices of devices and media in order of time. No slice may start before a slice of an earlier call.

        Args:
            rows: slices of devices, as records of type `ROW`.
            sent: slices of media, one for each transmission, as records of type `ON_MEDIUM`.
            receivers: the receivers of each transmission with several receivers, by transfer number.
        """
        medium = track_number(ON_AIR, sent["cell"] * len(KINDS) + sent["direction"])
        track = np.append(track_number(DEVICE, rows["device"]), medium)
        sequence = np.argsort(np.append(_moment(rows), _moment(sent)), kind="stable")
        place = np.empty(len(sequence), np.int64)
        place[sequence] = 3 * np.arange(len(sequence))
        by_track = sequence[np.argsort(track[sequence], kind="stable")]
        own, air = by_track[by_track < len(rows)], by_track[by_track >= len(rows)]
        done, on_air = rows[own], sent[air - len(rows)]
        batches = [
            *self._of_devices(done, track[own], place[own]),
            *self._of_media(on_air, track[air], place[air], receivers),
        ]
        self._file.write(interleaved([order for order, _ in batches], [batch for _, batch in batches]))

    def finish(self) -> None:
        track, ended_ns = self._turns.open()
        self._file.write(packets.ends().filled(ended_ns, track).tobytes())

    def _of_devices(self, rows: Rows, track: IntArray, place: IntArray) -> Iterator[Batch]:
        """Yield batches of messages for the slices of devices.

        A message BEGIN precedes the first slice of each turn, and a message END follows the last slice of the turn.
        """
        device, started_ns, ended_ns = rows["device"], rows["started_ns"], rows["ended_ns"]
        own = track_number(DEVICE, device, self._lanes.of(track, started_ns, ended_ns))
        self._tracks.describe(own)
        begins, earlier_ns = self._turns.begin(track, started_ns, ended_ns)
        ends = begins & (earlier_ns > NEVER_NS)
        name = self._named(started_ns[begins])
        yield place[ends] - 2, packets.ends().filled(earlier_ns[ends], track[ends])
        yield place[begins] - 1, packets.begins().filled(started_ns[begins], track[begins], name)
        for form in TOLD:
            chosen = rows["form"] == form
            yield place[chosen], _slices(form, rows[chosen], own[chosen])
        self.slices += len(rows) + int(begins.sum())

    def _of_media(
        self, sent: Rows, medium: IntArray, place: IntArray, receivers: Mapping[int, IntArray]
    ) -> Iterator[Batch]:
        lane = self._air_lanes.of(medium, sent["started_ns"], sent["ended_ns"])
        track = track_number(ON_AIR, sent["cell"] * len(KINDS) + sent["direction"], lane)
        self._tracks.describe(track)
        self._tracks.name(sent["device"][sent["device"] != SEVERAL])
        count = np.ones(len(sent), np.int64)
        several = np.flatnonzero(sent["receiver"] == SEVERAL)
        count[several] = [len(receivers[transfer]) for transfer in sent["transfer"][several].tolist()]
        shape = sent["direction"] + np.where(sent["receiver"] == SEVERAL, count, 0) * len(KINDS)
        for same in np.unique(shape).tolist():
            chosen = np.flatnonzero(shape == same)
            some, on = sent[chosen], track[chosen]
            flows = _flows(some, receivers)
            told = (some["started_ns"], on, some["name"], some["transfer"], *flows.T, some["ended_ns"], on)
            yield place[chosen], packets.slices(("transfer",), flows.shape[1]).filled(*told)
        self.slices += len(sent)


def _moment(rows: Rows) -> IntArray:
    """Return the sort keys [slices] of slices: by start time, and for equal start times by rank (0 to 2)."""
    return np.asarray(rows["started_ns"] << 2 | rows["rank"], np.int64)


def _slices(form: int, rows: Rows, track: IntArray) -> Bytes:
    values = [rows[_COLUMNS.get(name, name)] for name in TOLD[form]]
    flows = () if form == WAITING else (rows["comes"], rows["goes"])
    written = packets.slices(TOLD[form], len(flows))
    return written.filled(rows["started_ns"], track, rows["name"], *values, *flows, rows["ended_ns"], track)


def _flows(sent: Rows, receivers: Mapping[int, IntArray]) -> IntArray:
    kind, transfer = sent["direction"][0], sent["transfer"]
    made = names.flow(names.SENT, transfer)[:, None]
    if kind == UPLINK:
        return made
    if sent["receiver"][0] == SEVERAL:
        heard = np.stack([receivers[number] for number in transfer.tolist()])
    else:
        heard = sent["receiver"][:, None]
    flows = names.flow(names.HEARD, transfer[:, None], heard)
    return np.concatenate([made, flows], axis=1) if kind == SIDELINK else flows


class Reach:
    """Table of the latest end time of all slices on each track of a trace. It is updated by each batch of slices."""

    def __init__(self) -> None:
        self.until_ns: dict[int, int] = {}

    def before(self, track: IntArray, ended_ns: IntArray) -> IntArray:
        """Return for each slice the latest end, in ns, of all earlier slices on its track.

        The value is NEVER_NS if there is no earlier slice.

        Args:
            track: track number of each slice [slices]; the slices of a track are contiguous.
            ended_ns: end of each slice in ns [slices].
        """
        if not len(track):
            return np.empty(0, np.int64)
        first = np.flatnonzero(np.append(True, track[1:] != track[:-1]))
        names = track[first].tolist()
        known = np.array([self.until_ns.get(name, NEVER_NS) for name in names], np.int64)
        reached = ended_ns.copy()
        reached[first] = np.maximum(reached[first], known)
        reached = pd.Series(reached).groupby(track).cummax().to_numpy()
        last = np.append(first[1:], len(track)) - 1
        self.until_ns.update(zip(names, reached[last].tolist(), strict=True))
        earlier = np.append(NEVER_NS, reached[:-1])
        earlier[first] = known
        return earlier


class _Packed(NamedTuple):
    """The lanes (parallel rows) of a trace's track with overlapping slices.

    `busy` contains pairs of an end time in ns and the lane that is occupied until then. `free` contains the free lanes.
    """

    busy: list[tuple[int, int]]
    free: list[int]

    def take(self, started_ns: int, ended_ns: int) -> int:
        """Occupy the free lane with the lowest number from `started_ns` to `ended_ns`, and return the lane's number."""
        while self.busy and self.busy[0][0] <= started_ns:
            heappush(self.free, heappop(self.busy)[1])
        lane = heappop(self.free) if self.free else len(self.busy)
        heappush(self.busy, (ended_ns, lane))
        return lane


class Lanes:
    """Assigns lanes (parallel rows), numbered from 0, to the slices of each track; slices of a lane never overlap."""

    def __init__(self) -> None:
        self._reach = Reach()
        self._packed: dict[int, _Packed] = {}

    def of(self, track: IntArray, started_ns: IntArray, ended_ns: IntArray) -> IntArray:
        """Return the lane of each slice [slices], given its track, start and end in ns [slices].

        Slices must be sorted by track and then by start. On each track, slices of a later call must not start before
        slices of an earlier call.
        """
        lane = np.zeros(len(track), np.int64)
        earlier_ns = self._reach.before(track, ended_ns)
        crowded = np.unique(track[started_ns < earlier_ns])
        for name in crowded.tolist():
            rows = slice(*np.searchsorted(track, (name, name + 1)).tolist())
            until_ns = int(earlier_ns[rows.start])
            packed = self._packed.setdefault(name, _Packed([(until_ns, 0)] if until_ns > NEVER_NS else [], []))
            heapify(packed.busy)
            spans = zip(started_ns[rows].tolist(), ended_ns[rows].tolist(), strict=True)
            lane[rows] = [packed.take(*span) for span in spans]
        for name in set(self._packed) & set(np.unique(track).tolist()) - set(crowded.tolist()):
            del self._packed[name]  # all lanes were free when the first slice of this batch started
        return lane


class Turns:
    """Groups successive slices of a track into turns.

    A new turn begins after a gap between slices, or if two slices meet at one of the times `cuts_ns` in ns.
    """

    def __init__(self, cuts_ns: IntArray) -> None:
        self._reach, self._cuts_ns = Reach(), cuts_ns

    def begin(self, track: IntArray, started_ns: IntArray, ended_ns: IntArray) -> tuple[Mask, IntArray]:
        """Return a mask [slices] of slices that begin a turn, and the latest end of all earlier slices on their tracks.

        The end [slices] is in ns, and NEVER_NS for the first slice of a track. Slices must be sorted by track, and on
        each track by start, over all calls.
        """
        earlier_ns = self._reach.before(track, ended_ns)
        return (started_ns > earlier_ns) | ((started_ns == earlier_ns) & np.isin(started_ns, self._cuts_ns)), earlier_ns

    def open(self) -> tuple[IntArray, IntArray]:
        """Return the tracks [turns] of all turns that are still open, and the ends [turns] in ns of their slices."""
        known = self._reach.until_ns
        return np.array(list(known), np.int64), np.array(list(known.values()), np.int64)
