"""Sessions: framing, handshakes and times of the software above the transport."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pydantic import Field
from typing_extensions import override

from fednet_emu.component.component import Component
from fednet_emu.kernel.clock import FOREVER_NS, to_ns
from fednet_emu.network.transport.transports import Tcp, Transport

_FRAME_BYTE = 16_384
"""Data of an HTTP/2 frame and of a TLS record, at most by default (RFC 9113, 4.2; RFC 8446, 5.1)."""


class Session(Component):
    """Messages are given to the transport unchanged: without framing, and without further handshakes."""

    kind = "none"

    @property
    def handshakes(self) -> int:
        """Round trips of a new connection after those in the transport."""
        return 0

    @property
    def patience_ns(self) -> int:
        """Time limit in ns for establishing a connection."""
        return FOREVER_NS

    @property
    def message_ns(self) -> int:
        """Time in ns of software for each message."""
        return 0

    def connect_ns(self, transport: Transport) -> int:
        """Time in ns that a new connection takes."""
        return (transport.handshakes + self.handshakes) * transport.rtt_ns

    def refuses(self, transport: Transport) -> bool:
        """Whether every connection exceeds the time limit."""
        return self.connect_ns(transport) >= self.patience_ns

    def framed_bit(self, size_bit: int) -> int:
        """Bits of a message including framing."""
        return size_bit


class Grpc(Session):
    """gRPC over HTTP/2: a new connection takes a round trip for the server's SETTINGS, and one for TLS 1.3 (RFC 8446).

    With the handshake of TCP these are two round trips, or three with TLS, in `connect_timeout_s`: a path of 5.0 s one
    way never connects, and with TLS one of 3.33 s (gRPC's connection backoff; "Surviving the Edge", arXiv 2605.03870,
    finds 5 s for Flower). Such messages are lost as `connect`. Ignored here: the bytes of handshakes, deadlines of
    calls, and keepalives.
    """

    tls: bool = False
    """Whether messages are encrypted."""
    connect_timeout_s: float = Field(20.0, gt=0, le=1e6)
    """Time in s of an attempt to connect, at most."""
    per_message_s: float = Field(0.0, ge=0, le=1e6)
    """Time in s that software takes for each message before the first bit: to serialise and copy it."""

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
        """Payload, gRPC's 5 bytes, 9 of each HTTP/2 frame, and 22 of each TLS record."""
        framed_bit = size_bit + 8 * 5
        per_frame = 8 * (9 + 22 * self.tls)
        return framed_bit + per_frame * -(-framed_bit // (8 * _FRAME_BYTE))

    @override
    def conflicts(self, scenario: Any) -> Iterator[tuple[str, str]]:
        transport = scenario.network.transport
        if not isinstance(transport, Tcp):
            yield "", f"runs over TCP, got grpc with network.transport: {transport.kind}; choose transport: tcp"
