"""A transfer: one payload on its way to one receiver, from the request to the delivery."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from simpy.events import Event

from fednet_emu.kernel.clock import FOREVER_NS, Clock
from fednet_emu.network.medium.delivery import Delivery
from fednet_emu.records.ledger import KINDS, NEVER_NS, device_label

if TYPE_CHECKING:
    from fednet_emu.network.medium.medium import Medium


class Transfer(Event):
    """Event that comes when a transfer has ended, delivered or lost; its value is the `Delivery`."""

    # Nothing is left to the class: what that has as well, Python reads and writes slowly in its instances.
    def __init__(self, medium: Medium, sender: int, receiver: int, payload: Any, number: int, size_bit: int) -> None:
        self.env = clock = medium.clock  # what SimPy's own does, without its call
        self.callbacks = []
        self._ok = True
        self.medium = medium
        self.sender = sender
        self.receiver = receiver
        self.payload = payload
        self.number = number
        self.size_bit = size_bit
        self.requested_ns: int = clock.now
        self.started_ns = NEVER_NS
        self.until_ns = FOREVER_NS
        self.until_reason = "timeout"
        self.snr = 0.0
        self.fading_key = 0
        self.cell = 0
        self.air_bit = 0.0
        self.power_part = 1.0
        self.drawn_w = 0.0
        self.power_s = 0.0  # time on the air, times the part of the sender's power; in the first transfer of a burst
        self.lost = ""  # why it was lost, or empty; final at its end
        self.cancelled = ""
        self.of: Multicast | None = None  # which then tells the clock, so that the transfer need not

    def delivered(self, delivery: Delivery) -> Event | None:
        """Take the value; the event that is to come now, if any."""
        self._value = delivery
        return self if self.of is None else self.of.leg_ended()

    def cancel(self, outcome: Any) -> None:
        """Stop the transfer for the reason in `outcome`, a delivery that is lost."""
        self.medium.cancel(self, outcome.lost)

    def describe(self) -> str:
        """Say which transfer this is."""
        kind = KINDS[self.medium.kind]
        return f"the {kind} from {device_label(self.sender)} to {device_label(self.receiver)}"


class Multicast(Event):
    """Event that comes when all transfers of one payload to several receivers have ended.

    Its value is the list of deliveries, in the order of the receivers.
    """

    def __init__(self, clock: Clock, legs: Sequence[Transfer]) -> None:
        super().__init__(clock)
        self._legs, self._missing = legs, len(legs)
        for leg in legs:
            leg.of = self
        if not legs:
            self.succeed([])

    def leg_ended(self) -> Multicast | None:
        """Count down; the event itself after the last one."""
        self._missing -= 1
        if self._missing:
            return None
        self._ok, self._value = True, [leg.value for leg in self._legs]
        for leg in self._legs:
            leg.of = None  # no cycle is left for the garbage collector
        return self

    def cancel(self, outcome: Any) -> None:
        """Stop all of them for the reason in `outcome`, a delivery that is lost."""
        for leg in self._legs:
            leg.cancel(outcome)

    def describe(self) -> str:
        """Say which transfers have not ended."""
        missing = [leg.describe() for leg in self._legs if not leg.triggered]
        return f"{', '.join(missing[:3])}{', ...' if len(missing) > 3 else ''}"


Burst = list[Transfer]
"""Transfers that share one stretch of airtime: one, or the receivers of a broadcast."""
