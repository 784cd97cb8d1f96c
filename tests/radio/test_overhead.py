"""The link layer: slots, overhead, transport blocks, numerology, noise and energy; LoRa and Wi-Fi."""

import csv
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from fednet_emu.network.lora import REQUIRED_DB, adapted, adapted_from_db, time_on_air_ns
from fednet_emu.network.nr.grants import TddPattern, UplinkAccess
from fednet_emu.network.wifi import FAMILIES, control_ns, schemes
from fednet_emu.radio.channel import thermal_noise_w
from fednet_emu.radio.energy import CmosEnergy, MeasuredEnergy, PublishedEnergy, Transmitter, compute_energy_j
from fednet_emu.radio.nr.blocks import transport_block_bit
from fednet_emu.radio.nr.numerology import occupied_hz, resource_blocks
from fednet_emu.radio.overhead import HEADER_BYTE, Header, NoOverhead, Packets
from fednet_emu.units import linear_to_db
from tests.tables import rows_of


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


def test_a_header_per_message():
    """Every message pays it, an empty one too."""
    assert [Header(header_bit=64).wire_bit(size_bit) for size_bit in (0, 1000)] == [64, 1064]


with (Path(__file__).parent / "reference" / "link_nr_ul_access_latency.csv").open(encoding="utf-8") as file:
    ROWS = list(csv.DictReader(file))

SLOT_NS = 500_000
PATTERNS = st.sampled_from(["DDDSU", "DDSUU", "DDDDDDDSUU", "DSUU", "DU", "DDSU", "DSUUU", "UD"])


def access(row):
    """The access of a row of the table, whose slots last half a millisecond."""
    pattern = TddPattern(row["pattern"], 30)
    period = round(float(row["sr_period_ms"]) / 0.5)
    return UplinkAccess(pattern, period, int(row["k2_min_slots"]), int(row["decode_slots"]))


def latency_of(in_time, *, bulk):
    """Least, mean and largest time in slots from an arrival, at any time alike, to the end of the granted slot."""
    occasions = in_time.occasions
    ends = [1 + in_time.after(in_time.after(slot) if bulk else slot) for slot in occasions]
    spans = list(zip([occasions[-1] - in_time.hyperperiod, *occasions], occasions, ends, strict=False))
    mean = sum((slot - after) * (end - (slot + after) / 2) for after, slot, end in spans) / in_time.hyperperiod
    return min(end - slot for _, slot, end in spans), mean, max(end - after for after, _, end in spans)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row['pattern']}-{row['sr_period_ms']}-{row['k2_min_slots']}")
@pytest.mark.parametrize("grant", ["first", "bulk"])
def test_latencies_are_those_of_the_enumeration(row, grant):
    """All 28 rows: the least exactly, the mean within 0.05 ms, the largest one step of 0.05 ms above the table's."""
    least, mean, most = latency_of(access(row), bulk=grant == "bulk")

    assert len(ROWS) == 28
    assert least * 0.5 == float(row[f"{grant}_min_ms"])
    assert mean * 0.5 == pytest.approx(float(row[f"{grant}_mean_ms"]), abs=0.0501)
    assert most * 0.5 == pytest.approx(float(row[f"{grant}_max_ms"]) + 0.05, abs=1e-9)


