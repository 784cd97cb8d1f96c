"""Overhead: the header bits that the protocol stack adds to a payload."""

from __future__ import annotations

from abc import abstractmethod
from typing import Annotated, Literal

from pydantic import Field, ValidationInfo, field_validator

from fednet_emu.component.component import Component
from fednet_emu.component.slot import Slot, kinds

HEADER_BYTE = {"tcp-ipv4": 40, "tcp-ipv4-timestamps": 52, "tcp-ipv6": 60, "udp-ipv4": 28, "udp-ipv6": 48}
"""Header bytes per packet: IPv4 20 (RFC 791), IPv6 40 (RFC 8200), TCP 20 (RFC 9293) and 12 for time stamps (RFC 7323),
UDP 8 (RFC 768)."""


class Overhead(Component):
    """Model of the protocol overhead, which gives the number of bits on the air for the size of a payload."""

    @abstractmethod
    def wire_bit(self, size_bit: int) -> int:
        """Return the number of bits on the air for a payload of `size_bit` bits, including headers."""


class NoOverhead(Overhead):
    """Payloads are sent without headers, as in most papers."""

    kind = "none"

    def wire_bit(self, size_bit: int) -> int:
        return size_bit


class Header(Overhead):
    """Every message, even an empty one, carries one header."""

    header_bit: int = Field(ge=0)
    """Size of the header in bits per message."""

    def wire_bit(self, size_bit: int) -> int:
        return size_bit + self.header_bit


class Packets(Overhead):
    """A payload is sent in packets of at most `mtu_byte`, each with headers, for example 40 bytes in 1500 (2.7 %).

    Ignored here: acknowledgements, connection set-up, slow start, and retransmissions above the radio.
    """

    headers: Literal["tcp-ipv4", "tcp-ipv4-timestamps", "tcp-ipv6", "udp-ipv4", "udp-ipv6"] = "tcp-ipv4"
    """Transport and network protocol, which determine the header bytes of each packet."""
    link_byte: int = Field(default=0, ge=0)
    """Header bytes per packet below the network layer, in addition to `mtu_byte`; about 10 in 5G NR, 38 on Ethernet."""
    mtu_byte: int = Field(default=1500, gt=0)
    """Maximum size of a packet in bytes, including the headers of the network layer and above."""

    @field_validator("mtu_byte")
    @classmethod
    def _room_for_payload(cls, mtu_byte: int, info: ValidationInfo) -> int:
        header_byte = HEADER_BYTE[info.data.get("headers", "tcp-ipv4")]
        if mtu_byte <= header_byte:
            raise ValueError(f"has no data after {header_byte} bytes of headers, got {mtu_byte}; 1500 is usual")
        return mtu_byte

    def wire_bit(self, size_bit: int) -> int:
        header_byte = HEADER_BYTE[self.headers]
        packets = -(-size_bit // (8 * (self.mtu_byte - header_byte)))
        return size_bit + 8 * packets * (header_byte + self.link_byte)


OVERHEADS: dict[str, type[Overhead]] = kinds(NoOverhead, Header, Packets)

AnyOverhead = Annotated[Overhead, Slot("overhead", OVERHEADS)]
