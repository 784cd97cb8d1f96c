"""Narrow bands and repetitions at low SNR."""

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fednet_emu.emulation.load import load_scenario
from fednet_emu.radio.channel import Channel
from fednet_emu.radio.fading import Nakagami, Rayleigh, Rician
from fednet_emu.radio.nr.blocks import NrBlocks
from fednet_emu.radio.nr.mcs import NrMcs
from fednet_emu.radio.rates.ergodic import averaged
from fednet_emu.radio.rates.narrowing import Narrowed, narrowed
from fednet_emu.radio.rates.shannon import CQI_1_BPS_HZ, FiniteBlocklength, FixedRate, Shannon
from fednet_emu.radio.survey import uplink_rates
from tests.quick import crossed, examples

BLOCK_HZ = 180e3
ANY_HZ = 1e-3
LEAST_SINR = 10**0.2 * (2**CQI_1_BPS_HZ - 1)
LAWS = [
    Shannon(),
    Shannon(gap_db=0, min_efficiency_bps_hz=1.5),
    NrMcs(),
    NrMcs(table=2, feedback="cqi"),
    NrMcs(table=3, max_attempts=1, combining="none"),
    FiniteBlocklength(block_symbols=200, error_rate=1e-3),
    FiniteBlocklength(block_symbols=100, error_rate=0.4),
]
NAMES = ["shannon", "high floor", "nr-mcs", "cqi", "low rates", "finite-blocklength", "many errors"]
BLOCKS = (np.arange(200_000) + 0.5) / 200_000
PARTS = np.geomspace(1e-3, 1, 2001)

SINRS = st.floats(-40, 40).map(lambda level_db: 10 ** (level_db / 10))
WIDTHS_HZ = st.floats(BLOCK_HZ, 1e9)


@pytest.mark.parametrize("law", LAWS, ids=NAMES)
@examples(60)
@given(sinr=SINRS, width_hz=WIDTHS_HZ, more=st.floats(1.0, 30.0))
def test_more_bandwidth_never_lowers_the_rate(law, sinr, width_hz, more):
    """The same power over a wider band, from one block on: the SINR falls as the band grows, and the rate does not."""
    rate = narrowed(law, BLOCK_HZ)

    assert rate.rate_bps(sinr / more, width_hz * more) >= rate.rate_bps(sinr, width_hz) * (1 - 1e-12)


@pytest.mark.parametrize("law", LAWS, ids=NAMES)
@examples(60)
@given(sinr=SINRS, width_hz=st.floats(1e3, 1e9), more=st.floats(1.0, 30.0))
def test_more_power_never_lowers_the_rate(law, sinr, width_hz, more):
    """On any band, one that is narrower than a block included."""
    rate = narrowed(law, BLOCK_HZ)

    assert rate.rate_bps(sinr * more, width_hz) >= rate.rate_bps(sinr, width_hz) * (1 - 1e-12)


@pytest.mark.parametrize("law", LAWS, ids=NAMES)
@examples(40)
@given(sinr=SINRS)
def test_no_part_of_the_band_is_faster(law, sinr):
    """Two thousand parts are tried, each with the law's own rate there; the best of these comes close."""
    best_bps = max((law.rates_bps(sinr / PARTS, 1e9 * PARTS)).max(), law.rate_bps(sinr, 1e9))

    rate_bps = narrowed(law, ANY_HZ).rate_bps(sinr, 1e9)

    assert best_bps * (1 - 1e-12) <= rate_bps
    if sinr > 1e-3 * law.peaks[-1]:
        assert rate_bps <= best_bps * 1.0036  # parts are tried in steps of 0.35 %


def test_below_the_least_efficiency_the_rate_is_that_of_the_part_that_reaches_it():
    """B e s / s_min, with s_min = gap (2^e - 1), down to one block of 180 kHz with all repetitions; then nothing."""
    width_hz = 20e6

    for law in (Shannon(max_repetitions=1), Shannon()):
        rate, least = narrowed(law, BLOCK_HZ), 0.009 / law.max_repetitions
        for part in (1 - 1e-9, 0.5, 0.1, 1.01 * least):
            assert rate.rate_bps(part * LEAST_SINR, width_hz) == pytest.approx(
                width_hz * CQI_1_BPS_HZ * part, rel=1e-12
            )
        assert rate.rate_bps(0.99 * least * LEAST_SINR, width_hz) == 0.0
        assert law.rate_bps(0.999 * LEAST_SINR / law.max_repetitions, width_hz) == 0.0


