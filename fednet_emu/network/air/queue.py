"""The queue of a medium, which determines which bursts (transmissions) wait and which may start."""

from __future__ import annotations

import sys
from collections import defaultdict, deque
from collections.abc import Callable, Iterator
from heapq import heapify, heappop, heappush
from operator import attrgetter

from fednet_emu.network.air.transfer import Burst, Transfer


class TurnQueue:
    """Queue of waiting bursts in each cell or cluster, in the order of requests, with a limit on simultaneous bursts.

    Args:
        places: maximum number of simultaneous bursts in one cell or cluster; None for no limit.
        cells: number of cells; None if bursts belong to clusters instead. In clusters, a burst also waits while its
            sender or a receiver sends or receives another burst, in any cluster.

    Attributes:
        clustered: True if bursts belong to clusters.
        lane: function that returns the cell or the cluster of a transfer.
        only: the queue of the only cell, from which the medium itself starts bursts. None if there are several cells,
            or clusters.
        changed: the cells in which a burst has been added or has ended since the last `start_ready`.
        left: number of further bursts that may start, summed over all cells. The medium updates this number.
    """

    def __init__(self, places: int | None, cells: int | None = 1) -> None:
        self.places, self.clustered = places, cells is None
        self.lane: Callable[[Transfer], int] = attrgetter("cluster" if self.clustered else "cell")
        each = sys.maxsize if places is None else places
        self.left = sys.maxsize if cells is None else each * cells
        self._free: dict[int, int] = defaultdict(lambda: each)
        self._queues: dict[int, deque[Burst]] = defaultdict(deque)
        self.only = self._queues[0] if cells == 1 else None
        self.changed = set[int]()
        self._engaged: set[int] = set()
        self._blocked: dict[int, list[tuple[int, Burst]]] = {}  # keyed by a radio that takes part in a transmission
        self._unblocked: dict[int, list[tuple[int, Burst]]] = defaultdict(list)  # one heap per cell
        self._added = 0

    def add(self, burst: Burst) -> None:
        cell = self.lane(burst[0])
        if self.clustered:
            self._added += 1
            self._unblocked[cell].append((self._added, burst))  # still a heap: serial numbers increase
        else:
            self._queues[cell].append(burst)
        self.changed.add(cell)

    def waiting(self) -> Iterator[Transfer]:
        for queue in self._queues.values():
            yield from (leg for burst in queue for leg in burst)
        for entries in [*self._unblocked.values(), *self._blocked.values()]:
            yield from (leg for _, burst in entries for leg in burst)

    def start_ready(self, start: Callable[[Burst], bool]) -> None:
        """Start all waiting bursts (transmissions) that may start now.

        Only cells that have changed since the last call are examined, in the order of their indices.

        Args:
            start: function that starts a burst; returns False if no transfer of the burst can start.
        """
        changed, self.changed = self.changed, set()
        if self.clustered:
            self._start_by_request(changed, start)
            return
        for cell in sorted(changed) if len(changed) > 1 else changed:
            queue, free = self._queues[cell], self._free[cell]
            while queue and free:
                free -= start(queue.popleft())
            self._free[cell] = free

    def _start_by_request(self, changed: set[int], start: Callable[[Burst], bool]) -> None:
        """Start waiting bursts in the clusters with the indices `changed`, in the order of their requests.

        A burst starts only if its sender and all its receivers are idle, and a place in its cluster is free.
        """
        first = [(self._unblocked[cell][0][0], cell) for cell in changed if self._unblocked[cell]]
        heapify(first)
        while first:
            _, cell = heappop(first)
            if not self._free[cell]:
                continue
            order, burst = heappop(self._unblocked[cell])
            busy = self._engaged.intersection(_ends(burst))
            if busy:
                self._blocked.setdefault(min(busy), []).append((order, burst))
            elif start(burst):
                self._free[cell] -= 1
                self._engaged |= _ends(burst)
            if self._unblocked[cell]:
                heappush(first, (self._unblocked[cell][0][0], cell))

    def give_back(self, burst: Burst) -> None:
        """Record the end of a burst (transmission).

        Bursts that wait for its sender or for one of its receivers may start at the next call of `start_ready`.
        """
        cell = self.lane(burst[0])
        self._free[cell] += 1
        self.changed.add(cell)
        if not self.clustered:
            return
        ends = _ends(burst)
        self._engaged -= ends
        for end in ends & self._blocked.keys():
            for order, waiting in self._blocked.pop(end):
                heappush(self._unblocked[self.lane(waiting[0])], (order, waiting))
                self.changed.add(self.lane(waiting[0]))


def _ends(burst: Burst) -> set[int]:
    return {burst[0].sender, *(leg.receiver for leg in burst)}
