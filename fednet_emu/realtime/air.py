"""Emulated radio channel for packets in one direction: queues, turns, and departures at exact scenario times."""

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
"""Maximum size in bytes of packets, such as acknowledgements, that a link may send without a turn between packets of
other links."""
TURN_NS = 100_000_000
"""Time in ns for which a link keeps its turn after its last packet above `CONTROL_BYTE`; other links may send during
this time. On a busy host, a sender may wait for a processor between two packets, but for less than this time."""


class Departure(NamedTuple):
    """A packet whose transmission has ended, with the link that carried it; all times are in ns.

    `power_ns` is the sender's power as a fraction of full power, integrated over the time of the transmission in ns.
    """

    link: int
    packet: bytes
    arrived_ns: int
    started_ns: int
    ended_ns: int
    power_ns: float


class _Link:
    """A link with a queue of packets; while the link is active, the packet at the head of the queue is transmitted."""

    def __init__(self, number: int) -> None:
        self.number, self.cell = number, 0
        self.queue: deque[tuple[bytes, int]] = deque()  # each packet with its arrival time
        self.queued_byte = 0
        self.left = 0  # remaining work for the packet at the head, at the time `since_ns`
        self.since_ns = self.started_ns = 0
        self.per_ns, self.power, self.power_ns = 0, 0.0, 0.0
        self.on_air = False
        self.turn_ns = -TURN_NS  # time at which the link requested its turn
        self.data_ns = -TURN_NS  # departure of the last packet above `CONTROL_BYTE`
        self.dry_ns = FOREVER_NS  # time since which the active link has an empty queue

    def claim(self) -> tuple[int, int, int]:
        """Return the sort key of the next packet, and request a turn for the link if it needs one.

        Control packets are first, in order of arrival. Other packets are in the order of the turns of their links.
        """
        packet, arrived_ns = self.queue[0]
        if len(packet) <= CONTROL_BYTE:
            return 0, arrived_ns, self.number
        if arrived_ns >= self.data_ns + TURN_NS:
            self.turn_ns = self.data_ns = arrived_ns
        return 1, self.turn_ns, self.number


_number = attrgetter("number")


class _Cell:
    """A cell with a heap of the links that wait for a turn; `free` further links may become active."""

    def __init__(self, free: int) -> None:
        self.free = free
        self.waiting: list[tuple[tuple[int, int, int], _Link]] = []


class LiveAir:
    """Emulator of the packets in one direction (uplink or downlink); the links share a band by an access scheme.

    If `places` is None, a link becomes active with its first packet, and stays active until its queue has been empty
    for `hold_ns`. Otherwise, at most `places` links of a cell are active at once, and links take turns in the order of
    their requests. During its turn, a link sends whenever it has packets. It keeps its turn for `TURN_NS` after its
    last packet. A transmission is never interrupted. Packets of at most `CONTROL_BYTE` are sent before all larger
    packets.

    All times are scenario time in ns. The times of departures follow from the arrival times of packets and from the
    rates, so that a late call of `departures` returns the same times.

    Args:
        pace: the source of the rates of links.
        places: maximum number of links of a cell that are active at once; None for no limit.
        queue_byte: capacity in bytes of the queue of each link; further packets are dropped.
        hold_ns: time in ns for which a link stays active after its queue became empty, if `places` is None.

    Attributes:
        next_ns: instant of the next departure or change of rates. Before a call of `put` after this instant,
            `departures` must be called.
        awaited_ns: equal to `next_ns` while a packet is being transmitted; otherwise infinite, because no packet can
            depart before the next `put`.
    """

    def __init__(self, pace: Pace, *, places: int | None, queue_byte: int, hold_ns: int) -> None:
        self._pace, self._places, self._queue_byte, self._hold_ns = pace, places, queue_byte, hold_ns
        self._links: dict[int, _Link] = {}
        self._cells: dict[int, _Cell] = {}
        self._on_air: list[_Link] = []
        self._ends: list[tuple[int, int, _Link]] = []  # heap of the departure times of all packets in transmission
        self._holds: deque[tuple[int, _Link]] = deque()  # when each link with an empty queue stops being active
        self._edge_ns = FOREVER_NS
        self.next_ns = self.awaited_ns = FOREVER_NS

    def put(self, link: int, packet: bytes, now_ns: int) -> bool:
        """Queue a packet that arrives at `now_ns`; return False if the packet is dropped because the queue is full.

        All departures up to `now_ns` must have been fetched by `departures`, so that `next_ns` is after `now_ns`.
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
        """Advance time to `until_ns`; return the packets whose transmission ends by then, in order of time."""
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
        """Start to transmit the packet at the head of a link's queue.

        `done` is the transmission work, in the unit of `kernel.work`, that is already complete.
        """
        link.left = len(link.queue[0][0]) * 8 * BIT - done
        link.since_ns = link.started_ns = now_ns
        link.dry_ns, link.power_ns = FOREVER_NS, 0.0
        if link.per_ns:
            heappush(self._ends, (now_ns + done_ns(link.left, link.per_ns), link.number, link))

    def _depart(self, now_ns: int) -> Departure:
        """Return the packet that departs first; its link then continues, yields to another link, or becomes idle."""
        link = heappop(self._ends)[2]
        packet, arrived_ns = link.queue.popleft()
        link.queued_byte -= len(packet)
        span_ns = now_ns - link.since_ns
        surplus = link.per_ns * span_ns - link.left  # work of less than 1 ns, credited to the next packet
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
        """Request that a link becomes active, to send the packet at the head of its queue."""
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
        """After the transmission of the packet `gone`, start the link's next packet, unless another link has priority.

        `surplus` is the transmission work of less than 1 ns that is credited to the next packet.
        """
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
        while cell.free and cell.waiting:
            cell.free -= 1
            self._enter(heappop(cell.waiting)[1], now_ns)

    def _enter(self, link: _Link, now_ns: int) -> None:
        insort(self._on_air, link, key=_number)  # sorted, so that cached rates are found
        link.on_air, link.per_ns, link.power = True, 0, 0.0
        self._begin(link, now_ns, 0)

    def _leave(self, link: _Link) -> None:
        self._on_air.remove(link)
        link.on_air, link.dry_ns = False, FOREVER_NS
        if self._places is not None:
            self._cells[link.cell].free += 1

    # ---- rates -------------------------------------------------------------------------------------------------------

    def _rate(self, now_ns: int) -> None:
        """Update the remaining work of all packets in transmission, and then the rates of active links."""
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
