"""Transport protocols: headers, handshakes and windows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

from pydantic import Field
from typing_extensions import override

from fednet_emu.component.component import Component
from fednet_emu.kernel.clock import to_ns
from fednet_emu.network.planning.access import Planned
from fednet_emu.network.transport.slow_start import Window
from fednet_emu.radio.overhead import HEADER_BYTE, Packets

IP_MTU_BYTE = 1500
"""Maximum packet size in bytes on Ethernet, including the headers of the network layer and above."""

_ACK_SHARE = 0.0195
"""Bits of acknowledgements per bit on the wire, as measured with Linux 6.18: an acknowledgement has 52 bytes, and
follows every second segment of 1500 bytes or, in slow start, every segment."""


class Transport(Component):
    """End-to-end protocol that carries the payload of messages over the radio and the wired part of the path."""

    handshakes: ClassVar[int] = 0
    """Number of round trips before a new connection can carry data."""

    @property
    def rtt_ns(self) -> int:
        """Round-trip time in ns of the path, without its radio part."""
        return 0

    def wire_bit(self, size_bit: int) -> int:
        """Return the bits on the air for a message of `size_bit`, including headers."""
        return size_bit

    def ack_bit(self, wire_bit: int) -> int:
        """Return the bits that the receiver of a message sends back as acknowledgements."""
        return 0


class NoTransport(Transport):
    """No transport protocol: no connections, no waits for acknowledgements, and no path beyond the radio."""

    kind = "none"


class EndToEndTransport(Transport):
    """A transport protocol with its own headers, over a path that consists of the radio and a wired part."""

    rtt_s: float = Field(0.02, ge=0, le=3600)
    """Round-trip time in s of the wired part of the path, without queueing delay. A message arrives half a round-trip
    time after its radio transmission ends."""

    @property
    @override
    def rtt_ns(self) -> int:
        return to_ns(self.rtt_s)

    @override
    def conflicts(self, scenario: Any) -> Iterator[tuple[str, str]]:
        network, kind = scenario.network, self.kind
        if isinstance(network.overhead, Packets):
            yield "", f"brings its own headers, got {kind} with network.overhead: packets; leave the overhead out"
        if network.uplink.access.only_sums:
            what = "packets cannot add up over the air"
            yield "", f"{what}, got {kind} with network.uplink.access: {network.uplink.access.kind}; leave one out"
        if isinstance(network.uplink.access, Planned):
            yield (
                "",
                f"plans know no headers and no gaps, got {kind} with network.uplink.access: planned; leave one out",
            )


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
    """Whether an idle connection halves its window, down to the initial window, for each retransmission timeout
    (`rtt_s` + 0.2 s) that passes (RFC 2861). If true, slow start begins again after some seconds of training."""
    receive_window_byte: float = Field(4.0e6, ge=IP_MTU_BYTE, le=1e12)
    """Maximum number of bytes that have been sent but not yet acknowledged, which limits the bytes per round trip."""

    packet_byte: ClassVar[int] = IP_MTU_BYTE
    """Maximum packet size in bytes, including all headers."""
    header_byte: ClassVar[int]
    """Size in bytes of the headers of each packet."""
    handshakes: ClassVar[int] = 1

    @property
    def window(self) -> Window:
        """The window of a new connection, in bits on the wire."""
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
