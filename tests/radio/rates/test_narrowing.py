"""Claims about narrowing: a sender that is too weak for its whole band is as fast on part of it as it can be."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fednet_emu.radio.channel import Channel
from fednet_emu.radio.fading import Nakagami, Rayleigh, Rician
from fednet_emu.radio.nr.mcs import NrMcs
from fednet_emu.radio.rates.ergodic import averaged
from fednet_emu.radio.rates.finite_blocklength import FiniteBlocklength
from fednet_emu.radio.rates.narrowing import Narrowed, narrowed
from fednet_emu.radio.rates.shannon import CQI_1_BPS_HZ, FixedRate, Shannon
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
BLOCKS = (np.arange(400_000) + 0.5) / 400_000
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

    for law in (Shannon(repetitions=1), Shannon()):
        rate, least = narrowed(law, BLOCK_HZ), 0.009 / law.repetitions
        for part in (1 - 1e-9, 0.5, 0.1, 1.01 * least):
            assert rate.rate_bps(part * LEAST_SINR, width_hz) == pytest.approx(
                width_hz * CQI_1_BPS_HZ * part, rel=1e-12
            )
        assert rate.rate_bps(0.99 * least * LEAST_SINR, width_hz) == 0.0
        assert law.rate_bps(0.999 * LEAST_SINR / law.repetitions, width_hz) == 0.0


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
    once = Shannon(repetitions=1)
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
    """Of the narrowed rate of each of 400,000 blocks, on a band of half a block, of two and of a hundred: to 2e-4."""
    rate, gains = narrowed(law, BLOCK_HZ), fading.gains(BLOCKS)
    sinr = 10 ** (np.array([-12.0, 0.0, 14.99]) / 10)
    width_hz = BLOCK_HZ * np.array([[0.5], [2.0], [100.0]])

    expected = [[rate.rates_bps(s * gains, hz).mean() / hz for s in sinr] for hz in width_hz[:, 0]]

    mean_bps_hz = averaged(rate, fading).rates_bps(sinr, width_hz) / width_hz
    assert mean_bps_hz == pytest.approx(np.array(expected), rel=2e-4, abs=1e-6)


def test_the_mean_beyond_reach_is_zero():
    """So far below one block's least SINR that fewer than one block in 10^12 would carry anything."""
    mean = averaged(narrowed(Shannon(repetitions=1), BLOCK_HZ), Rayleigh())

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
    [({}, 180e3), ({"numerology_khz": 30}, 360e3), ({"numerology_khz": 30, "narrowest_hz": 1e6}, 1e6)],
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
