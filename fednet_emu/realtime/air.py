"""The air in one direction for packets: queues, turns, and departures at exact instants of scenario time."""

from __future__ import annotations

from bisect import insort
from collections import deque
from heapq import heapify, heappop, heappush
from operator import attrgetter
from typing import NamedTuple

from fednet_emu.kernel.clock import FOREVER_NS
from fednet_emu.kernel.work import BIT, done_ns
from fednet_emu.realtime.pace import Pace

CONTROL_BYTE = 200
"""Maximum size in bytes of packets that need no turn, such as acknowledgements; they go between packets of others."""
TURN_NS = 100_000_000
"""Time in ns that a link keeps its turn after its last packet above `CONTROL_BYTE`. Other links use the air meanwhile.
A sender on a busy host waits for a processor for less than this time."""


class Departure(NamedTuple):
    """A packet that has left the air: link, content, and the instants in ns of its arrival, first bit and last bit.

    `power_ns` is the sender's fraction of full power, integrated over the time on the air in ns.
    """

    link: int
    packet: bytes
    arrived_ns: int
    started_ns: int
    ended_ns: int
    power_ns: float


class _Link:
    """A link with a queue of packets; while the link is on the air, the packet at the head of the queue is sent."""

    def __init__(self, number: int) -> None:
        self.number, self.cell = number, 0
        self.queue: deque[tuple[bytes, int]] = deque()  # packets and their arrival times
        self.queued_byte = 0
        self.left = 0  # remaining work of the packet at the head, at `since_ns`
        self.since_ns = self.started_ns = 0
        self.per_ns, self.power, self.power_ns = 0, 0.0, 0.0
        self.on_air = False
        self.turn_ns = -TURN_NS  # time at which the link requested its turn
        self.data_ns = -TURN_NS  # departure of the last packet that was not a control packet
        self.dry_ns = FOREVER_NS  # time since which the queue is empty while the link is on the air

    def claim(self) -> tuple[int, int, int]:
        """Return the rank of a new head: control packets first, then in order of turns; request a turn if needed."""
        packet, arrived_ns = self.queue[0]
        if len(packet) <= CONTROL_BYTE:
            return 0, arrived_ns, self.number
        if arrived_ns >= self.data_ns + TURN_NS:
            self.turn_ns = self.data_ns = arrived_ns
        return 1, self.turn_ns, self.number


_number = attrgetter("number")


class _Cell:
    """The capacity of a cell: the number of links that may still send, and a heap of waiting links."""

    def __init__(self, free: int) -> None:
        self.free = free
        self.waiting: list[tuple[tuple[int, int, int], _Link]] = []


