"""Conservation law of causality: no device uses a payload before having computed or received it."""

from __future__ import annotations

from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from fednet_emu.arrays import IntArray, Mask
from fednet_emu.records.ledger import SERVER, Ledger
from fednet_emu.records.reasons import CODE
from fednet_emu.records.table import BLOCK_ROWS, Rows

_DELIVERED = CODE[""]
_FOREVER = np.iinfo(np.int64).max
_DEVICE_BITS = 32


def used_before_there(ledger: Ledger) -> tuple[IntArray, IntArray]:
    """Return the row numbers of computations and of transfers that use a payload before the device has it.

    Each payload is identified by a number. Payloads are checked in ranges of numbers, so that a range fits into memory.
    """
    computes, sends = [], []
    for first, end in _ranges(ledger):
        uses, made = _computed(ledger, first, end)
        sent, arrived = _sent(ledger, first, end)
        computes.append(_too_early(uses, made, arrived, ledger.given, must_arrive=False))
        sends.append(_too_early(sent, made, arrived, ledger.given, must_arrive=True))
    return np.sort(np.concatenate(computes)), np.sort(np.concatenate(sends))


def _ranges(ledger: Ledger) -> list[tuple[int, int]]:
    rows = len(ledger.transfers) + len(ledger.receptions) + len(ledger.computes)
    sent = (int(block["value_id"].max(initial=0)) for block in ledger.transfers.blocks())
    used = (int(max(block[name].max(initial=0) for name in ("input", "result"))) for block in ledger.computes.blocks())
    numbers = max(*sent, *used, 0) + 1
    edges = np.linspace(0, numbers, -(-rows // BLOCK_ROWS) + 1 if rows else 2).astype(np.int64).tolist()
    return list(pairwise(edges))


class _Uses(NamedTuple):
    """Uses of payloads by devices, as arrays [uses]: row, device, payload, and time of use."""

    row: IntArray
    device: IntArray
    payload: IntArray
    used_ns: IntArray


class _Made(NamedTuple):
    """Sorted payloads, the devices that computed them, and the end times of the computations: arrays [payloads]."""

    payload: IntArray
    device: IntArray
    ended_ns: IntArray


class _Arrived(NamedTuple):
    """First arrival times of payloads at receivers, as arrays [pairs].

    `_places` codes a pair of payload and receiver as an integer. The time is `_FOREVER` if all transfers were lost.
    """

    place: IntArray
    arrived_ns: IntArray


def _computed(ledger: Ledger, first: int, end: int) -> tuple[_Uses, _Made]:
    """Find the computations that use payloads `first` to `end` - 1, and the computations that made these payloads."""
    uses, made, row = [], [], 0
    for block in ledger.computes.blocks():
        using = np.flatnonzero((block["input"] >= first) & (block["input"] < end))
        own = block[using]
        uses.append((row + using, own["device"], own["input"], own["started_ns"]))
        own = block[(block["result"] >= first) & (block["result"] < end)]
        made.append((own["result"], own["device"], own["ended_ns"]))
        row += len(block)
    payload, device, ended_ns = _joined(made)
    payload, firsts = np.unique(payload, return_index=True)
    return _Uses(*_joined(uses)), _Made(payload, device[firsts], ended_ns[firsts])


def _sent(ledger: Ledger, first: int, end: int) -> tuple[_Uses, _Arrived]:
    """Find the transfers that use payloads `first` to `end` - 1, and the first arrivals of these payloads."""
    uses, arrivals = [], []
    for row, block, receptions in ledger.with_receptions():
        among = (block["value_id"] >= first) & (block["value_id"] < end)
        using = np.flatnonzero(among)
        own = block[using]
        uses.append((row + using, own["sender"], own["value_id"], own["requested_ns"]))
        single = own[own["receivers"] == 1]
        arrivals.append(_arrival_times(single, single))
        several = receptions[among[receptions["transfer"] - row]]
        arrivals.append(_arrival_times(several, block[several["transfer"] - row]))
    place, arrived_ns = _joined(arrivals)
    order = np.lexsort((arrived_ns, place))
    place, firsts = np.unique(place[order], return_index=True)
    return _Uses(*_joined(uses)), _Arrived(place, arrived_ns[order][firsts])


def _arrival_times(receptions: Rows, transfers: Rows) -> tuple[IntArray, IntArray]:
    arrived_ns = np.where(receptions["loss_reason"] == _DELIVERED, transfers["ended_ns"], _FOREVER)
    return _places(transfers["value_id"], receptions["receiver"]), arrived_ns


def _places(payload: IntArray, device: IntArray) -> IntArray:
    return (payload.astype(np.int64) << _DEVICE_BITS) | (device - SERVER)


def _joined(parts: list[tuple[Any, ...]]) -> list[IntArray]:
    return [np.concatenate(column) for column in zip(*parts, strict=True)]


def _too_early(uses: _Uses, made: _Made, arrived: _Arrived, given: set[int], *, must_arrive: bool) -> IntArray:
    """Select the rows that use a payload before the payload is available to the device.

    On the device that computed a payload, the payload is available from the end of the computation; on other devices,
    from its first arrival. A use of a payload that was never sent to the device counts as too early only if
    `must_arrive` is set and another device made the payload.
    """
    by, is_made = _found(made.payload, uses.payload)
    at, is_sent = _found(arrived.place, _places(uses.payload, uses.device))
    early = np.full(len(uses.row), must_arrive) & is_made & ~is_sent
    early[is_sent] = uses.used_ns[is_sent] < arrived.arrived_ns[at[is_sent]]
    own = is_made.copy()
    own[is_made] = made.device[by[is_made]] == uses.device[is_made]
    early[own] = uses.used_ns[own] < made.ended_ns[by[own]]
    return uses.row[early & ~np.isin(uses.payload, list(given))]


def _found(known: IntArray, wanted: IntArray) -> tuple[IntArray, Mask]:
    """Find `wanted` numbers in the sorted array `known`; return their positions, and a mask of the numbers found."""
    places = np.searchsorted(known, wanted)
    within = places < len(known)
    within[within] = known[places[within]] == wanted[within]
    return places, within
