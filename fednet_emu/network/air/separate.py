"""Models of simultaneous transmissions in one band, whose rates may depend on each other.

`SeparateAir` is for bursts (transmissions) that do not affect each other. It computes the end of a burst at its start.
`SharedAir`, in its own module, recomputes all rates whenever a burst starts or ends.
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
from fednet_emu.network.traces.series import DeviceRates

_MANY_LEGS = 16
"""Minimum number of receivers for which NumPy arrays are faster than a loop over receivers."""

_AHEAD_BLOCKS = 256
_AHEAD = 4
"""A burst is first computed for `_AHEAD_BLOCKS` fading blocks. If the burst is still on the air after these blocks, it
is computed again, up to `_AHEAD` times its time on the air so far. This limits the computing time for a transfer that
is soon cancelled, and increases the computing time for a long transfer by at most a third."""


_KNOWN_RATES = 1 << 16
"""Number of links without fading whose rates are cached."""

Power = tuple[Transfer, Sequence[int], Sequence[float]]
"""Power of a burst (transmission) over time. It consists of the first transfer of the burst, the times in ns at which
the power changes, and the fraction of the sender's power that the burst uses from each of these times on."""

Rates = tuple[Burst, Sequence[int], Array]
"""Rates of a burst (transmission) over time. They consist of the burst, the start times of blocks in ns [blocks], and
the rates of the burst's transfers in bit/s [transfers, blocks]."""


class Air(ABC):
    """Model of the transmissions on the air in one band."""

    follows_movement: ClassVar[bool] = False
    """True if `move` updates the rates after the links have changed."""

    @abstractmethod
    def start(self, bursts: list[Burst], now_ns: int) -> int:
        """Start bursts (transmissions), and plan the rates of all bursts on the air from now on.

        The caller must have set the mean SNRs and the fading keys of the bursts' transfers.

        Returns:
            Time in ns at which `advance` must be called next, usually the end of a burst; `FOREVER_NS` if none is on
                air.
        """

    @abstractmethod
    def cut(self, leg: Transfer, burst: Burst, now_ns: int) -> None:
        """Abort one transfer of a burst; the caller must have set the transfer's `until_ns` to `now_ns`."""

    @abstractmethod
    def advance(self, now_ns: int) -> list[Burst]:
        """Advance all bursts to the time `now_ns`; remove and return the bursts that have ended.

        The carried bits and the outcome of each transfer in the returned bursts are set.
        """

    def extend(self, leg: Transfer, bits: int) -> None:
        """Add bits to a transfer, the only one of its burst; must be called before `advance`. No effect by default."""
        return

    def move(self) -> None:
        """Update all links at the start of a movement period; must be called after `advance`. No effect by default."""
        return

    def powers(self) -> Iterable[Power]:
        """Return the planned powers of all bursts that do not use full power all the time; none by default."""
        return ()

    def rates(self) -> Iterable[Rates]:
        """Return the planned rates of all bursts whose end was not computed at their start; none by default."""
        return ()


Walk = Callable[[Burst, int, int], int]
"""Type of a function `walk(burst, start_ns, horizon_ns)` that computes a burst which no other transmission affects. It
sets the carried bits and the outcome of each transfer, and returns the end time in ns of the slowest transfer. The
computation may stop at `horizon_ns`. A transfer that is still on the air at this time has no outcome yet and has
carried fewer bits than its size; its end time is then `horizon_ns`."""


class SeparateAir(Air):
    """Bursts that do not affect each other: each end time is known at the start, unless a burst is cancelled.

    Senders transmit without pauses, at rates that are known at the start of a burst.

    Args:
        walk: function that computes the end and the outcome of a burst, see `Walk`.
        ahead_ns: time in ns for which a new burst is computed at first.
    """

    def __init__(self, walk: Walk, ahead_ns: int = FOREVER_NS) -> None:
        self.walk, self._ahead_ns = walk, ahead_ns
        self._ends: list[tuple[int, int, Burst]] = []
        self._started = 0

    def start(self, bursts: list[Burst], now_ns: int) -> int:
        for burst in bursts:
            self._started += 1
            heappush(self._ends, (self._end_ns(burst, now_ns, now_ns + self._ahead_ns), self._started, burst))
        return self._ends[0][0] if self._ends else FOREVER_NS

    def cut(self, leg: Transfer, burst: Burst, now_ns: int) -> None:
        """Abort a transfer: recompute the end of its burst, which ends now if it has no other transfer."""
        place = next(place for place, entry in enumerate(self._ends) if entry[2] is burst)
        for other in burst:
            other.lost = ""
        self._ends[place] = (self._again_ns(burst, now_ns), self._ends[place][1], burst)
        heapify(self._ends)

    def advance(self, now_ns: int) -> list[Burst]:
        """Remove and return the bursts that have ended by now, sorted by end time, then by start."""
        ended, ends = [], self._ends
        while ends and ends[0][0] <= now_ns:
            burst = ends[0][2]
            is_long = now_ns - burst[0].started_ns >= self._ahead_ns
            if is_long and any(leg.transmitted_bit < leg.size_bit and not leg.lost for leg in burst):  # no outcome yet
                heapreplace(ends, (self._again_ns(burst, now_ns), ends[0][1], burst))
            else:
                ended.append(heappop(ends)[2])
        return ended

    def _again_ns(self, burst: Burst, now_ns: int) -> int:
        """Compute a burst on the air again, up to a later time, and return its end time in ns."""
        started_ns = burst[0].started_ns
        return self._end_ns(burst, now_ns, started_ns + max(_AHEAD * (now_ns - started_ns), self._ahead_ns))

    def _end_ns(self, burst: Burst, now_ns: int, horizon_ns: int) -> int:
        """Return the end time in ns of a burst, limited to the interval from `now_ns` to `horizon_ns`."""
        started_ns = burst[0].started_ns
        end_ns = self.walk(burst, started_ns, horizon_ns)
        if end_ns < now_ns:
            end_ns = now_ns
        burst[0].power_s = (end_ns - started_ns) / NS_PER_S
        return end_ns


