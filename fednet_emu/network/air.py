"""What is on the air of one band: a fluid of bits that flows at rates which change with who else transmits.

Two forms of one thing. `SoloAir` holds one burst at a time, whose end is known when it starts; `SharedAir` holds many,
re-rates all of them at every change, and conserves bits: the sum over segments of rate x duration is the payload.
"""

from __future__ import annotations

from collections import Counter
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from fednet_emu.kernel.clock import FOREVER_NS, NS_PER_S
from fednet_emu.network.band import Band, Pace, carried, through
from fednet_emu.network.transfer import Burst, Transfer

_BLOCKS = 32
_MOST_BLOCKS = 2048
_DUST = 1e-12
"""A transfer is through when less than this part of it is left: the rounding noise of its segments' sum."""


class Air(Protocol):
    """The transmissions of one band that are under way."""

    def __len__(self) -> int:
        """Number of bursts on the air."""

    def start(self, burst: Burst, now_ns: int) -> None:
        """Put a burst on the air."""

    def stop(self, burst: Burst, now_ns: int) -> None:
        """Take a burst off the air before its end."""

    def advance(self, now_ns: int) -> list[Burst]:
        """Let the bits flow until now; take off and return the bursts that have ended, with their bits and fates."""

    def next_end_ns(self) -> int:
        """When to advance next if nothing else changes, an end as a rule; `FOREVER_NS` when nothing is on the air."""


def _is_through(leg: Transfer) -> bool:
    return leg.size_bit - leg.air_bit <= _DUST * leg.size_bit


class SoloAir:
    """One burst at a time: nothing can change its end but a cancellation."""

    def __init__(self, band: Band) -> None:
        self._band = band
        self._burst: Burst | None = None
        self._end_ns = FOREVER_NS

    def __len__(self) -> int:
        return self._burst is not None

    def start(self, burst: Burst, now_ns: int) -> None:
        """Walk each leg to its end; the burst ends with its slowest leg."""
        self._burst = burst
        self._end_ns = max([self._walk(leg, now_ns, leg.until_ns) for leg in burst])
        burst[0].power_s = (self._end_ns - now_ns) / NS_PER_S

    def _walk(self, leg: Transfer, start_ns: int, until_ns: int) -> int:
        band = self._band
        end_ns, leg.air_bit, lowest_sinr = band.alone(leg.snr, leg.fading_key, leg.size_bit, start_ns, until_ns)
        if lowest_sinr < band.law.outage_sinr:
            leg.lost = "outage"
        elif end_ns == start_ns and leg.size_bit > 0:
            leg.lost = "unreachable"
        elif end_ns >= until_ns and not _is_through(leg):
            leg.lost = leg.until_reason
        return end_ns

    def stop(self, burst: Burst, now_ns: int) -> None:
        """Walk again, up to now."""
        for leg in burst:
            self._walk(leg, leg.started_ns, now_ns)
        burst[0].power_s = (now_ns - burst[0].started_ns) / NS_PER_S
        self._burst, self._end_ns = None, FOREVER_NS

    def advance(self, now_ns: int) -> list[Burst]:
        """The burst, if this is its end."""
        if self._burst is None or now_ns < self._end_ns:
            return []
        ended, self._burst, self._end_ns = self._burst, None, FOREVER_NS
        return [ended]

    def next_end_ns(self) -> int:
        """The end found at the start."""
        return self._end_ns


