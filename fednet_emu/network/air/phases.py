"""What a transfer passes beside its bits on the air: waits before the first, gaps between, a tail after the last."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from fednet_emu.network.air.window import Window
from fednet_emu.records.rows import PhaseColumns, TransferRow


@dataclass(slots=True)
class Phases:
    """The phases of one transfer beside its wait for a turn and its time on the air, and the sizes of its message.

    Attributes:
        payload_bit: what the transport was given to carry.
        wire_bit: payload and headers, what goes on the air.
        reverse_bit: what the receiver returns, acknowledgements; they take no time on the air.
        access_ns: wait for access.
        setup_ns: wait for a connection, and for software.
        gap_ns: time between the first bit on the air and the last in which the sender had nothing to send.
        tail_ns: time from the last bit on the air until it counts as received.
        window: how its bits are released; None for all at once.
        refused: why it is lost when its waits are over, without ever being sent; empty as a rule.
    """

    payload_bit: int
    wire_bit: int
    reverse_bit: int = 0
    access_ns: int = 0
    setup_ns: int = 0
    gap_ns: int = 0
    tail_ns: int = 0
    window: Window | None = None
    refused: str = ""

    @property
    def wait_ns(self) -> int:
        """Time in ns from the request until it may queue for its turn, or start."""
        return self.setup_ns + self.access_ns

    def cut(self, passed_ns: int) -> None:
        """Note that a transfer that never started has ended after so many ns, perhaps before these waits were over."""
        self.setup_ns = min(self.setup_ns, passed_ns)
        self.access_ns = min(self.access_ns, passed_ns - self.setup_ns)

    def extend(self, row: TransferRow) -> tuple[Any, ...]:
        """The row of a transfer with the columns of its phases; its size is then that of the payload."""
        arrived = row.delivered_bit // row.size_bit if row.size_bit else 0
        own = row._replace(size_bit=self.payload_bit, delivered_bit=self.payload_bit * arrived)
        phases = self.access_ns, self.setup_ns, self.gap_ns, self.tail_ns
        return (*own, *PhaseColumns(*phases, self.wire_bit, self.reverse_bit))
