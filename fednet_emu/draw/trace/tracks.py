"""The tree of tracks: each is described in the file before its first event."""

from __future__ import annotations

from typing import BinaryIO

import numpy as np

from fednet_emu.arrays import IntArray
from fednet_emu.draw.trace import packets
from fednet_emu.draw.trace.counters import ENERGY, TITLES, UNITS, counter_parts
from fednet_emu.draw.trace.names import (
    CELL,
    COUNTER,
    DEVICE,
    DEVICES,
    MEDIUM,
    ON_AIR,
    ROUNDS,
    RUN,
    SCORE,
    device_names,
    track_number,
    track_parts,
)
from fednet_emu.records.ledger import SCORES, SERVER, device_label
from fednet_emu.records.rows import KINDS


class Tracks:
    """The tracks described so far.

    Args:
        file: the trace.
        cell_of: cell of each device, [devices]; devices beyond them are in cell 0.
        title: name of the run.
    """

    def __init__(self, file: BinaryIO, cell_of: IntArray, title: str) -> None:
        self._file, self._cell_of, self._title = file, cell_of, title
        self._known: set[int] = set()
        self._named: set[int] = set()

    def cells(self, device: IntArray) -> IntArray:
        """Cell of each device; the server is in cell 0."""
        if not len(self._cell_of):
            return np.zeros(len(device), np.int64)
        inside = (device > SERVER) & (device < len(self._cell_of))
        return np.where(inside, self._cell_of[np.where(inside, device, 0)], 0)

    def describe(self, tracks: IntArray) -> None:
        """Write the descriptions of tracks that have none yet, and of those above them."""
        for track in np.unique(tracks).tolist():
            self._describe(track)

    def name(self, devices: IntArray) -> None:
        """Write the names of devices that have none yet."""
        new = sorted(set(np.unique(devices).tolist()) - self._named)
        if new:
            self._file.write(packets.names_packet(device_names(new)))
            self._named.update(new)

    def _describe(self, track: int) -> None:
        if track in self._known:
            return
        self._known.add(track)
        kind, index = track_parts(track)
        if kind == RUN:
            self._file.write(packets.process(track, 1, self._title))
        elif kind == CELL:
            self._file.write(packets.process(track, index + 2, f"cell {index}"))
        else:
            parent = self._parent(kind, index)
            self._describe(parent)
            self._file.write(self._described(kind, index, track, parent))

    def _parent(self, kind: int, index: int) -> int:
        if kind in (ROUNDS, SCORE) or (kind, index) in ((COUNTER, ENERGY), (DEVICE, SERVER)):
            return int(track_number(RUN))
        if kind in (MEDIUM, DEVICES):
            return int(track_number(CELL, index))
        if kind == ON_AIR:
            return int(track_number(MEDIUM, index // len(KINDS)))
        if kind == COUNTER:
            return int(track_number(MEDIUM, counter_parts(index)[1]))
        return int(track_number(DEVICES, self.cells(np.array([index]))[0]))

    def _described(self, kind: int, index: int, track: int, parent: int) -> bytes:
        if kind == COUNTER and index != ENERGY:
            what, _, link = counter_parts(index)
            title, rank = f"{KINDS[link]}: {TITLES[what]}", link + len(KINDS)
            return packets.counter_track(track, parent, title, UNITS[what], rank)
        if kind == COUNTER:
            return packets.counter_track(track, parent, "energy", "J", 2)
        if kind == SCORE:
            return packets.counter_track(track, parent, SCORES[index].replace("_", " "), "", index + 3)
        if kind == DEVICE:
            return packets.track(track, parent, device_label(index), 1 if index == SERVER else index)
        name, rank = {
            ROUNDS: ("rounds", 0), MEDIUM: ("medium", 0), DEVICES: ("devices", 1),
            ON_AIR: (KINDS[index % len(KINDS)], index % len(KINDS)),
        }[kind]  # fmt: skip
        return packets.track(track, parent, name, rank)
