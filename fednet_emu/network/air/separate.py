"""The transmissions of one band: their bits flow at rates that may depend on the other transmissions.

`SeparateAir` holds bursts that do not affect each other; their end times can be computed when they start. `SharedAir`,
in its own module, recomputes all rates at every change.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from heapq import heapify, heappop, heappush, heapreplace
from typing import ClassVar, final

import numpy as np
from typing_extensions import override

from fednet_emu.arrays import Array
from fednet_emu.kernel.clock import FOREVER_NS, NS_PER_S
from fednet_emu.kernel.streams import uniform
from fednet_emu.kernel.work import BIT, SCALE
from fednet_emu.network.air.band import ROUGHLY, Band
from fednet_emu.network.air.transfer import Burst, Transfer
from fednet_emu.network.traces.assign import DeviceRates

_MANY_LEGS = 16
"""From this number of legs on, NumPy arrays are faster than a loop over legs."""

_AHEAD_BLOCKS = 256
_AHEAD = 4
"""A burst is computed ahead for this many fading blocks, then for this multiple of its time on the air: a transfer that
is soon cancelled costs little, and one that takes long is computed at most a third more often than once."""


_KNOWN_RATES = 1 << 16
"""Number of links without fading whose rates are kept."""

Power = tuple[Transfer, Sequence[int], Sequence[float]]
"""The power of a burst, named by its first leg, as shares of its sender's, from each of some instants on in ns."""

Rates = tuple[Burst, Sequence[int], Array]
"""Rates in bit/s of the legs of a burst [legs, blocks], from each of some instants on in ns."""


class Air(ABC):
    """The transmissions of one band that are under way."""

    follows_movement: ClassVar[bool] = False
    """Whether rates change when links do, by `move`."""

    @abstractmethod
    def start(self, bursts: list[Burst], now_ns: int) -> int:
        """Put bursts on the air, whose legs have their mean SNR and their fading key, and plan everything from now on.

        Returns:
            Time in ns of the next `advance` if nothing changes, usually an end; `FOREVER_NS` when the air is empty.
        """

    @abstractmethod
    def cut(self, leg: Transfer, burst: Burst, now_ns: int) -> None:
        """Give up a leg of a burst; its `until_ns` has been set to now."""

    @abstractmethod
    def advance(self, now_ns: int) -> list[Burst]:
        """Carry bits until now; remove and return the bursts that have ended, with bits and outcome in their legs."""

    def extend(self, leg: Transfer, bits: int) -> None:
        """Give the only leg of a burst more bits, before `advance`; no effect by default."""
        return

    def move(self) -> None:
        """Begin a period of movement, after `advance`: all links are new."""
        return

    def powers(self) -> Iterable[Power]:
        """The planned powers of all bursts whose power is not full from start to end; none by default."""
        return ()

    def rates(self) -> Iterable[Rates]:
        """The planned rates of all bursts whose end was not computed when they started; none by default."""
        return ()


Walk = Callable[[Burst, int, int], int]
"""`walk(burst, start_ns, horizon_ns)` sets bits and outcome of each leg of a burst that no other transmission affects,
and returns the end of its slowest leg in ns. A leg that is still on the air at the horizon may be left there: without
an outcome, with fewer bits than it has to carry, and with the horizon as its end."""


