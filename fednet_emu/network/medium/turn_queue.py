"""Turns: who waits for a place on the air of a medium, and who gets one."""

from __future__ import annotations

import sys
from collections import defaultdict, deque
from collections.abc import Iterator

from fednet_emu.network.medium.transfer import Burst, Transfer


class Line:
    """The queue of one cell, with what `Turns` does for many; the way of most transfers.

    Args:
        places: how many bursts may be on the air at once; None for no limit.

    Attributes:
        left: places that are left; with none, nothing can start before something ends.
    """

    def __init__(self, places: int | None) -> None:
        self.left = sys.maxsize if places is None else places
        self._queue: deque[Burst] = deque()
        self.add = self._queue.append

    def waiting(self) -> Iterator[Transfer]:
        """All legs of all bursts in the queue."""
        return (leg for burst in self._queue for leg in burst)

    def ready(self) -> Iterator[Burst]:
        """The bursts whose turn has come; who is not to go on the air is taken out before the next one is asked for."""
        queue = self._queue
        while queue and self.left:
            burst = queue.popleft()
            yield burst
            if burst:
                self.left -= 1

    def give_back(self, _burst: Burst) -> None:
        """Note that a burst has ended."""
        self.left += 1


class Turns:
    """Queues of bursts, one for each cell or cluster, and what is occupied.

    Args:
        places: how many bursts of a cell may be on the air at once; None for no limit.
        cells: number of cells, more than one; None when they come as they are named.
        coloured: whether a burst waits for those on the air that one of its ends takes part in.

    Attributes:
        left: places that are left in all cells together; with none, nothing can start before something ends.
    """

    def __init__(self, places: int | None, cells: int | None, *, coloured: bool = False) -> None:
        each = sys.maxsize if places is None else places
        self._free: dict[int, int] = defaultdict(lambda: each)
        self._queues: dict[int, deque[Burst]] = defaultdict(deque)
        self.left = sys.maxsize if cells is None else each * cells
        self._changed: set[int] = set()
        self._engaged: set[int] | None = set() if coloured else None

    def add(self, burst: Burst) -> None:
        """Put a burst last in the queue of its cell."""
        self._queues[burst[0].cell].append(burst)
        self._changed.add(burst[0].cell)

    def waiting(self) -> Iterator[Transfer]:
        """All legs of all bursts in the queues."""
        return (leg for queue in self._queues.values() for burst in queue for leg in burst)

    def ready(self) -> Iterator[Burst]:
        """The bursts whose turn has come; who is not to go on the air is taken out before the next one is asked for.

        Only cells in which something has changed since the last time are looked at, in order of their numbers.
        """
        changed, self._changed = self._changed, set()
        for cell in sorted(changed) if len(changed) > 1 else changed:
            queue = self._queues[cell]
            if self._engaged is not None:
                for _ in range(len(queue)):  # once round, which leaves those that wait in their order
                    burst = queue.popleft()
                    if self._engaged.isdisjoint(_ends(burst)):
                        yield burst
                        self._take(burst)
                    else:
                        queue.append(burst)
            else:
                while queue and self._free[cell]:
                    burst = queue.popleft()
                    yield burst
                    self._take(burst)

    def _take(self, burst: Burst) -> None:
        """Note that a burst is on the air, if anybody is left in it."""
        if not burst:
            return
        self._free[burst[0].cell] -= 1
        self.left -= 1
        if self._engaged is not None:
            self._engaged |= _ends(burst)

    def give_back(self, burst: Burst) -> None:
        """Note that a burst has ended."""
        self._free[burst[0].cell] += 1
        self.left += 1
        self._changed.add(burst[0].cell)
        if self._engaged is not None:
            self._engaged -= _ends(burst)


def _ends(burst: Burst) -> set[int]:
    return {burst[0].sender, *(leg.receiver for leg in burst)}
