"""Claims about transport blocks as a rate law, against an outer loop played block by block and published rates."""

import csv
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
from fednet_emu.radio.nr.mcs import NrMcs
from tests.quick import examples

REFERENCE = Path(__file__).parents[1] / "reference"
IN_20_MHZ = NrBlocks(margin_db=0, blocks=51)
WIDTH_HZ = 51 * 360e3
PATH_LOSS = {"kind": "log-distance", "exponent": 3}


def rows(name):
    """The rows of a reference table."""
    with (REFERENCE / name).open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


PEAKS = [
    row
    for row in rows("link_nr_peak_rates.csv")
    if (row["direction"], row["layers"]) == ("UL", "1") and (row["mcs_table"], row["mcs"]) in {("1", "28"), ("2", "27")}
]


def schemes_of_table_1():
    """SNR of half of the blocks and size in 51 blocks of each scheme with a curve, none that needs more for less."""
    found = []
    for row in rows("link_nr_bler_fit.csv"):
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
    law = NrBlocks(table=int(row["mcs_table"]), blocks=blocks)

    peak_bps = law.rate_bps(1e6, blocks * 360e3) / 5

    assert peak_bps / 1e6 == pytest.approx(float(row["mac_mbps"]), abs=0.0051)


@examples(20)
@given(st.sampled_from([1, 2, 3]), st.floats(0.01, 0.4), st.floats(-25, 45), st.floats(0, 10))
def test_more_power_never_lowers_the_rate(table, target, snr_db, more_db):
    """Any table and target, from below the lowest scheme to above the highest."""
    law = NrBlocks(table=table, target_bler=target, blocks=51)

    rates_bps = law.rates_bps(10 ** (np.array([snr_db, snr_db + more_db]) / 10), 1e6)

    assert rates_bps[1] >= rates_bps[0]


def test_scalar_and_vector_follow_one_law():
    """One link or many, below, within and above the schemes."""
    sinr = np.array([0.0, 1e-4, 0.06, 0.0701, 0.3, 1.0, 33.3, 1e3, 1e9])
    law = NrBlocks(blocks=106)

    scalar_bps = [law.rate_bps(float(one), 1e6) for one in sinr]

    np.testing.assert_allclose(law.rates_bps(sinr, 1e6), scalar_bps, rtol=1e-12)


def test_four_copies_of_a_block_add_up():
    """Without repetition half of the blocks arrive 6.02 dB below the lowest scheme's half, in the fourth attempt."""
    least = 10 ** (-5.851 / 10) / 4
    size_bit = transport_block_bit(51, 13, 12, 2, 120)
    once = NrBlocks(**{**IN_20_MHZ.model_dump(), "repetitions": 1})

    assert once.min_sinr == pytest.approx(least, rel=1e-3)
    assert once.rate_bps(once.min_sinr * 1.0000001, WIDTH_HZ) == pytest.approx(size_bit * 2000 / 8, rel=1e-3)
    assert once.rate_bps(once.min_sinr * 0.9999, WIDTH_HZ) == 0.0


def test_a_margin_moves_the_law():
    """Two decibels more for the same rate."""
    moved = NrBlocks(margin_db=2, blocks=51)

    assert moved.rate_bps(10**1.2, 1e6) == pytest.approx(IN_20_MHZ.rate_bps(10.0, 1e6), rel=1e-4)


def test_a_target_trades_errors_for_speed():
    """From 0 to 18 dB one error in a thousand is 2 to 8 % faster than one in ten, each of which is sent again."""
    careful = NrBlocks(margin_db=0, target_bler=0.001, blocks=51)
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
    channel = {"carrier_hz": 3.5e9, "path_loss": PATH_LOSS, "numerology_khz": 30}

    def peak_bps(**change):
        law = Channel(**{**channel, **change}).medium_rate()
        return law.rate_bps(1e6, 1e6)

    assert peak_bps(rate={"kind": "nr-blocks"}) == NrBlocks(blocks=51).rate_bps(1e6, 1e6)
    assert peak_bps(rate={"kind": "nr-blocks", "blocks": 3}) == NrBlocks(blocks=3).rate_bps(1e6, 1e6)
    assert peak_bps(rate={"kind": "nr-blocks"}, numerology_khz=None) == NrBlocks(blocks=273).rate_bps(1e6, 1e6)
    assert len({NrBlocks(blocks=blocks).rate_bps(1e6, 1e6) for blocks in (3, 51, 273)}) == 3


def test_aged_reports_need_a_mean_over_fading():
    """A walk through blocks would know each of them, and without fading nothing ages."""
    channel = {"carrier_hz": 3.5e9, "path_loss": PATH_LOSS, "rate": {"kind": "nr-blocks", "feedback": "aged"}}

    for change in ({"fading": "rayleigh"}, {"fading": "none", "long_transfers": "ergodic"}):
        with pytest.raises((ValueError, ScenarioError), match="long_transfers: ergodic and fading rayleigh"):
            Channel(**channel, **change)


def test_times_of_reports_need_reports():
    """A period without aged reports would say nothing."""
    with pytest.raises(ValueError, match=r"report_s and delay_s have no effect with feedback: ideal, got 0\.08"):
        NrBlocks(report_s=0.08)
