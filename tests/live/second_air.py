"""A second implementation of the air for packets: it looks at every single nanosecond."""

from fednet_emu.kernel.work import BIT
from fednet_emu.realtime.pace import Paced


class Steps:
    """Rates in bit/ns that depend on who is on the air, and on the block: every `length_ns` there is a new one."""

    def __init__(self, length_ns: int, table: list[int]) -> None:
        self.length_ns, self.table = length_ns, table

    def bits(self, links: tuple[int, ...], block: int) -> list[int]:
        return [self.table[(7 * link + 3 * len(links) + block) % len(self.table)] // len(links) for link in links]

    def rates(self, links: tuple[int, ...], now_ns: int) -> Paced:
        block = now_ns // self.length_ns
        per_ns = tuple(bits * BIT for bits in self.bits(links, block))
        return Paced(per_ns, (1.0,) * len(links), (block + 1) * self.length_ns)

    def cell(self, _link: int, _now_ns: int) -> int:
        return 0


class SlowAir:
    """The air, nanosecond by nanosecond: who has a place, and who waits.

    Args:
        steps: the rates.
        places: largest number of links on the air; None for no limit.
        room_byte: room in each queue.
        hold_ns: hold time.
        control: largest packet that does not wait for a turn.
        turn_ns: how long a link keeps its turn.
    """

    def __init__(
        self, steps: Steps, places: int | None, room_byte: int, hold_ns: int, control: int, turn_ns: int
    ) -> None:
        self.steps, self.places, self.room_byte, self.hold_ns, self.control = steps, places, room_byte, hold_ns, control
        self.turn_ns = turn_ns
        self.now, self.dropped = 0, 0
        self.gone: list[tuple[int, int, int, int]] = []
        self.queue: dict[int, list[tuple[int, int]]] = {}  # sizes, and when they came
        self.on_air: list[int] = []
        self.left: dict[int, int] = {}
        self.began: dict[int, int] = {}
        self.turn: dict[int, int] = {}
        self.data: dict[int, int] = {}  # when the last packet left that is no control packet
        self.dry: dict[int, int] = {}

    def play(self, packets: list[tuple[int, int, int]]) -> tuple[list[tuple[int, int, int, int]], int]:
        """Departures (link, size, start, end) of packets (time, link, size), and how many were dropped."""
        pending = sorted(packets, key=lambda one: one[0])
        while pending or any(self.queue.values()) or self.on_air:
            for link in sorted(self.on_air):
                if self.queue[link] and self.left[link] <= 0:
                    self.end(link)
            for link in [*self.on_air]:
                if self.dry.get(link, self.now) + self.hold_ns <= self.now:
                    self.on_air.remove(link)
            while pending and pending[0][0] == self.now:
                self.come(*pending.pop(0)[1:])
            bits = self.steps.bits(tuple(self.on_air), self.now // self.steps.length_ns) if self.on_air else []
            for link, carried in zip(self.on_air, bits, strict=True):
                self.left[link] -= carried
            self.now += 1
        return self.gone, self.dropped

    def begin(self, link: int, credit: int = 0) -> None:
        """Put the head of a queue on the air, of which so many bits are carried."""
        self.left[link], self.began[link] = 8 * self.queue[link][0][0] - credit, self.now
        self.dry.pop(link, None)

    def fill(self) -> None:
        """Those who wait take free places: small packets first, then in the order of the turns."""
        waiting = [link for link, its in self.queue.items() if its and link not in self.on_air]
        for link in sorted(waiting, key=self.rank):
            if self.places is None or len(self.on_air) < self.places:
                self.on_air.append(link)
                self.begin(link)

    def rank(self, link: int) -> tuple[bool, int, int]:
        size, came = self.queue[link][0]
        return size > self.control, self.turn[link] if size > self.control else came, link

    def ask(self, link: int) -> None:
        """A packet gets to the head of a queue: one that comes long after the last data asks for a new turn."""
        size, came = self.queue[link][0]
        if size > self.control and (link not in self.data or came >= self.data[link] + self.turn_ns):
            self.turn[link] = self.data[link] = came

    def end(self, link: int) -> None:
        """The head of a link has left."""
        size, _ = self.queue[link].pop(0)
        self.gone.append((link, size, self.began[link], self.now))
        if size > self.control:
            self.data[link] = self.now
        if self.queue[link]:
            self.ask(link)
        if self.places is None:
            if self.queue[link]:
                self.begin(link, -self.left[link])
            else:
                self.dry[link] = self.now
            return
        first = min((one for one, its in self.queue.items() if its and (one == link or one not in self.on_air)),
                    key=self.rank, default=None)  # fmt: skip
        if first == link:
            self.begin(link, -self.left[link])
        else:
            self.on_air.remove(link)
            self.fill()

    def come(self, link: int, size: int) -> None:
        """A packet comes."""
        its = self.queue.setdefault(link, [])
        if sum(one for one, _ in its) + size > self.room_byte:
            self.dropped += 1
            return
        its.append((size, self.now))
        if len(its) == 1:
            self.ask(link)
            if link in self.on_air:
                self.begin(link)
            else:
                self.fill()
