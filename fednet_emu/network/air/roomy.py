"""Arrays with spare capacity, which need not be copied for every added entry.

Entries are added at the end. They can be removed anywhere, and the order of the other entries stays the same.
"""

from __future__ import annotations

from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from fednet_emu.arrays import IntArray

_ROOM = 16


@final
class Roomy:
    """An array [rows, entries, ...] that grows and shrinks along its second axis.

    Args:
        empty: an array [rows, 0, ...] without entries, which sets the data type and the length of all other axes.

    Attributes:
        now: view of the entries [rows, entries, ...]; valid until the next change.
    """

    def __init__(self, empty: NDArray[Any]) -> None:
        self.now = self._all = self._bytes = empty

    def grow(self, more: int) -> NDArray[Any]:
        """Add `more` entries at the end; return a view of these entries, which the caller fills."""
        before = self.now.shape[1]
        count = before + more
        if count > self._all.shape[1]:
            rows, _, *others = self._all.shape
            self._all = np.empty((rows, 2 * count + _ROOM, *others), self._all.dtype)
            self._all[:, :before] = self.now
            self._bytes = self._all.view(f"V{self._all.itemsize}")  # NumPy would copy records field by field
        self.now = self._all[:, :count]
        return self._all[:, before:count]

    def drop(self, places: IntArray) -> None:
        """Remove the entries at the increasing indices `places`."""
        count = self.now.shape[1] - len(places)
        if len(places) == 1:
            place = int(places[0])
            self._bytes[:, place:count] = self._bytes[:, place + 1 : count + 1]
        else:
            self._all[:, :count] = self.now[:, others(places, count + len(places))]
        self.now = self._all[:, :count]

    def clear(self) -> None:
        self.now = self._all[:, :0]


def others(places: IntArray, count: int) -> IntArray:
    """Return the indices from 0 to `count` - 1 that are not in `places`."""
    other = np.ones(count, np.bool_)
    other[places] = False
    return other.nonzero()[0]
