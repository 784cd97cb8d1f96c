"""Rate laws for grants in NR: whole resource blocks of a carrier, and shares of the slots in a TDD pattern."""

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
    """Rate law of a grant of whole resource blocks, which receive the whole power of the sender.

    A link has the SINR s on the whole carrier of N blocks and B Hz. On M blocks, the SINR is s N / M and the rate is
    e(s N / M) B M / N, where e(x) is the spectral efficiency of `law` at the SINR x. The grant has the number M of
    blocks with the highest rate. The power headroom is therefore never negative (TS 38.213 clause 7.7.1): a sender
    whose power suffices for x blocks with a coding scheme gets at most floor(x) blocks with this scheme. Rates are
    taken from a table in steps of 0.01 dB, and are within 0.5 % of the best rate.
    Ignored here: the rounding of transport block sizes, which matters more in fewer blocks (0.5 % in ten blocks).
    """

    law: RateLaw
    """Rate law on a part of the carrier."""

    count: int = Field(gt=0)
    """Number of resource blocks in the whole carrier."""

    fewest: int = Field(gt=0)
    """Number of resource blocks in the smallest grant."""

    def narrowest_part(self, bandwidth_hz: Array | float) -> Array | float:
        """Return the smallest grant, as a fraction of the carrier."""
        return self.fewest / self.count

    def blocks(self, sinr: float) -> int:
        """Return the number of granted blocks at an SINR (linear) on the whole carrier.

        If several numbers of blocks give the same rate, the result is the largest number.
        """
        counts = np.arange(self.count, self.fewest - 1, -1)
        parts = counts / self.count
        return int(counts[np.argmax(parts * self.law.rates_bps(sinr / parts, 1.0))])

    def rate_bps(self, sinr: float, bandwidth_hz: float) -> float:
        return float(self.rates_bps(np.array(sinr), bandwidth_hz))

    def rates_bps(self, sinr: Array, bandwidth_hz: Array | float) -> Array:
        """Rates of many transmissions in bit/s, given their SINRs on the whole carrier."""
        best, last = self._best, len(self._best.efficiency_bps_hz) - 1
        with np.errstate(divide="ignore"):
            place = (10.0 * log10(np.asarray(sinr)) - best.low_db) / _STEP_DB
        rates_bps = bandwidth_hz * np.interp(place, np.arange(last + 1), best.efficiency_bps_hz, left=0.0)
        above = place >= last
        return np.where(above, self.law.rates_bps(sinr, bandwidth_hz), rates_bps) if above.any() else rates_bps

    @cached_property
    def _best(self) -> Best:
        max_db = 10.0 * float(np.log10(self.count / self.fewest))
        low_db = 10.0 * float(np.log10(self.law.min_sinr)) - max_db
        high_db = 10.0 * float(np.log10(self.law.peaks.max(initial=self.law.min_sinr)))
        sinr = exp10((low_db + _STEP_DB * np.arange(max(round((high_db - low_db) / _STEP_DB), 0) + 2)) / 10.0)
        best = np.zeros(len(sinr))
        for count in range(self.fewest, self.count + 1):
            part = count / self.count
            np.maximum(best, part * self.law.rates_bps(sinr / part, 1.0), out=best)
        return Best(low_db, best)


@dataclass(frozen=True, slots=True, eq=False)
class Best:
    """Highest efficiencies [points] of the carrier in bit/s/Hz, in steps of 0.01 dB of the SINR from `low_db` on."""

    low_db: float
    efficiency_bps_hz: Array


def in_whole_blocks(law: RateLaw, bandwidth_hz: float, block_hz: float) -> RateLaw:
    """Return `law` restricted to whole resource blocks of a carrier; unchanged if `law` is not `Narrowed`."""
    if not isinstance(law, Narrowed):
        return law
    count = int(bandwidth_hz / block_hz)
    if count < 2:
        return law.law
    fewest = min(max(int(np.ceil(law.narrowest_hz / block_hz - 1e-9)), 1), count)
    return WholeBlocks(law=law.law, count=count, fewest=fewest)


class InSlots(OfLaw):
    """Rate law of senders that take turns in slots, in each of which one sender has the whole band.

    A sender has the fraction x of the slots of its direction, and the SINR s in these slots. Its rate is the product of
    x, `share` and the rate of `law` at the SINR s on the whole band. The bandwidth argument of the methods is x times
    the width of the band, and their SINR argument is s / x, as if all power were in the part x of the band.
    """

    law: RateLaw
    """Rate law on the whole band."""

    whole_hz: float = Field(gt=0)
    """Width of the band in Hz."""

    share: float = Field(gt=0, le=1)
    """Share of all slots that carry transmissions in this direction."""

    @property
    def peaks(self) -> Array:
        """SINRs (linear) at which rate / SINR has a local maximum, for a sender that is alone in the band."""
        return self.law.peaks

    def narrowest_part(self, bandwidth_hz: Array | float) -> Array | float:
        return self.law.narrowest_part(self.whole_hz)

    def rate_bps(self, sinr: float, bandwidth_hz: float) -> float:
        part = bandwidth_hz / self.whole_hz
        return part * self.share * self.law.rate_bps(sinr * part, self.whole_hz)

    def rates_bps(self, sinr: Array, bandwidth_hz: Array | float) -> Array:
        part = bandwidth_hz / self.whole_hz
        return part * self.share * self.law.rates_bps(sinr * part, self.whole_hz)
