"""Order of transmissions in a band that other users share, and the time that the federation loses to their files."""

from __future__ import annotations

import sys
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterator
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
        queues: waiting bursts, by priority.
    """

    def __init__(self) -> None:
        self.own = 0
        self.files: Counter[int] = Counter()
        self.queues: defaultdict[int, deque[Burst]] = defaultdict(deque)
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
        self._began_in: dict[Transfer, int] = {}  # cell in which a burst on the air started, by its first transfer
        self._since_s: dict[Transfer, float] = {}
        self._lost_s: dict[Transfer, float] = {}

    @override
    def add(self, burst: Burst) -> None:
        number = burst[0].cell
        cell = self._cells[number]
        cell.queues[self._slices.level(burst[0])].append(burst)
        self.changed.add(number)
        if not self._divides:
            self._mark(burst, cell)

    @override
    def waiting(self) -> Iterator[Transfer]:
        for cell in self._cells.values():
            yield from (leg for queue in cell.queues.values() for burst in queue for leg in burst)

    @override
    def start_ready(self, start: Callable[[Burst], bool]) -> None:
        changed, self.changed = self.changed, set()
        for number in sorted(changed):
            cell = self._cells[number]
            for level in sorted(cell.queues):
                queue = cell.queues[level]
                while queue and self._free[number]:
                    burst = queue.popleft()
                    if start(burst):
                        self._enter(burst, number)

    def _enter(self, burst: Burst, number: int) -> None:
        cell, first = self._cells[number], burst[0]
        self._free[number] -= 1
        self._began_in[first] = number
        if self._divides:
            self._mark(burst, cell)
        else:
            self._note(burst, cell)
        self._count(cell, first, 1)

    @override
    def give_back(self, burst: Burst) -> None:
        first = burst[0]
        number = self._began_in.pop(first)
        cell = self._cells[number]
        self._free[number] += 1
        self.changed.add(number)
        if self._divides:
            self._note(burst, cell)
        self._count(cell, first, -1)

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
