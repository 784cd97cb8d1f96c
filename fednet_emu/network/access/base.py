"""The base classes of access schemes: how simultaneous transmitters share one band, and who waits for whom."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import replace
from typing import Any, ClassVar

from typing_extensions import override

from fednet_emu.component.component import Component
from fednet_emu.kernel.clock import FOREVER_NS
from fednet_emu.network.air.band import Band
from fednet_emu.network.air.latency import NO_LATENCY, Latency
from fednet_emu.network.air.patience import Patience
from fednet_emu.network.air.plain import shared_air
from fednet_emu.network.air.queue import TurnQueue
from fednet_emu.network.air.separate import Air, BandWalker, SeparateAir
from fednet_emu.network.air.sharing import Sharing
from fednet_emu.network.links.links import LinksOverTime
from fednet_emu.radio.rates.base import RateLaw
from fednet_emu.radio.receiver.combining import Reception


class Access(Component):
    """How the transmitters of one cell share a band: what a medium asks of it, once, when it is built."""

    DIRECTIONS: ClassVar[frozenset[str]] = frozenset({"uplink", "downlink", "sidelink"})
    """The directions in which the scheme can be used."""

    overlapping: ClassVar[bool] = False
    """Whether bursts that are on the air together use the same part of the band."""

    only_sums: ClassVar[bool] = False
    """Whether the receiver gets the sum of all signals of a burst, and no signal by itself."""

    delays: ClassVar[bool] = False
    """Whether transfers wait for access, or end a tail after their last bit: `latency` then says how long."""

    wired: ClassVar[bool] = False
    """Whether nothing is radiated."""

    multicasts: ClassVar[bool] = True
    """Whether one transmission can reach several receivers."""

    def uplink_conflict(self, scenario: Any) -> str:
        """Why it cannot be the uplink of a scenario, whatever else is received there; empty if it can."""
        return ""

    def conflict_with_antennas(self, reception: Reception) -> str:
        """Why base stations with several antennas cannot receive such transmissions; empty if they can."""
        return ""

    @property
    def capacity(self) -> int | None:
        """Largest number of bursts of one cell on the air at once, None for no limit; further bursts wait."""
        return None

    @property
    def residual_share(self) -> float | None:
        """Share of a decoded burst's power that still disturbs the other bursts of its cell; 1 without cancellation.

        None if bursts that are on the air together have parts of the band, or cannot all be decoded on purpose.
        """
        return None

    @property
    def threshold(self) -> float:
        """SINR (linear) below which a block carries nothing, in addition to the rate law's own limit."""
        return 0.0

    def law(self, bandwidth_hz: float) -> RateLaw | None:
        """The rate law that the scheme brings in a band of that width; None if it takes that of the channel."""
        return None

    def on(self, band: Band) -> Band:
        """The band as this scheme uses it: its law, threshold and slots if it has any, the share of a lone burst."""
        return band

    def queue(self, cells: int) -> TurnQueue:
        """Who waits for whom in so many cells."""
        return TurnQueue(self.capacity, cells)

    def latency(self, band: Band) -> Latency:
        """What it takes of transfers beside their turn and their time on the air."""
        return NO_LATENCY

    @abstractmethod
    def air(self, band: Band, links: LinksOverTime, cells: int) -> Air:
        """How bits flow in a band of so many cells."""

    def patience(self, band: Band, cells: int, devices: int) -> Patience | None:
        """The timeouts of transfers of so many devices whose settings leave them open; None for the longest for all."""
        return None


class RatedAccess(Access, Sharing):
    """An access scheme in which each burst has a rate, from its SINR and its share of the band: see `allocate`.

    One with turns, slots or a flow of bits of its own defines `queue`, `on` or `air` as well.
    """

    def share(self, active: int) -> float:
        """Fraction of the band that each of `active` simultaneous bursts has; an equal one by default."""
        return 1.0 / active

    @override
    def on(self, band: Band) -> Band:
        law = self.law(band.bandwidth_hz) or band.law
        return replace(band, law=law, share=self.share(1), threshold=self.threshold)

    @override
    def air(self, band: Band, links: LinksOverTime, cells: int) -> Air:
        if self.capacity == 1 and cells == 1 and links.until_ns() == FOREVER_NS:  # the rates of a burst are its own
            return SeparateAir(BandWalker(band), looks_up=True)
        return shared_air(self, band, links, cells)

    @override
    def patience(self, band: Band, cells: int, devices: int) -> Patience | None:
        disturbed = cells > 1 or (self.overlapping and self.capacity != 1)
        return Patience(band, self.share(self.capacity or devices), disturbed=disturbed)
