"""The rounds of a run as slices, the averages that end them with flows from what was averaged, and the scores."""

from __future__ import annotations

from typing import BinaryIO

import numpy as np

from fednet_emu.analysis.run import RunView
from fednet_emu.arrays import IntArray, Mask
from fednet_emu.draw.trace import packets
from fednet_emu.draw.trace.feed import Columns, nanoseconds
from fednet_emu.draw.trace.names import (
    AVERAGE,
    ROUNDS,
    SCORE,
    TURN,
    round_name,
    round_names,
    sent_flow,
    track_number,
)
from fednet_emu.draw.trace.slices import UPLINK
from fednet_emu.draw.trace.tracks import Tracks
from fednet_emu.records.ledger import SCORES, SERVER
from fednet_emu.records.reasons import CODE

COLUMNS = ("round", "started_s", "ended_s", "arrived")
ROUND_TRACK = int(track_number(ROUNDS))


class Rounds:
    """The rounds of a run; all of its rounds are in memory, 32 bytes each."""

    def __init__(self, run: RunView) -> None:
        table = run.table("rounds", COLUMNS)
        self.number, self._arrived = (table[name].to_numpy(np.int64) for name in ("round", "arrived"))
        self._started_ns, self.ended_ns = (nanoseconds(table[name]) for name in ("started_s", "ended_s"))
        self._came = np.empty((0, 2), np.int64)
        self._told = 0

    def names(self, started_ns: IntArray) -> IntArray:
        """The names of the rounds in which turns begin; outside of all rounds it is that of a turn."""
        if not len(self.number):
            return np.full(len(started_ns), TURN)
        place = np.searchsorted(self._started_ns, started_ns, side="right") - 1
        inside = (place >= 0) & (started_ns < self.ended_ns[place])
        return np.where(inside, round_name(self.number[place]), TURN)

    def write(self, file: BinaryIO, tracks: Tracks, from_ns: int, until_ns: int) -> int:
        """Write the rounds that overlap a window, and the names of all; return how many."""
        shown = (self.ended_ns >= from_ns) & (self._started_ns <= until_ns)
        if not shown.any():
            return 0
        tracks.describe(np.array([ROUND_TRACK]))
        file.write(packets.names_packet(round_names(self.number.tolist())))
        number, track = self.number[shown], np.full(shown.sum(), ROUND_TRACK)
        told = (self._started_ns[shown], track, round_name(number), number, self._arrived[shown])
        ends = (self.ended_ns[shown], track)
        file.write(packets.slices(("round", "arrived")).filled(*told, *ends).tobytes())
        return len(number)

    def arrive(self, sent: Columns, shown: Mask) -> None:
        """Take note of the updates among these transfers that have reached the server; `shown` are rows that may."""
        chosen = shown & (sent["kind"] == UPLINK) & (sent["receiver"] == SERVER) & (sent["lost"] == CODE[""])
        self._came = np.concatenate([self._came, np.stack([sent["ended_ns"], sent["transfer"]], axis=1)[chosen]])

    def write_averages(self, file: BinaryIO, known_ns: int, from_ns: int, until_ns: int) -> None:
        """Write the averages at the ends of rounds up to a time by which all that has arrived is known."""
        due = int(np.searchsorted(self.ended_ns, known_ns, side="right"))
        ended_ns = self.ended_ns[self._told : due]
        last = np.searchsorted(self._came[:, 0], ended_ns, side="right")
        first = np.append(0, last)[: len(last)]
        inside = (ended_ns >= from_ns) & (ended_ns <= until_ns)
        for count in np.unique((last - first)[inside & (last > first)]).tolist():
            chosen = np.flatnonzero(inside & (last - first == count))
            flows = sent_flow(self._came[:, 1][first[chosen, None] + np.arange(count)])
            track, name = (np.full(len(chosen), same) for same in (ROUND_TRACK, AVERAGE))
            file.write(packets.instants((), count).filled(ended_ns[chosen], track, name, *flows.T).tobytes())
        self._came = self._came[last[-1] if len(last) else 0 :]
        self._told = due


def write_scores(run: RunView, file: BinaryIO, tracks: Tracks, from_ns: int, until_ns: int) -> None:
    """Write accuracy, loss and whatever else was evaluated as counters."""
    table = run.table("evaluations")
    at_ns = nanoseconds(table["simulated_s"])
    for place, name in enumerate(SCORES):
        if name not in table:
            continue  # a run of an older version
        score = table[name].to_numpy(np.float64)
        shown = np.isfinite(score) & (at_ns >= from_ns) & (at_ns <= until_ns)
        if shown.any():
            track = np.full(shown.sum(), track_number(SCORE, place))
            tracks.describe(track)
            file.write(packets.counts().filled(at_ns[shown], track, score[shown]).tobytes())
