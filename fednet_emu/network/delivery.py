"""What comes out of a transfer."""

from __future__ import annotations

from typing import Any, NamedTuple

from fednet_emu.records.ledger import SERVER


class Delivery(NamedTuple):
    """The end of one transfer at one receiver. Loss is a value: `lost` is its reason, empty when it has arrived."""

    sender: int
    receiver: int
    payload: Any
    size_bit: int
    requested_s: float
    started_s: float
    ended_s: float
    lost: str = ""

    @property
    def latency_s(self) -> float:
        """Time from the request to the end, waiting for the channel included."""
        return self.ended_s - self.requested_s


def device_label(device: int) -> str:
    """A device's name in logs and errors: `dev-3`, or `server`."""
    return "server" if device == SERVER else f"dev-{device}"
