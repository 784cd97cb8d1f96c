"""What is on the air of one band: a fluid of bits that flows at rates which change with who else transmits.

Three forms of one thing. `SoloAir` holds one burst at a time, whose end is known when it starts; `SeparateAir` holds
many that do not disturb each other; `SharedAir`, in a module of its own, holds many and re-rates all of them at every
change.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np

from fednet_emu.kernel.clock import FOREVER_NS, NS_PER_S
from fednet_emu.network.medium.band import ROUGHLY, Band
from fednet_emu.network.medium.ends import Ends
from fednet_emu.network.medium.transfer import Burst, Transfer

DUST = 1e-12
"""A transfer is through when less than this part of it is left: the rounding noise of its segments' sum."""


_MANY_LEGS = 16
"""From so many on, arrays are faster than leg by leg."""


class Air(Protocol):
    """The transmissions of one band that are under way."""

    @property
    def next_end_ns(self) -> int:
        """When to advance next if nothing else changes, an end as a rule; `FOREVER_NS` when nothing is on the air."""

    def start(self, burst: Burst, now_ns: int) -> None:
        """Put a burst on the air."""

    def stop(self, burst: Burst, now_ns: int) -> None:
        """Take a burst off the air before its end."""

    def advance(self, now_ns: int) -> list[Burst]:
        """Let the bits flow until now; take off and return the bursts that have ended, with their bits and fates."""


def _is_through(leg: Transfer) -> bool:
    return leg.size_bit - leg.air_bit <= DUST * leg.size_bit


def _walk(band: Band, burst: Burst, start_ns: int, until_ns: int = FOREVER_NS) -> int:
    """Walk each leg alone in the band, its bits and fate written into it; the burst ends with its slowest leg."""
    last_ns, outage_sinr = start_ns, band.outage_sinr
    for leg in burst if len(burst) < _MANY_LEGS else _decisive(band, burst, start_ns, until_ns):
        latest_ns = leg.until_ns if leg.until_ns < until_ns else until_ns
        end_ns, leg.air_bit, lowest_sinr = band.alone(leg.snr, leg.fading_key, leg.size_bit, start_ns, latest_ns)
        if lowest_sinr < outage_sinr:
            leg.lost = "outage"
        elif end_ns == start_ns and leg.size_bit > 0:
            leg.lost = "unreachable"
        elif end_ns >= latest_ns and not _is_through(leg):
            leg.lost = leg.until_reason
        if end_ns > last_ns:
            last_ns = end_ns
    burst[0].power_s = (last_ns - start_ns) / NS_PER_S
    return last_ns


def _decisive(band: Band, burst: Burst, start_ns: int, until_ns: int) -> Burst:
    """The legs that may be last or lost, to be walked to the nanosecond; all others carry their bits in time."""
    size_bit = burst[0].size_bit
    snr = np.array([leg.snr for leg in burst])
    keys = np.array([leg.fading_key for leg in burst], np.uint64)
    soon = band.soon_through(snr, keys, size_bit, start_ns)
    latest_ns = min([until_ns, *[leg.until_ns for leg in burst]])
    safe = soon.is_through & (soon.lowest_sinr > band.outage_sinr * (1 + ROUGHLY))
    safe &= soon.end_ns < latest_ns * (1 - ROUGHLY)
    last_ns = soon.end_ns[safe].max(initial=start_ns)
    safe &= soon.end_ns < last_ns - 1 - (last_ns - start_ns) * ROUGHLY
    for place in np.flatnonzero(safe).tolist():
        burst[place].air_bit = float(size_bit)
    return [burst[place] for place in np.flatnonzero(~safe).tolist()]


def _cut_short(band: Band, burst: Burst, now_ns: int) -> None:
    """Walk each leg again, up to now."""
    started_ns = burst[0].started_ns
    _walk(band, burst, started_ns, now_ns)
    burst[0].power_s = (now_ns - started_ns) / NS_PER_S


class SoloAir:
    """One burst at a time: nothing can change its end but a cancellation."""

    def __init__(self, band: Band) -> None:
        self._band = band
        self._on_air: list[Burst] = []
        self.next_end_ns = FOREVER_NS

    def start(self, burst: Burst, now_ns: int) -> None:
        """Walk each leg to its end; the burst ends with its slowest leg."""
        self._on_air.append(burst)
        self.next_end_ns = _walk(self._band, burst, now_ns)

    def stop(self, burst: Burst, now_ns: int) -> None:
        """Walk again, up to now."""
        _cut_short(self._band, burst, now_ns)
        self._on_air, self.next_end_ns = [], FOREVER_NS

    def advance(self, now_ns: int) -> list[Burst]:
        """The burst, if this is its end."""
        if now_ns < self.next_end_ns:
            return []
        ended, self._on_air, self.next_end_ns = self._on_air, [], FOREVER_NS
        return ended


class SeparateAir:
    """Many bursts that do not disturb each other: as if each were alone."""

    def __init__(self, band: Band) -> None:
        self._band = band
        self._ends = Ends()

    @property
    def next_end_ns(self) -> int:
        """The earliest end."""
        return self._ends.next_ns()

    def start(self, burst: Burst, now_ns: int) -> None:
        """Walk each leg to its end; the burst ends with its slowest leg."""
        self._ends.add(burst, _walk(self._band, burst, now_ns))

    def stop(self, burst: Burst, now_ns: int) -> None:
        """Walk again, up to now."""
        _cut_short(self._band, burst, now_ns)
        self._ends.remove(burst)

    def advance(self, now_ns: int) -> list[Burst]:
        """The bursts whose end has come."""
        return self._ends.take_due(now_ns)
