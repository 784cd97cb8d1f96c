"""All conservation laws, which the ledger of every run must obey, whatever the algorithm.

Tables are read block by block, so that the memory needed does not grow with the length of the run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fednet_emu.arrays import IntArray, Mask
from fednet_emu.records.laws.energies import charge_problem, energies_problem
from fednet_emu.records.laws.payloads import used_before_there
from fednet_emu.records.ledger import NEVER_NS, Ledger
from fednet_emu.records.reasons import CODE
from fednet_emu.records.rows import KINDS, PhaseColumns
from fednet_emu.records.table import Rows, Table

DELIVERED = CODE[""]


def verify(ledger: Ledger, exclusive: frozenset[str], half_duplex: frozenset[str] = frozenset()) -> dict[str, str]:
    """Check all laws on a closed ledger; return a sentence about a violation for each law, empty if there is none.

    Kinds of links in `exclusive` have at most one transmission on the air at a time. On links of the kinds in
    `half_duplex`, a device takes part in at most one transmission at a time.
    """
    laws: dict[str, Callable[[], str]] = {
        "bits offered = delivered + lost": lambda: _offered(ledger),
        "bits on the air = payload": lambda: _on_air(ledger),
        "a broadcast is the sum of its receptions": lambda: _receptions(ledger),
        "airtime never overlaps in turns": lambda: _turns(ledger, exclusive),
        "nobody receives while it sends": lambda: _half_duplex(ledger, half_duplex),
        "requested <= started <= ended": lambda: _order(ledger),
        "phases add up to the time from request to end": lambda: _phases(ledger),
        "records are written as time goes": lambda: _monotone(ledger),
        "the backhaul delivers or loses": lambda: _backhaul(ledger),
        "one computation at a time": lambda: _one_at_a_time(ledger),
        "nothing is used before it is there": lambda: _used_before_there(ledger),
        "energy is the sum of its parts": lambda: _energy(ledger),
        "energies of devices and stations add up": lambda: energies_problem(ledger),
        "charge is conserved": lambda: charge_problem(ledger),
        "staleness >= 0": lambda: _staleness(ledger),
        "mass is conserved": lambda: _mass(ledger),
        "bits and times of other users add up": lambda: _other_users(ledger),
    }
    return {law: check() for law, check in laws.items()}


def _problem(count: int, total: int, first: int, name: str) -> str:
    return f"{count} of {total} {name}, first in row {first}" if count else ""


def _rows(blocks: Iterable[Mask], name: str) -> str:
    count, total, first = 0, 0, 0
    for bad in blocks:
        places = np.flatnonzero(bad)
        if len(places) and not count:
            first = total + int(places[0])
        count, total = count + len(places), total + len(bad)
    return _problem(count, total, first, name)


def _each(table: Table[Any], wrong: Callable[[Rows], Mask], name: str) -> str:
    return _rows(map(wrong, table.blocks()), name)


def _offered(ledger: Ledger) -> str:
    def wrong(rows: Rows) -> Mask:
        size_bit = rows["size_bit"] * rows["receivers"]
        due_bit = np.where(rows["loss_reason"] == DELIVERED, size_bit, 0)
        single, delivered_bit = rows["receivers"] == 1, rows["delivered_bit"]
        return np.asarray((delivered_bit > size_bit) | (single & (delivered_bit != due_bit)))

    found = _each(ledger.transfers, wrong, "transfers deliver more or less than they carry")
    if found:
        return found
    recorded_bit = np.zeros(len(KINDS), np.int64)
    for rows in ledger.transfers.blocks():
        np.add.at(recorded_bit, rows["direction"], rows["size_bit"] * rows["receivers"])
    for kind, name in enumerate(KINDS):
        if recorded_bit[kind] != ledger.offered_bit[kind]:
            return f"{name}: {ledger.offered_bit[kind]} bit were offered, {recorded_bit[kind]} bit are accounted for"
    return ""


def _on_air(ledger: Ledger) -> str:
    def wrong(rows: Rows) -> Mask:
        size_bit, transmitted_bit = rows["wire_bit" if _phased(rows) else "size_bit"], rows["transmitted_bit"]
        tolerance_bit, whole = 1e-6 * size_bit, rows["delivered_bit"] > 0
        return (transmitted_bit > size_bit + tolerance_bit) | (whole & (transmitted_bit < size_bit - tolerance_bit))

    return _each(ledger.transfers, wrong, "transfers")


def _receptions(ledger: Ledger) -> str:
    count = len(ledger.transfers)

    def differ(row: int, transfers: Rows, receptions: Rows) -> Mask:
        several, of = transfers["receivers"] > 1, receptions["transfer"] - row
        received = np.bincount(of, minlength=len(transfers))
        arrived = np.bincount(of[receptions["loss_reason"] == DELIVERED], minlength=len(transfers))
        due = (received == transfers["receivers"]) & (arrived * transfers["size_bit"] == transfers["delivered_bit"])
        return np.where(several, ~due, received > 0)

    def stray(rows: Rows) -> Mask:
        return (rows["transfer"] < 0) | (rows["transfer"] >= count)

    return _each(ledger.receptions, stray, "receptions are of no transfer") or _rows(
        (differ(*block) for block in ledger.with_receptions()), "transfers differ from their receptions"
    )


def _turns(ledger: Ledger, exclusive: frozenset[str]) -> str:
    for code, kind in enumerate(KINDS):
        busy = Busy()

        def wrong(rows: Rows, code: int = code, busy: Busy = busy) -> Mask:
            among = (rows["direction"] == code) & (rows["started_ns"] != NEVER_NS)
            return _overlaps(busy, rows, rows["direction"], among)

        if kind in exclusive:
            found = _each(ledger.transfers, wrong, f"transfers start before the {kind} before has ended")
            if found:
                return found
            if len(ledger.traffic) and (found := _turns_of_all(ledger, code)):
                return f"{found} on the {kind}"
    return ""


def _turns_of_all(ledger: Ledger, code: int) -> str:
    """Check that transmissions of the federation and of other users on one kind of link do not overlap."""
    spans = []
    for table in (ledger.transfers, ledger.traffic):
        rows = np.concatenate([*table.blocks()])
        rows = rows[(rows["direction"] == code) & (rows["started_ns"] != NEVER_NS)]
        if not ledger.has_phases:  # rows of files have no tail time, so they can be compared only in runs without tails
            spans.append(np.stack([rows["started_ns"], rows["ended_ns"]]))
    if not spans:
        return ""
    started_ns, ended_ns = np.concatenate(spans, axis=1)
    order = np.lexsort((ended_ns, started_ns))
    early = np.count_nonzero(started_ns[order][1:] < np.maximum.accumulate(ended_ns[order])[:-1])
    return f"{early} transmissions start before the one before has ended" if early else ""


def _other_users(ledger: Ledger) -> str:
    """Check the files of other users: delivered bits, order of times, and the total time from request to end."""

    def wrong(rows: Rows) -> Mask:
        requested_ns, started_ns, ended_ns = rows["requested_ns"], rows["started_ns"], rows["ended_ns"]
        on_air = started_ns != NEVER_NS
        bad: Mask = (requested_ns > ended_ns) | (on_air & ((requested_ns > started_ns) | (started_ns > ended_ns)))
        bad |= (rows["loss_reason"] == DELIVERED) & (rows["transmitted_bit"] < rows["size_bit"] * (1 - 1e-6))
        bad |= ~on_air & (rows["transmitted_bit"] > 0)
        return bad

    found = _each(ledger.traffic, wrong, "files") or _rows(_back(ledger.traffic, "ended_ns"), "files go back in time")
    if found:
        return found
    blocks = [*ledger.traffic.blocks()]
    bit = sum(int(rows["size_bit"].sum()) for rows in blocks)
    spent_ns = sum(int((rows["ended_ns"] - rows["requested_ns"]).sum()) for rows in blocks)
    if bit != ledger.traffic_bit:
        return f"{ledger.traffic_bit} bit of files have arrived, {bit} bit are accounted for"
    different = f"files spent {spent_ns} ns, the integral of their number is {ledger.traffic_ns} ns"
    return different if spent_ns != ledger.traffic_ns else ""


def _half_duplex(ledger: Ledger, kinds: frozenset[str]) -> str:
    """Check that no device takes part in two transmissions at the same time, as sender or receiver."""

    def wrong(kind: int, busy: Busy, transfers: Rows, heard: IntArray, receiver: NDArray[Any]) -> Mask:
        numbers = np.arange(len(transfers))
        row = np.concatenate((numbers, numbers, heard))
        owner = np.concatenate((transfers["sender"], transfers["receiver"], receiver))
        own = transfers[row]
        return _overlaps(busy, own, owner, (own["direction"] == kind) & (own["started_ns"] != NEVER_NS) & (owner >= 0))

    for name in sorted(kinds):
        busy, code = Busy(), KINDS.index(name)
        blocks = (
            wrong(code, busy, transfers, receptions["transfer"] - row, receptions["receiver"])
            for row, transfers, receptions in ledger.with_receptions()
        )
        found = _rows(blocks, f"airtimes overlap on the {name}")
        if found:
            return found
    return ""


def _overlaps(busy: Busy, rows: Rows, owner: NDArray[Any], among: Mask) -> Mask:
    """Return a mask of those rows in `among` that start before an earlier row of the same owner has ended."""
    overlap = np.zeros(len(rows), np.bool_)
    until_ns = rows["ended_ns"] - rows["reception_delay_ns"] if _phased(rows) else rows["ended_ns"]
    overlap[among] = busy.overlaps(owner[among], rows["started_ns"][among], until_ns[among])
    return overlap


def _order(ledger: Ledger) -> str:
    def transfer(rows: Rows) -> Mask:
        requested_ns, started_ns, ended_ns = rows["requested_ns"], rows["started_ns"], rows["ended_ns"]
        on_air = started_ns != NEVER_NS
        bad: Mask = (requested_ns > ended_ns) | (on_air & ((requested_ns > started_ns) | (started_ns > ended_ns)))
        return bad

    return _each(ledger.transfers, transfer, "transfers") or _each(
        ledger.computes, lambda rows: rows["started_ns"] > rows["ended_ns"], "computations"
    )


def _phased(rows: Rows) -> bool:
    return "reception_delay_ns" in (rows.dtype.names or ())


def _phases(ledger: Ledger) -> str:
    """Check that set-up and access fit before the start of each transfer, and gaps and tail after the start.

    The time left before the start is the wait for a turn. The time left after the start is airtime, which must be
    positive if bits were sent.
    """

    def wrong(rows: Rows) -> Mask:
        if not _phased(rows):
            return np.zeros(len(rows), np.bool_)
        on_air = rows["started_ns"] != NEVER_NS
        start_ns = np.where(on_air, rows["started_ns"], rows["ended_ns"])
        turn_ns = start_ns - rows["requested_ns"] - rows["connection_setup_ns"] - rows["grant_delay_ns"]
        air_ns = rows["ended_ns"] - start_ns - rows["ack_wait_ns"] - rows["reception_delay_ns"]
        parts = np.array([turn_ns, air_ns, *(rows[name] for name in PhaseColumns._fields)])
        bad: Mask = (parts < 0).any(axis=0) | ((air_ns == 0) & (rows["transmitted_bit"] > 0.0))
        return bad | (rows["wire_bit"] < rows["size_bit"])

    return _each(ledger.transfers, wrong, "transfers")


def _monotone(ledger: Ledger) -> str:
    written: dict[str, tuple[Table[Any], str]] = {
        "transfers": (ledger.transfers, "ended_ns"),
        "computations": (ledger.computes, "ended_ns"),
        "rounds": (ledger.rounds, "ended_ns"),
        "evaluations": (ledger.evaluations, "simulated_ns"),
    }
    for name, (table, column) in written.items():
        found = _rows(_back(table, column), f"{name} go back in time")
        if found:
            return found
    return ""


def _back(table: Table[Any], column: str) -> Iterator[Mask]:
    """Yield a mask for each block: True for rows whose time is before the time of the previous row."""
    before = None
    for rows in table.blocks():
        times_ns = rows[column]
        yield np.diff(times_ns, prepend=times_ns[:1] if before is None else before) < 0
        before = times_ns[-1:] if len(times_ns) else before


def _backhaul(ledger: Ledger) -> str:

    def wrong(rows: Rows) -> Mask:
        size_bit, sent_bit, started_ns = rows["size_bit"], rows["sent_bit"], rows["started_ns"]
        arrived = rows["loss_reason"] == DELIVERED
        part = (rows["delivered_bit"] != np.where(arrived, size_bit, 0)) | (sent_bit > size_bit)
        unsent = (arrived & (sent_bit < size_bit)) | ((started_ns == NEVER_NS) & (sent_bit > 0))
        early = (started_ns != NEVER_NS) & ((rows["requested_ns"] > started_ns) | (started_ns > rows["ended_ns"]))
        return np.asarray(part | unsent | early)

    messages = ledger.backhaul
    found = _each(messages, wrong, "messages") or _rows(_back(messages, "ended_ns"), "messages")
    if found:
        return found
    sent_bit = sum(int(rows["sent_bit"].sum()) for rows in messages.blocks())
    different = f"{ledger.backhaul_bit} bit were sent, {sent_bit} bit are accounted for"
    return different if sent_bit != ledger.backhaul_bit else ""


def _one_at_a_time(ledger: Ledger) -> str:
    busy = Busy()

    def wrong(rows: Rows) -> Mask:
        return _overlaps(busy, rows, rows["device"], rows["started_ns"] != NEVER_NS)

    return _each(ledger.computes, wrong, "computations start before the device's one before has ended")


def _used_before_there(ledger: Ledger) -> str:
    names = "computations start before their input has come", "transfers are asked for before their payload is there"
    totals = len(ledger.computes), len(ledger.transfers)
    found = (each for each in zip(used_before_there(ledger), totals, names, strict=True) if len(each[0]))
    return next((_problem(len(rows), total, int(rows[0]), name) for rows, total, name in found), "")


def _energy(ledger: Ledger) -> str:
    tables: list[Table[Any]] = [ledger.transfers, ledger.computes, ledger.backhaul]
    parts_j = sum(float(block["energy_j"].sum()) for table in tables for block in table.blocks())
    parts_j += sum(float(block["rx_energy_j"].sum()) for block in ledger.transfers.blocks())
    if not np.isclose(parts_j, ledger.energy_j, rtol=1e-9, atol=1e-12):
        return f"the parts are {parts_j:.9g} J, the total is {ledger.energy_j:.9g} J"
    return ""


def _staleness(ledger: Ledger) -> str:
    broken = (name for name, values in _series_with(ledger, "staleness") if min(values) < 0)
    return ", ".join(f"negative in {name}" for name in broken)


def _mass(ledger: Ledger) -> str:
    broken = (name for name, values in _series_with(ledger, "mass") if not np.allclose(values, 1.0, rtol=0, atol=1e-9))
    return ", ".join(f"mass of {name} differs from 1" for name in broken)


def _series_with(ledger: Ledger, column: str) -> Iterator[tuple[str, list[Any]]]:
    for name, rows in ledger.series.items():
        values = [row[column] for row in rows if column in row]
        if values:
            yield name, values


_NEVER_BUSY = np.iinfo(np.int64).min


class Busy:
    """Latest end time of each owner's intervals in the blocks checked so far; an owner is an integer of at least -1."""

    def __init__(self) -> None:
        self._until_ns: IntArray = np.empty(0, np.int64)

    def overlaps(self, owner: NDArray[np.integer], started_ns: IntArray, ended_ns: IntArray) -> Mask:
        """Return a mask of the next block's intervals that start before an earlier one of their owner has ended."""
        overlap = np.zeros(len(owner), np.bool_)
        if not len(owner):
            return overlap
        order = np.lexsort((ended_ns, started_ns, owner))
        mine, start_ns, end_ns = owner[order].astype(np.int64) + 1, started_ns[order], ended_ns[order]
        if (more := int(mine[-1]) + 1 - len(self._until_ns)) > 0:
            self._until_ns = np.concatenate((self._until_ns, np.full(more, _NEVER_BUSY)))
        until_ns = self._until_ns
        before_ns = np.concatenate((until_ns[mine[:1]], end_ns[:-1]))
        first = np.flatnonzero(np.diff(mine, prepend=-1))
        before_ns[first] = until_ns[mine[first]]
        overlap[order] = start_ns < before_ns
        np.maximum.at(until_ns, mine, end_ns)
        return overlap
