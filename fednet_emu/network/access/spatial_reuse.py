"""Spatial reuse: clusters of devices use one band side by side, and take turns inside."""

from __future__ import annotations

from typing import ClassVar, Literal

from fednet_emu.arrays import Array
from fednet_emu.network.access.base import Access, Allocation, RateInputs
from fednet_emu.network.access.contention import Shared
from fednet_emu.units import db_to_linear


class SpatialReuse(Access):
    """Every cluster has the whole band at once and takes turns inside; senders of other turns or clusters are noise.

    `turns: cluster` lets one device of a cluster send at a time, in the order of requests. `turns: coloured` lets all
    those send together of which no device takes part in two transmissions, as sender or as receiver; when bursts
    take equally long this is a greedy distance-2 colouring of the cluster's graph in the order of requests. In either
    case nobody takes part in two transmissions at once, not even as a member of two clusters (half duplex).
    Ignored here: how devices agree on turns, several antennas, any cancellation.
    """

    DIRECTIONS: ClassVar[frozenset[str]] = frozenset({"sidelink"})

    kind: Literal["spatial-reuse"] = "spatial-reuse"

    turns: Literal["cluster", "coloured"] = "cluster"
    """Who of a cluster sends at a time."""

    interference: bool = True
    """Whether others on the air are noise; without, clusters are taken to be out of each other's reach."""

    threshold_db: float | None = None
    """SINR below which a block carries nothing, beside what the rate law says; null for no such threshold."""

    @property
    def capacity(self) -> int | None:
        """One of a cluster, or no limit but the colouring."""
        return 1 if self.turns == "cluster" else None

    @property
    def clustered(self) -> bool:
        """They are."""
        return True

    @property
    def disturbed(self) -> bool:
        """As far as there is interference."""
        return self.interference

    @property
    def threshold(self) -> float:
        """The threshold as a ratio."""
        return 0.0 if self.threshold_db is None else db_to_linear(self.threshold_db)

    def share(self, active: int) -> float:
        """The whole band."""
        return 1.0

    def allocate(self, inputs: RateInputs, power: Array | None) -> Allocation:
        """Signal over noise and everybody else, as in a shared band."""
        return _SHARED.allocate(inputs, power)


_SHARED = Shared()