def wait_ns(in_time, now_ns):
    """Time from an arrival to the start of its bulk."""
    periods, slot = divmod(-(-now_ns // SLOT_NS), in_time.hyperperiod)
    return (periods * in_time.hyperperiod + in_time.bulk_slots[slot]) * SLOT_NS - now_ns


def walked_wait_ns(slots, sr_period, k2, decode, now_ns):
    """The same by a walk from slot to slot, with a calendar of the nominal occasions."""

    def kind(slot):
        return slots[slot % len(slots)]

    def first(slot, kinds):
        while kind(slot) not in kinds:
            slot += 1
        return slot

    origin, slot = first(0, "U"), 0
    used = set()
    for n in range(-60, 100):
        used.add(first(origin + n * sr_period, "U"))
    while slot * SLOT_NS < now_ns or slot not in used:
        slot += 1
    for _ in range(2):
        slot = first(first(slot + 1 + decode, "DS") + k2, "U")
    return slot * SLOT_NS - now_ns


@given(PATTERNS, st.integers(1, 40), st.integers(1, 8), st.integers(0, 4), st.integers(0, 50 * SLOT_NS))
def test_a_wait_is_that_of_a_walk_through_the_slots(slots, sr_period, k2, decode, now_ns):
    """Any pattern, period, k2, decoding time and arrival."""
    in_time = UplinkAccess(TddPattern(slots, 30), sr_period, k2, decode)
    now_ns %= 10 * sr_period * SLOT_NS

    assert wait_ns(in_time, now_ns) == walked_wait_ns(slots, sr_period, k2, decode, now_ns)


@given(PATTERNS, st.integers(1, 40), st.integers(1, 8), st.integers(0, 4))
def test_the_mean_is_that_of_waits_of_evenly_spread_arrivals(slots, sr_period, k2, decode):
    """The midpoints of all slots of the hyperperiod, between which a wait is linear."""
    in_time = UplinkAccess(TddPattern(slots, 30), sr_period, k2, decode)
    waits = [wait_ns(in_time, slot * SLOT_NS + SLOT_NS // 2) / SLOT_NS for slot in range(in_time.hyperperiod)]

    least, mean, most = latency_of(in_time, bulk=True)

    assert sum(waits) / len(waits) + 1 == pytest.approx(mean)
    assert least <= min(waits) + 1
    assert max(waits) + 1 <= most


def test_a_failed_block_comes_again_after_ten_slots():
    """5 ms at 30 kHz for both usual patterns, k2 of 4 and two slots to decode."""
    for slots in ("DDDSU", "DDDDDDDSUU"):
        in_time = UplinkAccess(TddPattern(slots, 30), 40, 4, 2)
        first = slots.index("U")
        assert in_time.after(first) - first == 10


@pytest.mark.parametrize(("slots", "up", "down"), [("DDDSU", 0.2, 0.6), ("DDDDDDDSUU", 0.2, 0.7), ("DDSUU", 0.4, 0.4)])
def test_shares_of_usual_patterns(slots, up, down):
    """The uplink's and the downlink's share of the slots."""
    pattern = TddPattern(slots, 30)

    assert (pattern.share("U"), pattern.share("D")) == pytest.approx((up, down))


def test_a_slot_is_a_millisecond_over_a_power_of_two():
    """TS 38.211 Table 4.3.2-1."""
    lengths_ns = [TddPattern("DDDSU", subcarrier_spacing_khz).slot_ns for subcarrier_spacing_khz in (15, 30, 60, 120)]

    assert lengths_ns == [1_000_000, 500_000, 250_000, 125_000]


with (Path(__file__).parent / "reference" / "link_nr_tbs.csv").open(encoding="utf-8") as file_of_transport_blocks:
    ROWS_TRANSPORT_BLOCKS = list(csv.DictReader(file_of_transport_blocks))


def test_all_sizes_are_those_of_the_standard():
    """1,710 sizes of three MCS tables, 1 to 273 blocks, 12 to 14 symbols, 1 to 4 layers, equal."""
    found = [
        transport_block_bit(
            int(row["prb"]),
            int(row["symbols"]),
            int(row["dmrs_re"]),
            int(row["qm"]),
            float(row["rate_x1024"]),
            overhead=int(row["overhead_re"]),
            layers=int(row["layers"]),
        )
        for row in ROWS_TRANSPORT_BLOCKS
    ]

    assert len(found) == 1710
    assert found == [int(row["tbs_bit"]) for row in ROWS_TRANSPORT_BLOCKS]


def test_a_resource_block_counts_at_most_156_elements():
    """Fourteen symbols without reference signals are 168 elements, and give no more than thirteen."""
    assert transport_block_bit(51, 14, 0, 6, 567) == transport_block_bit(51, 13, 0, 6, 567)


def test_no_resources_no_bits():
    """An allocation that is all reference signals, or empty, carries nothing."""
    assert transport_block_bit(0, 13, 12, 2, 120) == 0
    assert transport_block_bit(51, 1, 12, 2, 120) == 0


with (Path(__file__).parent / "reference" / "nr_rb_table.csv").open(encoding="utf-8") as _file:
    ROWS_NUMEROLOGY = list(csv.DictReader(_file))


@pytest.mark.parametrize(
    "row", ROWS_NUMEROLOGY, ids=lambda row: f"{row['frequency_range']}-{row['scs_khz']}-{row['channel_bw_mhz']}"
)
def test_blocks_of_every_channel(row):
    """Number of resource blocks and occupied bandwidth of every channel of the standard."""
    carrier_hz = 3.5e9 if row["frequency_range"] == "FR1" else 28e9
    channel_hz = float(row["channel_bw_mhz"]) * 1e6

    assert resource_blocks(channel_hz, int(row["scs_khz"]), carrier_hz) == int(row["n_rb"])
    assert occupied_hz(channel_hz, int(row["scs_khz"]), carrier_hz) == pytest.approx(
        float(row["occupied_bw_mhz"]) * 1e6
    )


@pytest.mark.parametrize(
    ("bandwidth_hz", "expected_dbm"), [(180e3, -121.447), (1e6, -114.0), (10e6, -104.0), (20e6, -100.99)]
)
def test_noise_floors(bandwidth_hz, expected_dbm):
    """One resource block, 1, 10 and 20 MHz at -174 dBm/Hz have their textbook floors."""
    noise_dbm = 30 + linear_to_db(thermal_noise_w(bandwidth_hz, noise_figure_db=0.0))

    assert noise_dbm == pytest.approx(expected_dbm, abs=1e-3)


def test_amplifier_and_circuit_draw_more_than_is_radiated():
    """(0.7 / 0.35 + 0.5) W for 2 s are 5 J."""
    assert Transmitter(efficiency=0.35, circuit_w=0.5).drawn_w(0.7) * 2.0 == pytest.approx(5.0)


@pytest.mark.parametrize(
    ("kappa", "frequency_hz", "expected_w"), [(1e-28, 1e9, 0.1), (1e-28, 2e9, 0.8), (1e-27, 1.5e9, 3.375)]
)
def test_a_second_of_work_costs_kappa_f_cubed(kappa, frequency_hz, expected_w):
    """Power is kappa f^3: twice the clock, eight times the power."""
    assert compute_energy_j(frequency_hz * 1.0, frequency_hz, kappa) == pytest.approx(expected_w)


def test_kappa_of_a_component_is_that_of_the_formula():
    """1e10 operations at 8 per cycle: 1.25e9 cycles at 1 GHz cost 0.125 J, at half the clock a quarter of it."""
    law = CmosEnergy(clock_hz=1e9, flop_per_cycle=8, kappa=1e-28)

    assert law.energy_j(1e10, duration_s=99.0) == pytest.approx(0.125)
    assert law.energy_j(1e10, duration_s=99.0, clock=0.5) == pytest.approx(0.125 / 4)


@pytest.mark.parametrize("lacking", ["clock_hz", "flop_per_cycle"])
def test_a_clock_is_never_made_up(lacking):
    """Speed over 8 as the clock gave 1.56 nW at 2e7 FLOP/s and 1.56 kW at 2e11; now clock and cycles must be given."""
    assert compute_energy_j(2e7 / 8, 2e7 / 8, 1e-28) == pytest.approx(1.56e-9, rel=2e-3)
    settings = {"clock_hz": 1e9, "flop_per_cycle": 8.0}
    del settings[lacking]

    with pytest.raises(ValidationError, match=lacking):
        CmosEnergy(**settings)
    with pytest.raises(ValidationError, match=lacking):
        PublishedEnergy(preset="tran-2019", **settings)


def test_measured_power_counts_time_not_cycles():
    """4.2 W for 10 s are 42 J, however much was computed."""
    assert MeasuredEnergy(active_w=4.2).energy_j(1.0, duration_s=10.0) == pytest.approx(42.0)


@pytest.mark.parametrize(
    ("preset", "cycles", "frequency_hz", "expected_j"),
    [
        ("tran-2019", 20 * 8 * 5e6, 1e9, 0.08),
        ("chen-2021-code", 40 * 1e6, 1e9, 0.04),
        ("yang-2021", 2e4 * 500, 2e9, 4e-3),
    ],
)
def test_presets_reproduce_a_worked_number(preset, cycles, frequency_hz, expected_j):
    """Tran: 20 cycles on each bit of 5 MB; Chen: 40 on each bit of 1 Mbit; Yang: 2e4 on each of 500 samples."""
    law = PublishedEnergy(preset=preset, clock_hz=frequency_hz, flop_per_cycle=1)

    assert law.energy_j(cycles, duration_s=0.0) == pytest.approx(expected_j)


with (Path(__file__).parent / "reference" / "link_lora_toa.csv").open(encoding="utf-8") as _file_of_lora:
    FRAMES = list(csv.DictReader(_file_of_lora))


def test_frames_last_as_the_data_sheets_say():
    """All 17 worked frames to the microsecond; at 250 kHz half as long where both have the same rate optimisation."""
    for row in FRAMES:
        size_byte, spreading_factor = int(row["payload_byte"]), int(row["sf"])
        told_ns = float(row["time_on_air_ms"]) * 1e6
        assert time_on_air_ns(size_byte, spreading_factor, 125e3) == told_ns
        if spreading_factor < 11:
            assert time_on_air_ns(size_byte, spreading_factor, 250e3) == told_ns / 2

    assert len(FRAMES) == 17


@pytest.mark.parametrize(
    ("snr_db", "spreading_factor"),
    [(-30, 12), (-7.1, 12), (-6.9, 11), (-4.6, 11), (-4.4, 10), (0.6, 8), (2.9, 8), (3.1, 7)],
)
def test_adaptation_takes_steps_of_3_db_beyond_a_margin_of_10_db(snr_db, spreading_factor):
    """At -7 dB the margin at spreading factor 12 (-20 dB) is 3 dB: one step, and 0.5 dB are left."""
    assert adapted(snr_db) == spreading_factor


@pytest.mark.parametrize("spreading_factor", [7, 8, 9, 10, 11])
def test_the_threshold_of_a_factor_is_where_adaptation_reaches_it(spreading_factor):
    """From there on it has that factor, just below the next one; above 10.5 dB more than it needs."""
    threshold_db = adapted_from_db(spreading_factor)

    assert [adapted(threshold_db + 1e-6), adapted(threshold_db - 1e-6)] == [spreading_factor, spreading_factor + 1]
    assert threshold_db == pytest.approx(REQUIRED_DB[spreading_factor] + 10.5)


REFERENCE = Path(__file__).parent / "reference"
STANDARDS = {"Ofdm": "a", "ErpOfdm": "a", "Ht": "n", "Vht": "ac", "He": "ax"}


def data_bit(row):
    """Data bits of a symbol of the scheme that a row names by its index or its rate."""
    standard, place = STANDARDS[row["family"]], int(row["mcs_or_mbps"])
    if standard == "a":
        return 4 * place
    return schemes(standard, int(row["width_mhz"]))[place].data_bit


def test_frames_last_as_long_as_in_the_test_of_ns3():
    """All 93 durations to the nanosecond: 802.11a with and without a signal extension, HT and HE of three guards."""
    found = rows_of(REFERENCE / "link_wifi_ppdu_durations.csv")
    for row in found:
        family = FAMILIES[STANDARDS[row["family"]]]
        ppdu_ns = family.ppdu_ns(int(row["psdu_byte"]), data_bit(row), int(row["guard_ns"]))
        assert ppdu_ns + int(row["signal_extension_ns"]) == int(row["duration_ns"]), row

    assert len(found) == 93


def test_schemes_have_the_rates_of_the_standard_and_the_snrs_of_ns3():
    """Data bits over the duration of a symbol, from 6 Mbit/s to 600.5 Mbit/s; 20 MHz has no MCS 9 in 802.11ac."""
    told = rows_of(REFERENCE / "link_wifi_mcs_snr.csv")
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
