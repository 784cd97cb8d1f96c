"""Read the tables of a run in batches by end time, and convert each batch to slices and counter changes of a trace."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fednet_emu.analysis.run import RunRecords
from fednet_emu.arrays import Array, IntArray, Mask
from fednet_emu.draw.trace import names
from fednet_emu.records.ledger import NEVER_NS, SERVER, SEVERAL, WHERE_USED
from fednet_emu.records.reasons import CODE, REASONS
from fednet_emu.records.rows import KINDS

PART_ROWS = 1 << 14
"""Number of rows of a table that are read at once."""

TRANSFERS = ("transfer", "direction", "sender", "receiver", "receivers", "size_bit", "value_id", "requested_s",
             "started_s", "ended_s", "transmitted_bit", "loss_reason", "energy_j", "rx_energy_j", "cell",
             "mean_rate_bps")  # fmt: skip
RECEPTIONS = ("transfer", "receiver", "loss_reason")
COMPUTES = ("device", "started_s", "ended_s", "flop", "energy_j", "input", "result", "stopped")
BACKHAUL = ("ended_s", "energy_j")
BATTERIES = ("device", "simulated_s", "state")
SPANS = {"transfers": ("requested_s", "ended_s"), "computes": ("started_s", "ended_s")}
_WORDS = {"direction": KINDS, "loss_reason": REASONS, "stopped": REASONS}

Rows = NDArray[np.void]
Columns = dict[str, Any]
"""Columns of a table as arrays, by name. Times are integers in ns and have names `..._ns`. Words are integer codes."""


class Part(NamedTuple):
    """The records of a run that ended in a time interval.

    Attributes:
        until_ns: end of the interval in simulated ns. All later parts contain only records with a later end.
        transfers: transfers that ended in the interval.
        receptions: one row for each receiver of the transfers that have several receivers.
        computes: computations that ended in the interval. `compute` is the row number in the recorded table.
        backhaul: end times and energies of the backhaul messages that ended in the interval.
    """

    until_ns: int
    transfers: Columns
    receptions: Columns
    computes: Columns
    backhaul: Columns


def parts(run: RunRecords) -> Iterator[Part]:
    """Yield the transfers, receptions, computations and backhaul messages of a run in parts, in order of end time."""
    transfers = _Table(run, "transfers", TRANSFERS, "ended_s")
    receptions = _Table(run, "receptions", RECEPTIONS, "transfer")
    computes = _Table(run, "computes", COMPUTES, "ended_s")
    backhaul = _Table(run, "backhaul", BACKHAUL, "ended_s")
    numbered = 0
    while left := [table.known_until for table in (transfers, computes, backhaul) if table.left]:
        until_s = min(left)
        sent, worked = transfers.until(until_s), computes.until(until_s)
        heard = receptions.until(sent["transfer"].max()) if (sent["receiver"] == SEVERAL).any() else receptions.none
        made = _columns(worked)
        made["compute"] = np.arange(numbered, numbered + len(worked))
        numbered += len(worked)
        rest = _columns(backhaul.until(until_s))
        yield Part(int(np.rint(until_s * 1e9)), _columns(sent), _columns(heard), made, rest)


def longest_ns(run: RunRecords) -> int:
    """Return the longest duration, in ns, of a transfer (from its request) or of a computation; 0 if there is none."""
    longest = 0
    for name, span in SPANS.items():
        for table in run.batches(name, span, PART_ROWS):
            begun, ended = (nanoseconds(table[column]) for column in span)
            longest = max(longest, int((ended - begun).max(initial=0)))
    return longest


def nanoseconds(times_s: Any) -> IntArray:
    """Convert times in seconds to simulated times in ns. NaN becomes NEVER_NS.

    The conversion is exact up to 2^51 ns (26 days). Beyond this time, the resolution of a float64 number of seconds is
    coarser than 1 ns.
    """
    times_ns = np.rint(np.asarray(times_s, np.float64) * 1e9)
    return np.where(np.isnan(times_ns), NEVER_NS, times_ns).astype(np.int64)


class _Table:
    """Reader of a recorded table, whose rows are sorted by the column `by`. One batch of rows is read in advance."""

    def __init__(self, run: RunRecords, name: str, columns: Sequence[str], by: str) -> None:
        self.none = pd.DataFrame(columns=list(columns))
        is_there = name not in WHERE_USED or run.has(name)
        self._batches, self._by = run.batches(name, columns, PART_ROWS) if is_there else iter(()), by
        self._rows = next(self._batches, self.none)

    @property
    def left(self) -> bool:
        return len(self._rows) > 0

    @property
    def known_until(self) -> float:
        return float(self._rows[self._by].iloc[-1])

    def until(self, order: float) -> pd.DataFrame:
        taken = []
        while self.left:
            end = int(np.searchsorted(self._rows[self._by].to_numpy(), order, side="right"))
            taken.append(self._rows.iloc[:end])
            self._rows = self._rows.iloc[end:]
            if self.left:
                break
            self._rows = next(self._batches, self.none)
        return pd.concat(taken) if len(taken) > 1 else taken[0] if taken else self.none


def _columns(table: pd.DataFrame) -> Columns:
    columns: Columns = {}
    for name in map(str, table):
        if name in _WORDS:
            columns[name] = _codes(table[name], _WORDS[name])
        elif name.endswith("_s"):
            columns[f"{name[:-2]}_ns"] = nanoseconds(table[name])
        else:
            columns[name] = table[name].to_numpy(
                np.float64 if name.endswith(("_j", "flop", "transmitted_bit", "_bps")) else np.int64
            )
    return columns


def _codes(values: pd.Series[Any], words: Sequence[str]) -> IntArray:
    known = values.astype("category").cat
    code = np.array([words.index(word) for word in known.categories], np.int64)
    return code[known.codes.to_numpy()] if len(code) else np.zeros(len(values), np.int64)


class Held:
    """Buffer to which rows are added in recorded order, and which releases all rows up to a given time.

    Args:
        by: name of the column with the time, in ns.
    """

    def __init__(self, row: np.dtype[np.void], by: str) -> None:
        self._rows, self._new, self._by = np.empty(0, row), [np.empty(0, row)], by
        self._count = 0

    def add(self, rows: Rows) -> None:
        self._new.append(rows)
        self._count += len(rows)

    @property
    def worth_while(self) -> bool:
        """True if the rows added since the last call of `until` exceed half the rows that this call retained."""
        return 2 * self._count > len(self._rows)

    def until(self, known_ns: int) -> Rows:
        rows = np.concatenate([self._rows, *self._new])
        ready = rows[self._by] <= known_ns
        self._rows, self._new, self._count = rows[~ready], [], 0
        return np.asarray(rows[ready])


ON_AIR, COMPUTING, WAITING = range(3)
"""Types of the slices (activities) of a device: transfers on the air, computations, and waits for the channel."""

ROW = np.dtype([
    ("device", np.int64), ("started_ns", np.int64), ("ended_ns", np.int64), ("form", np.int64), ("name", np.int64),
    ("row", np.int64), ("amount", np.float64), ("rate_bps", np.float64), ("energy_j", np.float64),
    ("comes", np.int64), ("goes", np.int64), ("rank", np.int64),
])  # fmt: skip
"""Record of a slice (an activity in the trace) of a device. `row` is its row number in the table of transfers or
computations, `amount` is its size in bits or FLOP, and `comes` and `goes` are its incoming and outgoing flow (arrow).
If two slices of a flow start at the same time, the flow ends at the slice with the higher `rank`."""

ON_MEDIUM = np.dtype([
    ("cell", np.int64), ("direction", np.int64), ("started_ns", np.int64), ("ended_ns", np.int64), ("name", np.int64),
    ("transfer", np.int64), ("sender", np.int64), ("receiver", np.int64), ("device", np.int64),
    ("rank", np.int64),
])  # fmt: skip
"""Record of a transmission on a medium (the band of a cell and direction). `device` is the sender of an uplink or
sidelink transmission, or the receiver of a downlink transmission. For a broadcast, it is SEVERAL."""

STEP = np.dtype([("at_ns", np.int64), ("counter", np.int64), ("step", np.float64)])
"""A change of a counter: the time in ns, the number of the counter, and the amount by which its value increases."""

UPLINK, DOWNLINK, SIDELINK = range(len(KINDS))


def device_slices(part: Part) -> Rows:
    """Return the slices (activities) of the devices and the server: transfers, waits and computations."""
    sent, heard, made = part.transfers, part.receptions, part.computes
    legs = _legs(sent, heard)
    return np.concatenate([_on_air(sent, *legs), _waiting(sent, *legs), _computing(made)])


def medium_slices(part: Part, cell: IntArray) -> Rows:
    """Return the slices of radio media, one for each transmission. `cell` [transfers] is the cell of each transfer."""
    sent = part.transfers
    chosen = sent["started_ns"] != NEVER_NS
    rows = np.empty(int(chosen.sum()), ON_MEDIUM)
    other = np.asarray(np.where(sent["direction"] == DOWNLINK, sent["receiver"], sent["sender"]), np.int64)
    name = np.where(other == SEVERAL, names.BROADCAST, names.DEVICE_NAME + other)
    columns = {**sent, "cell": cell, "name": name, "device": other, "rank": np.ones(len(cell), np.int64)}
    for column in ON_MEDIUM.names or ():
        rows[column] = columns[column][chosen]
    return rows


def _legs(sent: Columns, heard: Columns) -> tuple[IntArray, IntArray, Mask, IntArray]:
    """Return four columns with one row for each pair of a transfer and a device that sends or receives it.

    The columns are the position of the transfer in `sent`, the device, True if the device receives, and the code of the
    reason of loss (0 if the transfer was delivered). The server has no rows.
    """
    every = np.arange(len(sent["transfer"]))
    place: list[IntArray] = [every, every, np.asarray(np.searchsorted(sent["transfer"], heard["transfer"]), np.int64)]
    device = [sent["sender"], sent["receiver"], heard["receiver"]]
    lost = [sent["loss_reason"], sent["loss_reason"], heard["loss_reason"]]
    receives = np.repeat([False, True, True], [len(each) for each in device])
    no_server = np.concatenate(device) > SERVER
    places, devices, reasons = (np.asarray(np.concatenate(each), np.int64) for each in (place, device, lost))
    return places[no_server], devices[no_server], receives[no_server], reasons[no_server]


def _on_air(sent: Columns, place: IntArray, device: IntArray, receives: Mask, lost: IntArray) -> Rows:
    keep = sent["started_ns"][place] != NEVER_NS
    place, device, receives, lost = place[keep], device[keep], receives[keep], lost[keep]
    transfer, payload = sent["transfer"][place], sent["value_id"][place]
    rows = _rows(device, sent["started_ns"][place], sent["ended_ns"][place], ON_AIR, transfer)
    rows["name"] = names.transfer_name(sent["direction"][place], receives.astype(np.int64), lost)
    rows["amount"] = sent["size_bit"][place]
    rows["rate_bps"] = sent["mean_rate_bps"][place]
    shared_j = sent["rx_energy_j"][place] / sent["receivers"][place]
    rows["energy_j"] = np.where(receives, shared_j, sent["energy_j"][place])
    known = payload >= 0
    nowhere = names.flow(names.NO_PAYLOAD, transfer, device)
    made = np.where(known, names.flow(names.MADE, payload), nowhere)
    used = np.where(known & (lost == CODE[""]), names.flow(names.USED, payload, device), nowhere)
    rows["comes"] = np.where(receives, names.flow(names.HEARD, transfer, device), made)
    rows["goes"] = np.where(receives, used, names.flow(names.SENT, transfer))
    rows["rank"] = np.where(receives, 2, 0)
    return rows


def _waiting(sent: Columns, place: IntArray, device: IntArray, receives: Mask, lost: IntArray) -> Rows:
    """Return the slices of waits for the channel. The wait is that of the sender, or of the receivers of the server."""
    never = sent["started_ns"] == NEVER_NS
    until_ns = np.where(never, sent["ended_ns"], sent["started_ns"])
    keep = (receives == (sent["sender"][place] == SERVER)) & (until_ns > sent["requested_ns"])[place]
    place = place[keep]
    rows = _rows(device[keep], sent["requested_ns"][place], until_ns[place], WAITING, sent["transfer"][place])
    rows["name"] = names.WAIT_NAME + np.where(never[place], lost[keep], CODE[""])
    return rows


def _computing(made: Columns) -> Rows:
    rows = _rows(made["device"], made["started_ns"], made["ended_ns"], COMPUTING, made["compute"])
    rows["name"] = names.COMPUTE_NAME + made["stopped"]
    rows["amount"], rows["energy_j"] = made["flop"], made["energy_j"]
    given, result = made["input"], made["result"]
    no_input, no_result = (names.flow(kind, made["compute"]) for kind in (names.NO_INPUT, names.NO_RESULT))
    rows["comes"] = np.where(given >= 0, names.flow(names.USED, given, made["device"]), no_input)
    rows["goes"] = np.where(result >= 0, names.flow(names.MADE, result), no_result)
    return rows


def _rows(device: IntArray, started_ns: IntArray, ended_ns: IntArray, form: int, row: IntArray) -> Rows:
    rows = np.zeros(len(device), ROW)
    rows["device"], rows["started_ns"], rows["ended_ns"] = device, started_ns, ended_ns
    rows["form"], rows["row"] = form, row
    return rows


def steps(part: Part, cell: IntArray) -> Rows:
    """Return the changes of all counters (senders, queue, bits, energy); `cell` [transfers] are cells of transfers.

    The energy excludes idle energies; see `idle_energy`.
    """
    sent, more = part.transfers, (part.computes, part.backhaul)
    senders, queue, bits = (names.counter_number(what, cell, sent["direction"]) for what in range(len(names.COUNTERS)))
    started_ns, ended_ns = sent["started_ns"], sent["ended_ns"]
    on_air, one = started_ns != NEVER_NS, np.ones(len(cell))
    from_queue_ns = np.where(on_air, started_ns, ended_ns)
    changes = [
        (sent["requested_ns"], queue, one),
        (from_queue_ns, queue, -one),
        (started_ns[on_air], senders[on_air], one[on_air]),
        (ended_ns[on_air], senders[on_air], -one[on_air]),
        (ended_ns[on_air], bits[on_air], sent["transmitted_bit"][on_air]),
        (ended_ns, np.full(len(cell), names.ENERGY), sent["energy_j"] + sent["rx_energy_j"]),
        *((its["ended_ns"], np.full_like(its["ended_ns"], names.ENERGY), its["energy_j"]) for its in more),
    ]
    rows = np.empty(sum(len(change[0]) for change in changes), STEP)
    for place, column in enumerate(("at_ns", "counter", "step")):
        rows[column] = np.concatenate([change[place] for change in changes])
    return rows


def idle_energy(run: RunRecords) -> tuple[IntArray, Array]:
    """Return times [n] in ns, and the idle energy [n] in J of all devices and base stations up to these times.

    The last time is the end of the run. Between the times, the idle power is constant.
    """
    idle_j = run.table("energies", ("idle_j",))["idle_j"].to_numpy(np.float64) if run.has("energies") else np.zeros(1)
    on, end_ns = np.ones(len(idle_j), np.int64), nanoseconds(run.summary["simulated_s"])
    switched = [pd.DataFrame({"at_ns": 0, "row": np.arange(len(on)), "step": on})]
    for table in run.batches("batteries", BATTERIES, PART_ROWS) if run.has("batteries") else ():
        row, now = table["device"].to_numpy(np.int64), (table["state"] == "on").astype(np.int64)
        step = (now - now.groupby(row).shift().fillna(pd.Series(on[row], now.index))).astype(np.int64)
        on[row] = now
        changes = pd.DataFrame({"at_ns": nanoseconds(table["simulated_s"]), "row": row, "step": step})
        switched.append(changes[changes["step"] != 0])  # without idle power while the battery is empty
    at_ns, rows, signs = pd.concat(switched).to_numpy(np.int64).T
    power = np.cumsum(signs * (idle_j / np.maximum(np.bincount(rows, signs * (end_ns - at_ns)), 1))[rows])  # in J/ns
    until_ns = np.append(at_ns, end_ns)
    return until_ns, np.append(0.0, np.cumsum(power * np.diff(until_ns)))


def counter_values(changes: Rows, from_ns: int, last: dict[int, float]) -> Iterator[tuple[int, IntArray, Array]]:
    """Yield for each counter in `changes` its number, the times of changes in ns, and the value after each change.

    Args:
        changes: records of type `STEP`, all changes up to some time that were not in earlier calls.
        from_ns: start of the window. Earlier changes are merged into one change at this time.
        last: last value of each counter by its number, which is updated.
    """
    changes = changes[np.lexsort((changes["at_ns"], changes["counter"]))]
    numbers, first = np.unique(changes["counter"], return_index=True)
    for number, rows in zip(numbers.tolist(), np.split(changes, first)[1:], strict=True):
        at_ns = np.maximum(rows["at_ns"], from_ns)
        value = last.get(number, 0.0) + np.cumsum(rows["step"])
        last[number] = float(value[-1])
        settled = np.append(at_ns[1:] != at_ns[:-1], True)  # changes at the same time are merged
        yield number, at_ns[settled], value[settled]
