"""The path of a transfer from end to end: connection, grant, slow start, propagation and decoding."""

from __future__ import annotations

from collections.abc import Callable

from fednet_emu.network.air.latency import Latency
from fednet_emu.network.air.phases import Phases
from fednet_emu.network.air.transfer import Transfer
from fednet_emu.network.transport.connections import Connections


class EndToEndPath:
    """The delays of a transfer from end to end, in addition to its turn and its time on the air.

    Args:
        latency: delays of the access scheme.
        connections: the connections between ends; None without a transport.
        way_ns: time in ns from antenna to antenna; None for none.
    """

    def __init__(
        self,
        latency: Latency,
        connections: Connections | None = None,
        way_ns: Callable[[Transfer], int] | None = None,
    ) -> None:
        self.connections = connections
        self._latency, self._way_ns = latency, way_ns

    def enter(self, transfer: Transfer, now_ns: int) -> Phases:
        """The phases of a transfer that is requested now, as far as they are known."""
        if self.connections is None:
            phases = Phases(transfer.size_bit, transfer.size_bit)
        else:
            phases = self.connections.enter(transfer, now_ns)
        if not phases.refused:
            phases.access_ns = self._latency.access_ns(transfer, now_ns + phases.setup_ns)
        return phases

    def start(self, transfer: Transfer, now_ns: int) -> int:
        """Say how the bits of a transfer that starts now are released; return how long its gaps are in ns, at most."""
        return 0 if self.connections is None else self.connections.start(transfer, now_ns)

    def tail_ns(self, transfer: Transfer, now_ns: int) -> int:
        """Time in ns until a transfer counts as received whose last bit leaves the air now."""
        under_way_ns = 0 if self.connections is None else self.connections.leave(transfer, now_ns)
        way_ns = 0 if self._way_ns is None else self._way_ns(transfer)
        return self._latency.tail_ns(transfer, now_ns) + under_way_ns + way_ns

    def lose(self, transfer: Transfer) -> None:
        """Note that a transfer was lost."""
        if self.connections is not None:
            self.connections.lose(transfer)
