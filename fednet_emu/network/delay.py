"""Propagation delay: the time for which a signal travels from the sender's antenna to the receiver's antenna."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Annotated, Any

from pydantic import Field
from typing_extensions import override

from fednet_emu.component.component import Component
from fednet_emu.component.slot import Slot, kinds
from fednet_emu.kernel.clock import to_ns

LIGHT_M_S = 299_792_458.0
"""Speed of light in vacuum in m/s; the path loss models use 3.0e8 m/s, as in 3GPP's documents."""


class Delay(Component):
    """Propagation delay between sender and receiver.

    The band is free during this delay. A broadcast has the delay of its farthest receiver.
    """

    def delay_ns(self, range_m: Callable[[], float]) -> int:
        """Return the propagation delay in ns; `range_m` returns the distance in m at the start of a transfer."""
        return 0

    @override
    def conflicts(self, scenario: Any) -> Iterator[tuple[str, str]]:
        kind = self.kind
        if kind == "none":
            return
        if scenario.network.transport.kind != "none":
            what = f"handshakes and windows know the wired path only, got {kind} with network.transport"
            yield "", f"{what}: {scenario.network.transport.kind}; leave one out, or put the delay into its rtt_s"
        if scenario.network.uplink.access.only_sums:
            yield "", f"signals that add up arrive together, got {kind} with {scenario.network.uplink.access.kind}"


class NoDelay(Delay):
    """No delay: a message arrives when its transmission ends."""

    kind = "none"


class FixedDelay(Delay):
    """A constant propagation delay, the same for all transfers."""

    kind = "fixed"
    time_s: float = Field(ge=0, le=3600)
    """Propagation delay in s."""

    @override
    def delay_ns(self, range_m: Callable[[], float]) -> int:
        return to_ns(self.time_s)


class RangeDelay(Delay):
    """Propagation at the speed of light over the distance between the two antennas at the start of the transfer."""

    kind = "range"

    @override
    def delay_ns(self, range_m: Callable[[], float]) -> int:
        return to_ns(range_m() / LIGHT_M_S)


AnyDelay = Annotated[Delay, Slot("delay", kinds(NoDelay, FixedDelay, RangeDelay))]
