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
"""Largest packet that waits for no turn: acknowledgements and handshakes go between two packets of others."""
TURN_NS = 100_000_000
"""How long a link keeps its turn after its last packet that is larger. Others use the air meanwhile, so that this costs
nothing; it is longer than a busy host lets a sender wait for a processor."""


class Departure(NamedTuple):
    """A packet that has left the air: of which link, what, and when (ns) it came, its first bit left, and its last.

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
        self.queue: deque[tuple[bytes, int]] = deque()  # packets, and when they came
        self.queued_byte = 0
        self.left = 0  # work of the head at `since_ns`
        self.since_ns = self.started_ns = 0
        self.per_ns, self.power, self.power_ns = 0, 0.0, 0.0
        self.on_air = False
        self.turn_ns = -TURN_NS  # when its turn was asked for
        self.data_ns = -TURN_NS  # when its last packet left that was no control packet
        self.dry_ns = FOREVER_NS  # since when its queue is empty while it is on the air

    def claim(self) -> tuple[int, int, int]:
        """Rank a new head: control packets come first, then turns in their order; a turn is asked for if it is due."""
        packet, arrived_ns = self.queue[0]
        if len(packet) <= CONTROL_BYTE:
            return 0, arrived_ns, self.number
        if arrived_ns >= self.data_ns + TURN_NS:
            self.turn_ns = self.data_ns = arrived_ns
        return 1, self.turn_ns, self.number


_number = attrgetter("number")


class _Cell:
    """The places of a cell: how many are free, and a heap of the links that wait for one."""

    def __init__(self, free: int) -> None:
        self.free = free
        self.waiting: list[tuple[tuple[int, int, int], _Link]] = []


class LiveAir:
    """The packets of one direction, whose links share a band as the access scheme says.

    Without a limit of places, a link with packets is on the air until its queue has been empty for the hold time. With
    one, links take turns in the order in which they asked; whoever has the first turn sends whenever it has packets,
    and keeps it for `TURN_NS` after its last one. A packet that is on the air is never interrupted, and one of at most
    `CONTROL_BYTE` goes before all others.

    All times are scenario time in ns. A departure follows from the instants at which packets came and from the rates,
    never from the instant at which it is asked for: whoever asks late gets the same departures.

    Args:
        pace: the rates.
        places: largest number of links of a cell on the air at once; None for no limit.
        queue_byte: room in the queue of each link; what does not fit is dropped.
        hold_ns: how long a link counts as on the air after its queue ran dry, where there is no limit of places.

    Attributes:
        next_ns: the instant of the next departure or change of rates; `departures` must be called before the next `put`
            after it.
        awaited_ns: `next_ns` while a packet is on its way; without one nothing can leave before the next `put`.
    """

    def __init__(self, pace: Pace, *, places: int | None, queue_byte: int, hold_ns: int) -> None:
        self._pace, self._places, self._queue_byte, self._hold_ns = pace, places, queue_byte, hold_ns
        self._links: dict[int, _Link] = {}
        self._cells: dict[int, _Cell] = {}
        self._on_air: list[_Link] = []
        self._ends: list[tuple[int, int, _Link]] = []  # heap of the ends of all heads on the air
        self._holds: deque[tuple[int, _Link]] = deque()  # when links leave whose queue is dry, if it stays so
        self._edge_ns = FOREVER_NS
        self.next_ns = self.awaited_ns = FOREVER_NS

    def put(self, link: int, packet: bytes, now_ns: int) -> bool:
        """Queue a packet that comes now; False if its queue is full and it is dropped.

        `departures` must have been called for this instant, or for an earlier one with `next_ns` still ahead.
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
        """Let time pass until an instant; return the packets that have left by then, in order."""
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
        """Put the head of a queue on the air, of which so much work is done already."""
        link.left = len(link.queue[0][0]) * 8 * BIT - done
        link.since_ns = link.started_ns = now_ns
        link.dry_ns, link.power_ns = FOREVER_NS, 0.0
        if link.per_ns:
            heappush(self._ends, (now_ns + done_ns(link.left, link.per_ns), link.number, link))

    def _depart(self, now_ns: int) -> Departure:
        """The packet whose end is first leaves; its link goes on, leaves its place to another, or falls silent."""
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

    # ---- who is on the air -------------------------------------------------------------------------------------------

    def _ask(self, link: _Link, now_ns: int) -> None:
        """Ask for a place for the link's head."""
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
        """After a packet of a link with a place: the link goes on, unless it is silent or another comes first."""
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
        """Those who wait take free places."""
        while cell.free and cell.waiting:
            cell.free -= 1
            self._enter(heappop(cell.waiting)[1], now_ns)

    def _enter(self, link: _Link, now_ns: int) -> None:
        insort(self._on_air, link, key=_number)  # in one order, so that rates that are known are found again
        link.on_air, link.per_ns, link.power = True, 0, 0.0
        self._begin(link, now_ns, 0)

    def _leave(self, link: _Link) -> None:
        self._on_air.remove(link)
        link.on_air, link.dry_ns = False, FOREVER_NS
        if self._places is not None:
            self._cells[link.cell].free += 1

    # ---- rates -------------------------------------------------------------------------------------------------------

    def _rate(self, now_ns: int) -> None:
        """Subtract what the heads have carried so far, and ask for the rates from now on."""
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
