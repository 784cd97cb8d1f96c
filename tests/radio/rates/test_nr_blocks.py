"""Rates of NR: transport blocks and modulation and coding schemes."""

import math
import random
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import ndtr, ndtri

from fednet_emu.errors import ScenarioError
from fednet_emu.radio.channel import Channel
from fednet_emu.radio.nr.blocks import NrBlocks, transport_block_bit
from fednet_emu.radio.nr.mcs import CQI_RATES_X1024, NrMcs, mcs_table
from fednet_emu.radio.rates.shannon import Shannon
from tests.quick import examples
from tests.tables import rows_of

REFERENCE = Path(__file__).parents[1] / "reference"
IN_20_MHZ = NrBlocks(margin_db=0, resource_blocks=51)
WIDTH_HZ = 51 * 360e3
PATH_LOSS = {"kind": "log-distance", "exponent": 3}


PEAKS = [
    row
    for row in rows_of(REFERENCE / "link_nr_peak_rates.csv")
    if (row["direction"], row["layers"]) == ("UL", "1") and (row["mcs_table"], row["mcs"]) in {("1", "28"), ("2", "27")}
]


def schemes_of_table_1():
    """SNR of half of the blocks and size in 51 blocks of each scheme with a curve, none that needs more for less."""
    found = []
    for row in rows_of(REFERENCE / "link_nr_bler_fit.csv"):
        if row["table"] == "1" and row["cbs_bit"] == "2000":
            size_bit = transport_block_bit(51, 13, 12, int(row["qm"]), float(row["rate_x1024"]))
            found.append((float(row["snr50_db"]), size_bit))
    found.sort()
    return [(half_db, bit) for half_db, bit in found if all(bit > b for h, b in found if h < half_db)]


def played_bps(snr_db, up_db, target, blocks):
    """Rate of an outer loop on a constant link: a step per first attempt, and a failed block sent once more."""
    draws, schemes = random.Random(7), schemes_of_table_1()
    target_db = -0.2 * float(ndtri(target))
    offset_db, bits, slots = 0.0, 0, 0
    for _ in range(blocks):
        fitting = [scheme for scheme in schemes if scheme[0] + target_db <= snr_db - offset_db]
        half_db, bit = fitting[-1] if fitting else schemes[0]
        if draws.random() < float(ndtr((half_db - snr_db) / 0.2)):
            offset_db, slots = offset_db + up_db, slots + 2
        else:
            offset_db, slots = offset_db - up_db * target / (1 - target), slots + 1
        bits += bit
    return bits / slots * 2000


@pytest.mark.parametrize("snr_db", [5.0, 10.0, 15.0, 16.7])
def test_an_outer_loop_mixes_two_schemes(snr_db):
    """A loop of 40,000 blocks, its step 0.02 dB, within 1 %: an upper and a lower scheme in every case."""
    expected_bps = IN_20_MHZ.rate_bps(10 ** (snr_db / 10), WIDTH_HZ)

    assert played_bps(snr_db, 0.02, 0.1, 40_000) == pytest.approx(expected_bps, rel=0.01)


def test_a_staircase_is_too_low_just_below_a_threshold():
    """At 5 dB MCS 11 is the fastest below 10 % of errors; the loop is 15 % faster by what it sends with MCS 12."""
    stair_bps = transport_block_bit(51, 13, 12, 4, 378) * 2000 / 1.1

    assert IN_20_MHZ.rate_bps(10**0.5, WIDTH_HZ) / stair_bps == pytest.approx(1.15, abs=0.01)


@pytest.mark.parametrize("row", PEAKS, ids=lambda row: "-".join(row.values()))
def test_peak_rates_of_uplinks(row):
    """The highest scheme of each table, one layer: the size of its block, in a fifth of the slots, without errors."""
    blocks = int(row["prb"])
    law = NrBlocks(table=int(row["mcs_table"]), resource_blocks=blocks)

    peak_bps = law.rate_bps(1e6, blocks * 360e3) / 5

    assert peak_bps / 1e6 == pytest.approx(float(row["mac_mbps"]), abs=0.0051)


@examples(20)
@given(st.sampled_from([1, 2, 3]), st.floats(0.01, 0.4), st.floats(-25, 45), st.floats(0, 10))
def test_more_power_never_lowers_the_rate(table, target, snr_db, more_db):
    """Any table and target, from below the lowest scheme to above the highest."""
    law = NrBlocks(table=table, target_bler=target, resource_blocks=51)

    rates_bps = law.rates_bps(10 ** (np.array([snr_db, snr_db + more_db]) / 10), 1e6)

    assert rates_bps[1] >= rates_bps[0]


