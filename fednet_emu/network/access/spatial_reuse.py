"""Spatial reuse: clusters of devices use one band at the same time, and devices of a cluster take turns."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar, Literal

from typing_extensions import override

from fednet_emu.arrays import Array
from fednet_emu.kernel.clock import FOREVER_NS
from fednet_emu.network.access.base import Use
from fednet_emu.network.access.contention import WholeBand
from fednet_emu.network.air.band import Band
from fednet_emu.network.air.patience import Patience
from fednet_emu.network.air.queue import TurnQueue
from fednet_emu.network.air.separate import BandAir
from fednet_emu.network.air.shared import SharedAir
from fednet_emu.network.air.sharing import Allocation, RateInputs
from fednet_emu.network.links.links import LinksOverTime


class SpatialReuse(WholeBand):
    """All clusters use the whole band at the same time, with turns inside each cluster; other senders count as noise.

    `turns: cluster` lets one device of a cluster send at a time, in the order of requests. `turns: coloured` lets
    transmissions of a cluster run together as long as no device takes part in two of them, as sender or as receiver;
    with bursts of equal duration this is a greedy distance-2 colouring of the cluster's graph in the order of requests.
    In either case no device takes part in two transmissions at once, even if it belongs to two clusters (half duplex).
    Ignored here: how devices agree on turns, several antennas, any interference cancellation.
    """

    DIRECTIONS: ClassVar[frozenset[str]] = frozenset({"sidelink"})

    turns: Literal["cluster", "coloured"] = "cluster"
    """Which devices of a cluster may send at the same time: one (`cluster`), or all that share no device
    (`coloured`)."""

    interference: bool = True
    """Whether simultaneous transmissions interfere; false assumes that they do not reach each other's receivers."""

    @property
    def capacity(self) -> int | None:
        """One per cluster, or no limit other than the colouring."""
        return 1 if self.turns == "cluster" else None

    @override
    def use(self, band: Band, links: LinksOverTime, cells: int, devices: int) -> Use:
        own = replace(band, threshold=self.threshold)
        alone = not self.interference and links.until_ns() == FOREVER_NS
        air = BandAir(own) if alone else SharedAir(self, own, links, cells)
        return Use(own, TurnQueue(self.capacity, None), air, patience=Patience(own, disturbed=self.interference))

    @override
    def allocate(self, inputs: RateInputs, power: Array | None) -> Allocation:
        """SINR with other senders as noise, or without them where they do not interfere."""
        return super().allocate(inputs, power) if self.interference else Allocation(inputs.own, 1.0, inputs.own)
