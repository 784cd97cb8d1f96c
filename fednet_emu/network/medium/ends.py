"""A queue of bursts whose end times are known, in the order of these times."""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import final

from fednet_emu.kernel.clock import FOREVER_NS
from fednet_emu.network.medium.transfer import Burst


@final
class Ends:
    """Bursts ordered by end time; bursts that end in the same instant are ordered by start time."""

    def __init__(self) -> None:
        self._ends: list[tuple[int, int, Burst]] = []
        self._started = 0

    def __len__(self) -> int:
        return len(self._ends)

    def add(self, burst: Burst, end_ns: int) -> None:
        """Add a burst that has started and will end at `end_ns`."""
        self._started += 1
        heappush(self._ends, (end_ns, self._started, burst))

    def remove(self, burst: Burst) -> None:
        """Remove a burst that is taken off the air before its end."""
        self._ends = [entry for entry in self._ends if entry[2] is not burst]
        heapify(self._ends)

    def take_due(self, now_ns: int) -> list[Burst]:
        """Remove and return the bursts that end at or before `now_ns`."""
        due = []
        while self._ends and self._ends[0][0] <= now_ns:
            due.append(heappop(self._ends)[2])
        return due

    def next_ns(self) -> int:
        """Earliest end time in ns; `FOREVER_NS` when nothing is on the air."""
        return self._ends[0][0] if self._ends else FOREVER_NS
