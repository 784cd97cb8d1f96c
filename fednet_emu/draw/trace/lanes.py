"""Where slices go on their tracks: slices that overlap into lanes of their own, slices without a gap into one turn."""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import NamedTuple

import numpy as np

from fednet_emu.arrays import IntArray, Mask
from fednet_emu.records.ledger import NEVER_NS


class Reach:
    """Until when each track has been busy, over a sequence of batches."""

    def __init__(self) -> None:
        self.until_ns: dict[int, int] = {}

    def before(self, track: IntArray, ended_ns: IntArray) -> IntArray:
        """The latest end of all earlier slices on the same track, in ns; NEVER_NS if there was none.

        Args:
            track: number of the track, [slices]; the slices of a track are together.
            ended_ns: their ends.
        """
        if not len(track):
            return np.empty(0, np.int64)
        opening = np.append(True, track[1:] != track[:-1])
        first = np.flatnonzero(opening)
        names = track[first].tolist()
        known = np.array([self.until_ns.get(name, NEVER_NS) for name in names], np.int64)
        reached = ended_ns.copy()
        reached[first] = np.maximum(reached[first], known)
        # ranks of times instead of times, one range of numbers per track, so that a single running maximum serves all
        times, rank = np.unique(reached, return_inverse=True)
        shift = (np.cumsum(opening) - 1) * len(times)
        reached = times[np.maximum.accumulate(rank + shift) - shift]
        last = np.append(first[1:], len(track)) - 1
        self.until_ns.update(zip(names, reached[last].tolist(), strict=True))
        earlier = np.append(NEVER_NS, reached[:-1])
        earlier[first] = known
        return earlier


class _Packed(NamedTuple):
    """The lanes of a track on which slices overlap: those in use with their ends, and those that are free."""

    busy: list[tuple[int, int]]
    free: list[int]

    def take(self, started_ns: int, ended_ns: int) -> int:
        """Take the first lane that is free from `started_ns` to `ended_ns`."""
        while self.busy and self.busy[0][0] <= started_ns:
            heappush(self.free, heappop(self.busy)[1])
        lane = heappop(self.free) if self.free else len(self.busy)
        heappush(self.busy, (ended_ns, lane))
        return lane


class Lanes:
    """Gives slices that overlap on a track lanes of their own, numbered from 0."""

    def __init__(self) -> None:
        self._reach = Reach()
        self._packed: dict[int, _Packed] = {}

    def of(self, track: IntArray, started_ns: IntArray, ended_ns: IntArray) -> IntArray:
        """Lane of each slice, [slices]; slices come in the order of their tracks, on each in the order of starts.

        A later call must not bring slices that start before one of an earlier call on the same track.
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
            del self._packed[name]  # all its lanes were free when its first slice started
        return lane


class Turns:
    """Joins slices of a track that follow each other without a gap into turns; a turn does not go past a cut."""

    def __init__(self, cuts_ns: IntArray) -> None:
        self._reach, self._cuts_ns = Reach(), cuts_ns

    def begin(self, track: IntArray, started_ns: IntArray, ended_ns: IntArray) -> tuple[Mask, IntArray]:
        """Whether a turn begins with each slice, and when the turn before it ended, in ns; NEVER_NS if there was none.

        Slices come in the order of their tracks, on each in the order of starts, over all calls.
        """
        earlier_ns = self._reach.before(track, ended_ns)
        return (started_ns > earlier_ns) | ((started_ns == earlier_ns) & np.isin(started_ns, self._cuts_ns)), earlier_ns

    def open(self) -> tuple[IntArray, IntArray]:
        """Track and end in ns of the last turn of each track."""
        known = self._reach.until_ns
        return np.array(list(known), np.int64), np.array(list(known.values()), np.int64)
