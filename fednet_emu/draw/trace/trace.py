"""Write a run as a Perfetto trace: one process per cell, a track per device and medium, counters, flows and rounds."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

import numpy as np

from fednet_emu.analysis.activity import FOREVER_NS, WHOLE, Window
from fednet_emu.analysis.run import RunRecords
from fednet_emu.arrays import IntArray, Mask
from fednet_emu.draw.trace import packets
from fednet_emu.draw.trace.activity import Activity
from fednet_emu.draw.trace.counters import STEP, Counters, steps
from fednet_emu.draw.trace.feed import Part, longest_ns, parts
from fednet_emu.draw.trace.held import Held
from fednet_emu.draw.trace.names import COUNTER, fixed_names, track_number
from fednet_emu.draw.trace.rounds import Rounds, write_scores
from fednet_emu.draw.trace.slices import ROW, SENT, SIDELINK, Rows, device_slices, medium_slices
from fednet_emu.draw.trace.tracks import Tracks
from fednet_emu.errors import DataError
from fednet_emu.records.ledger import SCENE, SERVER, SEVERAL

ONE_CELL: IntArray = np.empty(0, np.int64)
NOBODY: IntArray = np.empty(0, np.int64)
Show = Callable[[int, int], None]
"""Called from time to time with the simulated time in ns that has been dealt with, and the slices written so far."""


def write_trace(run: RunRecords, path: Path, window: Window = WHOLE, show: Show | None = None) -> int:
    """Write a run as a Perfetto trace, at once or not at all; return the number of slices.

    Memory does not grow with the length of the run: the tables are read in parts, and what has been read waits only as
    long as the longest transfer or computation of the run takes.

    Args:
        run: the run.
        path: the file; folders above it are made.
        window: what is written.
        show: shows progress.

    Raises:
        DataError: a table of the run is missing or unreadable, or the file cannot be written.
    """
    unfinished = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with unfinished.open("wb") as file:
            slices = _Trace(run, file, window).write(show)
        unfinished.replace(path)
    except OSError as error:
        raise DataError(str(path), f"cannot be written ({error.strerror})", "choose another --out") from error
    finally:
        with suppress(OSError):
            unfinished.unlink()
    return slices


class _Trace:
    """A trace on its way into a file."""

    def __init__(self, run: RunRecords, file: BinaryIO, window: Window) -> None:
        self._run, self._file, self._window = run, file, window
        self._inside = (window.from_ns, window.until_ns)
        self._rounds, self._counters = Rounds(run), Counters()
        self._tracks = Tracks(file, _serving_cells(run), run.name)
        self._activity = Activity(file, self._tracks, self._rounds.ended_ns, self._rounds.names)
        self._devices, self._media = Held(ROW, "started_ns"), Held(SENT, "started_ns")
        self._steps = Held(STEP, "at_ns")
        self._receivers: dict[int, IntArray] = {}

    def write(self, show: Show | None) -> int:
        """Write everything; return the number of slices."""
        self._file.write(packets.head(fixed_names()))
        rounds = self._rounds.write(self._file, self._tracks, *self._inside)
        write_scores(self._run, self._file, self._tracks, *self._inside)
        lag_ns = longest_ns(self._run)
        for part in parts(self._run):
            self._take(part)
            known_ns = part.until_ns - lag_ns  # what comes later ends later, so it was requested later than that
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
        cell = np.where(sent["kind"] == SIDELINK, self._tracks.cells(sent["sender"]), sent["cell"])
        self._steps.add(steps(part, cell))
        self._rounds.arrive(sent, window.has(sent["sender"]))
        self._rounds.write_averages(self._file, part.until_ns, *self._inside)
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
        for number, at_ns, value in self._counters.values(changes, self._window.from_ns):
            shown = at_ns <= self._window.until_ns
            track = np.full(shown.sum(), track_number(COUNTER, number))
            self._tracks.describe(track)
            self._file.write(packets.counts().filled(at_ns[shown], track, value[shown]).tobytes())


def _serving_cells(run: RunRecords) -> IntArray:
    """Cell that serves each device at the start, [devices]; empty for a run that did not record it: all in cell 0."""
    if not run.has(SCENE):
        return ONE_CELL
    scene = run.table(SCENE, ("device", "cell"))
    return scene[scene["device"] > SERVER].drop_duplicates("device")["cell"].to_numpy(np.int64)


def _grouped(transfer: IntArray, receiver: IntArray) -> list[tuple[int, IntArray]]:
    """The receivers of each transfer, from rows in the order of transfers."""
    numbers, first = np.unique(transfer, return_index=True)
    return list(zip(numbers.tolist(), np.split(receiver, first)[1:], strict=True))
