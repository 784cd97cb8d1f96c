"""A second implementation of the air for packets: it looks at every single nanosecond."""

from fednet_emu.kernel.work import BIT
from fednet_emu.live.pace import Paced


class Steps:
    """Rates in bit/ns that depend on who is on the air, and on the block: every `length_ns` there is a new one."""

    def __init__(self, length_ns: int, table: list[int]) -> None:
        self.length_ns, self.table = length_ns, table

    def bits(self, links: tuple[int, ...], block: int) -> list[int]:
        """Bits per ns [links] in a block."""
        return [self.table[(7 * link + 3 * len(links) + block) % len(self.table)] // len(links) for link in links]

    def rates(self, links: tuple[int, ...], now_ns: int) -> Paced:
        """What the first implementation asks."""
        block = now_ns // self.length_ns
        per_ns = tuple(bits * BIT for bits in self.bits(links, block))
        return Paced(per_ns, (1.0,) * len(links), (block + 1) * self.length_ns)

    def cell(self, _link: int, _now_ns: int) -> int:
        """There is one cell."""
        return 0


class SlowAir:
    """The air, nanosecond by nanosecond: who has a place, who has borrowed one, and who waits.

    Args:
        steps: the rates.
        places: largest number of links on the air; None for no limit.
        room_byte: room in each queue.
        hold_ns: hold time.
        control: largest packet that does not wait for a turn.
    """

    def __init__(self, steps: Steps, places: int | None, room_byte: int, hold_ns: int, control: int) -> None:
        self.steps, self.places, self.room_byte, self.hold_ns, self.control = steps, places, room_byte, hold_ns, control
        self.now, self.dropped = 0, 0
        self.gone: list[tuple[int, int, int, int]] = []
        self.queue: dict[int, list[int]] = {}
        self.on_air: list[int] = []
        self.borrowed_from: dict[int, int | None] = {}  # links that borrow a place, and whose it is
        self.lent: set[int] = set()
        self.ask_control: list[int] = []
        self.ask: list[int] = []
        self.left: dict[int, int] = {}
        self.began: dict[int, int] = {}
        self.data: dict[int, int] = {}  # when the last packet left that prolongs the hold time
        self.dry: dict[int, int] = {}

    def play(self, packets: list[tuple[int, int, int]]) -> tuple[list[tuple[int, int, int, int]], int]:
        """Departures (link, size, start, end) of packets (time, link, size), and how many were dropped."""
        pending = sorted(packets, key=lambda one: one[0])
        while pending or any(self.queue.values()) or self.on_air:
            for link in sorted(self.on_air):
                if link in self.on_air and self.queue[link] and self.left[link] <= 0:
                    self.end(link)
            for link in [*self.on_air]:
                if link in self.dry and self.dry[link] + self.hold_ns <= self.now:
                    self.on_air.remove(link)
                    del self.dry[link]
                    self.fill()
            while pending and pending[0][0] == self.now:
                self.come(*pending.pop(0)[1:])
            for link, bits in zip(self.on_air, self.bits(), strict=True):
                if self.queue[link]:
                    self.left[link] -= bits
            self.now += 1
        return self.gone, self.dropped

    def bits(self) -> list[int]:
        """Bits that each link on the air carries in this nanosecond."""
        return self.steps.bits(tuple(self.on_air), self.now // self.steps.length_ns) if self.on_air else []

    def begin(self, link: int, credit: int = 0) -> None:
        """Put the head of a queue on the air, of which so many bits are carried."""
        self.left[link], self.began[link] = 8 * self.queue[link][0] - credit, self.now
        self.dry.pop(link, None)

    def enter(self, link: int) -> None:
        """Put a link on the air."""
        self.on_air.append(link)
        if self.queue[link]:
            self.begin(link)

    def borrow(self, lender: int | None) -> None:
        """The first who asks with a small packet gets the place of a link, or a free one."""
        link = self.ask_control.pop(0)
        self.borrowed_from[link] = lender
        self.enter(link)

    def fill(self) -> None:
        """Those who wait take free places."""
        while (self.ask_control or self.ask) and (self.places is None or len(self.on_air) < self.places):
            if self.ask_control:
                self.borrow(None)
            else:
                self.enter(self.ask.pop(0))

    def wait(self, link: int) -> None:
        """A link asks for a place."""
        small = self.places is not None and self.queue[link][0] <= self.control
        (self.ask_control if small else self.ask).append(link)

    def end(self, link: int) -> None:
        """The head of a link has left."""
        size = self.queue[link].pop(0)
        self.gone.append((link, size, self.began[link], self.now))
        if link in self.borrowed_from:
            self.give_back(link)
            return
        if size > self.control or self.places is None:
            self.data[link] = self.now
        if not self.queue[link]:
            self.dry[link] = self.data[link]
        if self.ask_control:
            self.on_air.remove(link)
            self.lent.add(link)
            self.borrow(link)
        elif self.queue[link]:
            self.begin(link, -self.left[link])

    def give_back(self, link: int) -> None:
        """A borrowed place goes to the next small packet, or back."""
        lender = self.borrowed_from.pop(link)
        self.on_air.remove(link)
        if self.queue[link]:
            self.wait(link)
        if lender is None:
            self.fill()
        elif self.ask_control:
            self.borrow(lender)
        else:
            self.lent.remove(lender)
            if self.queue[lender] or self.dry[lender] + self.hold_ns > self.now:
                self.enter(lender)
            else:
                del self.dry[lender]
                self.fill()

    def come(self, link: int, size: int) -> None:
        """A packet comes."""
        its = self.queue.setdefault(link, [])
        if sum(its) + size > self.room_byte:
            self.dropped += 1
            return
        its.append(size)
        if len(its) > 1 or link in self.lent:
            return
        if link in self.on_air:
            self.begin(link)
            return
        self.wait(link)
        idle = [one for one in self.on_air if one in self.dry]
        if self.ask_control and idle and len(self.on_air) >= (self.places or 0):
            self.on_air.remove(idle[0])
            self.lent.add(idle[0])
            self.borrow(idle[0])
        self.fill()
