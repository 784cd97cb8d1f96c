"""One direction of the air for packets: queues, turns, and departures at exact instants of scenario time."""

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
"""Largest packet that does not wait for a turn: acknowledgements and handshakes are sent between packets of others."""
TURN_NS = 100_000_000
"""Time that a link keeps its turn after its last larger packet. Others use the air meanwhile; it is longer than the
wait of a sender for a processor on a busy host.
"""


class Departure(NamedTuple):
    """A packet that has left the air: its link, content, and the instants (ns) of its arrival, first bit and last bit.

    `power_ns` is the integral, over its time on the air, of the share of the sender's power.
    """

    link: int
    packet: bytes
    arrived_ns: int
    started_ns: int
    ended_ns: int
    power_ns: float


class _Link:
    """A link with its queue; the packet at its head is on the air while the link is."""

    def __init__(self, number: int) -> None:
        self.number, self.cell = number, 0
        self.queue: deque[tuple[bytes, int]] = deque()  # packets and their arrivals
        self.queued_byte = 0
        self.left = 0  # work of the head at `since_ns`
        self.since_ns = self.started_ns = 0
        self.per_ns, self.power, self.power_ns = 0, 0.0, 0.0
        self.on_air = False
        self.turn_ns = -TURN_NS  # request of its turn
        self.data_ns = -TURN_NS  # departure of its last packet that was no control packet
        self.dry_ns = FOREVER_NS  # start of its empty queue while it is on the air

    def claim(self) -> tuple[int, int, int]:
        """Rank a new head: control packets first, then turns in order; a turn is requested if necessary."""
        packet, arrived_ns = self.queue[0]
        if len(packet) <= CONTROL_BYTE:
            return 0, arrived_ns, self.number
        if arrived_ns >= self.data_ns + TURN_NS:
            self.turn_ns = self.data_ns = arrived_ns
        return 1, self.turn_ns, self.number


_number = attrgetter("number")


class _Cell:
    """The places of a cell: the number of free ones, and a heap of waiting links."""

    def __init__(self, free: int) -> None:
        self.free = free
        self.waiting: list[tuple[tuple[int, int, int], _Link]] = []


class LiveAir:
    """The packets of one direction, whose links share a band by the access scheme.

    Without a limit of places, a link with packets is on the air until its queue has been empty for the hold time. With
    a limit, links take turns in the order of their requests; the link with the first turn sends whenever it has
    packets, and keeps the turn for `TURN_NS` after its last one. A packet on the air is never interrupted, and one of
    at most `CONTROL_BYTE` precedes all others.

    All times are scenario time in ns. A departure follows from the arrivals of packets and from the rates, not from the
    instant of the call: a late caller gets the same departures.

    Args:
        pace: the rates.
        places: largest number of simultaneous links of a cell on the air; None for no limit.
        queue_byte: capacity of the queue of each link; further packets are dropped.
        hold_ns: time that a link counts as on the air after its queue became empty, without a limit of places.

    Attributes:
        next_ns: the instant of the next departure or change of rates; `departures` must be called before the next `put`
            after it.
        awaited_ns: `next_ns` while a packet is on the air; without one no packet can leave before the next `put`.
    """

    def __init__(self, pace: Pace, *, places: int | None, queue_byte: int, hold_ns: int) -> None:
        self._pace, self._places, self._queue_byte, self._hold_ns = pace, places, queue_byte, hold_ns
        self._links: dict[int, _Link] = {}
        self._cells: dict[int, _Cell] = {}
        self._on_air: list[_Link] = []
        self._ends: list[tuple[int, int, _Link]] = []  # heap of the ends of all heads on the air
        self._holds: deque[tuple[int, _Link]] = deque()  # instants at which links with empty queues leave
        self._edge_ns = FOREVER_NS
        self.next_ns = self.awaited_ns = FOREVER_NS

    def put(self, link: int, packet: bytes, now_ns: int) -> bool:
        """Queue an arriving packet; False if its queue is full and it is dropped.

        `departures` must have been called for this instant, or for an earlier one with `next_ns` in the future.
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
        """Advance time to an instant; return the packets that have left by then, in order."""
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
        """Put the head of a queue on the air; `done` work of it is complete."""
        link.left = len(link.queue[0][0]) * 8 * BIT - done
        link.since_ns = link.started_ns = now_ns
        link.dry_ns, link.power_ns = FOREVER_NS, 0.0
        if link.per_ns:
            heappush(self._ends, (now_ns + done_ns(link.left, link.per_ns), link.number, link))

    def _depart(self, now_ns: int) -> Departure:
        """Remove the packet with the first end; its link continues, gives its place to another, or becomes silent."""
        link = heappop(self._ends)[2]
        packet, arrived_ns = link.queue.popleft()
        link.queued_byte -= len(packet)
        span_ns = now_ns - link.since_ns
        surplus = link.per_ns * span_ns - link.left  # less than a nanosecond's work, which the next packet gets
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
        """Request a place for the link's head."""
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
        """After a packet of a link with a place: the link continues, unless it is silent or another has priority."""
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
        """Give free places to waiting links."""
        while cell.free and cell.waiting:
            cell.free -= 1
            self._enter(heappop(cell.waiting)[1], now_ns)

    def _enter(self, link: _Link, now_ns: int) -> None:
        insort(self._on_air, link, key=_number)  # in one order, so that known rates are found again
        link.on_air, link.per_ns, link.power = True, 0, 0.0
        self._begin(link, now_ns, 0)

    def _leave(self, link: _Link) -> None:
        self._on_air.remove(link)
        link.on_air, link.dry_ns = False, FOREVER_NS
        if self._places is not None:
            self._cells[link.cell].free += 1

    # ---- rates -------------------------------------------------------------------------------------------------------

    def _rate(self, now_ns: int) -> None:
        """Subtract the completed work of the heads, and update the rates."""
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
