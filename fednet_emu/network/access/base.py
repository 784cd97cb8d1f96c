"""The base classes of access schemes: how simultaneous transmitters share one band, and which of them wait."""

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
"""A delay in ns of a transfer at an instant in ns."""


class Use(NamedTuple):
    """How a medium uses a band under an access scheme.

    Attributes:
        band: the band, with the rate law, the slots and the threshold of the scheme and the share of a lone burst.
        turns: which bursts wait for their turn, and which may start.
        air: how bits flow.
        before: wait of a transfer that is ready to be sent, before it queues for its turn; None for no wait.
        after: time from the instant at which the last bit of a transfer leaves the air until it is received; None for
            no time.
        patience: timeouts of transfers whose settings leave them open; None for the longest timeout for all.
    """

    band: Band
    turns: TurnQueue
    air: Air
    before: DelayNs | None = None
    after: DelayNs | None = None
    patience: Patience | None = None


class Access(Component):
    """How the transmitters of one cell share a band."""

    DIRECTIONS: ClassVar[frozenset[str]] = frozenset({"uplink", "downlink", "sidelink"})
    """The directions in which the scheme can be used."""

    overlapping: ClassVar[bool] = False
    """Whether bursts that are on the air together use the same part of the band."""

    only_sums: ClassVar[bool] = False
    """Whether the receiver gets the sum of all signals of a burst, and no single signal."""

    wired: ClassVar[bool] = False
    """Whether nothing is radiated."""

    multicasts: ClassVar[bool] = True
    """Whether one transmission can reach several receivers."""

    def uplink_conflict(self, scenario: Any) -> str:
        """Why the scheme cannot be the uplink of a scenario; empty if it can."""
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
        """The rate law that the scheme brings in a band of that width; None for the law of the channel."""
        return None

    @abstractmethod
    def use(self, band: Band, links: LinksOverTime, cells: int, devices: int) -> Use:
        """How a medium uses a band of the channel, with these numbers of cells and devices; called once, when built."""


class RatedAccess(Access, Sharing):
    """An access scheme in which each burst has a rate, from its SINR and its share of the band: see `allocate`.

    A scheme with its own slots, delays or flow of bits extends `use`.
    """

    def share(self, active: int) -> float:
        """Fraction of the band that each of `active` simultaneous bursts has; an equal one by default."""
        return 1.0 / active

    @override
    def use(self, band: Band, links: LinksOverTime, cells: int, devices: int) -> Use:
        """Turns by `capacity`, and rates by `allocate`; `law` replaces the rate law of the band."""
        law = self.law(band.bandwidth_hz) or band.law
        own = replace(band, law=law, share=self.share(1), threshold=self.threshold)
        alone = self.capacity == 1 and cells == 1 and links.until_ns() == FOREVER_NS  # rates do not depend on others
        air = BandAir(own) if alone else shared_air(self, own, links, cells)
        disturbed = cells > 1 or (self.overlapping and self.capacity != 1)
        patience = Patience(own, self.share(self.capacity or devices), disturbed=disturbed)
        return Use(own, TurnQueue(self.capacity, cells), air, patience=patience)
