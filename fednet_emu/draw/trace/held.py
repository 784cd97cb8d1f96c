"""Rows that wait until everything that comes before them is known."""

from __future__ import annotations

import numpy as np

from fednet_emu.draw.trace.slices import Rows


class Held:
    """Takes rows in the order in which they were recorded and gives them back in the order of a time column.

    Args:
        row: type of the rows.
        by: the time column, in ns.
    """

    def __init__(self, row: np.dtype[np.void], by: str) -> None:
        self._rows, self._new, self._by = np.empty(0, row), [np.empty(0, row)], by
        self._count = 0

    def add(self, rows: Rows) -> None:
        """Take some rows."""
        self._new.append(rows)
        self._count += len(rows)

    @property
    def worth_while(self) -> bool:
        """Whether so many rows have come that looking through all of them costs little for each."""
        return 2 * self._count > len(self._rows)

    def until(self, known_ns: int) -> Rows:
        """Give back all rows up to a time; no later row may be earlier than that."""
        rows = np.concatenate([self._rows, *self._new])
        ready = rows[self._by] <= known_ns
        self._rows, self._new, self._count = rows[~ready], [], 0
        return np.asarray(rows[ready])
