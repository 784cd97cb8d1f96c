"""Transport connections between pairs of nodes, and the windows of these connections."""

from __future__ import annotations

from functools import lru_cache
from typing import final

from fednet_emu.kernel.clock import NS_PER_S
from fednet_emu.network.air.transfer import Phases, Transfer
from fednet_emu.network.transport.slow_start import Window
from fednet_emu.network.transport.transports import ConnectedTransport, EndToEndTransport, Session


@final
class Connections:
    """The transport connections of a run, over all its media."""

    def __init__(self, transport: EndToEndTransport, session: Session) -> None:
        self._transport, self._session = transport, session
        connected = transport if isinstance(transport, ConnectedTransport) else None
        self.window = None if connected is None else connected.window
        self._reuses = connected is not None and connected.reuse
        self._restarts = connected is not None and connected.idle_restart
        self._open_ns: dict[tuple[int, int], int] = {}  # time at which each pair's connection is established
        # by (sender, receiver): window, bits and airtime in s of the last message, and end time in ns of its airtime
        self._left: dict[tuple[int, int], tuple[int, float, float, int]] = {}
        self._bits: dict[int, tuple[int, int]] = {}  # by payload size: bits on the wire, and bits of acknowledgements
        self._gaps = lru_cache(maxsize=4096)(Window.gaps)
        self._rtt_ns, self._connect_ns = transport.rtt_ns, session.connect_ns(transport)
        self._message_ns = session.message_ns
        self._refused = session.refuses(transport)

    def enter(self, transfer: Transfer, now_ns: int) -> Phases:
        """Return the sizes and the setup delay of a message that is requested now.

        The message is refused if the session cannot set up a connection within its time limit.
        """
        bits = self._bits.get(transfer.size_bit)
        if bits is None:
            wire_bit = self._transport.wire_bit(self._session.framed_bit(transfer.size_bit))
            bits = self._bits[transfer.size_bit] = wire_bit, self._transport.ack_bit(wire_bit)
        phases = Phases(transfer.size_bit, *bits)
        if self._refused:
            phases.connection_setup_ns, phases.refused = self._session.patience_ns, "connect"
        elif self._reuses:
            sender, receiver = transfer.sender, transfer.receiver
            pair = (sender, receiver) if sender < receiver else (receiver, sender)
            open_ns = self._open_ns.setdefault(pair, now_ns + self._connect_ns)
            phases.connection_setup_ns = max(open_ns - now_ns, 0) + self._message_ns
        else:
            phases.connection_setup_ns = self._connect_ns + self._message_ns
        return phases

    def start(self, transfer: Transfer, now_ns: int) -> int:
        """Set the window of a transfer that starts now; return the maximum total duration in ns of its waits."""
        window, phases = self.window, transfer.phases
        if window is None or phases is None:
            return 0
        left = self._left.get((transfer.sender, transfer.receiver))
        if left is not None:
            used_bit, transmitted_bit, air_s, left_ns = left
            idle_s = (now_ns - left_ns) / NS_PER_S if self._restarts else 0.0
            next_bit = window.next_bit(used_bit, transmitted_bit, transmitted_bit / air_s, idle_s)
            window = Window(next_bit, window.max_bit, window.rtt_ns)
        phases.window_bit = window.first_bit
        return self._gaps(window, transfer.size_bit) * window.rtt_ns

    def leave(self, transfer: Transfer, now_ns: int) -> int:
        """Record window and rate of a connection when a message is sent; return the delay to its reception in ns."""
        phases = transfer.phases
        if self.window is not None and self._reuses and phases is not None and phases.window_bit:
            air_s = (now_ns - transfer.started_ns - phases.ack_wait_ns) / NS_PER_S
            if air_s:
                self._left[transfer.sender, transfer.receiver] = (
                    phases.window_bit,
                    transfer.transmitted_bit,
                    air_s,
                    now_ns,
                )
        return self._rtt_ns // 2

    def lose(self, transfer: Transfer) -> None:
        """Close the connection on which a message was lost."""
        for ends in (transfer.sender, transfer.receiver), (transfer.receiver, transfer.sender):
            self._open_ns.pop(ends, None)
            self._left.pop(ends, None)
