"""Transport protocols: headers, handshakes, and the release of bits."""

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
"""Packets of Ethernet's size, headers of the network layer and above included."""

_ACK_SHARE = 0.0195
"""Bits of acknowledgements per bit on the wire: one of 52 bytes for two segments of 1500, and in slow start one for
each segment; measured with Linux 6.18."""


class Transport(Component):
    """The protocol that carries messages from end to end, between the payload and the radio."""

    handshakes: ClassVar[int] = 0
    """Round trips until a new connection may carry data."""

    @property
    def rtt_ns(self) -> int:
        """Round trip in ns of the path without the radio."""
        return 0

    def wire_bit(self, size_bit: int) -> int:
        """Bits on the air of a message, headers included."""
        return size_bit

    def reverse_bit(self, wire_bit: int) -> int:
        """Bits that the receiver of a message returns."""
        return 0


class NoTransport(Transport):
    """No transport: messages have no connections, no waits for acknowledgements, and no path beyond the radio."""

    kind = "none"


class EndToEndTransport(Transport):
    """A transport with its own headers, over a path that includes the radio."""

    rtt_s: float = Field(0.02, ge=0, le=3600)
    """Round trip in s of the wired part of the path, without queues; half of it follows the last bit on the air."""

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
    """Datagrams of at most 1500 bytes with 28 bytes of headers each (RFC 768): no connection, no acknowledgements."""

    @override
    def wire_bit(self, size_bit: int) -> int:
        return Packets(headers="udp-ipv4", mtu_byte=IP_MTU_BYTE).wire_bit(size_bit)


class ConnectedTransport(EndToEndTransport):
    """A transport with connections between two ends, and a window.

    Ignored here: packet loss, which HARQ hides on 5G and Wi-Fi; queues in the wired part; how flows share a bottleneck
    beyond equal parts; and that a window may bind again once it has kept the line busy for a round trip.
    """

    initial_window: int = Field(10, ge=1, le=1000)
    """Packets that the first round trip of a new connection may carry."""
    reuse: bool = True
    """Whether two ends keep their connection for further messages, in both directions, until one is lost on it; else
    each message has a separate connection."""
    idle_restart: bool = True
    """Whether a connection that was silent for some retransmission timeouts (`rtt_s` and 0.2 s) has its window halved
    for each of them, down to the initial one (RFC 2861); after seconds of training it starts again."""
    receive_window_byte: float = Field(4.0e6, ge=IP_MTU_BYTE, le=1e12)
    """Bytes that may be in flight: a bound on the bytes per round trip."""

    packet_byte: ClassVar[int] = IP_MTU_BYTE
    """Largest packet with all headers."""
    header_byte: ClassVar[int]
    """Headers of each packet."""
    handshakes: ClassVar[int] = 1

    @property
    def window(self) -> Window:
        """The window of a new connection, in bits on the wire."""
        most_bit = round(8 * self.receive_window_byte)
        return Window(min(8 * self.packet_byte * self.initial_window, most_bit), most_bit, self.rtt_ns)

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
    """TCP as a fluid that releases bits: bursts of slow start, one per round trip, and then the line is never idle.

    Packets of 1500 bytes, 52 of them headers (IPv4, TCP with time stamps); a handshake of one round trip (RFC 9293).
    Linux agrees to 2.5 % without loss.
    """

    header_byte: ClassVar[int] = HEADER_BYTE["tcp-ipv4-timestamps"]

    @override
    def reverse_bit(self, wire_bit: int) -> int:
        return round(_ACK_SHARE * wire_bit)


class Quic(ConnectedTransport):
    """QUIC as far as its RFCs state it: a handshake of one round trip with TLS inside, and TCP's law of slow start.

    Datagrams of 1200 bytes (RFC 9000, 14), in IPv4 and UDP. Of those are headers: 1 byte of flags, a connection ID of
    8, a packet number of 4 (RFC 9000, 17.3.1), a stream frame's type, stream and offset of 10 (19.8), a tag of 16 (RFC
    9001, 5.3). Ignored here: 0-RTT, and acknowledgements, which are not recorded.
    """

    packet_byte: ClassVar[int] = HEADER_BYTE["udp-ipv4"] + 1200
    header_byte: ClassVar[int] = HEADER_BYTE["udp-ipv4"] + 1 + 8 + 4 + 10 + 16
