"""Counters over time: senders on the air, waiting transfers, bits and energy beside idle power spent so far."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from fednet_emu.arrays import Array, IntArray
from fednet_emu.draw.trace.feed import Part
from fednet_emu.records.ledger import NEVER_NS
from fednet_emu.records.rows import KINDS

SENDERS, QUEUE, BITS = range(3)
"""Counters of each cell and kind of link; transfers on the air, transfers that wait for it, bits on the air so far."""
TITLES = ("active senders", "queue length", "bits on the air")
UNITS = ("senders", "transfers", "bit")
ENERGY = 0
"""The counter of the whole run: joules spent so far."""

STEP = np.dtype([("at_ns", np.int64), ("counter", np.int64), ("step", np.float64)])
"""A change of a counter."""


def counter_number(what: int, cell: IntArray, kind: IntArray) -> IntArray:
    """Number of a counter, from 1; see `counter_parts`."""
    return np.asarray(1 + (cell * len(KINDS) + kind) * len(TITLES) + what)


def counter_parts(number: int) -> tuple[int, int, int]:
    """What a counter counts, its cell and its kind of link."""
    rest, what = divmod(number - 1, len(TITLES))
    cell, kind = divmod(rest, len(KINDS))
    return what, cell, kind


def steps(part: Part, cell: IntArray) -> NDArray[np.void]:
    """All changes of counters that the records of a stretch of time tell of, in no order.

    Args:
        part: the records.
        cell: cell of each transfer.
    """
    sent, made = part.transfers, part.computes
    senders, queue, bits = (counter_number(what, cell, sent["kind"]) for what in range(len(TITLES)))
    started_ns, ended_ns = sent["started_ns"], sent["ended_ns"]
    on_air, one = started_ns != NEVER_NS, np.ones(len(cell))
    from_queue_ns = np.where(on_air, started_ns, ended_ns)
    changes = [
        (sent["requested_ns"], queue, one),
        (from_queue_ns, queue, -one),
        (started_ns[on_air], senders[on_air], one[on_air]),
        (ended_ns[on_air], senders[on_air], -one[on_air]),
        (ended_ns[on_air], bits[on_air], sent["air_bit"][on_air]),
        (ended_ns, np.full(len(cell), ENERGY), sent["energy_j"] + sent["receive_j"]),
        (made["ended_ns"], np.full(len(made["ended_ns"]), ENERGY), made["energy_j"]),
    ]
    rows = np.empty(sum(len(change[0]) for change in changes), STEP)
    for place, column in enumerate(("at_ns", "counter", "step")):
        rows[column] = np.concatenate([change[place] for change in changes])
    return rows


class Counters:
    """Adds up changes, in batches of ascending times."""

    def __init__(self) -> None:
        self._value: dict[int, float] = {}

    def values(self, changes: NDArray[np.void], from_ns: int) -> Iterator[tuple[int, IntArray, Array]]:
        """For each counter that changes: its number, instants in ns, and its value from each instant on.

        Args:
            changes: all changes up to some time, without those of earlier batches.
            from_ns: what happened before is told as one change at this time.
        """
        changes = changes[np.lexsort((changes["at_ns"], changes["counter"]))]
        numbers, first = np.unique(changes["counter"], return_index=True)
        for number, rows in zip(numbers.tolist(), np.split(changes, first)[1:], strict=True):
            at_ns = np.maximum(rows["at_ns"], from_ns)
            value = self._value.get(number, 0.0) + np.cumsum(rows["step"])
            self._value[number] = float(value[-1])
            settled = np.append(at_ns[1:] != at_ns[:-1], True)  # changes of one instant are one
            yield number, at_ns[settled], value[settled]
