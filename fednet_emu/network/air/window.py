"""The law by which TCP releases bits: slow start in bursts, one per round trip, and then the line is never idle.

The sender sends a window and waits for the acknowledgements, which come a round trip after the window began; each lets
it send twice as much. Once a window keeps the line busy for a whole round trip, acknowledgements come as fast as bits
leave, and all that is left follows without a pause. RFC 5681 (slow start), RFC 6928 (initial window of 10 packets),
RFC 9293 (receive window).
"""

from __future__ import annotations

from typing import NamedTuple


class Window(NamedTuple):
    """What a sender may have in flight.

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
        """Number of gaps that a transfer of so many bits has on a line that is infinitely fast."""
        burst_bit, count = self.first_bit, 0
        while burst_bit < size_bit and burst_bit < self.most_bit:
            size_bit -= burst_bit
            burst_bit, count = self.after(burst_bit), count + 1
        return count + max(-(-size_bit // burst_bit) - 1, 0)

    def duration_s(self, size_bit: int, rate_bps: float) -> float:
        """Time in s from the first bit on a line of constant rate to the last: the closed form of the law."""
        burst_bit, rounds, rtt_s = self.first_bit, 0, self.rtt_ns / 1e9
        while burst_bit < size_bit and burst_bit < rate_bps * rtt_s:
            size_bit -= burst_bit
            burst_bit, rounds = self.after(burst_bit), rounds + 1
        return rounds * rtt_s + size_bit / rate_bps

    def grown_bit(self, size_bit: float, rate_bps: float) -> int:
        """The window after a transfer of so many bits at a mean rate on the air.

        It has grown by what was acknowledged, until the acknowledgements of one round trip came for half a round trip
        without a pause, which ends slow start before a queue builds up (HyStart, RFC 9406 and Linux's Cubic).
        """
        half_bit, burst_bit = rate_bps * self.rtt_ns / 2e9, self.first_bit
        while burst_bit < min(half_bit, self.most_bit):
            burst_bit *= 2
        return round(min(self.first_bit + size_bit, burst_bit + half_bit, self.most_bit))


def after_idle(window_bit: int, initial_bit: int, idle_s: float, rtt_s: float) -> int:
    """The window after a pause: halved for each retransmission timeout that has passed, down to the initial one.

    RFC 2861 and Linux (`tcp_slow_start_after_idle`); the timeout is the round trip and 200 ms, Linux's least.
    """
    timeout_s = rtt_s + 0.2
    halvings = max(0, -(-idle_s // timeout_s) - 1)
    return max(initial_bit, window_bit >> min(int(halvings), window_bit.bit_length()))
