"""What comes out of a transfer."""

from __future__ import annotations

from typing import Any, NamedTuple


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
