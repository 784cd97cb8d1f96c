"""TCP slow start: the window, and senders that release their bits in bursts over any air.

A sender sends a window and waits for the acknowledgements, which arrive a round trip after the window began and double
the window. Once a window keeps the line busy for a whole round trip, acknowledgements arrive as fast as bits leave, and
the rest follows without a pause. RFC 5681 (slow start), RFC 6928 (initial window of 10 packets), RFC 9293 (receive
window).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from heapq import heappop, heappush
from operator import attrgetter
from typing import NamedTuple, final

from fednet_emu.kernel.clock import FOREVER_NS
from fednet_emu.network.air.separate import Air, Power, Rates
from fednet_emu.network.air.transfer import Burst, Transfer


class Window(NamedTuple):
    """Bits that a sender may have in flight.

    Attributes:
        first_bit: in the first round trip of a transfer.
        most_bit: at most, the receive window.
        rtt_ns: base round trip in ns, without queues.
    """

    first_bit: int
    most_bit: int
    rtt_ns: int

    def after(self, burst_bit: int) -> int:
        """Bits of the burst that follows one which has left within a round trip."""
        return min(2 * burst_bit, self.most_bit)

    def gaps(self, size_bit: int) -> int:
        """Number of gaps of a transfer of `size_bit` on an infinitely fast line."""
        burst_bit, count = self.first_bit, 0
        while burst_bit < size_bit and burst_bit < self.most_bit:
            size_bit -= burst_bit
            burst_bit, count = self.after(burst_bit), count + 1
        return count + max(-(-size_bit // burst_bit) - 1, 0)

    def duration_s(self, size_bit: int, rate_bps: float) -> float:
        """Time in s from the first bit to the last on a line of constant rate, in closed form."""
        burst_bit, rounds, rtt_s = self.first_bit, 0, self.rtt_ns / 1e9
        while burst_bit < size_bit and burst_bit < rate_bps * rtt_s:
            size_bit -= burst_bit
            burst_bit, rounds = self.after(burst_bit), rounds + 1
        return rounds * rtt_s + size_bit / rate_bps

    def next_bit(self, used_bit: int, size_bit: float, rate_bps: float, idle_s: float) -> int:
        """The window of a transfer after one of `size_bit` at a mean rate on the air that began with `used_bit`.

        It grows by the acknowledged bits, until the acknowledgements of one round trip arrive for half a round trip
        without a pause, which ends slow start before a queue builds up (HyStart, RFC 9406 and Linux's Cubic). A pause
        of `idle_s` halves it for each retransmission timeout that has passed, down to the initial window (RFC 2861 and
        Linux's `tcp_slow_start_after_idle`); the timeout is the round trip and 200 ms, Linux's least.
        """
        half_bit, burst_bit = rate_bps * self.rtt_ns / 2e9, used_bit
        while burst_bit < min(half_bit, self.most_bit):
            burst_bit *= 2
        grown_bit = round(min(used_bit + size_bit, burst_bit + half_bit, self.most_bit))
        halvings = max(0, -(-idle_s // (self.rtt_ns / 1e9 + 0.2)) - 1)
        return max(self.first_bit, grown_bit >> min(int(halvings), grown_bit.bit_length()))


@dataclass(slots=True)
class Flow:
    """A transfer that is sent in several bursts.

    Attributes:
        burst: the transfer, as a burst.
        rtt_ns: round trip in ns.
        size_bit: all its bits.
        number: number of flows of the air that started before it.
        started_ns: start of its first bit.
        window_bit: bits of the present window.
        released_ns: when the present burst was released.
        sent_bit: bits of earlier bursts.
        power_s: time on the air in earlier bursts, times share of the sender's power.
        silent_ns: begin of the present gap; `FOREVER_NS` while it is on the air.
        early_bit: bits beyond the present burst that were given to the air before its acknowledgements arrive.
    """

    burst: Burst
    rtt_ns: int
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
        """When the acknowledgements of the present burst arrive."""
        return self.released_ns + self.rtt_ns

    @property
    def wakes_ns(self) -> int:
        """When the present gap ends, with a burst or a timeout; `FOREVER_NS` while it is on the air."""
        return FOREVER_NS if self.silent_ns == FOREVER_NS else min(self.resumes_ns, self.burst[0].until_ns)


@final
class SlowStartAir(Air):
    """An air on which each burst that a window releases is a separate transmission; a transfer has all of them.

    A burst that has kept the line busy for a round trip is followed at once by all remaining bits. Both are one
    transmission from the instant at which this is certain: no other transmission ends before the acknowledgements of
    the burst arrive, and a transmission that starts until then makes the burst last longer.
    """

    def __init__(self, air: Air, window: Window) -> None:
        self._air, self._window = air, window
        self._flows: dict[Transfer, Flow] = {}
        self._holding: dict[Transfer, Flow] = {}  # those that may have bits of later bursts
        self._released: list[Burst] = []  # by the latest `advance`, for the next `start`
        self._started = 0
        self._gaps: list[tuple[int, int, Flow]] = []  # a heap of the expected ends of gaps; some are out of date
        self._now_ns = 0

    def start(self, bursts: list[Burst], now_ns: int) -> int:
        """Put the first bursts of transfers on the air, and the bursts that `advance` has released."""
        released, self._released, gaps = self._released, [], self._gaps
        for burst in bursts:
            leg, first_bit = burst[0], 0 if burst[0].phases is None else burst[0].phases.window_bit
            if 0 < first_bit < leg.size_bit:
                self._holding[leg] = self._flows[leg] = Flow(
                    burst, self._window.rtt_ns, leg.size_bit, self._started, now_ns, first_bit, released_ns=now_ns
                )
                self._started += 1
                leg.size_bit = first_bit
            released.append(burst)
        next_ns = self._air.start(released, now_ns)
        if self._holding and self._extend(next_ns):
            next_ns = self._air.start([], now_ns)
        while gaps and gaps[0][0] != gaps[0][2].wakes_ns:
            heappop(gaps)
        return min(next_ns, gaps[0][0]) if gaps else next_ns

    def _start_released(self, now_ns: int) -> None:
        """Start the bursts of an `advance` of this instant that no `start` has followed."""
        released, self._released = self._released, []
        self._air.start(released, now_ns)

    def settle(self) -> None:
        """Settle the energies of earlier bursts of all transfers that are under way."""
        for leg, flow in self._flows.items():
            leg.settle(flow.power_s)
            flow.power_s = 0.0

    def cut(self, leg: Transfer, burst: Burst, now_ns: int) -> None:
        """Give up a leg; a transfer in a gap ends with the next `advance`, as its `until_ns` is now."""
        if self._released:
            self._start_released(now_ns)
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
        self._now_ns, flows = now_ns, self._flows
        if self._released:
            self._start_released(now_ns)
        if self._holding:
            self._extend(now_ns)
        ended = [its for its in self._air.advance(now_ns) if its[0] not in flows or self._is_over(its, now_ns)]
        for flow in self._woken(now_ns) if self._gaps else ():
            leg = flow.burst[0]
            if leg.until_ns <= now_ns:
                leg.lost, leg.air_bit, leg.power_s = leg.until_reason, 0.0, 0.0
                self._close(flow, now_ns)
                ended.append(flow.burst)
            else:
                self._end_gap(flow, now_ns)
                flow.window_bit, flow.released_ns = self._window.after(flow.window_bit), now_ns
                self._release(flow, flow.window_bit, now_ns)
        return ended

    def _extend(self, until_ns: int) -> bool:
        """Give the air all bits of transfers with acknowledgements by `until_ns`; no transmission ends before it.

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
            yield leg, (self._now_ns,), (1.0 if flow.silent_ns == FOREVER_NS else 0.0,)
        yield from self._air.powers()

    def rates(self) -> Iterable[Rates]:
        """The planned rates of transfers on the air."""
        return self._air.rates()

    def _is_over(self, burst: Burst, now_ns: int) -> bool:
        """Whether a burst is the last of its transfer; if not, the next burst is released, or waits for its release."""
        leg = burst[0]
        flow = self._flows[leg]
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
        """Release this number of the remaining bits, or all if there are fewer."""
        leg = flow.burst[0]
        leg.size_bit, leg.started_ns = min(bits, flow.size_bit - round(flow.sent_bit)), now_ns
        flow.early_bit = 0
        self._holding[leg] = flow
        self._released.append(flow.burst)

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
