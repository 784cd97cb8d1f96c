"""Packets as they pass a TUN device, made by hand."""

import struct

SYN, ACK = 2, 16


def tcp(
    sender: int,
    receiver: int,
    payload: bytes,
    sequence: int = 0,
    *,
    ports: tuple[int, int] = (4000, 80),
    flags: int = ACK,
) -> bytes:
    """A TCP packet between two nodes, with time stamps (52 bytes of headers)."""
    hosts = [bytes([10, 77, (node + 1) >> 8, (node + 1) & 255]) for node in (sender, receiver)]
    ip = struct.pack("!BBHHHBBH4s4s", 0x45, 0, 52 + len(payload), 0, 0x4000, 64, 6, 0, *hosts)
    return ip + struct.pack("!HHIIBBHHH12x", *ports, sequence % 2**32, 0, 8 << 4, flags, 0, 0, 0) + payload


def udp(sender: int, receiver: int, payload: bytes) -> bytes:
    hosts = [bytes([10, 77, (node + 1) >> 8, (node + 1) & 255]) for node in (sender, receiver)]
    ip = struct.pack("!BBHHHBBH4s4s", 0x45, 0, 28 + len(payload), 0, 0x4000, 64, 17, 0, *hosts)
    return ip + struct.pack("!HHHH", 4000, 80, 8 + len(payload), 0) + payload
