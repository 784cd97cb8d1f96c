"""The base class of access schemes: how simultaneous transmitters share one band, and who waits for whom."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import replace
from typing import ClassVar

from fednet_emu.arrays import Array
from fednet_emu.component.component import Component
from fednet_emu.network.air.band import Band
from fednet_emu.network.air.patience import Patience
from fednet_emu.network.air.queue import TurnQueue
from fednet_emu.network.air.separate import Air, BandWalker, SeparateAir
from fednet_emu.network.air.shared import SharedAir
from fednet_emu.network.air.sharing import Allocation, RateInputs
from fednet_emu.network.links.links import LinksOverTime
from fednet_emu.radio.receiver.combining import Reception


class Access(Component):
    """How the transmitters of one cell share a band.

    A scheme whose bursts have rates that depend on each other defines `capacity`, `share` and `allocate`; one with
    turns, slots or a flow of bits of its own defines `queue`, `on` or `air` as well.
    """

    DIRECTIONS: ClassVar[frozenset[str]] = frozenset({"uplink", "downlink", "sidelink"})
    """The directions in which the scheme can be used."""

    overlapping: ClassVar[bool] = False
    """Whether bursts that are on the air together use the same part of the band."""

    only_sums: ClassVar[bool] = False
    """Whether the receiver gets the sum of all signals of a burst, and no signal by itself."""

    def conflict_with_antennas(self, reception: Reception) -> str:
        """Why base stations with several antennas cannot receive such transmissions; empty if they can."""
        return ""

    @property
    @abstractmethod
    def capacity(self) -> int | None:
        """Largest number of bursts of one cell on the air at once, None for no limit; further bursts wait."""

    @property
    def threshold(self) -> float:
        """SINR (linear) below which a block carries nothing, in addition to the rate law's own limit."""
        return 0.0

    @abstractmethod
    def share(self, active: int) -> float:
        """Fraction of the band that each of `active` simultaneous bursts has, if all get equal shares."""

    def on(self, band: Band) -> Band:
        """The band as this scheme uses it: the share of a lone burst, the threshold, and slots if it has some."""
        return replace(band, share=self.share(1), threshold=self.threshold)

    def queue(self, cells: int) -> TurnQueue:
        """Who waits for whom in so many cells."""
        return TurnQueue(self.capacity, cells)

    def air(self, band: Band, links: LinksOverTime, cells: int) -> Air:
        """How bits flow in a band of so many cells: by `allocate`, unless nobody ever sends beside another."""
        if self.capacity == 1 and cells == 1:
            return SeparateAir(BandWalker(band), looks_up=True)
        return SharedAir(self, band, links, cells)

    def patience(self, band: Band, cells: int, devices: int) -> Patience | None:
        """The timeouts of transfers of so many devices whose settings leave them open; None for the longest for all."""
        disturbed = cells > 1 or (self.overlapping and self.capacity != 1)
        return Patience(band, self.share(self.capacity or devices), disturbed=disturbed)

    def power(self, inputs: RateInputs) -> Array | None:
        """Share of its sender's power that each burst has in each block [bursts, blocks].

        None if every sender sends all the time and its bursts share its power equally.
        """
        return None

    @abstractmethod
    def allocate(self, inputs: RateInputs, power: Array | None) -> Allocation:
        """SINR and share of the band of each leg; `power` is the result of the method `power`."""