class SeparateAir(Air):
    """Bursts that do not affect each other: only a cancellation can change an end time.

    Senders send all the time, at rates that are known from the start on.

    Args:
        walk: computes how a burst is carried.
        ahead_ns: how far a new burst is computed at first.
    """

    def __init__(self, walk: Walk, ahead_ns: int = FOREVER_NS) -> None:
        self.walk, self._ahead_ns = walk, ahead_ns
        self._ends: list[tuple[int, int, Burst]] = []
        self._started = 0

    def start(self, bursts: list[Burst], now_ns: int) -> int:
        """Compute the end of each leg; a burst ends with its slowest leg."""
        for burst in bursts:
            self._started += 1
            heappush(self._ends, (self._end_ns(burst, now_ns, now_ns + self._ahead_ns), self._started, burst))
        return self._ends[0][0] if self._ends else FOREVER_NS

    def cut(self, leg: Transfer, burst: Burst, now_ns: int) -> None:
        """Recompute the end of the burst without this leg; if it was the last leg, the burst ends now."""
        place = next(place for place, entry in enumerate(self._ends) if entry[2] is burst)
        for other in burst:
            other.lost = ""
        self._ends[place] = (self._again_ns(burst, now_ns), self._ends[place][1], burst)
        heapify(self._ends)

    def advance(self, now_ns: int) -> list[Burst]:
        """Return the bursts that have ended by now; those that end in one instant are in the order of their starts."""
        ended, ends = [], self._ends
        while ends and ends[0][0] <= now_ns:
            burst = ends[0][2]
            is_long = now_ns - burst[0].started_ns >= self._ahead_ns
            if is_long and any(leg.air_bit < leg.size_bit and not leg.lost for leg in burst):  # without an outcome
                heapreplace(ends, (self._again_ns(burst, now_ns), ends[0][1], burst))
            else:
                ended.append(heappop(ends)[2])
        return ended

    def _again_ns(self, burst: Burst, now_ns: int) -> int:
        """End of a burst that has been on the air for some time, first computed for `_ahead_ns`."""
        started_ns = burst[0].started_ns
        return self._end_ns(burst, now_ns, started_ns + max(_AHEAD * (now_ns - started_ns), self._ahead_ns))

    def _end_ns(self, burst: Burst, now_ns: int, horizon_ns: int) -> int:
        """End of a burst, or a later time than now up to which it was computed."""
        started_ns = burst[0].started_ns
        end_ns = self.walk(burst, started_ns, horizon_ns)
        if end_ns < now_ns:
            end_ns = now_ns
        burst[0].power_s = (end_ns - started_ns) / NS_PER_S
        return end_ns


