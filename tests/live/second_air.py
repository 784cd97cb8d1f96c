"""A second implementation of the air for packets: it looks at every single nanosecond."""

from typing import NamedTuple

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


class Turn(NamedTuple):
    """A place: who has it, and who has lent it."""

    link: int
    lender: int | None


def slow_departures(
    packets: list[tuple[int, int, int]], steps: Steps, places: int | None, room_byte: int, hold_ns: int, control: int
) -> tuple[list[tuple[int, int, int, int]], int]:
    """Departures (link, size, start, end) of packets (time, link, size), and how many were dropped.

    Links that end in one instant do so in the order of their numbers.
    """
    pending, queue, gone, dropped = sorted(packets, key=lambda one: one[0]), {}, [], 0
    on_air: list[int] = []
    turns: dict[int, int | None] = {}  # who has a place: the link whose turn it has borrowed, or None
    borrows: set[int] = set()
    ask_control: list[int] = []
    ask: list[int] = []
    left: dict[int, int] = {}
    began: dict[int, int] = {}
    dry: dict[int, int] = {}
    data: dict[int, int] = {}
    lent: set[int] = set()
    now = 0

    def begin(link: int, credit: int = 0) -> None:
        left[link], began[link] = 8 * queue[link][0] - credit, now
        dry.pop(link, None)

    def enter(link: int, lender: int | None, borrow: bool) -> None:
        on_air.append(link)
        if lender is not None:
            turns[link] = lender
        if borrow:
            borrows.add(link)
        if queue[link]:
            begin(link)

    def fill() -> None:
        while (ask_control or ask) and (places is None or len(on_air) < places):
            borrow = places is not None and bool(ask_control)
            enter((ask_control or ask).pop(0), None, borrow)

    while pending or any(queue.values()) or on_air:
        # what ends now
        for link in sorted(on_air):
            if link not in on_air or not queue[link] or left[link] > 0 or link in lent:
                continue
            size = queue[link].pop(0)
            gone.append((link, size, began[link], now))
            credit = -left[link]
            if link in borrows:
                borrows.discard(link)
                on_air.remove(link)
                if queue[link]:
                    (ask if queue[link][0] > control else ask_control).append(link)
                lender = turns.pop(link, None)
                if lender is None:
                    fill()
                elif ask_control:
                    enter(ask_control.pop(0), lender, True)
                else:
                    lent.discard(lender)
                    if queue[lender] or dry[lender] + hold_ns > now:
                        enter(lender, None, False)
                    else:
                        dry.pop(lender)
                        fill()
                continue
            if size > control or places is None:
                data[link] = now
            if not queue[link]:
                dry[link] = data[link]
            if places is not None and ask_control:
                on_air.remove(link)
                lent.add(link)
                enter(ask_control.pop(0), link, True)
            elif queue[link]:
                begin(link, credit)
        # who has been silent for long enough
        for link in [one for one in on_air if dry.get(one, now) + hold_ns <= now and one in dry]:
            on_air.remove(link)
            dry.pop(link)
            fill()
        # what comes now
        while pending and pending[0][0] == now:
            _, link, size = pending.pop(0)
            its = queue.setdefault(link, [])
            if sum(its) + size > room_byte:
                dropped += 1
                continue
            its.append(size)
            if len(its) > 1 or link in lent:
                continue
            if link in on_air:
                begin(link)
                continue
            (ask if size > control or places is None else ask_control).append(link)
            idle = [one for one in on_air if one in dry]
            if places is not None and len(on_air) >= places and idle and ask_control:
                on_air.remove(idle[0])
                lent.add(idle[0])
                enter(ask_control.pop(0), idle[0], True)
            fill()
        # a nanosecond passes
        if on_air:
            for link, bits in zip(on_air, steps.bits(tuple(on_air), now // steps.length_ns), strict=True):
                if queue[link]:
                    left[link] -= bits
        now += 1
    return gone, dropped
