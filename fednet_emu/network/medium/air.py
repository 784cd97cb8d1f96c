"""What is on the air of one band: bits that flow at rates which may change with who else transmits.

Two forms of one thing. `SeparateAir` holds bursts that do not disturb each other, one at a time or many, whose ends
are known when they start; `SharedAir`, in a module of its own, re-rates everybody at every change. Links with recorded
rates are separate, too: they only walk otherwise.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import Protocol, final

import numpy as np

from fednet_emu.kernel.clock import FOREVER_NS, NS_PER_S
from fednet_emu.network.medium.band import ROUGHLY, Band
from fednet_emu.network.medium.transfer import Burst, Transfer

_MANY_LEGS = 16
"""From so many on, arrays are faster than leg by leg."""


class Air(Protocol):
    """The transmissions of one band that are under way."""

    @property
    def next_end_ns(self) -> int:
        """When to advance next if nothing else changes, an end as a rule; `FOREVER_NS` when nothing is on the air."""

    def start(self, burst: Burst, now_ns: int) -> None:
        """Put a burst on the air."""

    def cut(self, leg: Transfer, burst: Burst, now_ns: int) -> None:
        """Wait no longer for a leg of a burst, whose `until_ns` is now."""

    def advance(self, now_ns: int) -> list[Burst]:
        """Let the bits flow until now; take off and return the bursts that have ended, with their bits and fates."""


class Walker(Protocol):
    """What knows how a link carries bits when nobody disturbs it."""

    def walk(self, burst: Burst, start_ns: int) -> int:
        """Write the bits and fate of each leg into it; the end of the slowest, which is that of the burst."""


@final
class SeparateAir:
    """Bursts that do not disturb each other: only a cancellation can change an end."""

    def __init__(self, walker: Walker) -> None:
        self._walk = walker.walk
        self._ends: list[tuple[int, int, Burst]] = []
        self._started = 0

    @property
    def next_end_ns(self) -> int:
        """The earliest end."""
        return self._ends[0][0] if self._ends else FOREVER_NS

    def start(self, burst: Burst, now_ns: int) -> None:
        """Walk each leg to its end; the burst ends with its slowest leg."""
        end_ns = self._walk(burst, now_ns)
        burst[0].power_s = (end_ns - now_ns) / NS_PER_S
        self._started += 1
        heappush(self._ends, (end_ns, self._started, burst))

    def cut(self, leg: Transfer, burst: Burst, now_ns: int) -> None:
        """Walk again without this leg; where it was the last one, the burst ends now."""
        started_ns = leg.started_ns
        place = next(place for place, entry in enumerate(self._ends) if entry[2] is burst)
        for other in burst:
            other.lost = ""
        end_ns = max(self._walk(burst, started_ns), now_ns)
        burst[0].power_s = (end_ns - started_ns) / NS_PER_S
        self._ends[place] = (end_ns, self._ends[place][1], burst)
        heapify(self._ends)

    def advance(self, now_ns: int) -> list[Burst]:
        """The bursts whose end has come, those of one instant in the order of their starts."""
        ended, ends = [], self._ends
        while ends and ends[0][0] <= now_ns:
            ended.append(heappop(ends)[2])
        return ended


@final
class BandWalker:
    """Links of a band, each as if alone in it."""

    def __init__(self, band: Band) -> None:
        self._band = band

    def walk(self, burst: Burst, start_ns: int) -> int:
        """Walk each leg until it is through, or patience or the presence of its ends is over."""
        band, last_ns = self._band, start_ns
        alone, outage_sinr = band.alone, band.outage_sinr
        for leg in burst if len(burst) < _MANY_LEGS else self._decisive(burst, start_ns):
            end_ns, leg.air_bit, lowest_sinr = alone(leg.snr, leg.fading_key, leg.size_bit, start_ns, leg.until_ns)
            if lowest_sinr < outage_sinr:
                leg.lost = "outage"
            elif leg.air_bit < leg.size_bit:
                leg.lost = "unreachable" if end_ns == start_ns < leg.until_ns else leg.until_reason
            if end_ns > last_ns:
                last_ns = end_ns
        return last_ns

    def _decisive(self, burst: Burst, start_ns: int) -> Burst:
        """The legs that may be last or lost, to be walked to the nanosecond; all others carry their bits in time."""
        size_bit, outage_sinr = burst[0].size_bit, self._band.outage_sinr
        snr = np.array([leg.snr for leg in burst])
        keys = np.array([leg.fading_key for leg in burst], np.uint64)
        soon = self._band.soon_through(snr, keys, size_bit, start_ns)
        until_ns = np.array([leg.until_ns for leg in burst], np.float64)
        safe = soon.is_through & (soon.lowest_sinr > outage_sinr * (1 + ROUGHLY))
        safe &= soon.end_ns < until_ns * (1 - ROUGHLY)
        last_ns = soon.end_ns[safe].max(initial=start_ns)
        safe &= soon.end_ns < last_ns - 1 - (last_ns - start_ns) * ROUGHLY
        for place in np.flatnonzero(safe).tolist():
            burst[place].air_bit = float(size_bit)
        return [burst[place] for place in np.flatnonzero(~safe).tolist()]
