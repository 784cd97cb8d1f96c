"""Latency: what an access scheme takes of a transfer beside its time on the air."""

from __future__ import annotations

from fednet_emu.network.air.transfer import Transfer


class Latency:
    """By default nothing; an access scheme with grants, decoding or the like has its own."""

    def access_ns(self, transfer: Transfer, now_ns: int) -> int:
        """Time in ns that a transfer that is ready to be sent now waits before it may queue for its turn, or start."""
        return 0

    def tail_ns(self, transfer: Transfer, now_ns: int) -> int:
        """Time in ns from now, when its last bit leaves the air, until a transfer counts as received."""
        return 0


NO_LATENCY = Latency()
