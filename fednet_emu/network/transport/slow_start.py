"""TCP slow start: the congestion window, and the division of a transfer into several bursts.

A sender sends one window of bits and waits for the acknowledgements, which arrive one round trip after the first bit
and double the window. Once the bits of a window keep the line busy for a whole round trip, acknowledgements arrive as
fast as bits leave, and all remaining bits follow without a pause. RFC 5681 (slow start), RFC 6928 (initial window of
10 packets), RFC 9293 (receive window).
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
    """Limits of the bits in flight: the bits that a sender has sent and that are not acknowledged yet.

    Attributes:
        first_bit: bits in the first round trip of a transfer.
        max_bit: maximum bits in flight: the receive window.
        rtt_ns: round-trip time in ns without queueing delay.
    """

    first_bit: int
    max_bit: int
    rtt_ns: int

    def after(self, burst_bit: int) -> int:
        """Return the size in bits of the burst that follows a burst of `burst_bit` bits.

        The earlier burst must have been sent within one round trip.
        """
        return min(2 * burst_bit, self.max_bit)

    def gaps(self, size_bit: int) -> int:
        """Return how often a transfer of `size_bit` bits waits for acknowledgements on a link of infinite rate."""
        burst_bit, count = self.first_bit, 0
        while burst_bit < size_bit and burst_bit < self.max_bit:
            size_bit -= burst_bit
            burst_bit, count = self.after(burst_bit), count + 1
        return count + max(-(-size_bit // burst_bit) - 1, 0)

    def next_bit(self, used_bit: int, size_bit: float, rate_bps: float, idle_s: float) -> int:
        """Return the first window in bits for the next transfer on a connection.

        The window grows by the number of acknowledged bits. The growth ends as soon as acknowledgements arrive in an
        unbroken sequence that lasts half of the round-trip time (the ACK train of HyStart in Linux's Cubic). It thus
        ends before a queue builds up. An idle connection halves its window for each retransmission timeout that passes,
        down to the initial window (RFC 2861 and Linux's `tcp_slow_start_after_idle`). The timeout is the round-trip
        time plus 200 ms, the minimum of Linux.

        Args:
            used_bit: first window in bits of the last transfer.
            size_bit: number of bits of the last transfer.
            rate_bps: mean rate in bit/s of the last transfer while it was on the air.
            idle_s: time in s since the end of the last transfer.
        """
        half_bit, burst_bit = rate_bps * self.rtt_ns / 2e9, used_bit
        while burst_bit < min(half_bit, self.max_bit):
            burst_bit *= 2
        grown_bit = round(min(used_bit + size_bit, burst_bit + half_bit, self.max_bit))
        halvings = max(0, -(-idle_s // (self.rtt_ns / 1e9 + 0.2)) - 1)
        return max(self.first_bit, grown_bit >> min(int(halvings), grown_bit.bit_length()))


@dataclass(slots=True)
class Flow:
    """State of a transfer that is sent in several bursts, with a gap after each burst.

    Attributes:
        burst: the transfer, in a list of one.
        rtt_ns: round-trip time in ns.
        size_bit: total bits of the transfer.
        number: serial number of the flow, from 0 in the order of starts.
        started_ns: start time of the transfer in ns.
        window_bit: bits of the current window.
        released_ns: start time of the current burst in ns.
        sent_bit: bits sent in earlier bursts.
        power_s: airtime in s of earlier bursts, multiplied by the fraction of the sender's power.
        silent_ns: start time of the current gap in ns; `FOREVER_NS` while the transfer is on the air.
        early_bit: number of bits that were added to the current burst before its acknowledgements arrive.
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
        """Number of bits that are held back for later bursts; 0 in a gap."""
        on_air = self.silent_ns == FOREVER_NS
        return self.size_bit - round(self.sent_bit) - self.burst[0].size_bit if on_air else 0

    @property
    def resumes_ns(self) -> int:
        """Time in ns at which the acknowledgements of the current burst arrive."""
        return self.released_ns + self.rtt_ns

    @property
    def wakes_ns(self) -> int:
        """Time in ns at which a new burst or a timeout ends the current gap; `FOREVER_NS` if there is no gap."""
        return FOREVER_NS if self.silent_ns == FOREVER_NS else min(self.resumes_ns, self.burst[0].until_ns)


@final
class SlowStartAir(Air):
    """Model of transmissions with slow start; another model `air` transmits each burst of a transfer.

    A burst that keeps the link busy for a round trip is followed immediately by all remaining bits of its transfer. The
    remaining bits are added as soon as it is certain that the burst lasts for a round trip: no other transmission ends
    before the acknowledgements of the burst arrive, and new transmissions only make the burst longer.
    """

    def __init__(self, air: Air, window: Window) -> None:
        self._air, self._window = air, window
        self._flows: dict[Transfer, Flow] = {}
        self._holding: dict[Transfer, Flow] = {}  # flows that may hold back bits for later bursts
        self._released: list[Burst] = []  # bursts released by the last `advance`, for the next `start`
        self._started = 0
        self._gaps: list[tuple[int, int, Flow]] = []  # heap of the expected ends of gaps; may have outdated entries
        self._now_ns = 0

    def start(self, bursts: list[Burst], now_ns: int) -> int:
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
        released, self._released = self._released, []
        self._air.start(released, now_ns)

    def settle(self) -> None:
        """Add the energy of earlier bursts to the energy total of each current transfer."""
        for leg, flow in self._flows.items():
            leg.settle(flow.power_s)
            flow.power_s = 0.0

    def cut(self, leg: Transfer, burst: Burst, now_ns: int) -> None:
        """Abort a transfer; a transfer that waits for acknowledgements ends with the next `advance`."""
        if self._released:
            self._start_released(now_ns)
        for other, early in self._flows.items():
            if early.early_bit and now_ns < early.resumes_ns:  # the burst may now end before its acknowledgements
                self._air.extend(other, -early.early_bit)
                self._holding[other] = early
            early.early_bit = 0
        flow = self._flows.get(leg)
        if flow is None or flow.silent_ns == FOREVER_NS:
            self._air.cut(leg, burst, now_ns)
        else:
            self._note_gap(flow)

    def extend(self, leg: Transfer, bits: int) -> None:
        self._air.extend(leg, bits)

    def advance(self, now_ns: int) -> list[Burst]:
        self._now_ns, flows = now_ns, self._flows
        if self._released:
            self._start_released(now_ns)
        if self._holding:
            self._extend(now_ns)
        ended = [its for its in self._air.advance(now_ns) if its[0] not in flows or self._is_over(its, now_ns)]
        for flow in self._woken(now_ns) if self._gaps else ():
            leg = flow.burst[0]
            if leg.until_ns <= now_ns:
                leg.lost, leg.transmitted_bit, leg.power_s = leg.until_reason, 0.0, 0.0
                self._close(flow, now_ns)
                ended.append(flow.burst)
            else:
                self._end_gap(flow, now_ns)
                flow.window_bit, flow.released_ns = self._window.after(flow.window_bit), now_ns
                self._release(flow, flow.window_bit, now_ns)
        return ended

    def _extend(self, until_ns: int) -> bool:
        """Release all remaining bits of transfers whose acknowledgements arrive by `until_ns`.

        No transmission may end before `until_ns`. The result is True if bits were added to a transfer.
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
        """Yield the power 0 in a gap and, during a burst, the power that `air` has planned, else full power."""
        for leg, flow in self._flows.items():
            yield leg, (self._now_ns,), (1.0 if flow.silent_ns == FOREVER_NS else 0.0,)
        yield from self._air.powers()

    def rates(self) -> Iterable[Rates]:
        return self._air.rates()

    def _is_over(self, burst: Burst, now_ns: int) -> bool:
        """Return True if a transfer ends with this burst; otherwise release its next burst, or start a gap."""
        leg = burst[0]
        flow = self._flows[leg]
        left_bit = flow.size_bit - flow.sent_bit - leg.transmitted_bit
        if left_bit > 0 and not leg.lost and leg.until_ns <= now_ns:
            leg.lost = leg.until_reason
        if leg.lost or left_bit <= 0:
            self._close(flow, now_ns)
            return True
        flow.sent_bit += leg.transmitted_bit
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
        """Return the flows whose pause between bursts has ended by `now_ns`, sorted by the start of the flow."""
        gaps, woken = self._gaps, dict[int, Flow]()
        while gaps and gaps[0][0] <= now_ns:
            _, number, flow = heappop(gaps)
            if flow.wakes_ns <= now_ns:
                woken[number] = flow
        return sorted(woken.values(), key=attrgetter("number"))

    def _release(self, flow: Flow, bits: int, now_ns: int) -> None:
        leg = flow.burst[0]
        leg.size_bit, leg.started_ns = min(bits, flow.size_bit - round(flow.sent_bit)), now_ns
        flow.early_bit = 0
        self._holding[leg] = flow
        self._released.append(flow.burst)

    def _end_gap(self, flow: Flow, now_ns: int) -> None:
        phases = flow.burst[0].phases
        if phases is not None and flow.silent_ns < FOREVER_NS:
            phases.ack_wait_ns += now_ns - flow.silent_ns
        flow.silent_ns = FOREVER_NS

    def _close(self, flow: Flow, now_ns: int) -> None:
        """Set the size, start time, carried bits and airtime of a transfer that has ended.

        The values include all bursts of the transfer.
        """
        self._end_gap(flow, now_ns)
        leg = flow.burst[0]
        del self._flows[leg]
        self._holding.pop(leg, None)
        leg.size_bit, leg.started_ns = flow.size_bit, flow.started_ns
        leg.transmitted_bit += flow.sent_bit
        leg.power_s += flow.power_s
