"""Senders that release their bits in bursts, over any air: in the gaps between these they are off the air."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from heapq import heappop, heappush
from operator import attrgetter
from typing import final

from fednet_emu.kernel.clock import FOREVER_NS
from fednet_emu.network.air.separate import Air, Power, Rates
from fednet_emu.network.air.transfer import Burst, Transfer
from fednet_emu.network.air.window import Window


@dataclass(slots=True)
class Flow:
    """A transfer that is sent in several bursts.

    Attributes:
        burst: the transfer, by itself.
        window: its law.
        size_bit: all its bits.
        number: how many flows of the air started before it.
        started_ns: when its first bit was on the air.
        window_bit: bits of the present window.
        released_ns: when the present burst was released.
        sent_bit: bits of earlier bursts.
        power_s: time on the air in earlier bursts, times share of the sender's power.
        silent_ns: begin of the present gap; `FOREVER_NS` while it is on the air.
        early_bit: bits that the air was given beyond the present burst before its acknowledgements come.
    """

    burst: Burst
    window: Window
    size_bit: int
    number: int
    started_ns: int
    window_bit: int
    released_ns: int
    sent_bit: float = 0.0
    power_s: float = 0.0
    silent_ns: int = FOREVER_NS
    early_bit: int = 0

    @property
    def held_bit(self) -> int:
        """Bits of later bursts, of a transfer that is on the air; 0 in a gap."""
        on_air = self.silent_ns == FOREVER_NS
        return self.size_bit - round(self.sent_bit) - self.burst[0].size_bit if on_air else 0

    @property
    def resumes_ns(self) -> int:
        """When the acknowledgements of the present burst come."""
        return self.released_ns + self.window.rtt_ns

    @property
    def wakes_ns(self) -> int:
        """When the present gap ends, with a burst or a timeout; `FOREVER_NS` while it is on the air."""
        return FOREVER_NS if self.silent_ns == FOREVER_NS else min(self.resumes_ns, self.burst[0].until_ns)


@final
class ReleasedAir:
    """An air on which each burst that a window releases is a transmission of its own; transfers see the whole.

    A burst that has kept the line busy for a round trip is followed at once by all that is left. They are one from the
    instant on at which that is sure: nothing else ends before its acknowledgements come, and what starts until then
    makes it last longer.

    Args:
        air: carries the bursts.
    """

    def __init__(self, air: Air) -> None:
        self._air, self.looks_up = air, air.looks_up
        self._flows: dict[Transfer, Flow] = {}
        self._holding: dict[Transfer, Flow] = {}  # those that may have bits of later bursts
        self._started = 0
        self._gaps: list[tuple[int, int, Flow]] = []  # a heap of their ends as expected, some of which are out of date
        self._now_ns = 0

    def next_end_ns(self) -> int:
        """The next end on the air or the next burst after a gap, the earlier of the two."""
        gaps = self._gaps
        while gaps and gaps[0][0] != gaps[0][2].wakes_ns:
            heappop(gaps)
        next_ns = self._air.next_end_ns()
        if self._extend(next_ns):
            next_ns = self._air.next_end_ns()
        return min(next_ns, gaps[0][0]) if gaps else next_ns

    def start(self, burst: Burst, now_ns: int) -> None:
        """Put the first burst of a transfer on the air."""
        leg = burst[0]
        window = None if leg.phases is None else leg.phases.window
        if window is not None and window.first_bit < leg.size_bit:
            flow = self._flows[leg] = Flow(
                burst, window, leg.size_bit, self._started, now_ns, window.first_bit, released_ns=now_ns
            )
            self._started += 1
            self._release(flow, window.first_bit, now_ns)
        else:
            self._air.start(burst, now_ns)

    def settle(self) -> None:
        """Settle the energies of earlier bursts of all transfers that are under way."""
        for leg, flow in self._flows.items():
            leg.settle(flow.power_s)
            flow.power_s = 0.0

    def cut(self, leg: Transfer, burst: Burst, now_ns: int) -> None:
        """Give up a leg; a transfer in a gap ends with the next `advance`, as its `until_ns` is now."""
        for other, early in self._flows.items():
            if early.early_bit and now_ns < early.resumes_ns:  # others may be faster from now on
                self._air.extend(other, -early.early_bit)
                self._holding[other] = early
            early.early_bit = 0
        flow = self._flows.get(leg)
        if flow is None or flow.silent_ns == FOREVER_NS:
            self._air.cut(leg, burst, now_ns)
        else:
            self._note_gap(flow)

    def extend(self, leg: Transfer, bits: int) -> None:
        """Give a leg more bits that are released as the present burst is."""
        self._air.extend(leg, bits)

    def advance(self, now_ns: int) -> list[Burst]:
        """Carry bits until now, and release the bursts that are due; return the transfers that have ended."""
        self._now_ns = now_ns
        self._extend(now_ns)
        ended = [burst for burst in self._air.advance(now_ns) if self._is_over(burst, now_ns)]
        for flow in self._woken(now_ns):
            leg = flow.burst[0]
            if leg.until_ns <= now_ns:
                leg.lost, leg.air_bit, leg.power_s = leg.until_reason, 0.0, 0.0
                self._close(flow, now_ns)
                ended.append(flow.burst)
            else:
                self._end_gap(flow, now_ns)
                flow.window_bit, flow.released_ns = flow.window.after(flow.window_bit), now_ns
                self._release(flow, flow.window_bit, now_ns)
        return ended

    def _extend(self, until_ns: int) -> bool:
        """Give the air all bits of transfers whose acknowledgements come by an instant until which nothing ends.

        Returns whether there were any.
        """
        found = False
        for leg, flow in [*self._holding.items()]:
            if flow.resumes_ns <= until_ns:
                held_bit = flow.held_bit
                if held_bit:
                    self._air.extend(leg, held_bit)
                    flow.early_bit = held_bit - flow.held_bit
                    found = found or flow.early_bit > 0
                if not flow.held_bit:
                    del self._holding[leg]
        return found

    def powers(self) -> Iterator[Power]:
        """The planned powers; none in a gap, and full power on the air unless that is planned otherwise."""
        for leg, flow in self._flows.items():
            yield Power(leg, (self._now_ns,), (1.0 if flow.silent_ns == FOREVER_NS else 0.0,))
        yield from self._air.powers()

    def rates(self) -> Iterable[Rates]:
        """The planned rates of what is on the air."""
        return self._air.rates()

    def _is_over(self, burst: Burst, now_ns: int) -> bool:
        """Whether a burst is the last of its transfer; if not, what follows is released, or waits for its release."""
        leg = burst[0]
        flow = self._flows.get(leg)
        if flow is None:
            return True
        left_bit = flow.size_bit - flow.sent_bit - leg.air_bit
        if left_bit > 0 and not leg.lost and leg.until_ns <= now_ns:
            leg.lost = leg.until_reason
        if leg.lost or left_bit <= 0:
            self._close(flow, now_ns)
            return True
        flow.sent_bit += leg.air_bit
        flow.power_s += leg.power_s
        if now_ns >= flow.resumes_ns:
            flow.released_ns = now_ns
            self._release(flow, flow.size_bit, now_ns)
        else:
            flow.silent_ns = now_ns
            self._note_gap(flow)
        return False

    def _note_gap(self, flow: Flow) -> None:
        heappush(self._gaps, (flow.wakes_ns, flow.number, flow))

    def _woken(self, now_ns: int) -> list[Flow]:
        """The flows whose gaps end by now, in the order of their starts."""
        gaps, woken = self._gaps, dict[int, Flow]()
        while gaps and gaps[0][0] <= now_ns:
            _, number, flow = heappop(gaps)
            if flow.wakes_ns <= now_ns:
                woken[number] = flow
        return sorted(woken.values(), key=attrgetter("number"))

    def _release(self, flow: Flow, bits: int, now_ns: int) -> None:
        """Put so many of the bits that are left on the air."""
        leg = flow.burst[0]
        leg.size_bit, leg.started_ns = min(bits, flow.size_bit - round(flow.sent_bit)), now_ns
        flow.early_bit = 0
        self._holding[leg] = flow
        self._air.start(flow.burst, now_ns)

    def _end_gap(self, flow: Flow, now_ns: int) -> None:
        phases = flow.burst[0].phases
        if phases is not None and flow.silent_ns < FOREVER_NS:
            phases.gap_ns += now_ns - flow.silent_ns
        flow.silent_ns = FOREVER_NS

    def _close(self, flow: Flow, now_ns: int) -> None:
        """Give a transfer that has ended its size, its start, and the bits and the power of all its bursts."""
        self._end_gap(flow, now_ns)
        leg = flow.burst[0]
        del self._flows[leg]
        self._holding.pop(leg, None)
        leg.size_bit, leg.started_ns = flow.size_bit, flow.started_ns
        leg.air_bit += flow.sent_bit
        leg.power_s += flow.power_s