class SharedAir:
    """Many bursts at a time, at rates that depend on each other; bursts of one sender share its power equally."""

    def __init__(self, band: Band) -> None:
        self._band = band
        self._bursts: list[Burst] = []
        self._ends_ns: list[int] = []
        self._power_shares: list[float] = []
        self._legs: list[Transfer] = []
        self._leg_ends_ns: NDArray[np.int64] = np.empty(0, np.int64)
        self._pace: Pace | None = None
        self._since_ns = 0

    def __len__(self) -> int:
        return len(self._bursts)

    def start(self, burst: Burst, now_ns: int) -> None:
        """Add a burst at an instant to which the bits have flowed; everything on the air is re-rated."""
        self._since_ns = now_ns
        self._bursts.append(burst)
        self._ends_ns.append(FOREVER_NS)
        self._pace = None

    def stop(self, burst: Burst, now_ns: int) -> None:
        """Take a burst off with what it has carried so far."""
        self._flow(now_ns)
        self._take_off([burst])

    def advance(self, now_ns: int) -> list[Burst]:
        """Let the bits flow; a burst has ended when its planned end has come."""
        self._flow(now_ns)
        ended = [burst for burst, end_ns in zip(self._bursts, self._ends_ns, strict=True) if end_ns <= now_ns]
        if ended:
            self._take_off(ended)
        return ended

    def _take_off(self, gone: list[Burst]) -> None:
        first_legs = {burst[0] for burst in gone}
        ends = zip(self._bursts, self._ends_ns, strict=True)
        stay = [(burst, end_ns) for burst, end_ns in ends if burst[0] not in first_legs]
        self._bursts, self._ends_ns = [burst for burst, _ in stay], [end_ns for _, end_ns in stay]
        self._pace = None

    def _flow(self, now_ns: int) -> None:
        """Add the bits since the last flow, at the rates planned then; each leg flows until its own end."""
        pace, outage_sinr = self._pace, self._band.law.outage_sinr
        if pace is not None and now_ns > self._since_ns:
            until_ns = np.minimum(self._leg_ends_ns, now_ns)
            for leg, flowed_bit in zip(self._legs, carried(pace, until_ns).tolist(), strict=True):
                leg.air_bit = min(leg.air_bit + flowed_bit, float(leg.size_bit))
            if outage_sinr > 0:
                spanned = pace.edges_ns[:-1] < until_ns[:, None]
                for link in np.flatnonzero(np.any(spanned & (pace.sinr < outage_sinr), axis=1)):
                    self._legs[link].lost = "outage"
            for burst, power_share in zip(self._bursts, self._power_shares, strict=False):
                burst[0].power_s += power_share * (now_ns - self._since_ns) / NS_PER_S
            self._pace = None
        self._since_ns = now_ns

    def next_end_ns(self) -> int:
        """Plan the rates from now on, far enough to see the next end, or as far as one plan goes."""
        if not self._bursts:
            return FOREVER_NS
        if self._pace is None:
            self._pace = self._plan()
        return min(*self._ends_ns, int(self._pace.edges_ns[-1]))

    def _plan(self) -> Pace:
        self._legs = legs = [leg for burst in self._bursts for leg in burst]
        bursts_of = Counter(burst[0].sender for burst in self._bursts)
        self._power_shares = [1 / bursts_of[burst[0].sender] for burst in self._bursts]
        snr = np.array([leg.snr / bursts_of[leg.sender] for leg in legs])
        keys = np.array([leg.fading_key for leg in legs], np.uint64)
        left_bit = np.array([0.0 if _is_through(leg) else leg.size_bit - leg.air_bit for leg in legs])
        until_ns = np.array([leg.until_ns for leg in legs])
        first_leg = np.cumsum([0, *map(len, self._bursts)][:-1])
        blocks = _BLOCKS
        while True:
            pace = self._band.pace(snr, keys, len(self._bursts), self._since_ns, blocks)
            dead = (pace.rate_bps[:, 0] == 0) & (left_bit > 0) & self._band.constant
            natural_ns = np.where(dead, self._since_ns, through(pace, left_bit))
            self._leg_ends_ns = np.maximum(np.minimum(natural_ns, until_ns), self._since_ns)
            self._ends_ns = np.maximum.reduceat(self._leg_ends_ns, first_leg).tolist()
            if min(self._ends_ns) <= pace.edges_ns[-1] or blocks >= _MOST_BLOCKS:
                break
            blocks *= 4
        cut = (natural_ns > until_ns) & (left_bit > 0)
        for leg, is_dead, is_cut in zip(legs, dead.tolist(), cut.tolist(), strict=True):
            if leg.lost != "outage":
                leg.lost = "unreachable" if is_dead else leg.until_reason if is_cut else ""
        return pace
