"""From the records of a stretch of time: what happened on the tracks of devices and media, as rows."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fednet_emu.arrays import IntArray, Mask
from fednet_emu.draw.trace.feed import Columns, Part
from fednet_emu.draw.trace.names import (
    BROADCAST,
    compute_name,
    device_name,
    heard_flow,
    made_flow,
    no_flow,
    no_input,
    no_result,
    sent_flow,
    transfer_name,
    used_flow,
    wait_name,
)
from fednet_emu.records.ledger import NEVER_NS, SERVER, SEVERAL
from fednet_emu.records.reasons import CODE
from fednet_emu.records.rows import KINDS

ON_AIR, COMPUTING, WAITING = range(3)
"""Forms of slices, which differ in what is told about them."""

ROW = np.dtype([
    ("device", np.int64), ("started_ns", np.int64), ("ended_ns", np.int64), ("form", np.int64), ("name", np.int64),
    ("row", np.int64), ("amount", np.float64), ("rate_bps", np.float64), ("energy_j", np.float64),
    ("comes", np.int64), ("goes", np.int64), ("rank", np.int64),
])  # fmt: skip
"""A slice of a device: its row in the table of transfers or computations, its size in bits or FLOP, the flows that lead
to it and from it. Of slices that start at the same time a flow goes to that of the higher rank; media have rank 1."""

SENT = np.dtype([
    ("cell", np.int64), ("kind", np.int64), ("started_ns", np.int64), ("ended_ns", np.int64), ("name", np.int64),
    ("transfer", np.int64), ("sender", np.int64), ("receiver", np.int64), ("device", np.int64),
    ("rank", np.int64),
])  # fmt: skip
"""A slice of a medium; `device` is that at the other end of the server, SEVERAL for a broadcast, or the sender."""

Rows = NDArray[np.void]
UPLINK, DOWNLINK, SIDELINK = range(len(KINDS))


def device_slices(part: Part) -> Rows:
    """What devices and server did: transfers, the waits for them, and computations."""
    sent, heard, made = part.transfers, part.receptions, part.computes
    legs = _legs(sent, heard)
    return np.concatenate([_on_air(sent, *legs), _waiting(sent, *legs), _computing(made)])


def medium_slices(part: Part, cell: IntArray) -> Rows:
    """What was on the air.

    Args:
        part: the records.
        cell: cell of each transfer.
    """
    sent = part.transfers
    chosen = sent["started_ns"] != NEVER_NS
    rows = np.empty(int(chosen.sum()), SENT)
    other = np.asarray(np.where(sent["kind"] == DOWNLINK, sent["receiver"], sent["sender"]), np.int64)
    name = np.where(other == SEVERAL, BROADCAST, device_name(other))
    columns = {**sent, "cell": cell, "name": name, "device": other, "rank": np.ones(len(cell), np.int64)}
    for column in SENT.names or ():
        rows[column] = columns[column][chosen]
    return rows


def _legs(sent: Columns, heard: Columns) -> tuple[IntArray, IntArray, Mask, IntArray]:
    """Who takes part in which transfer: place in `sent`, device, whether it receives, why it missed it (0: it did not).

    The server is left out.
    """
    every = np.arange(len(sent["transfer"]))
    place: list[IntArray] = [every, every, np.asarray(np.searchsorted(sent["transfer"], heard["transfer"]), np.int64)]
    device = [sent["sender"], sent["receiver"], heard["receiver"]]
    lost = [sent["lost"], sent["lost"], heard["lost"]]
    receives = np.repeat([False, True, True], [len(each) for each in device])
    no_server = np.concatenate(device) > SERVER
    places, devices, reasons = (np.asarray(np.concatenate(each), np.int64) for each in (place, device, lost))
    return places[no_server], devices[no_server], receives[no_server], reasons[no_server]


def _on_air(sent: Columns, place: IntArray, device: IntArray, receives: Mask, lost: IntArray) -> Rows:
    keep = sent["started_ns"][place] != NEVER_NS
    place, device, receives, lost = place[keep], device[keep], receives[keep], lost[keep]
    transfer, payload = sent["transfer"][place], sent["payload"][place]
    rows = _rows(device, sent["started_ns"][place], sent["ended_ns"][place], ON_AIR, transfer)
    rows["name"] = transfer_name(sent["kind"][place], receives.astype(np.int64), lost)
    rows["amount"] = sent["size_bit"][place]
    rows["rate_bps"] = sent["air_bit"][place] / np.maximum(rows["ended_ns"] - rows["started_ns"], 1) * 1e9
    shared_j = sent["receive_j"][place] / sent["receivers"][place]
    rows["energy_j"] = np.where(receives, shared_j, sent["energy_j"][place])
    known = payload >= 0
    nowhere = no_flow(transfer, device)
    made = np.where(known, made_flow(payload), nowhere)
    used = np.where(known & (lost == CODE[""]), used_flow(payload, device), nowhere)
    rows["comes"] = np.where(receives, heard_flow(transfer, device), made)
    rows["goes"] = np.where(receives, used, sent_flow(transfer))
    rows["rank"] = np.where(receives, 2, 0)
    return rows


def _waiting(sent: Columns, place: IntArray, device: IntArray, receives: Mask, lost: IntArray) -> Rows:
    """Waits for the channel: those of the sender, or of the receivers if the server sends."""
    never = sent["started_ns"] == NEVER_NS
    until_ns = np.where(never, sent["ended_ns"], sent["started_ns"])
    keep = (receives == (sent["sender"][place] == SERVER)) & (until_ns > sent["requested_ns"])[place]
    place = place[keep]
    rows = _rows(device[keep], sent["requested_ns"][place], until_ns[place], WAITING, sent["transfer"][place])
    rows["name"] = wait_name(np.where(never[place], lost[keep], CODE[""]))
    return rows


def _computing(made: Columns) -> Rows:
    rows = _rows(made["device"], made["started_ns"], made["ended_ns"], COMPUTING, made["compute"])
    rows["name"] = compute_name(made["stopped"])
    rows["amount"], rows["energy_j"] = made["flop"], made["energy_j"]
    given, result, number = made["input"], made["result"], made["compute"]
    rows["comes"] = np.where(given >= 0, used_flow(given, made["device"]), no_input(number))
    rows["goes"] = np.where(result >= 0, made_flow(result), no_result(number))
    return rows


def _rows(device: IntArray, started_ns: IntArray, ended_ns: IntArray, form: int, row: IntArray) -> Rows:
    rows = np.zeros(len(device), ROW)
    rows["device"], rows["started_ns"], rows["ended_ns"] = device, started_ns, ended_ns
    rows["form"], rows["row"] = form, row
    return rows
