"""Names and numbers in a trace: what tracks, slices and flows are called."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from fednet_emu.arrays import IntArray
from fednet_emu.records.ledger import device_label
from fednet_emu.records.reasons import REASONS
from fednet_emu.records.rows import KINDS

# ---- tracks: a number is the kind of track, the index of what it belongs to, and the lane ---------------------------

RUN, ROUNDS, SCORE, CELL, MEDIUM, ON_AIR, COUNTER, DEVICES, DEVICE = range(1, 10)
"""Kinds of tracks: the process of the run with its rounds and scores; the process of each cell with the group of its
medium, which has a track for each kind of link and counters, and the group of its devices."""
_KIND_BITS, _INDEX_BITS = 4, 28


def track_number(kind: int, index: IntArray | int = 0, lane: IntArray | int = 0) -> IntArray:
    """Number of a track, below 2^49; `index` from -1 (the server) to 2^28 - 2, `lane` below 2^17."""
    lanes, indices = np.asarray(lane, np.int64), np.asarray(index, np.int64)
    return np.asarray((lanes << _INDEX_BITS | indices + 1) << _KIND_BITS | kind)


def track_parts(track: int) -> tuple[int, int]:
    """Kind and index of the track with this number."""
    return track & ((1 << _KIND_BITS) - 1), (track >> _KIND_BITS) % (1 << _INDEX_BITS) - 1


# ---- names of slices ------------------------------------------------------------------------------------------------

_DIRECTIONS = ("uplink", "downlink", "sidelink out", "downlink", "downlink", "sidelink in")
"""What a sender's and what a receiver's slice is called, for each kind of transfer; the server is no device."""


_REASONS = 28
"""Room for this many reasons of losses, those of plug-ins included."""


def _variants(name: str, word: str) -> list[str]:
    return [name if not reason else f"{name}, {word}{reason}" for reason in REASONS] + [""] * (_REASONS - len(REASONS))


_FIRST_COMPUTE = 1 + len(_DIRECTIONS) * _REASONS
_FIRST_WAIT = _FIRST_COMPUTE + _REASONS
BROADCAST, AVERAGE, TURN = range(_FIRST_WAIT + _REASONS, _FIRST_WAIT + _REASONS + 3)
_FIRST_ROUND, _FIRST_DEVICE = 1 << 8, 1 << 27


def transfer_name(kind: IntArray, receives: IntArray, lost: IntArray) -> IntArray:
    """Number of the name of a transfer, at its sender or (`receives` is 1) at its receiver."""
    return np.asarray(1 + (receives * len(KINDS) + kind) * _REASONS + lost)


def compute_name(stopped: IntArray) -> IntArray:
    """Number of the name of a computation."""
    return np.asarray(_FIRST_COMPUTE + stopped)


def wait_name(lost: IntArray) -> IntArray:
    """Number of the name of a wait for the channel; `lost` says why a transfer never came on the air, 0 if it did."""
    return np.asarray(_FIRST_WAIT + lost)


def round_name(number: IntArray) -> IntArray:
    """Number of the name of a round."""
    return np.asarray(_FIRST_ROUND + number)


def device_name(device: IntArray) -> IntArray:
    """Number of the name of a device, or of the server (-1)."""
    return np.asarray(_FIRST_DEVICE + 1 + device)


def fixed_names() -> list[tuple[int, str]]:
    """Names that every trace has, with their numbers."""
    transfers = [variant for name in _DIRECTIONS for variant in _variants(name, "lost: ")]
    states = [*_variants("computing", "stopped: "), *_variants("waiting", "given up: ")]
    names = ["", *transfers, *states, "broadcast", "average", "turn"]
    return [(number, name) for number, name in enumerate(names) if name]


def round_names(numbers: Sequence[int]) -> list[tuple[int, str]]:
    """Names of rounds with their numbers."""
    return [(int(round_name(np.array(number))), f"round {number}") for number in numbers]


def device_names(devices: Iterable[int]) -> list[tuple[int, str]]:
    """Names of devices with their numbers."""
    return [(_FIRST_DEVICE + 1 + device, device_label(device)) for device in devices]


# ---- flows: arrows from slice to slice, which have the number in common ---------------------------------------------

_FLOW_SHIFT, _PAIR_BITS = 60, 24


def heard_flow(transfer: IntArray, receiver: IntArray) -> IntArray:
    """From a transmission on the air to what a receiver hears of it."""
    return _flow(1, transfer << _PAIR_BITS | (receiver + 1))


def used_flow(payload: IntArray, device: IntArray) -> IntArray:
    """From the reception of a payload to the computation with it."""
    return _flow(2, payload << _PAIR_BITS | (device + 1))


def made_flow(payload: IntArray) -> IntArray:
    """From the computation that made a payload to its transmission."""
    return _flow(3, payload)


def sent_flow(transfer: IntArray) -> IntArray:
    """From a device that sends over the air to the average of what has arrived."""
    return _flow(4, transfer)


def no_flow(transfer: IntArray, device: IntArray) -> IntArray:
    """Stands where a device's part in a transfer has no payload that is known, and leads nowhere."""
    return _flow(5, transfer << _PAIR_BITS | (device + 1))


def no_input(compute: IntArray) -> IntArray:
    """Stands where a computation uses no payload, and leads nowhere."""
    return _flow(6, compute)


def no_result(compute: IntArray) -> IntArray:
    """Stands where a computation makes no payload, and leads nowhere."""
    return _flow(7, compute)


def _flow(kind: int, number: IntArray) -> IntArray:
    return np.asarray(number & ((1 << _FLOW_SHIFT) - 1) | kind << _FLOW_SHIFT, np.int64)