def test_a_band_that_is_narrower_than_a_block_stays_as_it_is():
    """A share of 100 kHz carries nothing below the repeated least efficiency, and above it what the law says."""
    rate = narrowed(Shannon(), BLOCK_HZ)

    assert rate.rate_bps(0.99 / 8 * LEAST_SINR, 100e3) == 0.0
    assert rate.rate_bps(5.0, 100e3) == Shannon().rate_bps(5.0, 100e3)


def test_the_steps_of_a_staircase_are_reached_on_part_of_the_band():
    """A little below a step, that step on a little less of the band; far below, the scheme below on all of it."""
    law, rate = NrMcs(), narrowed(NrMcs(), BLOCK_HZ)
    step = float(law.jumps[5])
    upper, lower = law.rate_bps(step * (1 + 1e-9), 1e6), law.rate_bps(step * (1 - 1e-9), 1e6)

    assert rate.rate_bps(0.99 * step, 1e6) == pytest.approx(0.99 * upper)
    assert rate.rate_bps(float(law.jumps[4]) * 1.001, 1e6) == pytest.approx(lower)


@pytest.mark.parametrize("law", LAWS, ids=NAMES)
def test_scalar_and_vector_follow_one_law(law):
    """Above, between and below all peaks, on one block and on half of one."""
    rate = narrowed(law, BLOCK_HZ)
    sinr = np.concatenate([[0.0], np.geomspace(1e-5, 1e4, 400), law.peaks, law.jumps])
    width_hz = np.array([[BLOCK_HZ / 2], [BLOCK_HZ], [1e6], [1e8]])

    rates_bps = rate.rates_bps(sinr, width_hz)

    assert rates_bps.shape == (4, len(sinr))
    for row, hz in zip(rates_bps.tolist(), width_hz[:, 0].tolist(), strict=True):
        assert row == pytest.approx([rate.rate_bps(s, hz) for s in sinr.tolist()], rel=1e-12, abs=0)


def test_some_laws_are_never_narrowed():
    """One rate per transmission, transmissions that are lost in outage, and a law whose every SINR carries bits."""
    fixed = FixedRate(bit_rate_bps=1e6, threshold_db=3, on_outage="stall")
    endless = Shannon(min_efficiency_bps_hz=0)

    assert narrowed(fixed, BLOCK_HZ) is fixed
    assert narrowed(endless, BLOCK_HZ) is endless
    assert isinstance(narrowed(Shannon(), BLOCK_HZ), Narrowed)


# ---- averaged over fading --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("narrowest_hz", "kbps"),
    [
        (None, [165.8, 122.0, 48.6, 5.1]),
        (ANY_HZ, [199.8, 210.9, 215.7, 216.7]),
        (BLOCK_HZ, [198.2, 209.3, 214.1, 215.1]),
    ],
    ids=["whole band", "any part", "one block at least"],
)
def test_the_mean_rate_at_the_edge(narrowest_hz, kbps):
    """-6 dB in 1 MHz, the same power in 1, 2, 4 and 8 MHz, over Rayleigh fading: kbit/s, by quadrature elsewhere.

    Without repetition.
    """
    once = Shannon(max_repetitions=1)
    law = once if narrowest_hz is None else narrowed(once, narrowest_hz)
    mean = averaged(law, Rayleigh())

    rates_bps = [mean.rate_bps(10**-0.6 / width, 1e6 * width) for width in (1, 2, 4, 8)]

    assert np.array(rates_bps) / 1e3 == pytest.approx(kbps, abs=0.05)


@pytest.mark.parametrize(
    ("fading", "law"),
    crossed([Rayleigh(), Rician(k_db=9), Nakagami(m=0.5)], [Shannon(), NrMcs(), LAWS[5]]),
    ids=lambda law: law.kind,
)
def test_the_mean_is_the_mean_over_blocks(law, fading):
    """Of the narrowed rate of each of 200,000 blocks, on a band of half a block, of two and of a hundred: to 2e-4."""
    rate, gains = narrowed(law, BLOCK_HZ), fading.gains(BLOCKS)
    sinr = 10 ** (np.array([-12.0, 0.0, 14.99]) / 10)
    width_hz = BLOCK_HZ * np.array([[0.5], [2.0], [100.0]])

    expected = [[rate.rates_bps(s * gains, hz).mean() / hz for s in sinr] for hz in width_hz[:, 0]]

    mean_bps_hz = averaged(rate, fading).rates_bps(sinr, width_hz) / width_hz
    assert mean_bps_hz == pytest.approx(np.array(expected), rel=2e-4, abs=1e-6)


