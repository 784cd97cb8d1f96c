"""IP addresses of nodes, and parsing of IPv4 packets."""

from __future__ import annotations

import struct
from typing import NamedTuple

SERVER_NODE = 0
"""Index of the server among the nodes; device k is node k + 1."""
_NETWORK = b"\x0a\x4d"  # the network 10.77.0.0/16
_TCP = 6
_SYN = 2
_FRAGMENT = 0x1FFF
_PORTS_TO_FLAGS = struct.Struct("!HHI4xBB").unpack_from
_HTTP = (b"HTTP/1.", b"GET ", b"POST ", b"PUT ")


def address(node: int) -> str:
    """Return the IPv4 address of a node; the server has 10.77.0.1, device 0 has 10.77.0.2."""
    return f"10.77.{(node + 1) >> 8}.{(node + 1) & 255}"


def way(sender: int, receiver: int) -> bytes:
    """Return bytes 12 to 19 of an IPv4 header: the addresses of the nodes `sender` and `receiver`."""
    return b"".join(_NETWORK + (node + 1).to_bytes(2) for node in (sender, receiver))


class Segment(NamedTuple):
    """Fields of a packet's TCP segment that live mode uses.

    Attributes:
        ports: the ports of the sender and of the receiver.
        sequence: TCP sequence number of the first byte of the payload.
        size_byte: size of the payload in bytes.
        opens: True if the segment opens a connection.
        http: True if the payload begins like an HTTP/1 message.
    """

    ports: tuple[int, int]
    sequence: int
    size_byte: int
    opens: bool
    http: bool


def segment(packet: bytes) -> Segment | None:
    """Return the TCP segment of an IPv4 packet; None for other packets and for pure acknowledgements."""
    header = (packet[0] & 15) * 4
    if packet[9] != _TCP or len(packet) < header + 20 or (packet[6] << 8 | packet[7]) & _FRAGMENT:
        return None
    source, target, sequence, offset, flags = _PORTS_TO_FLAGS(packet, header)
    begin = header + (offset >> 4) * 4
    size_byte, opens = (packet[2] << 8 | packet[3]) - begin, flags & _SYN != 0
    if size_byte <= 0:
        return Segment((source, target), sequence, 0, opens, False) if opens else None
    return Segment((source, target), sequence, size_byte, opens, packet.startswith(_HTTP, begin))
