"""A transport: one file, and one line among the entry points."""

from typing import ClassVar

from fednet_emu.network.transport.transports import ConnectedTransport


class Sctp(ConnectedTransport):
    """SCTP: a handshake of two round trips, 20 + 12 + 16 bytes of headers in each packet (RFC 9260), slow start."""

    handshakes: ClassVar[int] = 2
    header_byte: ClassVar[int] = 48