def test_four_copies_of_a_block_add_up():
    """Without repetition half of the blocks arrive 6.02 dB below the lowest scheme's half, in the fourth attempt."""
    least = 10 ** (-5.851 / 10) / 4
    size_bit = transport_block_bit(51, 13, 12, 2, 120)
    once = NrBlocks(**{**IN_20_MHZ.model_dump(), "max_repetitions": 1})

    assert once.min_sinr == pytest.approx(least, rel=1e-3)
    assert once.rate_bps(once.min_sinr * 1.0000001, WIDTH_HZ) == pytest.approx(size_bit * 2000 / 8, rel=1e-3)
    assert once.rate_bps(once.min_sinr * 0.9999, WIDTH_HZ) == 0.0


def test_a_margin_moves_the_law():
    """Two decibels more for the same rate."""
    moved = NrBlocks(margin_db=2, resource_blocks=51)

    assert moved.rate_bps(10**1.2, 1e6) == pytest.approx(IN_20_MHZ.rate_bps(10.0, 1e6), rel=1e-4)


def test_a_target_trades_errors_for_speed():
    """From 0 to 18 dB one error in a thousand is 2 to 8 % faster than one in ten, each of which is sent again."""
    careful = NrBlocks(margin_db=0, target_bler=0.001, resource_blocks=51)
    sinr = 10 ** (np.linspace(0, 18, 200) / 10)

    gain = careful.rates_bps(sinr, 1.0).mean() / IN_20_MHZ.rates_bps(sinr, 1.0).mean()

    assert 1.02 < gain < 1.08


def test_it_is_near_the_staircase_of_schemes():
    """From 0 to 18 dB, at the same overhead and without margin, within 20 % everywhere and 5 % in the mean."""
    staircase = NrMcs(overhead_share=1 - 144 / 180)
    sinr = 10 ** (np.linspace(0, 18, 400) / 10)

    ratio = IN_20_MHZ.rates_bps(sinr, 1.0) / staircase.rates_bps(sinr, 1.0)

    assert ratio.mean() == pytest.approx(1.0, abs=0.05)
    assert 0.8 < ratio.min() < ratio.max() < 1.25


def test_a_channel_says_how_many_blocks():
    """51 in 20 MHz of 30 kHz, as if they had been named; a number of one's own wins; 273 where nothing says it."""
    channel = {"carrier_hz": 3.5e9, "path_loss": PATH_LOSS, "subcarrier_spacing_khz": 30}

    def peak_bps(**change):
        law = Channel(**{**channel, **change}).medium_rate()
        return law.rate_bps(1e6, 1e6)

    assert peak_bps(rate={"kind": "nr-blocks"}) == NrBlocks(resource_blocks=51).rate_bps(1e6, 1e6)
    assert peak_bps(rate={"kind": "nr-blocks", "resource_blocks": 3}) == NrBlocks(resource_blocks=3).rate_bps(1e6, 1e6)
    assert peak_bps(rate={"kind": "nr-blocks"}, subcarrier_spacing_khz=None) == NrBlocks(resource_blocks=273).rate_bps(
        1e6, 1e6
    )
    assert len({NrBlocks(resource_blocks=blocks).rate_bps(1e6, 1e6) for blocks in (3, 51, 273)}) == 3


def test_aged_reports_need_a_mean_over_fading():
    """A walk through blocks would know each of them, and without fading nothing ages."""
    channel = {"carrier_hz": 3.5e9, "path_loss": PATH_LOSS, "rate": {"kind": "nr-blocks", "feedback": "aged"}}

    for change in ({"fading": "rayleigh"}, {"fading": "none", "fading_model": "ergodic"}):
        with pytest.raises((ValueError, ScenarioError), match="fading_model: ergodic and fading rayleigh"):
            Channel(**channel, **change)


@pytest.mark.parametrize("table", [1, 2, 3])
def test_spectral_efficiencies_are_those_of_the_standard(table):
    """Every row of the three MCS tables to the four digits that the standard prints."""
    expected = [float(row["spectral_efficiency"]) for row in rows_of(REFERENCE / f"nr_mcs_table{table}.csv")]

    assert [scheme.efficiency_bps_hz for scheme in mcs_table(table)] == pytest.approx(expected, abs=5.1e-5)


def test_cqi_efficiencies_are_those_of_the_standard():
    """Every row of CQI table 1 from 0.1523 to 5.5547 bit/s/Hz."""
    expected = [float(row["spectral_efficiency"]) for row in rows_of(REFERENCE / "nr_cqi_table1.csv")[1:]]

    assert [bits * rate / 1024 for bits, rate in CQI_RATES_X1024[1]] == pytest.approx(expected, abs=5.1e-5)


