"""Conservation laws, which the ledger (the records) of every run must obey for any algorithm.

Tables are read block by block, so that the memory needed does not grow with the length of the run. The totals of the
ledger are accumulated during the run, whereas the table `energies` is computed from the rows at the end of the run. The
totals and the table are therefore independent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fednet_emu.arrays import Array, IntArray, Mask
from fednet_emu.records.ledger import NEVER_NS, SERVER, Ledger, device_label
from fednet_emu.records.reasons import CODE
from fednet_emu.records.rows import KINDS, PhaseColumns
from fednet_emu.records.summaries import activities, by_device, empty_s, energies_of_rows
from fednet_emu.records.table import BLOCK_ROWS, Rows, Table

DELIVERED = CODE[""]
RELATIVE = 1e-9
"""Maximum relative error up to which an energy counts as correct."""

USES = ("computing_j", "sending_j", "receiving_j", "idle_j")


def energies_problem(ledger: Ledger) -> str:
    """Return a sentence if `energies` does not add up to the run's energy, or `waiting_j` not to the idle times."""
    if not len(ledger.energies):
        return ""
    column, ended_ns = ledger.energies.column, ledger.ended_ns
    parts_j = sum(float(np.nansum(column(name))) for name in USES)
    due_j = ledger.spent_j(ended_ns) - ledger.backhaul_j
    if not np.isclose(parts_j, due_j, rtol=RELATIVE, atol=1e-12):
        return f"its rows are {parts_j:.9g} J, all that was drawn beside the backhaul is {due_j:.9g} J"
    for name in (*USES, "waiting_j"):
        for place in np.flatnonzero(column(name) < 0)[:1]:
            return f"{device_label(int(column('device')[place]))}: {name} is negative, {column(name)[place]:.9g} J"
    idle_j, waiting_j = column("idle_j")[:-1], column("waiting_j")[:-1]
    count = len(idle_j)
    if not idle_j.any():
        return "some device waits at no idle power" if waiting_j.any() else ""
    idle_w = idle_j / np.maximum(ended_ns / 1e9 - empty_s(ledger, count), 1e-9)
    off_j = np.abs(waiting_j - idle_w * _waiting_s(ledger, count))
    for device in np.flatnonzero(off_j > RELATIVE * idle_w * (ended_ns / 1e9) + 1e-12)[:1]:
        return f"dev-{device}: waiting_j differs by {off_j[device]:.9g} J from the times in which it does nothing"
    return ""


def _waiting_s(ledger: Ledger, count: int) -> Array:
    """Return the time in s [count] in which each device has charge and no activity, from the number of activities."""
    device, from_ns, to_ns = activities(ledger)
    known, every = (device > SERVER) & (from_ns >= 0), np.arange(count)
    device, from_ns, to_ns = device[known], from_ns[known], to_ns[known]
    who = np.concatenate((device, device, every, every))
    ends_ns = np.zeros(count, np.int64), np.full(count, ledger.ended_ns)
    at_ns = np.minimum(np.concatenate((from_ns, to_ns, *ends_ns)), ledger.ended_ns)
    step = np.repeat([1, -1, 0], [len(device), len(device), 2 * count])
    order = np.lexsort((at_ns, who))
    who, at_ns, busy = who[order], at_ns[order], np.cumsum(step[order])
    free = (busy[:-1] == 0) & (who[1:] == who[:-1])
    return by_device(who[1:][free], np.diff(at_ns)[free] / 1e9, count)