def test_the_mean_beyond_reach_is_zero():
    """So far below one block's least SINR that fewer than one block in 10^12 would carry anything."""
    mean = averaged(narrowed(Shannon(max_repetitions=1), BLOCK_HZ), Rayleigh())

    assert mean.rate_bps(LEAST_SINR * BLOCK_HZ / 20e6 / 30, 20e6) == 0.0
    assert mean.rate_bps(0.0, 20e6) == 0.0
    assert mean.rate_bps(LEAST_SINR * BLOCK_HZ / 20e6, 20e6) == pytest.approx(
        BLOCK_HZ * CQI_1_BPS_HZ * 2 / math.e, rel=0.01
    )


# ---- as a setting ----------------------------------------------------------------------------------------------------


TERMINAL = {"tx_power_dbm": 23, "noise_figure_db": 9, "height_m": 1.5}
CHANNEL = {
    "carrier_hz": 3.5e9,
    "bandwidth_hz": 20e6,
    "path_loss": "free-space",
    "device": TERMINAL,
    "base_station": TERMINAL,
}


@pytest.mark.parametrize(
    ("change", "narrowest_hz"),
    [({}, 180e3), ({"subcarrier_spacing_khz": 30}, 360e3), ({"subcarrier_spacing_khz": 30, "narrowest_hz": 1e6}, 1e6)],
    ids=["nominal", "30 kHz", "given"],
)
def test_the_narrowest_part_is_one_resource_block(change, narrowest_hz):
    """Twelve subcarriers, of 15 kHz where no numerology is given."""
    law = Channel.model_validate({**CHANNEL, **change}).block_rate

    assert law == Narrowed(law=Shannon(), narrowest_hz=narrowest_hz)


def test_narrowing_can_be_left_out():
    """`off` is the law itself; a narrowest part then says nothing."""
    off = Channel.model_validate({**CHANNEL, "narrowing": "off"})

    assert off.block_rate == off.medium_rate() == Shannon()
    with pytest.raises(ValueError, match="narrowest_hz has no effect with narrowing: off, got 180000 Hz"):
        Channel.model_validate({**CHANNEL, "narrowing": "off", "narrowest_hz": 180e3})


REPEATING = [
    Shannon(),
    Shannon(gap_db=0, min_efficiency_bps_hz=1.5),
    NrMcs(),
    NrMcs(table=3, combining="none"),
    NrBlocks(),
]
REPEATING_NAMES = ["shannon", "high floor", "nr-mcs", "low rates", "nr-blocks"]
WIDTH_HZ = 20e6


def with_repetitions(law, count):
    return type(law)(**{**law.model_dump(exclude={"kind"}), "max_repetitions": count})


@pytest.mark.parametrize("law", REPEATING, ids=REPEATING_NAMES)
def test_copies_add_up(law):
    """At s_min / 2 half of the least efficiency, at s_min / 8 an eighth, at s_min / 8.01 nothing; scalar and array."""
    sinr, efficiency_bps_hz = law.lowest
    at = sinr / np.array([1.0000001, 2.0, 5.5, 7.9999999, 8.01])

    expected = efficiency_bps_hz * WIDTH_HZ / np.array([1.0, 2.0, 5.5, 8.0, np.inf])

    assert [law.rate_bps(one, WIDTH_HZ) for one in at.tolist()] == pytest.approx(expected.tolist(), rel=1e-4)
    assert law.rates_bps(at, WIDTH_HZ) == pytest.approx(expected, rel=1e-4)
    assert law.rate_bps(sinr * 1.0000001, WIDTH_HZ) == pytest.approx(efficiency_bps_hz * WIDTH_HZ, rel=1e-4)


@pytest.mark.parametrize("law", REPEATING[:4], ids=REPEATING_NAMES[:4])
def test_one_repetition_is_the_former_law(law):
    """Nothing below the least efficiency, and above it no number of repetitions changes the rate."""
    once, sinr = with_repetitions(law, 1), law.lowest[0]

    assert once.rate_bps(0.999999 * sinr, WIDTH_HZ) == 0.0
    assert once.min_sinr == sinr
    for above in (1.000001, 1.5, 10.0, 1e4):
        assert once.rate_bps(above * sinr, WIDTH_HZ) == law.rate_bps(above * sinr, WIDTH_HZ) > 0.0


@pytest.mark.parametrize("count", [1, 2, 4])
def test_attempts_and_repetitions_are_not_both_counted(count):
    """`nr-blocks`: where few repetitions end, four attempts still reach 6 dB below the lowest scheme, not further."""
    law = NrBlocks(max_repetitions=count)
    four_attempts = 10 ** (law.curves[0].half_db / 10) / 4

    assert law.rate_bps(1.0001 * four_attempts, 1.0) > 0.0
    assert law.rate_bps(0.9999 * four_attempts, 1.0) == 0.0


