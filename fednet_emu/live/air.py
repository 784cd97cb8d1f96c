"""One direction of the air for packets: queues, turns, and departures at exact instants of scenario time."""

from __future__ import annotations

from collections import deque
from heapq import heapify, heappop, heappush
from typing import NamedTuple

from fednet_emu.kernel.clock import FOREVER_NS
from fednet_emu.kernel.work import BIT, done_ns
from fednet_emu.live.pace import Pace

CONTROL_BYTE = 200
"""Largest packet that waits for no turn: acknowledgements and handshakes go between two packets of others."""


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
        self.data_ns = 0  # when its last packet left that was no control packet
        self.dry_ns = FOREVER_NS  # since when the queue of a link on the air is empty, for its hold time
        self.on_air = False
        self.borrows = False  # whether it is on the air for one packet only
        self.lender: _Link | None = None  # whose turn it has borrowed
        self.lends = False


class _Cell:
    """The turns of a cell: free places, and who waits for one, with a control packet or with another."""

    def __init__(self, free: int) -> None:
        self.free = free
        self.control: deque[_Link] = deque()
        self.waiting: deque[_Link] = deque()


class LiveAir:
    """The packets of one direction, whose links share a band as the access scheme says.

    A link with packets is on the air, until its queue has been empty for the hold time. With a limited number of
    places the others wait, in the order of their first packets; a packet of at most `CONTROL_BYTE` does not wait: its
    link borrows a turn for it as soon as the packet that is on the air has left. Such packets prolong no turn either.

    All times are scenario time in ns. A departure follows from the instants at which packets came and from the rates,
    never from the instant at which it is asked for: whoever asks late gets the same departures.

    Args:
        pace: the rates.
        places: largest number of links of a cell on the air at once; None for no limit.
        queue_byte: room in the queue of each link; what does not fit is dropped.
        hold_ns: how long a link counts as on the air after its queue ran dry.

    Attributes:
        next_ns: the instant of the next departure or change of rates; `departures` must be called by then.
    """

    def __init__(self, pace: Pace, *, places: int | None, queue_byte: int, hold_ns: int) -> None:
        self._pace, self._places, self._queue_byte, self._hold_ns = pace, places, queue_byte, hold_ns
        self._links: dict[int, _Link] = {}
        self._cells: dict[int, _Cell] = {}
        self._on_air: list[_Link] = []
        self._ends: list[tuple[int, int, _Link]] = []  # heap of the ends of all heads on the air
        self._holds: list[tuple[int, int, _Link]] = []  # heap of when links leave whose queue is dry, if it stays so
        self._edge_ns = FOREVER_NS
        self.next_ns = FOREVER_NS

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
        if len(its.queue) == 1 and not its.lends:
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
                self._expire(heappop(self._holds)[2], now_ns)
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
        self.next_ns = next_ns

    # ---- packets -----------------------------------------------------------------------------------------------------

    def _begin(self, link: _Link, now_ns: int, done: int) -> None:
        """Put the head of a queue on the air, of which so much work is done already."""
        link.left = len(link.queue[0][0]) * 8 * BIT - done
        link.since_ns = link.started_ns = now_ns
        link.dry_ns, link.power_ns = FOREVER_NS, 0.0
        if link.per_ns:
            heappush(self._ends, (now_ns + done_ns(link.left, link.per_ns), link.number, link))

    def _depart(self, now_ns: int) -> Departure:
        """The packet whose end is first leaves; the turn goes on, is lent, or is given back."""
        link = heappop(self._ends)[2]
        packet, arrived_ns = link.queue.popleft()
        link.queued_byte -= len(packet)
        span_ns = now_ns - link.since_ns
        surplus = link.per_ns * span_ns - link.left  # less than a nanosecond's work, which the next packet gets
        power_ns = link.power_ns + link.power * span_ns
        left = Departure(link.number, packet, arrived_ns, link.started_ns, now_ns, power_ns)
        if link.borrows:
            self._give_back(link, now_ns)
            return left
        if self._places is None or len(packet) > CONTROL_BYTE:
            link.data_ns = now_ns
        if not link.queue:
            link.dry_ns = link.data_ns
            heappush(self._holds, (max(link.dry_ns + self._hold_ns, now_ns), link.number, link))
        if self._places is not None and self._cells[link.cell].control:
            self._lend(link, self._cells[link.cell].control.popleft(), now_ns)
        elif link.queue:
            self._begin(link, now_ns, surplus)
        return left

    def _expire(self, link: _Link, now_ns: int) -> None:
        """Take a link off the air whose queue has been empty for the hold time."""
        if link.on_air and link.dry_ns + self._hold_ns <= now_ns:
            self._on_air.remove(link)
            self._free(link, now_ns)

    # ---- turns -------------------------------------------------------------------------------------------------------

    def _ask(self, link: _Link, now_ns: int) -> None:
        """Ask for a place for the link's head."""
        link.cell = self._pace.cell(link.number, now_ns)
        if self._places is None:
            self._join([link], now_ns)
            return
        cell = self._cells.setdefault(link.cell, _Cell(self._places))
        if len(link.queue[0][0]) > CONTROL_BYTE:
            cell.waiting.append(link)
        else:
            cell.control.append(link)
            idle = next((one for one in self._on_air if one.cell == link.cell and one.dry_ns < FOREVER_NS), None)
            if not cell.free and idle is not None:
                self._lend(idle, cell.control.popleft(), now_ns)
        self._fill(cell, now_ns)

    def _fill(self, cell: _Cell, now_ns: int) -> bool:
        """Let those who wait take free places; whether anybody has."""
        new = []
        while cell.free and (cell.control or cell.waiting):
            link = (cell.control or cell.waiting).popleft()
            link.borrows = len(link.queue[0][0]) <= CONTROL_BYTE
            cell.free -= 1
            new.append(link)
        if new:
            self._join(new, now_ns)
        return bool(new)

    def _free(self, link: _Link, now_ns: int) -> None:
        """Free the place of a link that is off the air, for those who wait."""
        link.on_air, link.dry_ns = False, FOREVER_NS
        cell = self._cells.get(link.cell)
        if cell is not None:
            cell.free += 1
        if cell is None or not self._fill(cell, now_ns):
            self._rate(now_ns)

    def _join(self, links: list[_Link], now_ns: int) -> None:
        for link in links:
            self._on_air.append(link)
            link.on_air, link.per_ns, link.power = True, 0, 0.0
            if link.queue:
                self._begin(link, now_ns, 0)
        self._rate(now_ns)

    def _lend(self, lender: _Link, borrower: _Link, now_ns: int) -> None:
        """Let a link send one packet in the turn of another, which is between two packets."""
        self._on_air.remove(lender)
        lender.on_air, lender.lends = False, True
        borrower.borrows, borrower.lender = True, lender
        self._join([borrower], now_ns)

    def _give_back(self, link: _Link, now_ns: int) -> None:
        """End a borrowed turn: the next control packet has it, or its lender again, or nobody."""
        cell, lender = self._cells[link.cell], link.lender
        self._on_air.remove(link)
        link.on_air, link.borrows, link.lender = False, False, None
        if link.queue:
            (cell.waiting if len(link.queue[0][0]) > CONTROL_BYTE else cell.control).append(link)
        if lender is None:
            self._free(link, now_ns)
        elif cell.control:
            borrower = cell.control.popleft()
            borrower.borrows, borrower.lender = True, lender
            self._join([borrower], now_ns)
        else:
            lender.lends = False
            if lender.queue or lender.dry_ns + self._hold_ns > now_ns:
                self._join([lender], now_ns)
            else:  # its hold time is over meanwhile
                self._free(lender, now_ns)

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
