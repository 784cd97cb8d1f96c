"""Numbers that identify tracks, counters, flows (arrows) and names of slices (activities) in a Perfetto trace."""

from __future__ import annotations

from typing import IO

import numpy as np

from fednet_emu.arrays import IntArray
from fednet_emu.draw.trace import packets
from fednet_emu.records.ledger import SCORES, SERVER, device_label
from fednet_emu.records.reasons import REASONS
from fednet_emu.records.rows import KINDS

# ---- tracks: a track number encodes the kind of track, the index of its owner, and the lane ----------------------

RUN, ROUNDS, SCORE, CELL, MEDIUM, ON_AIR, COUNTER, DEVICES, DEVICE = range(1, 10)
"""Kinds of tracks (rows) in a trace. The process of the run contains the tracks of rounds and scores. The process of
each cell contains two groups: the medium, with counters and one track for each direction, and the devices."""
_KIND_BITS, _INDEX_BITS = 4, 28


def track_number(kind: int, index: IntArray | int = 0, lane: IntArray | int = 0) -> IntArray:
    """Return the number of the track (row of a trace) of a kind, index and lane. It is below 2^49.

    `index` is the number of a device, cell, ..., from -1 (the server) to 2^28 - 2, and `lane` is below 2^17.
    """
    lanes, indices = np.asarray(lane, np.int64), np.asarray(index, np.int64)
    return np.asarray((lanes << _INDEX_BITS | indices + 1) << _KIND_BITS | kind)


def track_parts(track: int) -> tuple[int, int]:
    """Return the kind and the index of the track with the number `track`."""
    return track & ((1 << _KIND_BITS) - 1), (track >> _KIND_BITS) % (1 << _INDEX_BITS) - 1


COUNTERS = (("active senders", "senders"), ("queue length", "transfers"), ("bits on the air", "bit"))
"""Titles and units of the counters of each cell and direction. They count the transfers on the air, the waiting
transfers, and the bits transmitted since the start."""
ENERGY = 0
"""Number of the counter of the energy in J since the start, which is the only counter of the whole run."""


def counter_number(what: int, cell: IntArray, kind: IntArray) -> IntArray:
    """Return the number (from 1) of a counter of cell `cell` and direction `kind`; `what` is an index of `COUNTERS`."""
    return np.asarray(1 + (cell * len(KINDS) + kind) * len(COUNTERS) + what)


def counter_parts(number: int) -> tuple[int, int, int]:
    """Return the index in `COUNTERS`, the cell, and the direction of a counter from its number."""
    rest, what = divmod(number - 1, len(COUNTERS))
    cell, kind = divmod(rest, len(KINDS))
    return what, cell, kind


# ---- names of slices ------------------------------------------------------------------------------------------------

_DIRECTIONS = ("uplink", "downlink", "sidelink out", "downlink", "downlink", "sidelink in")
"""Names of the slices of transfers in a trace. The first three names are for the sender of an uplink, downlink and
sidelink transfer, and the last three names for the receiver. The server has no slices of transfers, so the second and
the fourth name are not used."""
_REASONS = 28
"""Number of codes that are reserved for reasons of loss, including reasons defined by plug-ins."""
COMPUTE_NAME = 1 + len(_DIRECTIONS) * _REASONS
WAIT_NAME = COMPUTE_NAME + _REASONS
"""ID of the name of a slice in which a transfer waits for the channel. If the transfer was never on the air, the code
of its loss reason is added to this ID. `COMPUTE_NAME` is the corresponding ID for computations, with the code of the
reason for an early stop."""
BROADCAST, AVERAGE, TURN = range(WAIT_NAME + _REASONS, WAIT_NAME + _REASONS + 3)
ROUND_NAME, DEVICE_NAME = 1 << 8, (1 << 27) + 1
"""Numbers of the names of round 0 and of device 0 in a trace. The server counts as device -1."""


def transfer_name(kind: IntArray, receives: IntArray, lost: IntArray) -> IntArray:
    """Return the number of the name of a transfer in a trace.

    `kind` is the direction, and `lost` is the code of the reason of loss (0 if the transfer was delivered). The name is
    that for the receiver if `receives` is 1, and that for the sender if it is 0.
    """
    return np.asarray(1 + (receives * len(KINDS) + kind) * _REASONS + lost)


