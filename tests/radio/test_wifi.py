"""Claims about Wi-Fi frames: durations are those of ns-3's own test, schemes have the rates of the standard."""

import csv
from pathlib import Path

import pytest

from fednet_emu.network.wifi.standards import FAMILIES, control_ns, schemes

REFERENCE = Path(__file__).parent / "reference"
STANDARDS = {"Ofdm": "a", "ErpOfdm": "a", "Ht": "n", "Vht": "ac", "He": "ax"}


def rows(name):
    """The rows of a table of the reference."""
    with (REFERENCE / name).open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


def data_bit(row):
    """Data bits of a symbol of the scheme that a row names by its index or its rate."""
    standard, place = STANDARDS[row["family"]], int(row["mcs_or_mbps"])
    if standard == "a":
        return 4 * place
    return schemes(standard, int(row["width_mhz"]))[place].data_bit


def test_frames_last_as_long_as_in_the_test_of_ns3():
    """All 93 durations to the nanosecond: 802.11a with and without a signal extension, HT and HE of three guards."""
    found = rows("link_wifi_ppdu_durations.csv")
    for row in found:
        family = FAMILIES[STANDARDS[row["family"]]]
        ppdu_ns = family.ppdu_ns(int(row["psdu_byte"]), data_bit(row), int(row["guard_ns"]))
        assert ppdu_ns + int(row["signal_extension_ns"]) == int(row["duration_ns"]), row

    assert len(found) == 93


def test_schemes_have_the_rates_of_the_standard_and_the_snrs_of_ns3():
    """Data bits over the duration of a symbol, from 6 Mbit/s to 600.5 Mbit/s; 20 MHz has no MCS 9 in 802.11ac."""
    told = rows("link_wifi_mcs_snr.csv")
    found = {
        "Ofdm": schemes("a", 20),
        "Ht": schemes("n", 20),
        "Vht": schemes("ac", 20) + schemes("ac", 80),
        "He": schemes("ax", 20) + schemes("ax", 80),
    }
    for name, known in found.items():
        own = [row for row in told if row["mode"].startswith(name)]
        family = FAMILIES[STANDARDS[name]]
        symbol_us = (family.symbol_ns + family.guard_ns) / 1e3
        assert [scheme.data_bit / symbol_us for scheme in known] == pytest.approx(
            [float(row["rate_mbps"]) for row in own], rel=1e-4
        )
        assert [scheme.snr_db for scheme in known] == pytest.approx(
            [float(row["snr10_table_db"]) for row in own], abs=0.21
        )

    assert len(told) == sum(map(len, found.values()))


def test_two_streams_carry_twice_the_bits_after_one_more_training_field():
    """802.11n: 144.4 Mbit/s (3.6 us symbols of 520 bits) and 4 us more of preamble; half bits round down."""
    (one, two), family = (schemes("n", 20, streams)[7] for streams in (1, 2)), FAMILIES["n"]

    assert (one.data_bit, two.data_bit) == (260, 520)
    assert family.ppdu_ns(62, 520, 400, 2) == 36_000 + 4_000 + 3_600
    assert [scheme.data_bit for scheme in schemes("ac", 20, 2)][-1] == 624  # MCS 8: 693.3 bits of MCS 9 do not exist


@pytest.mark.parametrize(
    ("size_byte", "mbps", "us"), [(14, 24, 28), (32, 24, 32), (20, 24, 28), (24, 24, 32), (14, 6, 44), (32, 6, 68)]
)
def test_control_frames_are_sent_as_the_first_standard_has_them(size_byte, mbps, us):
    """ACK, block ACK, RTS and block-ack request: 20 us and symbols of 4 us."""
    assert control_ns(size_byte, mbps) == us * 1000
