"""Edge servers: aggregators in the base stations, and the backhaul that connects each of them with the cloud."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pydantic import Field
from typing_extensions import override

from fednet_emu.component.component import Component
from fednet_emu.network.faults import AnyLoss, NoLoss


class BackhaulSettings(Component):
    """What connects each base station with the cloud: a line of its own in each direction, first come, first served.

    A message of b bits that finds its line free arrives after b / rate_bps + delay_s. The defaults are ideal: whatever
    is sent arrives at once and costs nothing. Messages have the headers of `network.overhead`.
    """

    rate_bps: float | None = Field(None, gt=0)
    """Rate in bit/s of each line; null for no limit."""
    delay_s: float = Field(0.0, ge=0)
    """Time in s from the end of sending to the arrival; the line is free for the next message meanwhile."""
    energy_j_per_bit: float = Field(0.0, ge=0)
    """Energy in J that the network spends per bit sent, on both ends and between them."""
    loss: AnyLoss = NoLoss()
    """Random loss of messages; a lost one takes its time and its energy."""


class EdgeServers(Component):
    """An aggregator in each base station, for algorithms that average there before they average in the cloud."""

    backhaul: BackhaulSettings = BackhaulSettings()

    @override
    def conflicts(self, scenario: Any) -> Iterator[tuple[str, str]]:
        why = "has no edge servers, so that its base stations pass everything on"
        yield from scenario.unless_used("edges", why, "a backhaul")
