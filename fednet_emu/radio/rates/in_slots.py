"""A rate law in slots: a part of the band stands for a part of the slots, in which a sender has the whole band."""

from __future__ import annotations

from pydantic import Field

from fednet_emu.arrays import Array
from fednet_emu.radio.rates.base import OfLaw
from fednet_emu.radio.rates.shannon import AnyRateLaw


class InSlots(OfLaw):
    """Another law on the whole band in a share of all slots, for senders that take turns in slots.

    A sender with the part x of the band has that part of the slots: its rate is x times that of the whole band. As with
    parts of the band its SINR is the one that its power would have on its part alone, s / x, so that any two schemes
    see the same SINR for the same mean power.
    """

    law: AnyRateLaw
    """The law on the whole band."""

    whole_hz: float = Field(gt=0)
    """Width of the band in Hz."""

    share: float = Field(gt=0, le=1)
    """Share of all slots that are sent in."""

    @property
    def peaks(self) -> Array:
        """Those of the law, for a sender alone."""
        return self.law.peaks

    def narrowest_part(self, bandwidth_hz: Array | float) -> Array | float:
        """That of the law on the whole band."""
        return self.law.narrowest_part(self.whole_hz)

    def rate_bps(self, sinr: float, bandwidth_hz: float) -> float:
        """Rate of one transmission in bit/s."""
        part = bandwidth_hz / self.whole_hz
        return part * self.share * self.law.rate_bps(sinr * part, self.whole_hz)

    def rates_bps(self, sinr: Array, bandwidth_hz: Array | float) -> Array:
        """Rates of many transmissions in bit/s, in the broadcast shape."""
        part = bandwidth_hz / self.whole_hz
        return part * self.share * self.law.rates_bps(sinr * part, self.whole_hz)
