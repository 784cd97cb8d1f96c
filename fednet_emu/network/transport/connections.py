"""Connections: which pairs of ends have one, and what their windows are."""

from __future__ import annotations

from typing import NamedTuple, final

from fednet_emu.kernel.clock import NS_PER_S
from fednet_emu.network.air.phases import Phases
from fednet_emu.network.air.transfer import Transfer
from fednet_emu.network.air.window import after_idle
from fednet_emu.network.transport.sessions import Session
from fednet_emu.network.transport.transports import ConnectedTransport, EndToEndTransport


class Left(NamedTuple):
    """How a message has left a connection in its direction: its window, and when its last bit left."""

    window_bit: int
    at_ns: int


@final
class Connections:
    """The connections of a run, over all its media.

    Args:
        transport: their law.
        session: what is above it.
    """

    def __init__(self, transport: EndToEndTransport, session: Session) -> None:
        self._transport, self._session = transport, session
        self._law = transport if isinstance(transport, ConnectedTransport) else None
        self._open_ns: dict[tuple[int, int], int] = {}  # when each pair's connection stands
        self._left: dict[tuple[int, int], Left] = {}  # by sender and receiver
        self._rtt_ns, self._connect_ns = transport.rtt_ns, session.connect_ns(transport)
        self._refused = session.refuses(transport)

    def enter(self, transfer: Transfer, now_ns: int) -> Phases:
        """The sizes and the set-up of a message that is asked for now; a path that is too long is refused."""
        wire_bit = self._transport.wire_bit(self._session.framed_bit(transfer.size_bit))
        phases = Phases(transfer.size_bit, wire_bit, self._transport.reverse_bit(wire_bit))
        if self._refused:
            phases.setup_ns, phases.refused = self._session.patience_ns, "connect"
        else:
            phases.setup_ns = self._wait_ns(_pair(transfer), now_ns) + self._session.message_ns
        return phases

    def start(self, transfer: Transfer, now_ns: int) -> int:
        """Give a transfer that starts now its window; return how long its gaps are in ns, at most."""
        if self._law is None or transfer.phases is None:
            return 0
        first_bit, left = self._law.initial_bit, self._left.get((transfer.sender, transfer.receiver))
        if left is not None:
            first_bit = left.window_bit
            if self._law.idle_restart:
                idle_s = (now_ns - left.at_ns) / NS_PER_S
                first_bit = after_idle(first_bit, self._law.initial_bit, idle_s, self._law.rtt_s)
        transfer.phases.window = window = self._law.window(first_bit)
        return window.gaps(transfer.size_bit) * self._rtt_ns

    def leave(self, transfer: Transfer, now_ns: int) -> int:
        """Note the window of a message whose last bit leaves now; return how long that is under way in ns."""
        phases = transfer.phases
        if self._law is not None and self._law.reuse and phases is not None and phases.window is not None:
            air_s = (now_ns - transfer.started_ns - phases.gap_ns) / NS_PER_S
            if air_s:
                grown_bit = phases.window.grown_bit(transfer.air_bit, transfer.air_bit / air_s)
                self._left[transfer.sender, transfer.receiver] = Left(grown_bit, now_ns)
        return self._rtt_ns // 2

    def lose(self, transfer: Transfer) -> None:
        """Close the connection of a message that was lost."""
        one, other = _pair(transfer)
        self._open_ns.pop((one, other), None)
        self._left.pop((one, other), None)
        self._left.pop((other, one), None)

    def _wait_ns(self, pair: tuple[int, int], now_ns: int) -> int:
        """Time in ns until the ends have a connection, which they open now unless they have one."""
        if self._law is None or not self._law.reuse:
            return self._connect_ns
        if pair not in self._open_ns:
            self._open_ns[pair] = now_ns + self._connect_ns
        return max(self._open_ns[pair] - now_ns, 0)


def _pair(transfer: Transfer) -> tuple[int, int]:
    return min(transfer.sender, transfer.receiver), max(transfer.sender, transfer.receiver)