def charge_problem(ledger: Ledger) -> str:
    """Check that each row of `batteries` has charge = initial charge + harvested - spilled - consumed energy.

    The totals at the end of the run are checked as well. The energy that a battery has supplied for computing, sending
    and receiving must equal the sum over the recorded activities of the device. The idle energy of all batteries must
    equal the idle power integrated over time. Return a sentence about the first violation, or an empty text.
    """
    column = ledger.batteries.column
    device = column("device")
    if not len(device):
        return ""
    _, first = np.unique(device, return_index=True)
    last = len(device) - 1 - np.unique(device[::-1], return_index=True)[1]
    start_j = np.zeros(len(first))
    start_j[device[first]] = column("charge_j")[first]
    came_j = start_j[device] + column("harvested_j")
    drawn_j = sum((column(use) for use in USES), np.zeros(len(device)))
    off_j = np.abs(came_j - column("spilled_j") - drawn_j - column("charge_j"))
    wrong = off_j > RELATIVE * (came_j + drawn_j) + 1e-15
    if wrong.any():
        return f"{int(wrong.sum())} of {len(wrong)} charges are not conserved, first in row {np.flatnonzero(wrong)[0]}"
    idle_j, due_j = float(column("idle_j")[last].sum()), ledger.idle.until_j(int(column("simulated_ns")[last].max()))
    if _differ(np.array([idle_j]), np.array([due_j])).any():
        return f"idle_j of all batteries is {idle_j:.9g} J, the idle power over time gives {due_j:.9g} J"
    for use, own_j in energies_of_rows(ledger, len(last)).items():
        wrong = _differ(own_j, column(use)[last])
        if wrong.any():
            return f"dev-{np.flatnonzero(wrong)[0]}: {use} of its battery differs from the energy of its rows"
    return ""


def _differ(one_j: Array, other_j: Array) -> Mask:
    return np.asarray(~np.isclose(one_j, other_j, rtol=RELATIVE, atol=1e-12))


_FOREVER = np.iinfo(np.int64).max
_DEVICE_BITS = 32


def used_before_there(ledger: Ledger) -> tuple[IntArray, IntArray]:
    """Return the row numbers of computations, and those of transfers, that use a payload before the device has it.

    Each payload is identified by a number. To limit the memory, ranges of these numbers are checked one after another.
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
    """Uses of payloads by devices, as arrays [uses]: row number in the table, device, payload, time of use in ns."""

    row: IntArray
    device: IntArray
    payload: IntArray
    used_ns: IntArray


class _Made(NamedTuple):
    """Computed payloads in ascending order, the devices that computed them, and end times in ns, each [payloads]."""

    payload: IntArray
    device: IntArray
    ended_ns: IntArray


class _Arrived(NamedTuple):
    """First arrival times in ns of payloads at receivers, as arrays [pairs].

    `place` encodes the pair of payload and receiver. The time is `_FOREVER` if all its transfers were lost.
    """

    place: IntArray
    arrived_ns: IntArray


def _computed(ledger: Ledger, first: int, end: int) -> tuple[_Uses, _Made]:
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
    arrived_ns = np.where(receptions["loss_reason"] == DELIVERED, transfers["ended_ns"], _FOREVER)
    return _places(transfers["value_id"], receptions["receiver"]), arrived_ns


def _places(payload: IntArray, device: IntArray) -> IntArray:
    return (payload.astype(np.int64) << _DEVICE_BITS) | (device - SERVER)


def _joined(parts: list[tuple[Any, ...]]) -> list[IntArray]:
    return [np.concatenate(column) for column in zip(*parts, strict=True)]


def _too_early(uses: _Uses, made: _Made, arrived: _Arrived, given: set[int], *, must_arrive: bool) -> IntArray:
    """Return the row numbers of uses of a payload before the payload is available to the device.

    On the device that computed a payload, the payload is available from the end of the computation. On any other
    device, it is available from its first arrival. If a payload was never sent to the device, its use is too early only
    if `must_arrive` is True and another device computed the payload. Payloads in `given` are always available.
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
    """Return positions [n] of the numbers `wanted` [n] in the sorted array `known`, and a mask [n] of numbers found."""
    places = np.searchsorted(known, wanted)
    within = places < len(known)
    within[within] = known[places[within]] == wanted[within]
    return places, within


