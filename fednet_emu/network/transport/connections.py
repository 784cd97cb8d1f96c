"""Connections: which pairs of ends have one, and what their windows are."""

from __future__ import annotations

from typing import final

from fednet_emu.kernel.clock import NS_PER_S
from fednet_emu.network.air.transfer import Phases, Transfer
from fednet_emu.network.transport.sessions import Session
from fednet_emu.network.transport.slow_start import after_idle
from fednet_emu.network.transport.transports import ConnectedTransport, EndToEndTransport


@final
class Connections:
    """The connections of a run, over all its media.

    Attributes:
        window: the initial window of a transport that has one; None for datagrams.
    """

    def __init__(self, transport: EndToEndTransport, session: Session) -> None:
        self._transport, self._session = transport, session
        connected = transport if isinstance(transport, ConnectedTransport) else None
        self.window = None if connected is None else connected.window
        self._reuses = connected is not None and connected.reuse
        self._restarts = connected is not None and connected.idle_restart
        self._open_ns: dict[tuple[int, int], int] = {}  # when the connection of each pair of ends is established
        self._left: dict[tuple[int, int], tuple[int, int]] = {}  # by ends: window, and when the last bit left
        self._bits: dict[
            int, tuple[int, int]
        ] = {}  # by payload: bits on the wire, and returned; messages have few sizes
        self._rtt_ns, self._connect_ns, self._message_ns = (
            transport.rtt_ns,
            session.connect_ns(transport),
            session.message_ns,
        )
        self._refused = session.refuses(transport)

    def enter(self, transfer: Transfer, now_ns: int) -> Phases:
        """The sizes and the set-up of a message that is requested now; a path that is too long is refused."""
        bits = self._bits.get(transfer.size_bit)
        if bits is None:
            wire_bit = self._transport.wire_bit(self._session.framed_bit(transfer.size_bit))
            bits = self._bits[transfer.size_bit] = wire_bit, self._transport.reverse_bit(wire_bit)
        phases = Phases(transfer.size_bit, *bits)
        if self._refused:
            phases.setup_ns, phases.refused = self._session.patience_ns, "connect"
        elif self._reuses:
            open_ns = self._open_ns.setdefault(_pair(transfer), now_ns + self._connect_ns)
            phases.setup_ns = max(open_ns - now_ns, 0) + self._message_ns
        else:
            phases.setup_ns = self._connect_ns + self._message_ns
        return phases

    def start(self, transfer: Transfer, now_ns: int) -> int:
        """Give a transfer that starts now its window; return the largest total length of its gaps in ns."""
        window, phases = self.window, transfer.phases
        if window is None or phases is None:
            return 0
        left = self._left.get((transfer.sender, transfer.receiver))
        if left is not None:
            window_bit, left_ns = left
            if self._restarts:
                idle_s = (now_ns - left_ns) / NS_PER_S
                window_bit = after_idle(window_bit, window.first_bit, idle_s, self._transport.rtt_s)
            window = window._replace(first_bit=window_bit)
        phases.window_bit = window.first_bit
        return window.gaps(transfer.size_bit) * window.rtt_ns

    def leave(self, transfer: Transfer, now_ns: int) -> int:
        """Note the window of a message whose last bit leaves now; return the time in ns until that bit arrives."""
        phases = transfer.phases
        if self.window is not None and self._reuses and phases is not None and phases.window_bit:
            air_s = (now_ns - transfer.started_ns - phases.gap_ns) / NS_PER_S
            if air_s:
                window = self.window._replace(first_bit=phases.window_bit)
                grown_bit = window.grown_bit(transfer.air_bit, transfer.air_bit / air_s)
                self._left[transfer.sender, transfer.receiver] = grown_bit, now_ns
        return self._rtt_ns // 2

    def lose(self, transfer: Transfer) -> None:
        """Close the connection of a message that was lost."""
        one, other = _pair(transfer)
        self._open_ns.pop((one, other), None)
        self._left.pop((one, other), None)
        self._left.pop((other, one), None)


def _pair(transfer: Transfer) -> tuple[int, int]:
    return min(transfer.sender, transfer.receiver), max(transfer.sender, transfer.receiver)
