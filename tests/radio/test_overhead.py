"""Claims about headers, against counts by hand."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from fednet_emu.radio.overhead import HEADER_BYTE, OVERHEADS, Header, NoOverhead, Packets


def test_a_model_of_a_million_parameters_over_tcp():
    """4 MB are 2740 segments of 1460 byte, with 40 byte of headers each: 2.74 %."""
    wire_bit = Packets().wire_bit(32_000_000)

    assert wire_bit == 32_000_000 + 2740 * 40 * 8
    assert wire_bit / 32e6 == pytest.approx(1.0274, abs=1e-4)


@pytest.mark.parametrize("headers", list(HEADER_BYTE))
def test_one_byte_still_needs_a_packet(headers):
    """The smallest payload pays all headers of one packet, and none pays nothing."""
    assert Packets(headers=headers).wire_bit(8) == 8 + 8 * HEADER_BYTE[headers]
    assert Packets(headers=headers).wire_bit(0) == 0


def test_link_headers_come_on_top_of_the_packet():
    """They do not count against the largest packet: 1460 byte of payload still fit."""
    assert Packets(link_byte=10).wire_bit(8 * 1460) == 8 * 1510


@given(size_bit=st.integers(0, 10**10), more_bit=st.integers(0, 10**6))
def test_a_larger_payload_is_never_smaller_on_the_air(size_bit, more_bit):
    """Headers grow with the payload, and everything arrives: the payload is part of what is sent."""
    law = Packets(headers="udp-ipv6", mtu_byte=576)

    assert size_bit <= law.wire_bit(size_bit) <= law.wire_bit(size_bit + more_bit)
    assert NoOverhead().wire_bit(size_bit) == size_bit


def test_packets_without_room_are_refused():
    """60 byte of headers leave nothing of 60."""
    with pytest.raises(ValidationError, match="has no data after 60 bytes of headers, got 60"):
        Packets(headers="tcp-ipv6", mtu_byte=60)


def test_a_header_per_message():
    """Every message pays it, an empty one too."""
    assert [Header(header_bit=64).wire_bit(size_bit) for size_bit in (0, 1000)] == [64, 1064]


def test_every_kind_of_overhead_has_claims_here():
    """The table and this file name the same kinds."""
    assert set(OVERHEADS) == {"none", "header", "packets"}
