"""Base classes of access schemes, which determine how transmitters share a band and which transmissions wait."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import replace
from typing import Any, ClassVar, NamedTuple

from typing_extensions import override

from fednet_emu.component.component import Component
from fednet_emu.kernel.clock import FOREVER_NS
from fednet_emu.network.air.band import Band
from fednet_emu.network.air.patience import Patience
from fednet_emu.network.air.plain import shared_air
from fednet_emu.network.air.queue import TurnQueue
from fednet_emu.network.air.separate import Air, BandAir
from fednet_emu.network.air.sharing import Sharing
from fednet_emu.network.air.transfer import Transfer
from fednet_emu.network.links.links import LinksOverTime
from fednet_emu.radio.rates.base import RateLaw
from fednet_emu.radio.receiver.combining import Reception

DelayNs = Callable[[Transfer, int], int]
"""Function that returns the delay in ns of a transfer, given the transfer and the present time in ns."""


class Use(NamedTuple):
    """Settings of an access scheme for one medium: band, queue, model of rates, delays and default timeouts.

    A burst is one transmission to one or more receivers.

    Attributes:
        band: the band, with the scheme's rate law, slots, SINR threshold, and the share that a burst uses alone.
        turns: queue that decides which bursts wait and which may start.
        air: the model that computes the rates of the bursts on the air.
        before: delay of a transfer before it enters the queue; None for no delay.
        after: delay from the end of a transmission to the reception of its last bit; None for no delay.
        patience: default timeouts of transfers, used if `timeout_s` is null; None if all transfers get the longest
            timeout.
    """

    band: Band
    turns: TurnQueue
    air: Air
    before: DelayNs | None = None
    after: DelayNs | None = None
    patience: Patience | None = None


class Access(Component):
    """An access scheme: how the transmitters of one cell share a band."""

    DIRECTIONS: ClassVar[frozenset[str]] = frozenset({"uplink", "downlink", "sidelink"})
    """The directions in which the scheme can be used."""

    overlapping: ClassVar[bool] = False
    """True if simultaneous bursts use the same part of the band."""

    only_sums: ClassVar[bool] = False
    """True if the receiver obtains only the sum of simultaneous signals, and not each signal separately."""

    wired: ClassVar[bool] = False
    """True for a wired scheme, in which devices radiate no power."""

    multicasts: ClassVar[bool] = True
    """True if one transmission can reach several receivers."""

    def uplink_conflict(self, scenario: Any) -> str:
        """Return why the scheme cannot be used in the scenario's uplink; an empty string if it can be used."""
        return ""

    def conflict_with_antennas(self, reception: Reception) -> str:
        """Return why the scheme cannot be combined with a multi-antenna reception; an empty string if it can be."""
        return ""

    @property
    def capacity(self) -> int | None:
        """Maximum number of simultaneous bursts (transmissions) in one cell; further bursts wait. None for no limit."""
        return None

    @property
    def residual_share(self) -> float | None:
        """Fraction of a decoded burst's power that still interferes with other bursts; 1 if there is no cancellation.

        None if simultaneous bursts (transmissions) use separate parts of the band, or if the receiver need not decode
        every burst.
        """
        return None

    @property
    def threshold(self) -> float:
        """Minimum SINR (linear) for a transmission to carry bits in a fading block; the rate law may require more."""
        return 0.0

    def law(self, bandwidth_hz: float) -> RateLaw | None:
        """Return the scheme's rate law for a band of `bandwidth_hz`; None if the scheme uses the channel's rate law."""
        return None

    @abstractmethod
    def use(self, band: Band, links: LinksOverTime, cells: int, devices: int) -> Use:
        """Return the scheme's settings for the band of a medium with the given numbers of cells and devices.

        This method is called once per medium.
        """


class RatedAccess(Access, Sharing):
    """An access scheme in which the rate of each burst (transmission) depends on its SINR and its band share.

    Subclasses implement `allocate`. A subclass with its own slots, delays or transmission model also extends `use`.
    """

    def share(self, active: int) -> float:
        """Return the fraction of the band that each of `active` simultaneous bursts uses; by default 1 / `active`."""
        return 1.0 / active

    @override
    def use(self, band: Band, links: LinksOverTime, cells: int, devices: int) -> Use:
        law = self.law(band.bandwidth_hz) or band.law
        own = replace(band, law=law, share=self.share(1), threshold=self.threshold)
        alone = self.capacity == 1 and cells == 1 and links.until_ns() == FOREVER_NS  # no burst affects another
        air = BandAir(own) if alone else shared_air(self, own, links, cells)
        disturbed = cells > 1 or (self.overlapping and self.capacity != 1)
        patience = Patience(own, self.share(self.capacity or devices), disturbed=disturbed)
        return Use(own, TurnQueue(self.capacity, cells), air, patience=patience)
