"""Read the tables of a run in parts, in order of end time, and sort the rows of a table by start time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fednet_emu.analysis.run import RunRecords
from fednet_emu.arrays import IntArray
from fednet_emu.records.ledger import NEVER_NS, SEVERAL
from fednet_emu.records.reasons import REASONS
from fednet_emu.records.rows import KINDS

PART_ROWS = 1 << 14
"""Number of rows of a table that are read at once."""

TRANSFERS = ("transfer", "direction", "sender", "receiver", "receivers", "size_bit", "value_id", "requested_s",
             "started_s", "ended_s", "transmitted_bit", "loss_reason", "energy_j", "rx_energy_j", "cell")  # fmt: skip
RECEPTIONS = ("transfer", "receiver", "loss_reason")
COMPUTES = ("device", "started_s", "ended_s", "flop", "energy_j", "input", "result", "stopped")
SPANS = {"transfers": ("requested_s", "ended_s"), "computes": ("started_s", "ended_s")}
_WORDS = {"direction": KINDS, "loss_reason": REASONS, "stopped": REASONS}

Rows = NDArray[np.void]
Columns = dict[str, Any]
"""Columns of a table as arrays. Times are integer nanoseconds and have names `..._ns`. Words are replaced by codes."""


class Part(NamedTuple):
    """The records of a time interval.

    Attributes:
        until_ns: simulated time in ns by which all records of this part and of earlier parts have ended.
        transfers: transfers that ended in the interval.
        receptions: one row for each receiver of those of these transfers that have several receivers.
        computes: computations that ended in the interval. `compute` is the row number in the recorded table.
    """

    until_ns: int
    transfers: Columns
    receptions: Columns
    computes: Columns


def parts(run: RunRecords) -> Iterator[Part]:
    """Read the transfers, receptions and computations of a run in order of end time."""
    transfers = _Table(run, "transfers", TRANSFERS, "ended_s")
    receptions = _Table(run, "receptions", RECEPTIONS, "transfer")
    computes = _Table(run, "computes", COMPUTES, "ended_s")
    numbered = 0
    while transfers.left or computes.left:
        until_s = min(table.known_until for table in (transfers, computes) if table.left)
        sent, worked = transfers.until(until_s), computes.until(until_s)
        heard = receptions.until(sent["transfer"].max()) if (sent["receiver"] == SEVERAL).any() else receptions.none
        made = _columns(worked)
        made["compute"] = np.arange(numbered, numbered + len(worked))
        numbered += len(worked)
        yield Part(int(np.rint(until_s * 1e9)), _columns(sent), _columns(heard), made)


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

    The conversion is exact up to 2^51 ns (26 days). Beyond this time, a float64 of seconds does not resolve
    nanoseconds.
    """
    times_ns = np.rint(np.asarray(times_s, np.float64) * 1e9)
    return np.where(np.isnan(times_ns), NEVER_NS, times_ns).astype(np.int64)


class _Table:
    """Reader of a table whose rows are sorted by the column `by`. It reads one batch of rows ahead."""

    def __init__(self, run: RunRecords, name: str, columns: Sequence[str], by: str) -> None:
        self.none = pd.DataFrame(columns=list(columns))
        self._batches, self._by = run.batches(name, columns, PART_ROWS), by
        self._rows = next(self._batches, self.none)

    @property
    def left(self) -> bool:
        """True if there are unread rows."""
        return len(self._rows) > 0

    @property
    def known_until(self) -> float:
        """The value of `by` in the last row read so far."""
        return float(self._rows[self._by].iloc[-1])

    def until(self, order: float) -> pd.DataFrame:
        """Take all rows whose value of `by` is at most `order`."""
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
                np.float64 if name.endswith(("_j", "flop", "transmitted_bit")) else np.int64
            )
    return columns


def _codes(values: pd.Series[Any], words: Sequence[str]) -> IntArray:
    known = values.astype("category").cat
    code = np.array([words.index(word) for word in known.categories], np.int64)
    return code[known.codes.to_numpy()] if len(code) else np.zeros(len(values), np.int64)


class Held:
    """Buffer that receives rows in recorded order, and releases all rows whose time is not after a given time.

    Args:
        row: data type of the rows.
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
        """True if the rows added since the last call of `until` are more than half as many as this call left."""
        return 2 * self._count > len(self._rows)

    def until(self, known_ns: int) -> Rows:
        """Remove and return all rows up to the time `known_ns`. Rows that are added afterwards must not be earlier."""
        rows = np.concatenate([self._rows, *self._new])
        ready = rows[self._by] <= known_ns
        self._rows, self._new, self._count = rows[~ready], [], 0
        return np.asarray(rows[ready])