@pytest.mark.parametrize(
    "row", rows_of(REFERENCE / "ns3_lte_link_adaptation_vectors.csv"), ids=lambda row: row["snr_db"]
)
def test_lte_link_adaptation_vectors_of_ns3(row):
    """All 36: the efficiency with the gap of M-QAM at 5e-5, and its CQI, to which LTE gives MCS 2 CQI - 2."""
    gap_db = 10 * math.log10(-math.log(5 * 5e-5) / 1.5)
    law = Shannon(gap_db=gap_db, max_efficiency_bps_hz=None, min_efficiency_bps_hz=0)

    efficiency_bps_hz = law.rate_bps(10 ** (float(row["snr_db"]) / 10), 1.0)

    assert efficiency_bps_hz == pytest.approx(float(row["spectral_efficiency_expected"]), abs=6e-6)
    cqi = sum(bits * rate / 1024 <= efficiency_bps_hz for bits, rate in CQI_RATES_X1024[1])
    assert max(2 * cqi - 2, -1) == int(row["mcs_expected"])


@pytest.mark.parametrize(("table", "lowest", "highest"), [(1, 0.41, 2.49), (2, 0.71, 2.57)])
def test_gap_to_shannon_is_that_of_the_ldpc_code(table, lowest, highest):
    """10 % of blocks fail between 0.4 and 2.6 dB above Shannon's SNR of the same efficiency."""
    gaps_db = [
        scheme.snr_at_10_pct_db - 10 * math.log10(2**scheme.efficiency_bps_hz - 1) for scheme in mcs_table(table)
    ]

    assert min(gaps_db) == pytest.approx(lowest, abs=6e-3)
    assert max(gaps_db) == pytest.approx(highest, abs=6e-3)


def test_rate_is_the_scheme_of_the_sinr_less_retransmissions_and_overhead():
    """At 10 dB table 1 runs MCS 18, 2.7305 bit/s/Hz; a tenth is sent twice and 14 % is overhead."""
    rate_bps = NrMcs().rate_bps(10.0, 18.36e6)

    assert rate_bps == pytest.approx(18.36e6 * 2.7305 / 1.1 * 0.86, rel=1e-4)


def test_without_combining_every_tenth_attempt_is_wasted():
    """Independent losses of 10 % leave exactly nine tenths, whatever the bound on attempts."""
    rates_bps = [
        NrMcs(combining="none", max_attempts=attempts, overhead_share=0).rate_bps(10.0, 1e6) for attempts in (1, 4, 9)
    ]

    assert rates_bps == pytest.approx(3 * [0.9 * 2.73047e6], rel=1e-5)


def test_nothing_below_the_lowest_scheme_and_no_more_than_the_highest():
    """Without repetition table 1 starts at -6.04 dB, and it ends at 5.5547 bit/s/Hz."""
    law = NrMcs(overhead_share=0, combining="none", max_repetitions=1)

    assert 10 * math.log10(law.min_sinr) == pytest.approx(-6.04)
    assert law.rate_bps(0.999 * law.min_sinr, 1e6) == 0.0
    assert law.rate_bps(1e9, 1e6) == pytest.approx(0.9 * 5.5547e6, rel=1e-5)
    assert law.outage_sinr == 0.0


def test_higher_tables_reach_further():
    """At 30 dB 256QAM is faster than 64QAM; at -8 dB only the table for low rates carries anything at once."""
    at_30_db = [NrMcs(table=table).rate_bps(1000.0, 1e6) for table in (3, 1, 2)]
    at_minus_8_db = [NrMcs(table=table, max_repetitions=1).rate_bps(10**-0.8, 1e6) for table in (1, 2, 3)]

    assert at_30_db == sorted(at_30_db)
    assert at_minus_8_db[:2] == [0.0, 0.0]
    assert at_minus_8_db[2] > 0


def test_coarse_feedback_never_helps():
    """Sixteen reports name fewer schemes than the table has, at some SINRs for a lower rate."""
    sinr = 10 ** (np.linspace(-10, 30, 400) / 10)
    ideal, coarse = NrMcs().rates_bps(sinr, 1.0), NrMcs(feedback="cqi").rates_bps(sinr, 1.0)

    assert np.all(coarse <= ideal)
    assert np.any(coarse < ideal)


def test_every_threshold_is_named_as_a_jump():
    """Without repetition the rate rises at each, which averages over fading need to know."""
    law = NrMcs(table=2, max_repetitions=1)
    above, below = law.rates_bps(law.jumps * 1.000001, 1.0), law.rates_bps(law.jumps * 0.999999, 1.0)

    assert np.all(above > below)
    assert above[:-1] == pytest.approx(below[1:])


@pytest.mark.parametrize("table", [1, 2, 3])
def test_the_highest_report_names_the_highest_scheme(table):
    """The last row of each table of CQIs has the very code rate of the last scheme, which it therefore names."""
    ideal, coarse = NrMcs(table=table), NrMcs(table=table, feedback="cqi")

    assert coarse.rate_bps(1e6, 1.0) == ideal.rate_bps(1e6, 1.0)
