"""Transmissions in frames with a duty cycle: a sender pauses after each of its frames, and frames may collide."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple, final

import numpy as np

from fednet_emu.kernel.clock import FOREVER_NS, NS_PER_S
from fednet_emu.network.air.separate import Air, Power, Rates
from fednet_emu.network.air.transfer import Burst, Transfer


class Frames(NamedTuple):
    """The frames of a message.

    Attributes:
        group: collision group; only frames of the same group collide with each other.
        number: number of frames.
        frame_ns: airtime in ns of each frame except the last.
        last_ns: airtime in ns of the last frame.
    """

    group: int
    number: int
    frame_ns: int
    last_ns: int


@dataclass(eq=False)
class _Sending:
    """A burst on the air.

    Attributes:
        begins_ns: time in ns at which the sender may start the burst.
        done: expected number of frames that have arrived so far.
        arrives: probability that a frame arrives.
        period_ns: time in ns from the start of a frame to the start of the next frame.
    """

    burst: Burst
    frames: Frames
    begins_ns: int
    done: float = 0.0
    arrives: float = 1.0
    period_ns: float = 1.0

    def arrival_ns(self, now_ns: int) -> int:
        """Time in ns at which the last frame arrives, if frames continue at the current rate."""
        left = self.frames.number - self.arrives - self.done
        return round(max(now_ns, self.begins_ns) + left / self.arrives * self.period_ns + self.frames.last_ns)

    def end_ns(self, now_ns: int) -> int:
        """Time in ns at which the burst ends: when its last frame arrives, or at the latest timeout of its legs."""
        until_ns = max([leg.until_ns for leg in self.burst])
        return max(now_ns, min(self.arrival_ns(now_ns), until_ns))


@final
class DutyCycleAir(Air):
    """Model of many uncoordinated senders (pure ALOHA), each of which transmits frames for a small share of the time.

    After each frame, including the last, a sender pauses until its duty cycle permits the next frame. A frame with the
    airtime T arrives if no other frame of its group starts within T before or after its start; with n senders, the
    probability of arrival is e^(-2 (n - 1) `duty`). Lost frames are repeated. The duration of a burst assumes the mean
    number of repetitions. Simultaneous bursts of one sender split its permitted airtime.

    Args:
        frames: function that marks the unreachable legs of a burst as lost and returns the frames of the burst, or
            None if all legs are unreachable.
        duty: maximum share of the time for which a sender may transmit.
    """

    def __init__(self, frames: Callable[[Burst], Frames | None], duty: float) -> None:
        self._frames, self._duty = frames, duty
        self._on_air: list[_Sending] = []
        self._lost: list[Burst] = []
        self._free_ns: dict[int, int] = defaultdict(int)
        self._since_ns = 0

    def start(self, bursts: list[Burst], now_ns: int) -> int:
        for burst in bursts:
            frames, self._since_ns = self._frames(burst), now_ns
            if frames is None:
                self._lost.append(burst)
            else:
                self._on_air.append(_Sending(burst, frames, max(now_ns, self._free_ns[burst[0].sender])))
        if bursts:
            self._pace()
        ends_ns = [sending.end_ns(self._since_ns) for sending in self._on_air]
        return self._since_ns if self._lost else min(ends_ns, default=FOREVER_NS)

    def cut(self, leg: Transfer, burst: Burst, now_ns: int) -> None:
        """Do nothing: the next `advance` ends the legs that have been given up."""

    def advance(self, now_ns: int) -> list[Burst]:
        for sending in self._on_air:
            span_ns = max(now_ns - max(self._since_ns, sending.begins_ns), 0)
            sending.done += span_ns * sending.arrives / sending.period_ns
        self._since_ns = now_ns
        ended, self._lost = self._lost, []
        over = [sending for sending in self._on_air if sending.end_ns(now_ns) <= now_ns]
        if over:
            self._on_air = [sending for sending in self._on_air if sending not in over]
            self._pace()
        return ended + [self._end(sending, now_ns) for sending in over]

    def powers(self) -> Iterator[Power]:
        for sending in self._on_air:
            share = sending.frames.frame_ns / sending.period_ns
            yield sending.burst[0], [self._since_ns], [share]

    def rates(self) -> Iterator[Rates]:
        for sending in self._on_air:
            per_s = sending.arrives / sending.period_ns / sending.frames.number * NS_PER_S
            yield sending.burst, [self._since_ns], np.array([[leg.size_bit * per_s] for leg in sending.burst])

    def _pace(self) -> None:
        bursts = Counter(sending.burst[0].sender for sending in self._on_air)
        senders = Counter(group for group, _ in {(each.frames.group, each.burst[0].sender) for each in self._on_air})
        for sending in self._on_air:
            others = senders[sending.frames.group] - 1
            sending.arrives = math.exp(-2.0 * self._duty * others)
            sending.period_ns = sending.frames.frame_ns / self._duty * bursts[sending.burst[0].sender]

    def _end(self, sending: _Sending, now_ns: int) -> Burst:
        burst, frames = sending.burst, sending.frames
        through = sending.arrival_ns(now_ns) <= now_ns
        for leg in burst:
            if not leg.lost and (leg.until_ns < now_ns or not through):
                leg.lost = leg.until_reason
                leg.transmitted_bit = min(sending.done / frames.number, 1.0) * leg.size_bit
            elif not leg.lost:
                leg.transmitted_bit = float(leg.size_bit)
        elapsed_ns = now_ns - sending.begins_ns
        if elapsed_ns > 0:
            sent_ns = elapsed_ns * frames.frame_ns / sending.period_ns + frames.last_ns * (1.0 - self._duty)
            burst[0].power_s = min(sent_ns, elapsed_ns) / NS_PER_S
            silent_ns = round(frames.last_ns * (1.0 / self._duty - 1.0))
            self._free_ns[burst[0].sender] = max(self._free_ns[burst[0].sender], now_ns + silent_ns)
        return burst