@pytest.mark.parametrize("law", REPEATING, ids=REPEATING_NAMES)
@examples(60)
@given(level_db=st.floats(-40, 40), more=st.floats(1.0, 30.0))
def test_more_power_and_more_repetitions_never_lower_the_rate(law, level_db, more):
    """On the whole band, at any SINR; but in `nr-blocks` repetition replaces HARQ, which is 5 % faster at its steps."""
    sinr = 10 ** (level_db / 10)
    at_most = [with_repetitions(law, count).rate_bps(sinr, 1.0) for count in (1, 8, 16)]

    assert law.rate_bps(sinr * more, 1.0) >= law.rate_bps(sinr, 1.0) * (1 - 1e-12)
    loss = 0.95 if isinstance(law, NrBlocks) else 1.0
    assert all(more >= loss * fewer for fewer, more in pairwise(at_most))


@pytest.mark.parametrize("law", REPEATING[:4], ids=REPEATING_NAMES[:4])
def test_narrowing_goes_on_where_repetition_ends(law):
    """With both, one block with all repetitions is the limit: 8 times farther than narrowing alone, at one slope."""
    block_hz, sinr = 180e3, law.lowest[0]
    eight, once = (narrowed(with_repetitions(law, count), block_hz) for count in (8, 1))
    alone = once.rate_bps(sinr * 0.0091, WIDTH_HZ)

    assert eight.rate_bps(sinr * 0.0091, WIDTH_HZ) == pytest.approx(alone)
    assert eight.rate_bps(sinr * 0.0091 / 8, WIDTH_HZ) == pytest.approx(alone / 8)
    assert eight.rate_bps(sinr * 0.0089 / 8, WIDTH_HZ) == 0.0
    assert once.rate_bps(sinr * 0.0089, WIDTH_HZ) == 0.0


def test_a_law_without_a_least_efficiency_or_with_a_formula_repeats_nothing():
    """`finite-blocklength` has no such key; with a least efficiency of 0 every SINR carries bits anyway."""
    endless = Shannon(min_efficiency_bps_hz=0)

    assert endless == with_repetitions(endless, 8)
    assert endless.min_sinr == 0.0
    assert endless.rate_bps(1e-9, 1.0) == with_repetitions(endless, 1).rate_bps(1e-9, 1.0) > 0.0
    with pytest.raises(ValueError, match="max_repetitions"):
        FiniteBlocklength(block_symbols=200, error_rate=0.1, max_repetitions=8)
    with pytest.raises(ValueError, match="max_repetitions is fixed with feedback: olla, got 2; leave it out"):
        NrBlocks(feedback="olla", max_repetitions=2)


@pytest.mark.parametrize("law", REPEATING, ids=REPEATING_NAMES)
def test_the_mean_over_fading_is_that_over_blocks(law):
    """Of 200,000 Rayleigh blocks at 0 to 12 dB below the least efficiency, to 1e-3."""
    sinr, gains = law.lowest[0] / np.array([1.0, 4.0, 16.0]), Rayleigh().gains((np.arange(200_000) + 0.5) / 200_000)

    expected = [law.rates_bps(one * gains, 1.0).mean() for one in sinr]

    assert averaged(law, Rayleigh()).rates_bps(sinr, 1.0) == pytest.approx(np.array(expected), rel=1e-3)


@pytest.mark.parametrize("name", ["urban-micro-28ghz", "urban-macro-indoor"])
def test_eight_repetitions_are_nine_decibels_more_range(name):
    """At 200 and 500 m as many places are reached as with 9.03 dB more power and no repetition: more than before."""
    distances_m = np.array([200.0, 500.0])

    def low_bps(repetitions, more_db):
        """Rates that 10 %, 50 % and 90 % of the places stay below, on the whole band."""
        channel = load_scenario(
            "quickstart", [f"channel={{include: {name}, narrowing: 'off', rate: {{max_repetitions: {repetitions}}}}}"]
        ).channel
        device = channel.device.model_copy(update={"tx_power_dbm": channel.device.tx_power_dbm + more_db})
        return np.array(uplink_rates(channel.model_copy(update={"device": device}), distances_m))

    nine_db = 10 * np.log10(8)
    with_power, with_copies, without = low_bps(1, nine_db), low_bps(8, 0.0), low_bps(1, 0.0)

    assert np.array_equal(with_power > 0, with_copies > 0)
    assert np.all(with_copies >= without)
    assert np.any((with_copies > 0) & (without == 0))
