"""Rate laws of NR grants: whole resource blocks of a carrier, and shares of the slots of a TDD pattern."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from pydantic import Field

from fednet_emu.arrays import Array, exp10, log10
from fednet_emu.radio.rates.base import OfLaw, RateLaw
from fednet_emu.radio.rates.narrowing import Narrowed

_STEP_DB = 0.01


class WholeBlocks(OfLaw):
    """Another law's rate on the best whole number of a carrier's resource blocks, with all power on these.

    On M of N blocks the SINR is s N / M, and the rate e(s N / M) B M / N: the M with the highest rate is granted. So
    the power headroom is never negative (TS 38.213 clause 7.7.1): a sender whose power suffices for x blocks at the
    SINR of a scheme gets at most floor(x) blocks with that scheme. Within 0.5 % of the best, from a table in steps of
    0.01 dB.
    Ignored here: that sizes of transport blocks are rounded more in few blocks, by 0.5 % in ten.
    """

    law: RateLaw
    """The law of a part of the carrier."""

    count: int = Field(gt=0)
    """Blocks of the whole carrier."""

    fewest: int = Field(gt=0)
    """Blocks of the smallest grant."""

    def narrowest_part(self, bandwidth_hz: Array | float) -> Array | float:
        """The smallest grant."""
        return self.fewest / self.count

    def blocks(self, sinr: float) -> int:
        """Blocks that are granted at a SINR (linear) on the whole carrier; with equal rates the most blocks."""
        counts = np.arange(self.count, self.fewest - 1, -1)
        parts = counts / self.count
        return int(counts[np.argmax(parts * self.law.rates_bps(sinr / parts, 1.0))])

    def rate_bps(self, sinr: float, bandwidth_hz: float) -> float:
        """Rate of one transmission in bit/s, at its SINR on the whole carrier."""
        return float(self.rates_bps(np.array(sinr), bandwidth_hz))

    def rates_bps(self, sinr: Array, bandwidth_hz: Array | float) -> Array:
        """Rates of many transmissions in bit/s, in the broadcast shape, at their SINRs on the whole carrier."""
        best, last = self._best, len(self._best.efficiency_bps_hz) - 1
        with np.errstate(divide="ignore"):
            place = (10.0 * log10(np.asarray(sinr)) - best.low_db) / _STEP_DB
        rates_bps = bandwidth_hz * np.interp(place, np.arange(last + 1), best.efficiency_bps_hz, left=0.0)
        above = place >= last
        return np.where(above, self.law.rates_bps(sinr, bandwidth_hz), rates_bps) if above.any() else rates_bps

    @cached_property
    def _best(self) -> Best:
        most_db = 10.0 * float(np.log10(self.count / self.fewest))
        low_db = 10.0 * float(np.log10(self.law.min_sinr)) - most_db
        high_db = 10.0 * float(np.log10(self.law.peaks.max(initial=self.law.min_sinr)))
        sinr = exp10((low_db + _STEP_DB * np.arange(max(round((high_db - low_db) / _STEP_DB), 0) + 2)) / 10.0)
        best = np.zeros(len(sinr))
        for count in range(self.fewest, self.count + 1):
            part = count / self.count
            np.maximum(best, part * self.law.rates_bps(sinr / part, 1.0), out=best)
        return Best(low_db, best)


@dataclass(frozen=True, slots=True, eq=False)
class Best:
    """Best efficiencies [points] in bit/s/Hz of the carrier, every 0.01 dB from `low_db` on, up to all blocks."""

    low_db: float
    efficiency_bps_hz: Array


def in_whole_blocks(law: RateLaw, bandwidth_hz: float, block_hz: float) -> RateLaw:
    """A law whose parts of a carrier are whole resource blocks; the law itself if its senders are not narrowed."""
    if not isinstance(law, Narrowed):
        return law
    count = int(bandwidth_hz / block_hz)
    if count < 2:
        return law.law
    fewest = min(max(int(np.ceil(law.narrowest_hz / block_hz - 1e-9)), 1), count)
    return WholeBlocks(law=law.law, count=count, fewest=fewest)


class InSlots(OfLaw):
    """Another law on the whole band in a share of all slots, for senders that take turns in slots.

    A sender with the part x of the band has that part of the slots: its rate is x times the rate of the whole band.
    As with parts of the band its SINR assumes all power in its part, s / x, so that any two schemes have the same SINR
    for the same mean power.
    """

    law: RateLaw
    """The law on the whole band."""

    whole_hz: float = Field(gt=0)
    """Width of the band in Hz."""

    share: float = Field(gt=0, le=1)
    """Share of all slots that are sent in."""

    @property
    def peaks(self) -> Array:
        """SINRs of the law, for a sender alone."""
        return self.law.peaks

    def narrowest_part(self, bandwidth_hz: Array | float) -> Array | float:
        """The narrowest part of the law on the whole band."""
        return self.law.narrowest_part(self.whole_hz)

    def rate_bps(self, sinr: float, bandwidth_hz: float) -> float:
        """Rate of one transmission in bit/s."""
        part = bandwidth_hz / self.whole_hz
        return part * self.share * self.law.rate_bps(sinr * part, self.whole_hz)

    def rates_bps(self, sinr: Array, bandwidth_hz: Array | float) -> Array:
        """Rates of many transmissions in bit/s, in the broadcast shape."""
        part = bandwidth_hz / self.whole_hz
        return part * self.share * self.law.rates_bps(sinr * part, self.whole_hz)
