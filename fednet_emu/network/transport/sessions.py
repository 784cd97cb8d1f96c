"""Sessions above the transport protocol: framing, handshakes and software delays."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pydantic import Field
from typing_extensions import override

from fednet_emu.component.component import Component
from fednet_emu.kernel.clock import FOREVER_NS, to_ns
from fednet_emu.network.transport.transports import Tcp, Transport

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
        """Time limit in ns for establishing a connection."""
        return FOREVER_NS

    @property
    def message_ns(self) -> int:
        """Software delay in ns for each message."""
        return 0

    def connect_ns(self, transport: Transport) -> int:
        """Return the setup time of a new connection in ns."""
        return (transport.handshakes + self.handshakes) * transport.rtt_ns

    def refuses(self, transport: Transport) -> bool:
        """Return True if the setup of every connection exceeds the time limit."""
        return self.connect_ns(transport) >= self.patience_ns

    def framed_bit(self, size_bit: int) -> int:
        """Return the bits of a message including framing."""
        return size_bit


class Grpc(Session):
    """gRPC over HTTP/2: a new connection takes a round trip for the server's SETTINGS, and one for TLS 1.3 (RFC 8446).

    Together with TCP's handshake, the setup of a connection takes two round trips, or three with TLS. The setup must be
    complete within `connect_timeout_s`. With the default of 20 s, a path with a one-way delay of 5.0 s, or 3.33 s with
    TLS, never connects (gRPC's connection backoff; "Surviving the Edge", arXiv 2605.03870, finds 5 s for Flower).
    Messages on such a path are lost for the reason `connect`.
    Ignored here: the bytes of handshakes, deadlines of calls, and keepalives.
    """

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
        """Add 5 bytes for gRPC, 9 bytes for each HTTP/2 frame, and 22 bytes for each TLS record."""
        framed_bit = size_bit + 8 * 5
        per_frame = 8 * (9 + 22 * self.tls)
        return framed_bit + per_frame * -(-framed_bit // (8 * _FRAME_BYTE))

    @override
    def conflicts(self, scenario: Any) -> Iterator[tuple[str, str]]:
        transport = scenario.network.transport
        if not isinstance(transport, Tcp):
            yield "", f"runs over TCP, got grpc with network.transport: {transport.kind}; choose transport: tcp"
