"""Spatial reuse: clusters of devices use one band at the same time, and devices of a cluster take turns."""

from __future__ import annotations

from typing import ClassVar, Literal

from fednet_emu.arrays import Array
from fednet_emu.network.access.base import Access, Allocation, RateInputs
from fednet_emu.network.access.contention import Shared
from fednet_emu.units import db_to_linear


class SpatialReuse(Access):
    """All clusters use the whole band at the same time, with turns inside each cluster; other senders count as noise.

    `turns: cluster` lets one device of a cluster send at a time, in the order of requests. `turns: coloured` lets
    transmissions of a cluster run together as long as no device takes part in two of them, as sender or as receiver;
    with bursts of equal duration this is a greedy distance-2 colouring of the cluster's graph in the order of requests.
    In either case no device takes part in two transmissions at once, even if it belongs to two clusters (half duplex).
    Ignored here: how devices agree on turns, several antennas, any interference cancellation.
    """

    DIRECTIONS: ClassVar[frozenset[str]] = frozenset({"sidelink"})

    kind: Literal["spatial-reuse"] = "spatial-reuse"

    turns: Literal["cluster", "coloured"] = "cluster"
    """Which devices of a cluster may send at the same time: one (`cluster`), or all that share no device
    (`coloured`)."""

    interference: bool = True
    """Whether simultaneous transmissions interfere; false assumes that they do not reach each other's receivers."""

    threshold_db: float | None = None
    """SINR in dB below which a block carries nothing, beside the rate law's own limit; null for no threshold."""

    @property
    def capacity(self) -> int | None:
        """One per cluster, or no limit other than the colouring."""
        return 1 if self.turns == "cluster" else None

    @property
    def clustered(self) -> bool:
        """Always true."""
        return True

    @property
    def disturbed(self) -> bool:
        """True if `interference` is."""
        return self.interference

    @property
    def threshold(self) -> float:
        """`threshold_db` as a linear ratio."""
        return 0.0 if self.threshold_db is None else db_to_linear(self.threshold_db)

    def share(self, active: int) -> float:
        """The whole band."""
        return 1.0

    def allocate(self, inputs: RateInputs, power: Array | None) -> Allocation:
        """SINR with all other senders as noise, on the whole band."""
        return _SHARED.allocate(inputs, power)


_SHARED = Shared()
