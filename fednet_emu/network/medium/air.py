"""The transmissions of one band: their bits flow at rates that may depend on who else transmits.

There are two implementations. `SeparateAir` holds bursts that do not affect each other; their end times are known when
they start. `SharedAir`, in its own module, recomputes all rates at every change. Links with recorded rates also use
`SeparateAir`, with a different `Walker`.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import Protocol, final

import numpy as np

from fednet_emu.kernel.clock import FOREVER_NS, NS_PER_S
from fednet_emu.network.medium.band import ROUGHLY, Band
from fednet_emu.network.medium.transfer import Burst, Transfer

_MANY_LEGS = 16
"""From this number of legs on, NumPy arrays are faster than a loop over legs."""


class Air(Protocol):
    """The transmissions of one band that are under way."""

    def next_end_ns(self) -> int:
        """Time in ns of the next `advance` if nothing changes, usually an end; `FOREVER_NS` when the air is empty."""

    def start(self, burst: Burst, now_ns: int) -> None:
        """Put a burst on the air."""

    def cut(self, leg: Transfer, burst: Burst, now_ns: int) -> None:
        """Give up a leg of a burst; its `until_ns` has been set to now."""

    def advance(self, now_ns: int) -> list[Burst]:
        """Carry bits until now; remove and return the bursts that have ended, with bits and outcome in their legs."""


class Walker(Protocol):
    """Computes how a link carries bits when no other transmission affects it."""

    def walk(self, burst: Burst, start_ns: int) -> int:
        """Set bits and outcome of each leg; return the end of the burst in ns, which is that of its slowest leg."""


@final
class SeparateAir:
    """Bursts that do not affect each other: only a cancellation can change an end time."""

    def __init__(self, walker: Walker) -> None:
        self._walk = walker.walk
        self._ends: list[tuple[int, int, Burst]] = []
        self._started = 0

    def next_end_ns(self) -> int:
        """The earliest end."""
        return self._ends[0][0] if self._ends else FOREVER_NS

    def start(self, burst: Burst, now_ns: int) -> None:
        """Compute the end of each leg; the burst ends with its slowest leg."""
        end_ns = self._walk(burst, now_ns)
        burst[0].power_s = (end_ns - now_ns) / NS_PER_S
        self._started += 1
        heappush(self._ends, (end_ns, self._started, burst))

    def cut(self, leg: Transfer, burst: Burst, now_ns: int) -> None:
        """Recompute the end of the burst without this leg; if it was the last leg, the burst ends now."""
        started_ns = leg.started_ns
        place = next(place for place, entry in enumerate(self._ends) if entry[2] is burst)
        for other in burst:
            other.lost = ""
        end_ns = max(self._walk(burst, started_ns), now_ns)
        burst[0].power_s = (end_ns - started_ns) / NS_PER_S
        self._ends[place] = (end_ns, self._ends[place][1], burst)
        heapify(self._ends)

    def advance(self, now_ns: int) -> list[Burst]:
        """Return the bursts that have ended by now; those that end in one instant are in the order of their starts."""
        ended, ends = [], self._ends
        while ends and ends[0][0] <= now_ns:
            ended.append(heappop(ends)[2])
        return ended


@final
class BandWalker:
    """Links of a band, each computed as if it were alone in the band."""

    def __init__(self, band: Band) -> None:
        self._band = band
        self._alone, self._outage_sinr = band.alone, band.outage_sinr

    def walk(self, burst: Burst, start_ns: int) -> int:
        """Follow each leg until it is delivered, reaches its timeout, or one of its ends leaves."""
        alone, outage_sinr, last_ns = self._alone, self._outage_sinr, start_ns
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
        """Select the legs that may be lost or end last and so need the exact walk; all others are set as delivered."""
        size_bit, outage_sinr = burst[0].size_bit, self._outage_sinr
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
