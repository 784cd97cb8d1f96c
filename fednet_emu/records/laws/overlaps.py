"""Intervals of time that overlap, looked for block by block in a table whose rows end one after the other."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fednet_emu.arrays import IntArray, Mask

_NEVER_BUSY = np.iinfo(np.int64).min


class Busy:
    """Until when each owner, a number from -1 on, was busy in the blocks so far."""

    def __init__(self) -> None:
        self._until_ns: IntArray = np.empty(0, np.int64)

    def overlaps(self, owner: NDArray[np.integer], started_ns: IntArray, ended_ns: IntArray) -> Mask:
        """Mask of the intervals of the next block that start before an earlier one of the same owner has ended."""
        overlap = np.zeros(len(owner), np.bool_)
        if not len(owner):
            return overlap
        order = np.lexsort((ended_ns, started_ns, owner))
        mine, start_ns, end_ns = owner[order].astype(np.int64) + 1, started_ns[order], ended_ns[order]
        until_ns = self._until(int(mine[-1]) + 1)
        before_ns = np.concatenate((until_ns[mine[:1]], end_ns[:-1]))
        first = np.flatnonzero(np.diff(mine, prepend=-1))
        before_ns[first] = until_ns[mine[first]]
        overlap[order] = start_ns < before_ns
        np.maximum.at(until_ns, mine, end_ns)
        return overlap

    def _until(self, owners: int) -> IntArray:
        more = owners - len(self._until_ns)
        if more > 0:
            self._until_ns = np.concatenate((self._until_ns, np.full(more, _NEVER_BUSY)))
        return self._until_ns
