"""Transport protocols and the sessions above them: headers, framing, handshakes, windows, delays, and connections."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from operator import attrgetter
from typing import Any, ClassVar, final

from pydantic import Field
from typing_extensions import override

from fednet_emu.component.component import Component, Excludes
from fednet_emu.kernel.clock import FOREVER_NS, NS_PER_S, to_ns
from fednet_emu.network.air.transfer import Phases, Transfer
from fednet_emu.network.transport.slow_start import Window
from fednet_emu.radio.overhead import HEADER_BYTE, Packets

IP_MTU_BYTE = 1500
"""Maximum packet size in bytes on Ethernet, including the headers of the network layer and above."""

_ACK_SHARE = 0.0195
"""Bits of acknowledgements per bit on the wire, as measured with Linux 6.18: an acknowledgement has 52 bytes, and
follows every second segment of 1500 bytes or, in slow start, every segment."""

_ACCESS = "network.uplink.access"


class Transport(Component):
    """No transport protocol: no connections, no waits for acknowledgements, and no path beyond the radio."""

    kind = "none"

    handshakes: ClassVar[int] = 0
    """Number of round trips before a new connection can carry data."""

    @property
    def rtt_ns(self) -> int:
        """Round-trip time in ns of the wired part of the path."""
        return 0

    def wire_bit(self, size_bit: int) -> int:
        """Return the number of bits on the air for a message of `size_bit` bits, including headers."""
        return size_bit

    def ack_bit(self, wire_bit: int) -> int:
        """Return the number of acknowledgement bits for a message of `wire_bit` bits on the air."""
        return 0


class EndToEndTransport(Transport):
    """A transport protocol with headers, over a path that consists of the radio link and a wired part."""

    excludes = (
        Excludes("network.overhead", {"packets"}, "brings its own headers", "leave the overhead out"),
        Excludes(_ACCESS, attrgetter("only_sums"), "packets cannot add up over the air", "leave one out"),
        Excludes(_ACCESS, {"planned"}, "plans know no headers and no gaps", "leave one out"),
    )

    rtt_s: float = Field(0.02, ge=0, le=3600)
    """Round-trip time in s of the wired part of the path, without queueing delay. A message arrives half a round-trip
    time after its radio transmission ends."""

    @property
    @override
    def rtt_ns(self) -> int:
        return to_ns(self.rtt_s)


class Udp(EndToEndTransport):
    """UDP (RFC 768), which has no connections and no acknowledgements.

    Datagrams have at most 1500 bytes, of which 28 are headers.
    """

    @override
    def wire_bit(self, size_bit: int) -> int:
        return Packets(headers="udp-ipv4", mtu_byte=IP_MTU_BYTE).wire_bit(size_bit)


class ConnectedTransport(EndToEndTransport):
    """A transport protocol with connections between two nodes, and a window.

    Ignored here: packet loss, which HARQ hides on 5G and Wi-Fi; queues in the wired part; unequal sharing of a
    bottleneck between flows; and any limit by the window after the window has once kept the line busy for a round trip.
    """

    initial_window: int = Field(10, ge=1, le=1000)
    """Number of packets that may be sent in the first round trip of a new connection."""
    reuse: bool = True
    """If true, two nodes use one connection for all messages in both directions, until a message is lost; if false,
    each message has a separate connection."""
    idle_restart: bool = True
    """Whether an idle connection halves its window for each retransmission timeout (`rtt_s` + 0.2 s) that passes, down
    to the initial window (RFC 2861). If true, slow start begins again after some seconds of training."""
    receive_window_byte: float = Field(4.0e6, ge=IP_MTU_BYTE, le=1e12)
    """Maximum number of bytes that have been sent but not yet acknowledged, which limits the bytes per round trip."""

    packet_byte: ClassVar[int] = IP_MTU_BYTE
    """Maximum packet size in bytes, including all headers."""
    header_byte: ClassVar[int]
    """Size in bytes of the headers of each packet."""
    handshakes: ClassVar[int] = 1

    @property
    def window(self) -> Window:
        """The congestion window of a new connection, in bits that include headers."""
        max_bit = round(8 * self.receive_window_byte)
        return Window(min(8 * self.packet_byte * self.initial_window, max_bit), max_bit, self.rtt_ns)

    @override
    def wire_bit(self, size_bit: int) -> int:
        packets = -(-size_bit // (8 * (self.packet_byte - self.header_byte)))
        return size_bit + 8 * self.header_byte * packets

    @override
    def conflicts(self, scenario: Any) -> Iterator[tuple[str, str]]:
        yield from super().conflicts(scenario)
        network = scenario.network
        for way in (network.downlink, network.sidelink):
            if way is not None and way.broadcasts:
                what = f"has one receiver, got {self.kind} with network.{way.DIRECTION}.mode: broadcast"
                yield "", f"{what}; choose mode: unicast there, or transport: udp"


class Tcp(ConnectedTransport):
    """TCP with slow start: the sender sends one burst per round trip, until a burst lasts for a whole round trip.

    From then on, bits are sent without pauses.

    Packets have 1500 bytes, 52 of which are headers (IPv4, TCP with time stamps). The handshake takes one round trip
    (RFC 9293). Measurements with Linux agree to 2.5 % without loss.
    """

    header_byte: ClassVar[int] = HEADER_BYTE["tcp-ipv4-timestamps"]

    @override
    def ack_bit(self, wire_bit: int) -> int:
        return round(_ACK_SHARE * wire_bit)


class Quic(ConnectedTransport):
    """QUIC as its RFCs specify it: a handshake of one round trip, which includes TLS, and TCP's slow start.

    Datagrams have 1200 bytes (RFC 9000, 14), in addition to the IPv4 and UDP headers. Of the 1200 bytes, 39 are
    overhead: flags (1), connection ID (8), packet number (4; RFC 9000, 17.3.1), type, stream ID and offset of the
    stream frame (10; 19.8), and authentication tag (16; RFC 9001, 5.3).
    Ignored here: 0-RTT, and acknowledgements, which are not recorded.
    """

    packet_byte: ClassVar[int] = HEADER_BYTE["udp-ipv4"] + 1200
    header_byte: ClassVar[int] = HEADER_BYTE["udp-ipv4"] + 1 + 8 + 4 + 10 + 16


_FRAME_BYTE = 16_384
"""Maximum number of data bytes in an HTTP/2 frame by default, and in a TLS record (RFC 9113, 4.2; RFC 8446, 5.1)."""


class Session(Component):
    """No session layer: messages are passed to the transport protocol without framing or additional handshakes."""

    kind = "none"

    @property
    def handshakes(self) -> int:
        """Number of round trips for a new connection, in addition to those of the transport protocol."""
        return 0

    @property
    def patience_ns(self) -> int:
        """Time limit in ns for the setup of a connection."""
        return FOREVER_NS

    @property
    def message_ns(self) -> int:
        return 0

    def connect_ns(self, transport: Transport) -> int:
        """Return the setup time of a new connection in ns."""
        return (transport.handshakes + self.handshakes) * transport.rtt_ns

    def refuses(self, transport: Transport) -> bool:
        """Return True if the setup time of a connection reaches the time limit, so that no connection is possible."""
        return self.connect_ns(transport) >= self.patience_ns

    def framed_bit(self, size_bit: int) -> int:
        return size_bit


class Grpc(Session):
    """gRPC over HTTP/2: a new connection takes a round trip for the server's SETTINGS, and one for TLS 1.3 (RFC 8446).

    Together with TCP's handshake, the setup of a connection takes two round trips, or three with TLS. The setup must be
    complete within `connect_timeout_s`. With the default of 20 s, a path with a one-way delay of 5.0 s, or 3.33 s with
    TLS, never connects (gRPC's connection backoff; "Surviving the Edge", arXiv 2605.03870, finds 5 s for Flower).
    Messages on such a path are lost for the reason `connect`.
    Ignored here: the bytes of handshakes, deadlines of calls, and keepalives.
    """

    excludes = (
        Excludes("network.transport", lambda its: not isinstance(its, Tcp), "runs over TCP", "choose transport: tcp"),
    )

    tls: bool = False
    """Whether messages are encrypted with TLS."""
    connect_timeout_s: float = Field(20.0, gt=0, le=1e6)
    """Maximum time in s for an attempt to connect."""
    per_message_s: float = Field(0.0, ge=0, le=1e6)
    """Time in s that software needs to serialise and copy each message before its first bit is sent."""

    @property
    @override
    def handshakes(self) -> int:
        return 2 if self.tls else 1

    @property
    @override
    def patience_ns(self) -> int:
        return to_ns(self.connect_timeout_s)

    @property
    @override
    def message_ns(self) -> int:
        return to_ns(self.per_message_s)

    @override
    def framed_bit(self, size_bit: int) -> int:
        """Return `size_bit` plus 5 bytes for gRPC, 9 per HTTP/2 frame and, if `tls` is set, 22 per TLS record."""
        framed_bit = size_bit + 8 * 5
        per_frame = 8 * (9 + 22 * self.tls)
        return framed_bit + per_frame * -(-framed_bit // (8 * _FRAME_BYTE))


@final
class Connections:
    """State of all transport connections of a run, in all directions."""

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

        If the session cannot set up a connection within its time limit, the message is marked as refused, and is lost.
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
        """Set the window of a transfer that starts now; return its maximum total wait in ns for acknowledgements."""
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
        """Record the window and the rate of the connection over which a transmission ends now.

        Returns:
            The delay in ns until the message is received.
        """
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
        for ends in (transfer.sender, transfer.receiver), (transfer.receiver, transfer.sender):
            self._open_ns.pop(ends, None)
            self._left.pop(ends, None)
