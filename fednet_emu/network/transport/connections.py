"""Connections: the connected pairs of ends, and their windows."""

from __future__ import annotations

from functools import lru_cache
from typing import final

from fednet_emu.kernel.clock import NS_PER_S
from fednet_emu.network.air.transfer import Phases, Transfer
from fednet_emu.network.transport.sessions import Session
from fednet_emu.network.transport.slow_start import Window
from fednet_emu.network.transport.transports import ConnectedTransport, EndToEndTransport


@final
class Connections:
    """The connections of a run, over all its media."""

    def __init__(self, transport: EndToEndTransport, session: Session) -> None:
        self._transport, self._session = transport, session
        connected = transport if isinstance(transport, ConnectedTransport) else None
        self.window = None if connected is None else connected.window
        self._reuses = connected is not None and connected.reuse
        self._restarts = connected is not None and connected.idle_restart
        self._open_ns: dict[tuple[int, int], int] = {}  # when the connection of each pair of ends is established
        # by ends: window, bits and time in s of the last message, and when its last bit left the air
        self._left: dict[tuple[int, int], tuple[int, float, float, int]] = {}
        self._bits: dict[int, tuple[int, int]] = {}  # by payload: bits on the wire, and returned; sizes are few
        self._gaps = lru_cache(maxsize=4096)(Window.gaps)
        self._rtt_ns, self._connect_ns = transport.rtt_ns, session.connect_ns(transport)
        self._message_ns = session.message_ns
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
            sender, receiver = transfer.sender, transfer.receiver
            pair = (sender, receiver) if sender < receiver else (receiver, sender)
            open_ns = self._open_ns.setdefault(pair, now_ns + self._connect_ns)
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
            used_bit, air_bit, air_s, left_ns = left
            idle_s = (now_ns - left_ns) / NS_PER_S if self._restarts else 0.0
            next_bit = window.next_bit(used_bit, air_bit, air_bit / air_s, idle_s)
            window = Window(next_bit, window.most_bit, window.rtt_ns)
        phases.window_bit = window.first_bit
        return self._gaps(window, transfer.size_bit) * window.rtt_ns

    def leave(self, transfer: Transfer, now_ns: int) -> int:
        """Note how a message was sent whose last bit leaves now; return the time in ns until that bit arrives."""
        phases = transfer.phases
        if self.window is not None and self._reuses and phases is not None and phases.window_bit:
            air_s = (now_ns - transfer.started_ns - phases.gap_ns) / NS_PER_S
            if air_s:
                self._left[transfer.sender, transfer.receiver] = phases.window_bit, transfer.air_bit, air_s, now_ns
        return self._rtt_ns // 2

    def lose(self, transfer: Transfer) -> None:
        """Close the connection of a message that was lost."""
        for ends in (transfer.sender, transfer.receiver), (transfer.receiver, transfer.sender):
            self._open_ns.pop(ends, None)
            self._left.pop(ends, None)
