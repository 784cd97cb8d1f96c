"""Write a run as a Perfetto trace, with a process per cell, tracks of devices and media, counters, flows and rounds."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import IO

import numpy as np

from fednet_emu.analysis.activity import FOREVER_NS, WHOLE, Window
from fednet_emu.analysis.run import RunRecords
from fednet_emu.arrays import Array, IntArray, Mask
from fednet_emu.draw.trace import names, packets
from fednet_emu.draw.trace.activity import Activity
from fednet_emu.draw.trace.feed import (
    ON_MEDIUM,
    ROW,
    SIDELINK,
    STEP,
    UPLINK,
    Columns,
    Held,
    Part,
    Rows,
    counter_values,
    device_slices,
    idle_energy,
    longest_ns,
    medium_slices,
    nanoseconds,
    parts,
    steps,
)
from fednet_emu.draw.trace.names import COUNTER, ENERGY, ROUNDS, SCORE, Tracks, track_number
from fednet_emu.files.writing import file_errors, write_atomically
from fednet_emu.records.ledger import SCENE, SCORES, SERVER, SEVERAL
from fednet_emu.records.reasons import CODE

ROUND_TRACK = int(track_number(ROUNDS))
NOBODY: IntArray = np.empty(0, np.int64)
Show = Callable[[int, int], None]
"""Function that shows progress, given the processed simulated time in ns and the number of slices (activities) so far.
"""


def write_trace(run: RunRecords, path: Path, window: Window = WHOLE, show: Show | None = None) -> int:
    """Write a run as a Perfetto trace, and return the number of slices (activities). The file is written atomically.

    The required memory does not grow with the length of the run. Tables are read in parts, and rows are kept only for
    the duration of the longest transfer or computation.

    Only the time span and the devices of `window` are written. Parent folders of `path` are created. `show` is a
    callback for progress.

    Raises:
        DataError: a table of the run is missing or unreadable, or the file cannot be written.
    """
    remedy = "choose another --out"
    with file_errors(path, "written", remedy):
        path.parent.mkdir(parents=True, exist_ok=True)
    return write_atomically(path, lambda file: _Trace(run, file, window).write(show), remedy)


class _Trace:
    def __init__(self, run: RunRecords, file: IO[bytes], window: Window) -> None:
        self._run, self._file, self._window = run, file, window
        self._tracks = Tracks(file, _serving_cells(run), run.name)
        self._rounds = Rounds(run, file, self._tracks, window)
        self._counted: dict[int, float] = {}
        self._activity = Activity(file, self._tracks, self._rounds.ended_ns, self._rounds.names)
        self._devices, self._media = Held(ROW, "started_ns"), Held(ON_MEDIUM, "started_ns")
        self._steps = Held(STEP, "at_ns")
        self._idle_ns, self._idle_j = idle_energy(run)
        self._steps.add(np.array([(self._idle_ns[-1], ENERGY, 0.0)], STEP))
        self._receivers: dict[int, IntArray] = {}

    def write(self, show: Show | None) -> int:
        self._file.write(packets.head(names.fixed_names()))
        rounds = self._rounds.write()
        self._write_scores()
        lag_ns = longest_ns(self._run)
        for part in parts(self._run):
            self._take(part)
            known_ns = part.until_ns - lag_ns  # later rows end after `until_ns`, and none is longer than the lag
            if self._devices.worth_while or self._steps.worth_while:
                self._release(known_ns)
            if show is not None:
                show(part.until_ns, self._activity.slices)
            if known_ns > self._window.until_ns:
                break
        self._release(FOREVER_NS)
        self._activity.finish()
        return self._activity.slices + rounds

    def _take(self, part: Part) -> None:
        sent, heard, window = part.transfers, part.receptions, self._window
        cell = np.where(sent["direction"] == SIDELINK, self._tracks.cells(sent["sender"]), sent["cell"])
        self._steps.add(steps(part, cell))
        self._rounds.arrive(sent, window.has(sent["sender"]))
        self._rounds.write_averages(part.until_ns)
        rows = device_slices(part)
        self._devices.add(rows[self._shown(rows) & window.has(rows["device"])])
        rows, chosen = medium_slices(part, cell), window.has(heard["receiver"])
        listening = dict(_grouped(heard["transfer"][chosen], heard["receiver"][chosen]))
        concerned = window.has(rows["sender"]) | window.has(rows["receiver"]) | np.isin(rows["transfer"], [*listening])
        rows = rows[self._shown(rows) & concerned]
        self._media.add(rows)
        for transfer in rows["transfer"][rows["receiver"] == SEVERAL].tolist():
            self._receivers[transfer] = listening.get(transfer, NOBODY)

    def _shown(self, rows: Rows) -> Mask:
        return self._window.overlaps(rows["started_ns"], rows["ended_ns"])

    def _release(self, known_ns: int) -> None:
        sent = self._media.until(known_ns)
        self._activity.write(self._devices.until(known_ns), sent, self._receivers)
        for transfer in sent["transfer"][sent["receiver"] == SEVERAL].tolist():
            del self._receivers[transfer]
        changes = self._steps.until(known_ns)
        for number, at_ns, value in counter_values(changes, self._window.from_ns, self._counted):
            idle_j = np.interp(at_ns, self._idle_ns, self._idle_j) if number == ENERGY else 0.0
            self._count(track_number(COUNTER, number), at_ns, value + idle_j, at_ns <= self._window.until_ns)

    def _write_scores(self) -> None:
        """Write the accuracy, the loss and other scores as counters. Runs of older versions lack some scores."""
        table = self._run.table("evaluations")
        at_ns = nanoseconds(table["simulated_s"])
        for place, name in enumerate(SCORES):
            if name in table:
                score = table[name].to_numpy(np.float64)
                shown = np.isfinite(score) & self._window.overlaps(at_ns, at_ns)
                self._count(track_number(SCORE, place), at_ns, score, shown)

    def _count(self, number: IntArray, at_ns: IntArray, value: Array, shown: Mask) -> None:
        track = np.full(shown.sum(), number)
        self._tracks.describe(track)
        self._file.write(packets.counts().filled(at_ns[shown], track, value[shown]).tobytes())


class Rounds:
    """Writes each round to a trace as a slice, and the model average at the end of each round as an instant event."""

    def __init__(self, run: RunRecords, file: IO[bytes], tracks: Tracks, window: Window) -> None:
        self._file, self._tracks, self._window = file, tracks, window
        table = run.table("rounds", ("round", "started_s", "ended_s", "arrived"))
        self.number, self._arrived = (table[name].to_numpy(np.int64) for name in ("round", "arrived"))
        self._started_ns, self.ended_ns = (nanoseconds(table[name]) for name in ("started_s", "ended_s"))
        self._came = np.empty((0, 2), np.int64)
        self._told = 0

    def names(self, started_ns: IntArray) -> IntArray:
        """Return the name number of the round in which each turn begins, or of a generic name outside all rounds."""
        if not len(self.number):
            return np.full(len(started_ns), names.TURN)
        place = np.searchsorted(self._started_ns, started_ns, side="right") - 1
        inside = (place >= 0) & (started_ns < self.ended_ns[place])
        return np.where(inside, names.ROUND_NAME + self.number[place], names.TURN)

    def write(self) -> int:
        shown = self._window.overlaps(self._started_ns, self.ended_ns)
        if not shown.any():
            return 0
        self._tracks.describe(np.array([ROUND_TRACK]))
        every = self.number.tolist()
        self._file.write(packets.names_packet((names.ROUND_NAME + number, f"round {number}") for number in every))
        number, track = self.number[shown], np.full(shown.sum(), ROUND_TRACK)
        told = (self._started_ns[shown], track, names.ROUND_NAME + number, number, self._arrived[shown])
        written = packets.slices(("round", "arrived")).filled(*told, self.ended_ns[shown], track)
        self._file.write(written.tobytes())
        return len(number)

    def arrive(self, sent: Columns, shown: Mask) -> None:
        """Record the updates in the transfers `sent` that reached the server; `shown` is a mask of rows to include."""
        chosen = (
            shown & (sent["direction"] == UPLINK) & (sent["receiver"] == SERVER) & (sent["loss_reason"] == CODE[""])
        )
        self._came = np.concatenate([self._came, np.stack([sent["ended_ns"], sent["transfer"]], axis=1)[chosen]])

    def write_averages(self, known_ns: int) -> None:
        """Write the model averages of all rounds that end by `known_ns`, the time up to which arrivals are recorded."""
        due = int(np.searchsorted(self.ended_ns, known_ns, side="right"))
        ended_ns = self.ended_ns[self._told : due]
        last = np.searchsorted(self._came[:, 0], ended_ns, side="right")
        first = np.append(0, last)[: len(last)]
        inside = self._window.overlaps(ended_ns, ended_ns)
        for count in np.unique((last - first)[inside & (last > first)]).tolist():
            chosen = np.flatnonzero(inside & (last - first == count))
            flows = names.flow(names.SENT, self._came[:, 1][first[chosen, None] + np.arange(count)])
            track, name = (np.full(len(chosen), same) for same in (ROUND_TRACK, names.AVERAGE))
            self._file.write(packets.instants(count).filled(ended_ns[chosen], track, name, *flows.T).tobytes())
        self._came = self._came[last[-1] if len(last) else 0 :]
        self._told = due


def _serving_cells(run: RunRecords) -> IntArray:
    """Return the initial cell of each device [devices]. The array is empty if cells are not recorded."""
    if not run.has(SCENE):
        return NOBODY
    scene = run.table(SCENE, ("device", "cell"))
    return scene[scene["device"] > SERVER].drop_duplicates("device")["cell"].to_numpy(np.int64)


def _grouped(transfer: IntArray, receiver: IntArray) -> list[tuple[int, IntArray]]:
    """Return pairs (transfer number, receivers) from the columns `transfer` (sorted) and `receiver` of receptions."""
    numbers, first = np.unique(transfer, return_index=True)
    return list(zip(numbers.tolist(), np.split(receiver, first)[1:], strict=True))
