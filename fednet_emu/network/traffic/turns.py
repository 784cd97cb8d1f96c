"""Order of transmissions in a band that other users share, and the time that the federation loses to their files."""

from __future__ import annotations

import sys
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable
from typing import final

from typing_extensions import override

from fednet_emu.kernel.clock import NS_PER_S, Clock
from fednet_emu.network.air.queue import TurnQueue
from fednet_emu.network.air.transfer import Burst, FileTransfer, Transfer
from fednet_emu.network.slices import Slices


class CellUse:
    """State of one cell: bursts (transmissions), and the band share that the federation loses to other users' files.

    Attributes:
        own: number of the federation's bursts on the air.
        files: number of other users' files on the air, by the index of the network slice.
    """

    def __init__(self) -> None:
        self.own = 0
        self.files: Counter[int] = Counter()
        self.part, self._taken_s, self._since_ns = 0.0, 0.0, 0

    def taken_s(self, now_ns: int) -> float:
        """Return the integral of the band share lost to files over the time from 0 to `now_ns`, in s."""
        self._taken_s += self.part * ((now_ns - self._since_ns) / NS_PER_S)
        self._since_ns = now_ns
        return self._taken_s


@final
class SharedTurns(TurnQueue):
    """Queue of bursts in order of priority, then of request, which also measures the time lost to other users' files.

    The lost time is an integral over time. If bursts divide the band, the integrand is 1 - share / (share without the
    files) while the transfer is on the air. If bursts take turns, the integrand is the fraction of files among the
    bursts on the air while the transfer waits. After a handover, a transfer still counts in the cell in which it
    started.

    Args:
        divides: True if bursts on the air divide the band; False if they take turns.
        slices: the network slices, which determine the priorities of transfers and the band shares.
    """

    def __init__(self, places: int | None, cells: int, clock: Clock, *, divides: bool, slices: Slices) -> None:
        super().__init__(places, cells)
        self.only = None
        self.left = sys.maxsize  # the medium then queues each transfer at its request, when the waiting time begins
        self._clock, self._divides, self._slices = clock, divides, slices
        self._cells: defaultdict[int, CellUse] = defaultdict(CellUse)
        self._began_in: dict[Transfer, CellUse] = {}  # cell in which a burst on the air started, by its first transfer
        self._since_s: dict[Transfer, float] = {}
        self._lost_s: dict[Transfer, float] = {}

    @override
    def add(self, burst: Burst) -> None:
        super().add(burst)
        queue, level = self._queues[burst[0].cell], self._level(burst)
        if len(queue) > 1 and self._level(queue[-2]) > level:
            queue.pop()
            queue.insert(bisect_right(queue, level, key=self._level), burst)
        if not self._divides:
            self._mark(burst, self._cells[burst[0].cell])

    def _level(self, burst: Burst) -> int:
        return self._slices.level(burst[0])

    @override
    def start_ready(self, start: Callable[[Burst], bool]) -> None:
        def entered(burst: Burst) -> bool:
            started = start(burst)
            if started:
                self._enter(burst)
            return started

        super().start_ready(entered)

    def _enter(self, burst: Burst) -> None:
        first = burst[0]
        cell = self._cells[first.cell]
        self._began_in[first] = cell
        if self._divides:
            self._mark(burst, cell)
        else:
            self._note(burst, cell)
        self._count(cell, first, 1)

    @override
    def give_back(self, burst: Burst) -> None:
        super().give_back(burst)
        cell = self._began_in.pop(burst[0])
        if self._divides:
            self._note(burst, cell)
        self._count(cell, burst[0], -1)

    def _count(self, cell: CellUse, first: Transfer, by: int) -> None:
        cell.taken_s(self._clock.now)
        if type(first) is FileTransfer:
            cell.files[first.slice] += by
        else:
            cell.own += by
        cell.part = self._slices.taken(cell.own, cell.files, divides=self._divides)

    def _mark(self, burst: Burst, cell: CellUse) -> None:
        """Store the present value of `taken_s`, from which the time that a burst loses to files is counted."""
        if type(burst[0]) is not FileTransfer:
            self._since_s.update(dict.fromkeys(burst, cell.taken_s(self._clock.now)))

    def _note(self, burst: Burst, cell: CellUse) -> None:
        """Store the time in s that a burst of the federation has lost to files of other users."""
        if type(burst[0]) is not FileTransfer:
            taken_s = cell.taken_s(self._clock.now)
            self._lost_s[burst[0]] = taken_s - self._since_s[burst[0]]
            for leg in burst:
                del self._since_s[leg]

    def lost_s(self, first: Transfer) -> float:
        """Return the time in s that a transfer has lost to files of other users.

        The stored time is deleted, so that this method must be called only once, when the transfer is recorded.
        """
        since_s = self._since_s.pop(first, None)
        if since_s is not None:
            return self._cells[first.cell].taken_s(self._clock.now) - since_s
        return self._lost_s.pop(first, 0.0)
