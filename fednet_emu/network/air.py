"""What is on the air of one band: a fluid of bits that flows at rates which change with who else transmits.

Two forms of one thing. `SoloAir` holds one burst at a time, whose end is known when it starts; `SharedAir` holds many,
re-rates all of them at every change, and conserves bits: the sum over segments of rate x duration is the payload.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np

from fednet_emu.kernel.clock import FOREVER_NS
from fednet_emu.network.band import Band, Pace, carried, through
from fednet_emu.network.transfer import Burst, Transfer

_BLOCKS = 32
_MOST_BLOCKS = 1 << 20


class Air(Protocol):
    """The transmissions of one band that are under way."""

    def __len__(self) -> int:
        """Number of bursts on the air."""

    def start(self, burst: Burst, now_ns: int) -> None:
        """Put a burst on the air."""

    def stop(self, burst: Burst, now_ns: int) -> None:
        """Take a burst off the air before its end."""

    def advance(self, now_ns: int) -> list[Burst]:
        """Let the bits flow until now; take off and return the bursts that have ended, each leg with its bits and fate."""

    def next_end_ns(self) -> int:
        """The instant of the next end if nothing else changes; `FOREVER_NS` when nothing is on the air."""


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

    def _walk(self, leg: Transfer, start_ns: int, until_ns: int) -> int:
        band = self._band
        end_ns, leg.air_bit, lowest_sinr = band.alone(leg.snr, leg.fading_key, leg.size_bit, start_ns, until_ns)
        if lowest_sinr < band.law.outage_sinr:
            leg.lost = "outage"
        elif end_ns == start_ns and leg.size_bit > 0:
            leg.lost = "unreachable"
        elif end_ns >= until_ns and leg.air_bit < leg.size_bit:
            leg.lost = leg.until_reason
        return end_ns

    def stop(self, burst: Burst, now_ns: int) -> None:
        """Walk again, up to now."""
        for leg in burst:
            self._walk(leg, leg.started_ns, now_ns)
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
    """Many bursts at a time, each at a rate that depends on the others."""

    def __init__(self, band: Band) -> None:
        self._band = band
        self._bursts: list[Burst] = []
        self._legs: list[Transfer] = []
        self._ends_ns: list[int] = []
        self._pace: Pace | None = None
        self._since_ns = 0

    def __len__(self) -> int:
        return len(self._bursts)

    def start(self, burst: Burst, now_ns: int) -> None:  # noqa: ARG002  (advance has been called for this instant)
        """Add a burst; everything on the air is re-rated."""
        self._bursts.append(burst)
        self._pace = None

    def stop(self, burst: Burst, now_ns: int) -> None:
        """Take a burst off with what it has carried so far."""
        self._flow(now_ns)
        self._bursts.remove(burst)
        self._pace = None

    def advance(self, now_ns: int) -> list[Burst]:
        """Let the bits flow; a burst has ended when its planned end has come."""
        self._flow(now_ns)
        ended = [burst for burst, end_ns in zip(self._bursts, self._ends_ns, strict=False) if end_ns <= now_ns]
        if ended:
            self._bursts = [burst for burst in self._bursts if all(burst is not gone for gone in ended)]
            self._pace = None
        return ended

    def _flow(self, now_ns: int) -> None:
        """Add the bits since the last flow, at the rates planned then."""
        if self._pace is not None and now_ns > self._since_ns:
            until_ns = np.minimum(np.array([leg.until_ns for leg in self._legs]), now_ns)
            outage_sinr = self._band.law.outage_sinr
            spanned = self._pace.edges_ns[:-1] < now_ns
            for leg, bits, sinr in zip(self._legs, carried(self._pace, until_ns), self._pace.sinr, strict=True):
                leg.air_bit += float(bits)
                if outage_sinr > 0 and np.any(sinr[spanned] < outage_sinr):
                    leg.lost = "outage"
            self._pace = None
        self._since_ns = now_ns

    def next_end_ns(self) -> int:
        """Plan the rates from now on, far enough to see the next end."""
        if not self._bursts:
            self._legs, self._ends_ns = [], []
            return FOREVER_NS
        if self._pace is None:
            self._plan()
        return min(self._ends_ns)

    def _plan(self) -> None:
        self._legs = [leg for burst in self._bursts for leg in burst]
        snr = np.array([leg.snr for leg in self._legs])
        keys = np.array([leg.fading_key for leg in self._legs], np.uint64)
        left_bit = np.array([leg.size_bit - leg.air_bit for leg in self._legs])
        until_ns = np.array([leg.until_ns for leg in self._legs])
        first_leg = np.cumsum([0, *map(len, self._bursts)][:-1])
        blocks = _BLOCKS
        while True:
            pace = self._band.pace(snr, keys, len(self._bursts), self._since_ns, blocks)
            natural_ns = through(pace, left_bit)
            if self._band.constant:
                natural_ns = np.where(pace.rate_bps[:, 0] > 0, natural_ns, self._since_ns)
            ends_ns = np.maximum(np.minimum(natural_ns, until_ns), self._since_ns)
            self._ends_ns = np.maximum.reduceat(ends_ns, first_leg).tolist()
            if min(self._ends_ns) <= pace.edges_ns[-1] or blocks >= _MOST_BLOCKS:
                break
            blocks *= 4
        self._pace = pace
        for leg, natural, rate_bps in zip(self._legs, natural_ns.tolist(), pace.rate_bps[:, 0], strict=True):
            if self._band.constant and rate_bps == 0.0:
                leg.lost = "unreachable"
            elif natural > leg.until_ns:
                leg.lost = leg.until_reason
            elif leg.lost != "outage":
                leg.lost = ""