def verify(ledger: Ledger, exclusive: frozenset[str], half_duplex: frozenset[str] = frozenset()) -> dict[str, str]:
    """Check all conservation laws on the ledger of a finished run.

    For each law, the result contains a sentence about a violation, or an empty text if there is none. `exclusive`
    contains the kinds of links on which at most one transmission is on the air at a time. `half_duplex` contains the
    kinds of links on which a device sends or receives at most one transmission at a time.
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
    if ledger.has_phases:  # rows of files have no tail time, so they can be compared only in runs without tails
        return ""
    spans = []
    for table in (ledger.transfers, ledger.traffic):
        rows = np.concatenate([*table.blocks()])
        on_air = (rows["started_ns"] != NEVER_NS) & (rows["loss_reason"] != CODE["unreachable"])  # gives its turn back
        rows = rows[(rows["direction"] == code) & on_air]
        spans.append(np.stack([rows["started_ns"], rows["ended_ns"]]))
    started_ns, ended_ns = np.concatenate(spans, axis=1)
    order = np.lexsort((ended_ns, started_ns))
    early = np.count_nonzero(started_ns[order][1:] < np.maximum.accumulate(ended_ns[order])[:-1])
    return f"{early} transmissions start before the one before has ended" if early else ""


def _other_users(ledger: Ledger) -> str:
    """Return a sentence if bits, the order of times or the total time of other users' files are wrong."""

    def wrong(rows: Rows) -> Mask:
        bad = _out_of_order(rows)
        bad |= (rows["loss_reason"] == DELIVERED) & (rows["transmitted_bit"] < rows["size_bit"] * (1 - 1e-6))
        bad |= (rows["started_ns"] == NEVER_NS) & (rows["transmitted_bit"] > 0)
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
    def wrong(kind: int, busy: Busy, row: int, transfers: Rows, receptions: Rows) -> Mask:
        numbers = np.arange(len(transfers))
        own = transfers[np.concatenate((numbers, numbers, receptions["transfer"] - row))]
        owner = np.concatenate((transfers["sender"], transfers["receiver"], receptions["receiver"]))
        return _overlaps(busy, own, owner, (own["direction"] == kind) & (own["started_ns"] != NEVER_NS) & (owner >= 0))

    for name in sorted(kinds):
        busy, code = Busy(), KINDS.index(name)
        blocks = (wrong(code, busy, *block) for block in ledger.with_receptions())
        found = _rows(blocks, f"airtimes overlap on the {name}")
        if found:
            return found
    return ""


def _overlaps(busy: Busy, rows: Rows, owner: NDArray[Any], among: Mask) -> Mask:
    """Return a mask of rows in the mask `among` that start before an earlier row of the same owner has ended."""
    overlap = np.zeros(len(rows), np.bool_)
    until_ns = rows["ended_ns"] - rows["reception_delay_ns"] if _phased(rows) else rows["ended_ns"]
    overlap[among] = busy.overlaps(owner[among], rows["started_ns"][among], until_ns[among])
    return overlap


def _out_of_order(rows: Rows) -> Mask:
    requested_ns, started_ns, ended_ns = rows["requested_ns"], rows["started_ns"], rows["ended_ns"]
    on_air = started_ns != NEVER_NS
    bad: Mask = (requested_ns > ended_ns) | (on_air & ((requested_ns > started_ns) | (started_ns > ended_ns)))
    return bad


def _order(ledger: Ledger) -> str:
    return _each(ledger.transfers, _out_of_order, "transfers") or _each(
        ledger.computes, lambda rows: rows["started_ns"] > rows["ended_ns"], "computations"
    )


def _phased(rows: Rows) -> bool:
    return "reception_delay_ns" in (rows.dtype.names or ())


def _phases(ledger: Ledger) -> str:
    """Check that the phases of each transfer fit into the time from its request to its end.

    Connection set-up and channel access must fit between request and start; the remaining time is the wait for a turn.
    Waits for acknowledgements and the reception delay must fit between start and end. The remaining time is airtime,
    which must be positive if bits were sent.
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
    """Yield for each block of a table a mask [rows] of rows with an earlier time than the previous row."""
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
    """Latest end of the time intervals of each owner (a device or the server, from -1) in the blocks checked so far."""

    def __init__(self) -> None:
        self._until_ns: IntArray = np.empty(0, np.int64)

    def overlaps(self, owner: NDArray[np.integer], started_ns: IntArray, ended_ns: IntArray) -> Mask:
        """Return a mask [n] of intervals that start before an earlier interval of the same owner has ended."""
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