class LiveAir:
    """The packets of one direction, whose links share a band by the access scheme.

    If `places` is None, a link with packets is on the air until its queue has been empty for the hold time. Otherwise,
    links take turns in the order of their requests. The link with the first turn sends whenever packets are queued, and
    keeps the turn for `TURN_NS` after its last packet. A packet on the air is never interrupted. A packet of at most
    `CONTROL_BYTE` precedes all larger packets.

    All times are scenario time in ns. A departure depends on the arrivals of packets and on the rates, not on the
    instant of the call, so that a late caller gets the same departures.

    Args:
        pace: the rates.
        places: maximum number of links of a cell that are on the air at once; None for no limit.
        queue_byte: capacity in bytes of the queue of each link; further packets are dropped.
        hold_ns: time that a link counts as on the air after its queue became empty, if `places` is None.

    Attributes:
        next_ns: instant of the next departure or change of rates. A `put` after this instant must be preceded by a call
            of `departures`.
        awaited_ns: `next_ns` while a packet is on the air. Otherwise no packet can leave before the next `put`.
    """

    def __init__(self, pace: Pace, *, places: int | None, queue_byte: int, hold_ns: int) -> None:
        self._pace, self._places, self._queue_byte, self._hold_ns = pace, places, queue_byte, hold_ns
        self._links: dict[int, _Link] = {}
        self._cells: dict[int, _Cell] = {}
        self._on_air: list[_Link] = []
        self._ends: list[tuple[int, int, _Link]] = []  # heap of the departure times of all packets on the air
        self._holds: deque[tuple[int, _Link]] = deque()  # instants at which links with empty queues leave
        self._edge_ns = FOREVER_NS
        self.next_ns = self.awaited_ns = FOREVER_NS

    def put(self, link: int, packet: bytes, now_ns: int) -> bool:
        """Queue an arriving packet; return False if the packet is dropped because the queue of the link is full.

        `departures` must have been called for `now_ns`, or for an earlier instant with `next_ns` after `now_ns`.
        """
        its = self._links.get(link)
        if its is None:
            its = self._links[link] = _Link(link)
        if its.queued_byte + len(packet) > self._queue_byte:
            return False
        its.queue.append((packet, now_ns))
        its.queued_byte += len(packet)
        if len(its.queue) == 1:
            if its.on_air:
                self._begin(its, now_ns, 0)
            else:
                self._ask(its, now_ns)
            self._schedule()
        return True

    def departures(self, until_ns: int) -> list[Departure]:
        """Advance time to `until_ns`; return the packets that have left the air by then, in order."""
        gone: list[Departure] = []
        while self.next_ns <= until_ns:
            now_ns = self.next_ns
            if self._ends and self._ends[0][0] == now_ns:
                gone.append(self._depart(now_ns))
            elif self._holds and self._holds[0][0] == now_ns:
                link = self._holds.popleft()[1]
                if link.on_air and link.dry_ns + self._hold_ns == now_ns:
                    self._leave(link)
                    self._rate(now_ns)
            else:
                self._rate(now_ns)
            self._schedule()
        return gone

    def _schedule(self) -> None:
        next_ns = self._edge_ns
        if self._ends and self._ends[0][0] < next_ns:
            next_ns = self._ends[0][0]
        if self._holds and self._holds[0][0] < next_ns:
            next_ns = self._holds[0][0]
        self.next_ns = self.awaited_ns = next_ns
        if not self._ends and not any(link.queue for link in self._on_air):
            self.awaited_ns = FOREVER_NS

    def _begin(self, link: _Link, now_ns: int, done: int) -> None:
        """Put the packet at the head of a queue on the air, of which the work `done` is already complete."""
        link.left = len(link.queue[0][0]) * 8 * BIT - done
        link.since_ns = link.started_ns = now_ns
        link.dry_ns, link.power_ns = FOREVER_NS, 0.0
        if link.per_ns:
            heappush(self._ends, (now_ns + done_ns(link.left, link.per_ns), link.number, link))

    def _depart(self, now_ns: int) -> Departure:
        """Remove the packet that departs first; its link continues, lets another link send, or becomes silent."""
        link = heappop(self._ends)[2]
        packet, arrived_ns = link.queue.popleft()
        link.queued_byte -= len(packet)
        span_ns = now_ns - link.since_ns
        surplus = link.per_ns * span_ns - link.left  # less than a nanosecond's work, credited to the next packet
        power_ns = link.power_ns + link.power * span_ns
        left = Departure(link.number, packet, arrived_ns, link.started_ns, now_ns, power_ns)
        if self._places is not None:
            self._take_turns(link, packet, now_ns, surplus)
        elif link.queue:
            self._begin(link, now_ns, surplus)
        else:
            link.dry_ns = now_ns
            self._holds.append((now_ns + self._hold_ns, link))
        return left

    # ---- turns -------------------------------------------------------------------------------------------------------

    def _ask(self, link: _Link, now_ns: int) -> None:
        """Request that a link may send the packet at the head of its queue."""
        link.cell = self._pace.cell(link.number, now_ns)
        if self._places is None:
            self._enter(link, now_ns)
            self._rate(now_ns)
            return
        cell = self._cells.setdefault(link.cell, _Cell(self._places))
        heappush(cell.waiting, (link.claim(), link))
        if cell.free:
            self._fill(cell, now_ns)
            self._rate(now_ns)

    def _take_turns(self, link: _Link, gone: bytes, now_ns: int, surplus: int) -> None:
        """After a packet, let the link continue, unless its queue is empty or another link has priority."""
        if len(gone) > CONTROL_BYTE:
            link.data_ns = now_ns
        waiting = self._cells[link.cell].waiting
        if link.queue:
            rank = link.claim()
            if not waiting or rank < waiting[0][0]:
                self._begin(link, now_ns, surplus)
                return
            heappush(waiting, (rank, link))
        self._leave(link)
        self._fill(self._cells[link.cell], now_ns)
        self._rate(now_ns)

    def _fill(self, cell: _Cell, now_ns: int) -> None:
        """Let waiting links of a cell send, up to the capacity of the cell."""
        while cell.free and cell.waiting:
            cell.free -= 1
            self._enter(heappop(cell.waiting)[1], now_ns)

    def _enter(self, link: _Link, now_ns: int) -> None:
        insort(self._on_air, link, key=_number)  # always in the same order, so that cached rates are found
        link.on_air, link.per_ns, link.power = True, 0, 0.0
        self._begin(link, now_ns, 0)

    def _leave(self, link: _Link) -> None:
        self._on_air.remove(link)
        link.on_air, link.dry_ns = False, FOREVER_NS
        if self._places is not None:
            self._cells[link.cell].free += 1

    # ---- rates -------------------------------------------------------------------------------------------------------

    def _rate(self, now_ns: int) -> None:
        """Subtract the completed work of the packets on the air, and update the rates."""
        on_air = self._on_air
        for link in on_air:
            span_ns = now_ns - link.since_ns
            link.left -= link.per_ns * span_ns
            link.power_ns += link.power * span_ns
            link.since_ns = now_ns
        if not on_air:
            self._ends, self._edge_ns = [], FOREVER_NS
            return
        per_ns, power, self._edge_ns = self._pace.rates(tuple([link.number for link in on_air]), now_ns)
        for link, its, share in zip(on_air, per_ns, power, strict=True):
            link.per_ns, link.power = its, share
        self._ends = [
            (now_ns + done_ns(link.left, link.per_ns), link.number, link)
            for link in on_air
            if link.queue and link.per_ns
        ]
        heapify(self._ends)