@final
class BandAir(SeparateAir):
    """Model in which each burst (transmission) has the rates that it would have alone in the band."""

    def __init__(self, band: Band) -> None:
        super().__init__(self._walk_burst, FOREVER_NS if band.constant else _AHEAD_BLOCKS * band.coherence_ns)
        self._band, self._for_one, self._doubtful_snr = band, band.for_one, band.doubtful_snr
        self._alone, self._outage_sinr = band.alone, band.outage_sinr
        self._least_sinr = max(band.threshold, band.outage_sinr)
        self._steady_per_ns = lru_cache(maxsize=_KNOWN_RATES)(self._per_ns) if band.constant else None

    def _per_ns(self, snr: float, los: int) -> int:
        """Return the bits per ns, in the integer units of `kernel.work`, of a link that does not fade.

        The result is 0 if the link carries no bits.
        """
        share, bandwidth_hz, _, gain, rate_of, _, _ = self._for_one
        sinr = snr * gain(0.5, los == 1) / share
        return int(rate_of(sinr, bandwidth_hz) * SCALE) if sinr >= self._least_sinr else 0

    @override
    def start(self, bursts: list[Burst], now_ns: int) -> int:
        ends, steady, min_sinr = self._ends, self._steady_per_ns, self._least_sinr
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
                    per_ns = int(rate_of(sinr, bandwidth_hz) * SCALE) if sinr >= min_sinr else 0
                end_ns = now_ns - -leg.size_bit * BIT // per_ns if per_ns else FOREVER_NS
                if not per_ns or end_ns > leg.until_ns or end_ns > (block + 1) * coherence_ns:
                    is_sure = False
                    break
                leg.transmitted_bit = float(leg.size_bit)
                if end_ns > last_ns:
                    last_ns = end_ns
            if is_sure:
                burst[0].power_s = (last_ns - now_ns) / NS_PER_S
            else:
                last_ns = self._end_ns(burst, now_ns, now_ns + self._ahead_ns)
            heappush(ends, (last_ns, self._started, burst))
        return ends[0][0] if ends else FOREVER_NS

    def _walk_burst(self, burst: Burst, start_ns: int, horizon_ns: int) -> int:
        """Compute each transfer up to its end or up to `horizon_ns`, and return the latest end time in ns.

        A transfer ends with its delivery, at its timeout, or when one of its devices departs.
        """
        last_ns = start_ns
        for leg in burst if len(burst) < _MANY_LEGS else self._decisive(burst, start_ns):
            end_ns = self._walk_leg(leg, start_ns, horizon_ns)
            if end_ns > last_ns:
                last_ns = end_ns
        return last_ns

    def _walk_leg(self, leg: Transfer, start_ns: int, horizon_ns: int) -> int:
        """Compute one transfer, and return its end time in ns, which is at most `horizon_ns`.

        If the link of the transfer never carries bits, the end time is the start time.
        """
        snr, size_bit, until_ns = leg.snr, leg.size_bit, leg.until_ns
        doubtful = snr <= self._doubtful_snr and size_bit > 0 and until_ns > start_ns
        if doubtful and not self._band.carries(snr, los=leg.fading_key & 1 == 1):
            leg.lost, leg.transmitted_bit = "unreachable", 0.0
            return start_ns
        last_ns = until_ns if until_ns < horizon_ns else horizon_ns
        end_ns, transmitted_bit, lowest_sinr = self._alone(snr, leg.fading_key, size_bit, start_ns, last_ns)
        leg.transmitted_bit = transmitted_bit
        if lowest_sinr < self._outage_sinr or transmitted_bit < size_bit:
            if end_ns == horizon_ns < until_ns and transmitted_bit < size_bit:
                return end_ns
            leg.lost = "outage" if lowest_sinr < self._outage_sinr else leg.until_reason
        return end_ns

    def _decisive(self, burst: Burst, start_ns: int) -> Burst:
        """Return the transfers that must be computed exactly, because they may be lost or may end last.

        All other transfers are marked as delivered.
        """
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
            burst[place].transmitted_bit = float(size_bit)
        return [burst[place] for place in np.flatnonzero(~safe).tolist()]


def at_recorded_rates(rates: DeviceRates) -> Walk:
    """Return the function that computes bursts (transmissions) from the recorded rates of the devices.

    Simultaneous transfers of one device each get the full recorded rate of the device.
    Ignored here: all effects other than the recorded rate, which already includes interference and fading.
    """

    def walk(burst: Burst, start_ns: int, _horizon_ns: int) -> int:
        last_ns = start_ns
        for leg in burst:
            device = leg.sender if leg.receiver < 0 else leg.receiver
            end_ns, leg.transmitted_bit = (
                start_ns + rates.needed_ns(device, leg.size_bit, start_ns),
                float(leg.size_bit),
            )
            if end_ns > leg.until_ns:
                end_ns, leg.lost = leg.until_ns, leg.until_reason
                leg.transmitted_bit = min(rates.bits_between(device, start_ns, end_ns), leg.transmitted_bit)
            last_ns = max(last_ns, end_ns)
        return last_ns

    return walk