def fixed_names() -> list[tuple[int, str]]:
    """Return the names of slices that are defined in every trace, as pairs (number, name)."""
    variants = [(name, "lost") for name in _DIRECTIONS] + [("computing", "stopped"), ("waiting", "given up")]
    names = {
        1 + place * _REASONS + code: f"{name}, {word}: {reason}" if reason else name
        for place, (name, word) in enumerate(variants)
        for code, reason in enumerate(REASONS)
    }
    return [*names.items(), (BROADCAST, "broadcast"), (AVERAGE, "average"), (TURN, "turn")]


# ---- flows: arrows from slice to slice; all slices of a flow have its number ---------------------------------------

HEARD, USED, MADE, SENT, NO_PAYLOAD, NO_INPUT, NO_RESULT = range(1, 8)
"""Kinds of flows (arrows between activities in a trace). HEARD leads from a transmission to its reception, USED from
the reception of a payload to the computation that uses it, and MADE from a computation to the transmission of its
result. SENT leads from a sending device to the medium or to the model average. The kinds `NO_...` are for transfers
without payload and for computations without input or result. Their flows have no second end, so no arrow is shown."""
_FLOW_SHIFT, _PAIR_BITS = 60, 24


def flow(kind: int, number: IntArray, device: IntArray | None = None) -> IntArray:
    """Return the number that identifies a flow (arrow) of a kind in a trace.

    `number` is the number of the transfer, payload or computation. `device` distinguishes flows to several receivers.
    """
    pair = number if device is None else number << _PAIR_BITS | (device + 1)
    return np.asarray(pair & ((1 << _FLOW_SHIFT) - 1) | kind << _FLOW_SHIFT, np.int64)


# ---- descriptions: each track is described in the file before its first event ------------------------------------


class Tracks:
    """Writes the descriptions and names of tracks (rows) to a trace. Each description and name is written once.

    Args:
        cell_of: cell of each device [devices]; any other device is in cell 0.
    """

    def __init__(self, file: IO[bytes], cell_of: IntArray, title: str) -> None:
        self._file, self._cell_of, self._title = file, cell_of, title
        self._known: set[int] = set()
        self._named: set[int] = set()

    def cells(self, device: IntArray) -> IntArray:
        """Return the cell of each device [n]. The server, and a device whose cell is unknown, are in cell 0."""
        if not len(self._cell_of):
            return np.zeros(len(device), np.int64)
        inside = (device > SERVER) & (device < len(self._cell_of))
        return np.where(inside, self._cell_of[np.where(inside, device, 0)], 0)

    def describe(self, tracks: IntArray) -> None:
        """Write the descriptions of tracks and of their parent tracks, except descriptions that are already written."""
        for track in np.unique(tracks).tolist():
            self._describe(track)

    def name(self, devices: IntArray) -> None:
        """Write the names of devices, except names that are already written."""
        new = sorted(set(np.unique(devices).tolist()) - self._named)
        if new:
            self._file.write(packets.names_packet((DEVICE_NAME + device, device_label(device)) for device in new))
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
            parent, name, rank, unit = self._placed(kind, index)
            self._describe(parent)
            self._file.write(packets.track(track, parent, name, rank, unit))

    def _placed(self, kind: int, index: int) -> tuple[int, str, int, str | None]:
        """Return the parent of a track, its name, its position below the parent, and its unit if it is a counter."""
        if kind == COUNTER and index != ENERGY:
            what, cell, link = counter_parts(index)
            title, symbol = COUNTERS[what]
            return int(track_number(MEDIUM, cell)), f"{KINDS[link]}: {title}", link + len(KINDS), symbol
        if kind == ON_AIR:
            cell, link = divmod(index, len(KINDS))
            return int(track_number(MEDIUM, cell)), KINDS[link], link, None
        if kind == DEVICE and index != SERVER:
            return int(track_number(DEVICES, self.cells(np.array([index]))[0])), device_label(index), index, None
        if kind == SCORE:
            return int(track_number(RUN)), SCORES[index].replace("_", " "), index + 3, ""
        name, rank, unit = {
            MEDIUM: ("medium", 0, None),
            DEVICES: ("devices", 1, None),
            ROUNDS: ("rounds", 0, None),
            DEVICE: (device_label(SERVER), 1, None),
            COUNTER: ("energy", 2, "J"),
        }[kind]
        parent = track_number(CELL, index) if kind in (MEDIUM, DEVICES) else track_number(RUN)
        return int(parent), name, rank, unit