@final
class BandAir(SeparateAir):
    """Links of a band, each computed as if it were alone in the band."""

    def __init__(self, band: Band) -> None:
        super().__init__(self._walk_burst, FOREVER_NS if band.constant else _AHEAD_BLOCKS * band.coherence_ns)
        self._band, self._for_one, self._doubtful_snr = band, band.for_one, band.doubtful_snr
        self._alone, self._outage_sinr = band.alone, band.outage_sinr
        self._least_sinr = max(band.threshold, band.outage_sinr)
        self._steady_per_ns = lru_cache(maxsize=_KNOWN_RATES)(self._per_ns) if band.constant else None

    def _per_ns(self, snr: float, los: int) -> int:
        """Work per ns of a link that does not fade; 0 if it carries nothing."""
        share, bandwidth_hz, _, gain, rate_of, _, _ = self._for_one
        sinr = snr * gain(0.5, los == 1) / share
        return int(rate_of(sinr, bandwidth_hz) * SCALE) if sinr >= self._least_sinr else 0

    @override
    def start(self, bursts: list[Burst], now_ns: int) -> int:
        """Compute the end of each leg; most legs end in the fading block in which they start."""
        ends, steady, least_sinr = self._ends, self._steady_per_ns, self._least_sinr
        if not bursts:
            return ends[0][0] if ends else FOREVER_NS
        share, bandwidth_hz, _, gain, rate_of, coherence_ns, _ = self._for_one
        block = now_ns // coherence_ns
        for burst in bursts:
            self._started += 1
            last_ns, is_sure = now_ns, len(burst) < _MANY_LEGS
            for leg in burst if is_sure else ():
                snr, key, per_ns = leg.snr, leg.fading_key, 0
                if snr > self._doubtful_snr and steady is not None:
                    per_ns = steady(snr, key & 1)
                elif snr > self._doubtful_snr:
                    sinr = snr * gain(uniform(key, block), key & 1 == 1) / share
                    per_ns = int(rate_of(sinr, bandwidth_hz) * SCALE) if sinr >= least_sinr else 0
                end_ns = now_ns - -leg.size_bit * BIT // per_ns if per_ns else FOREVER_NS
                if not per_ns or end_ns > leg.until_ns or end_ns > (block + 1) * coherence_ns:
                    is_sure = False
                    break
                leg.air_bit = float(leg.size_bit)
                if end_ns > last_ns:
                    last_ns = end_ns
            if is_sure:
                burst[0].power_s = (last_ns - now_ns) / NS_PER_S
            else:
                last_ns = self._end_ns(burst, now_ns, now_ns + self._ahead_ns)
            heappush(ends, (last_ns, self._started, burst))
        return ends[0][0] if ends else FOREVER_NS

    def _walk_burst(self, burst: Burst, start_ns: int, horizon_ns: int) -> int:
        """Follow each leg until it is delivered, reaches its timeout, one of its ends leaves, or the horizon."""
        last_ns = start_ns
        for leg in burst if len(burst) < _MANY_LEGS else self._decisive(burst, start_ns):
            end_ns = self._walk_leg(leg, start_ns, horizon_ns)
            if end_ns > last_ns:
                last_ns = end_ns
        return last_ns

    def _walk_leg(self, leg: Transfer, start_ns: int, horizon_ns: int) -> int:
        """Follow one leg; return its end, or the horizon, or the start if its link never carries anything."""
        snr, size_bit, until_ns = leg.snr, leg.size_bit, leg.until_ns
        doubtful = snr <= self._doubtful_snr and size_bit > 0 and until_ns > start_ns
        if doubtful and not self._band.carries(snr, los=leg.fading_key & 1 == 1):
            leg.lost, leg.air_bit = "unreachable", 0.0
            return start_ns
        last_ns = until_ns if until_ns < horizon_ns else horizon_ns
        end_ns, air_bit, lowest_sinr = self._alone(snr, leg.fading_key, size_bit, start_ns, last_ns)
        leg.air_bit = air_bit
        if lowest_sinr < self._outage_sinr or air_bit < size_bit:
            if end_ns == horizon_ns < until_ns and air_bit < size_bit:
                return end_ns
            leg.lost = "outage" if lowest_sinr < self._outage_sinr else leg.until_reason
        return end_ns

    def _decisive(self, burst: Burst, start_ns: int) -> Burst:
        """Select the legs that may be lost or end last and so need the exact walk; all others are set as delivered."""
        size_bit, outage_sinr = burst[0].size_bit, self._outage_sinr
        snr = np.array([leg.snr for leg in burst])
        keys = np.array([leg.fading_key for leg in burst], np.uint64)
        end_ns, is_through, lowest_sinr = self._band.soon_through(snr, keys, size_bit, start_ns)
        until_ns = np.array([leg.until_ns for leg in burst], np.float64)
        safe = is_through & (lowest_sinr > outage_sinr * (1 + ROUGHLY))
        safe &= end_ns < until_ns * (1 - ROUGHLY)
        last_ns = end_ns[safe].max(initial=start_ns)
        safe &= end_ns < last_ns - 1 - (last_ns - start_ns) * ROUGHLY
        for place in np.flatnonzero(safe).tolist():
            burst[place].air_bit = float(size_bit)
        return [burst[place] for place in np.flatnonzero(~safe).tolist()]


def at_recorded_rates(rates: DeviceRates) -> Walk:
    """Carry bursts over links at recorded rates.

    Simultaneous transfers of one device each get its full recorded rate. Ignored here: everything but the recorded
    rate, which already contains the interference and fading of the recording.
    """

    def walk(burst: Burst, start_ns: int, _horizon_ns: int) -> int:
        last_ns = start_ns
        for leg in burst:
            device = leg.sender if leg.receiver < 0 else leg.receiver
            end_ns, leg.air_bit = start_ns + rates.needed_ns(device, leg.size_bit, start_ns), float(leg.size_bit)
            if end_ns > leg.until_ns:
                end_ns, leg.lost = leg.until_ns, leg.until_reason
                leg.air_bit = min(rates.bits_between(device, start_ns, end_ns), leg.air_bit)
            last_ns = max(last_ns, end_ns)
        return last_ns

    return walk
