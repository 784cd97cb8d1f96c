"""Rates: Shannon, finite blocklength, ergodic means, whole blocks and link adaptation."""

import json
import math
from math import log10
from pathlib import Path
from statistics import mean

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import exp1, ndtr
from scipy.stats import norm

from fednet_emu.network.air.band import Band
from fednet_emu.network.nr.grants import NrGrants, WholeBlocks, in_whole_blocks
from fednet_emu.radio.channel import RATE_LAWS
from fednet_emu.radio.fading import Nakagami, NoFading, Rayleigh, Rician
from fednet_emu.radio.nr.blocks import NrBlocks
from fednet_emu.radio.nr.mcs import NrMcs, attempts, chase_combining
from fednet_emu.radio.rates.ergodic import ErgodicRate
from fednet_emu.radio.rates.narrowing import narrowed
from fednet_emu.radio.rates.shannon import FiniteBlocklength, FixedRate, Shannon
from tests.network.media import HandMadeLinks
from tests.quick import crossed, examples

CAPACITY = Shannon(gap_db=0, max_efficiency_bps_hz=None, min_efficiency_bps_hz=0)
LAWS = {
    "shannon": Shannon(),
    "shannon, capacity": CAPACITY,
    "fixed": FixedRate(bit_rate_bps=2e6),
    "fixed, lose": FixedRate(bit_rate_bps=2e6, threshold_db=3.0),
    "fixed, stall": FixedRate(bit_rate_bps=2e6, threshold_db=3.0, on_outage="stall"),
    "nr-mcs": NrMcs(),
    "nr-mcs, table 2": NrMcs(table=2, feedback="cqi"),
    "nr-mcs, table 3": NrMcs(table=3, combining="none"),
    "nr-blocks": NrBlocks(),
    "finite-blocklength": FiniteBlocklength(block_symbols=200, error_rate=1e-3),
}
ALL_LAWS = pytest.mark.parametrize("law", LAWS.values(), ids=list(LAWS))
SINR = st.floats(0.0, 1e9)
BANDWIDTH_HZ = st.floats(1.0, 1e9)


@ALL_LAWS
@examples(50)
@given(sinr=SINR, bandwidth_hz=BANDWIDTH_HZ)
def test_scalar_and_vector_follow_one_law(law, sinr, bandwidth_hz):
    """The hot path and its vectorised twin agree to the last digits."""
    rates_bps = law.rates_bps(np.array([sinr]), bandwidth_hz)

    assert rates_bps[0] == pytest.approx(law.rate_bps(sinr, bandwidth_hz), rel=1e-14, abs=0)


@ALL_LAWS
@examples(50)
@given(low=SINR, high=SINR, bandwidth_hz=BANDWIDTH_HZ)
def test_rate_never_falls_as_the_sinr_grows(law, low, high, bandwidth_hz):
    """More signal is never slower, and no rate is negative."""
    low, high = sorted((low, high))

    assert 0.0 <= law.rate_bps(low, bandwidth_hz) <= law.rate_bps(high, bandwidth_hz)


@ALL_LAWS
def test_min_sinr_is_where_something_begins_to_get_through(law):
    """Just above it a block carries bits and is not in outage; just below it one of the two fails."""
    above, below = law.min_sinr * (1 + 1e-9) + 1e-12, law.min_sinr * (1 - 1e-9)

    assert law.rate_bps(above, 1e6) > 0
    assert above >= law.outage_sinr
    assert law.min_sinr == 0 or law.rate_bps(below, 1e6) == 0 or below < law.outage_sinr


@ALL_LAWS
def test_rates_take_the_broadcast_shape(law):
    """Three links and two shares of the band make a table of 3 x 2 rates, whatever the law uses of them."""
    rates_bps = law.rates_bps(np.array([[1.0], [2.0], [30.0]]), np.array([1e6, 2e6]))

    assert rates_bps.shape == (3, 2)
    assert rates_bps[2, 1] == pytest.approx(law.rate_bps(30.0, 2e6))


def test_default_rate_stays_within_the_cqi_table():
    """Without repetition nothing below CQI 1 (0.1523 bit/s/Hz), never more than CQI 15 (5.5547 bit/s/Hz)."""
    law = Shannon(max_repetitions=1)
    at_cqi_1 = 10**0.2 * (2**0.1523 - 1)

    assert law.min_sinr == pytest.approx(at_cqi_1)
    assert law.rate_bps(at_cqi_1 * 0.999, 1e6) == 0.0
    assert law.rate_bps(at_cqi_1 * 1.001, 1e6) == pytest.approx(152_300, rel=2e-3)
    assert law.rate_bps(1e6, 1e6) == pytest.approx(5_554_700)


def test_an_adaptive_rate_is_never_in_outage():
    """Shannon waits for a better block instead of losing the transmission."""
    assert Shannon().outage_sinr == 0.0
    assert Shannon().rate_bps(0.0, 20e6) == 0.0


def test_a_fixed_rate_that_loses_keeps_sending_below_its_threshold():
    """The sender does not know: the rate stays, and the threshold of 3 dB marks the loss."""
    law = FixedRate(bit_rate_bps=1e6, threshold_db=3.0, on_outage="lose")

    assert law.rate_bps(0.5, 20e6) == 1e6
    assert law.outage_sinr == pytest.approx(1.99526, rel=1e-5)


def test_a_fixed_rate_that_stalls_is_silent_below_its_threshold():
    """The block carries nothing and nothing is lost."""
    law = FixedRate(bit_rate_bps=1e6, threshold_db=3.0, on_outage="stall")

    assert (law.rate_bps(1.99, 20e6), law.rate_bps(2.0, 20e6)) == (0.0, 1e6)
    assert law.outage_sinr == 0.0


def test_a_fixed_rate_without_a_threshold_always_gets_through():
    """No SINR is too low, and the rate does not depend on the share of the band."""
    law = FixedRate(bit_rate_bps=1e6)

    assert (law.min_sinr, law.outage_sinr) == (0.0, 0.0)
    assert law.rate_bps(1e-12, 20e6) == law.rate_bps(1e3, 180e3) == 1e6


def test_every_rate_law_has_claims_here():
    """The table and the laws of this file name the same kinds."""
    assert set(RATE_LAWS) == {law.kind for law in LAWS.values()}


def test_rate_is_capacity_less_the_dispersion_penalty():
    """At 0 dB, n = 500 and e = 1e-3: (1 - sqrt(0.75 / 500) log2(e) 3.0902) bit per symbol, less failed blocks."""
    law = FiniteBlocklength(block_symbols=500, error_rate=1e-3)
    expected = (1 - math.sqrt(0.75 / 500) / math.log(2) * norm.isf(1e-3)) * 0.999

    assert law.rate_bps(1.0, 1.0) == pytest.approx(expected, rel=1e-12)
    assert expected == pytest.approx(0.8265, abs=5e-4)


def test_nothing_gets_through_below_the_root():
    """The approximation is zero at `min_sinr`, and clamped to zero below."""
    law = FiniteBlocklength(block_symbols=200, error_rate=1e-5)
    root = law.min_sinr
    capacity, dispersion = math.log(1 + root), math.sqrt((1 - (1 + root) ** -2) / 200)

    assert capacity == pytest.approx(dispersion * norm.isf(1e-5), rel=1e-9)
    np.testing.assert_array_equal(law.rates_bps(np.array([0.0, root / 2, root]), 1e6), 0.0)


MIDPOINTS = (np.arange(400_000) + 0.5) / 400_000
LAWS_ERGODIC = [
    Shannon(),
    NrMcs(),
    FixedRate(bit_rate_bps=2.0, threshold_db=3, on_outage="stall"),
    FiniteBlocklength(block_symbols=200, error_rate=1e-3),
]


def test_rayleigh_capacity_has_a_closed_form():
    """log2(e) e^(1/s) E1(1/s) from -20 to 70 dB within 1e-6."""
    snr = 10 ** (np.arange(-20, 70.1, 0.613) / 10)
    expected = math.log2(math.e) * np.exp(1 / snr) * exp1(1 / snr)

    np.testing.assert_allclose(ErgodicRate(law=CAPACITY, fading=Rayleigh()).rates_bps(snr, 1.0), expected, rtol=1e-6)


@pytest.mark.parametrize(
    ("fading", "law"), crossed([Rayleigh(), Rician(k_db=9), Nakagami(m=0.5)], LAWS_ERGODIC), ids=lambda law: law.kind
)
def test_it_is_the_mean_over_blocks(law, fading):
    """For staircases, clipped and smooth laws alike, within 1e-4 of the mean over 400,000 blocks."""
    averaged, gains = ErgodicRate(law=law, fading=fading), fading.gains(MIDPOINTS)
    snr = 10 ** (np.array([0.0, 5.0, 14.99, 30.0]) / 10)

    expected = [law.rates_bps(s * gains, 1.0).mean() for s in snr]

    np.testing.assert_allclose(averaged.rates_bps(snr, 1.0), expected, rtol=1e-4)


def test_rare_blocks_count_exactly():
    """Far below a threshold only the tail P(gain > threshold / SNR) = e^-12 carries anything."""
    law = FixedRate(bit_rate_bps=1.0, threshold_db=0.0, on_outage="stall")

    rate_bps = ErgodicRate(law=law, fading=Rayleigh()).rate_bps(1 / 12, 5e6)

    assert rate_bps == pytest.approx(math.exp(-12), rel=1e-4)


def test_scalar_and_vector_follow_one_law_ergodic():
    """One link or many, inside the grid and beyond both ends."""
    averaged = ErgodicRate(law=Shannon(), fading=Rayleigh())
    snr = np.array([0.0, 1e-9, 1e-3, 0.7, 40.0, 1e7, 1e12])

    rates_bps = averaged.rates_bps(snr, 1e6)

    assert rates_bps == pytest.approx([averaged.rate_bps(s, 1e6) for s in snr], rel=1e-14, abs=0)
    assert rates_bps[:2] == pytest.approx([0.0, 0.0])
    assert rates_bps[-1] == pytest.approx(5.5547e6)


def test_capacity_goes_on_beyond_the_grid():
    """At 100 dB the mean of Rayleigh capacity is log2(SNR) less Euler's constant, in bits."""
    expected = 100 / 10 * math.log2(10) - np.euler_gamma / math.log(2)

    assert ErgodicRate(law=CAPACITY, fading=Rayleigh()).rate_bps(1e10, 1.0) == pytest.approx(expected, rel=1e-6)


def test_a_rate_that_ignores_bandwidth_does_so_on_average():
    """A fixed rate is no faster in a wider band, Shannon's is."""
    fixed = FixedRate(bit_rate_bps=3e6, threshold_db=None)

    assert ErgodicRate(law=fixed, fading=Rayleigh()).rate_bps(5.0, 20e6) == pytest.approx(3e6)
    doubled = ErgodicRate(law=Shannon(), fading=Rayleigh())
    assert doubled.rate_bps(5.0, 2e6) == pytest.approx(2 * doubled.rate_bps(5.0, 1e6))


def test_fading_lifts_weak_links_over_the_floor():
    """Below a CQI 1 that is repeated 8 times a still link carries nothing, a fading one its peaks."""
    averaged = ErgodicRate(law=Shannon(), fading=Rayleigh())

    assert Shannon().rate_bps(0.0125, 1.0) == 0.0
    assert averaged.rate_bps(0.0125, 1.0) > 0.0
    assert averaged.min_sinr < Shannon().min_sinr
    assert averaged.rate_bps(0.5 * averaged.min_sinr, 1.0) == 0.0


BLOCK_HZ = 360e3
LAWS_WHOLE_BLOCKS = [NrBlocks(resource_blocks=51), Shannon(), Shannon(gap_db=0, min_efficiency_bps_hz=1.5)]


def granted(law, count=51, fewest=1):
    return WholeBlocks(law=law, count=count, fewest=fewest)


@pytest.mark.parametrize("law", LAWS_WHOLE_BLOCKS)
@examples(40)
@given(snr_db=st.floats(-30, 35), count=st.sampled_from([1, 2, 11, 51, 273]), few=st.sampled_from([1, 2, 9]))
def test_the_best_number_of_blocks_is_granted(law, snr_db, count, few):
    """Its rate is the largest of those on the fewest to all blocks, to 0.5 %, and to the narrowest step of a table."""
    sinr, width_hz = 10 ** (snr_db / 10), count * BLOCK_HZ
    fewest = min(few, count)
    shifted = [sinr * 10 ** (step / 1e4) for step in (-11, 0, 11)]
    low, best, high = (
        max(law.rate_bps(each * count / m, m * BLOCK_HZ) for m in range(fewest, count + 1)) for each in shifted
    )

    rate_bps = granted(law, count, fewest).rate_bps(sinr, width_hz)

    assert 0.995 * low <= rate_bps <= 1.005 * high
    assert granted(law, count, fewest).rates_bps(np.array([sinr]), width_hz)[0] == rate_bps
    assert low <= best <= high


def test_a_device_at_its_limit_gets_the_blocks_that_its_headroom_allows():
    """One scheme, of an SNR of 3: power for 7.9 of 51 blocks at that SNR is a grant of 7 (TS 38.213 7.7.1)."""
    law = Shannon(gap_db=0, min_efficiency_bps_hz=2.0, max_efficiency_bps_hz=2.0, max_repetitions=1)
    headroom_blocks = 7.9

    its = granted(law)

    assert its.rate_bps(3.0 * headroom_blocks / 51, 51 * BLOCK_HZ) == pytest.approx(7 * BLOCK_HZ * 2.0)
    assert narrowed(law, BLOCK_HZ).rate_bps(3.0 * headroom_blocks / 51, 51 * BLOCK_HZ) == pytest.approx(
        7.9 * BLOCK_HZ * 2.0
    )


def test_less_than_a_grant_is_nothing():
    """Below the SINR of the lowest scheme on the fewest blocks."""
    law = Shannon(gap_db=0, min_efficiency_bps_hz=2.0, max_efficiency_bps_hz=2.0, max_repetitions=1)

    assert granted(law).rate_bps(3.0 / 51 * 0.99, 1.0) == 0.0
    assert granted(law).rate_bps(3.0 / 51 * 1.01, 51.0) == pytest.approx(2.0)
    assert granted(law, fewest=4).rate_bps(3.0 * 3.9 / 51, 1.0) == 0.0
    assert granted(law, fewest=4).narrowest_part(1.0) == 4 / 51


def test_slots_grant_whole_blocks():
    """`nr-grants` does so with laws that narrow, in its own spacing; others keep theirs."""
    band = Band.of(51 * BLOCK_HZ, narrowed(Shannon(), 2.5 * BLOCK_HZ), NoFading())
    band = NrGrants().use(band, HandMadeLinks([1.0]), 1, 1).band

    assert band.law.law == granted(Shannon(), 51, 3)
    assert in_whole_blocks(Shannon(), 1e7, BLOCK_HZ) == Shannon()


TABLE = json.loads((Path(__file__).parents[1] / "reference" / "analytic_checkpoints.json").read_text())[
    "truncated_arq_M4"
]


@pytest.mark.parametrize("loss", [0.1, 0.3, 0.5])
def test_truncated_arq_with_four_attempts(loss):
    """Expected attempts (1 - p^4) / (1 - p) and residual loss p^4 of the analytic table."""
    expected, residual = TABLE[f"p={loss}"]

    assert attempts([loss] * 4) == pytest.approx((expected, residual), abs=6e-4)
    assert attempts([loss] * 4).throughput == pytest.approx(1 - loss)


def test_a_second_copy_is_worth_three_decibel():
    """Twice the SNR moves 3.01 dB down a curve of a decade per 0.5 dB: from 10 % to 10^-7.02."""
    got = chase_combining(snr_db=8.0, snr_at_10_pct_db=8.0, snr_at_1_pct_db=8.5, max_attempts=2)

    assert got.expected == pytest.approx(1.1)
    assert got.residual_loss == pytest.approx(0.1 * 10 ** -(1 + 3.0103 / 0.5), rel=1e-4)


def test_hopeless_blocks_use_all_attempts():
    """Ten dB below the threshold four copies add up to 6 dB: nothing gets through."""
    assert chase_combining(-2.0, 8.0, 8.5, max_attempts=4) == (4.0, 1.0)


def test_attempts_multiply_losses_in_order():
    """Losses of 1/2 and 1/5: one and a half attempts, one block in ten lost."""
    assert attempts([0.5, 0.2]) == pytest.approx((1.5, 0.1))


LAW = NrBlocks(margin_db=0, resource_blocks=106, feedback="olla")


def played(snr_db, windows):
    """First attempts' goodput, block error rate and MCS of each window of a transfer."""
    mcs, share, found = 9, 0.0, []
    for _ in range(windows):
        scheme = LAW.schemes[mcs]
        errors = float(ndtr((scheme.half_db - snr_db) / 0.2))
        found.append((scheme.efficiency_bps_hz * (1 - errors), errors, mcs))
        share = 0.9 * share + 0.1 * errors
        if share < 0.05:
            mcs = min(mcs + 1, 28)
        elif share > 0.15:
            mcs = max(mcs - 1, 6)
    return found


SNRS_DB = [6.0, 7.5, 9.0, 10.5, 12.0, 13.5, 15.0, 16.5, 18.0]


def test_the_swing_costs_what_openairinterface_loses():
    """From 6 to 18 dB the first attempts carry 0.76 to 0.95 of the best fixed scheme, 0.85 in the mean, 10 % fail."""
    relative, failed = [], []
    for snr_db in SNRS_DB:
        late = played(snr_db, 500)[100:]
        best = max(each.efficiency_bps_hz * (1 - float(ndtr((each.half_db - snr_db) / 0.2))) for each in LAW.schemes)
        relative.append(mean(goodput for goodput, _, _ in late) / best)
        failed.append(mean(errors for _, errors, _ in late))
        assert 2 <= len({mcs for _, _, mcs in late}) <= 6

    assert mean(relative) == pytest.approx(0.85, abs=0.03)
    assert 0.74 < min(relative) < max(relative) < 0.97
    assert mean(failed) == pytest.approx(0.1, abs=0.02)


def delivered(snr_db, windows):
    """Bits per slot and hertz of each window: up to four copies of a block, whose SNRs add up."""
    found = []
    for _, _, mcs in played(snr_db, windows):
        scheme, attempts, reached = LAW.schemes[mcs], 0.0, 1.0
        for copies in (1, 2, 3, 4):
            attempts += reached
            reached *= float(ndtr((scheme.half_db - snr_db - 10 * log10(copies)) / 0.2))
        found.append(scheme.efficiency_bps_hz * (1 - reached) / attempts)
    return found


@pytest.mark.parametrize("snr_db", [-1.0, 0.5, 4.0, *SNRS_DB])
def test_the_first_windows_are_those_of_the_loop(snr_db):
    """3.2 seconds of a transfer, window by window; where MCS 6 fails, too, it stays there."""
    sinr = np.array(10 ** (snr_db / 10))
    rates = LAW.rate_bps(float(sinr), 1.0) * LAW.climbed(sinr, np.arange(32))
    assert rates == pytest.approx(delivered(snr_db, 32), rel=0.01)
    assert LAW.climbed(sinr, np.array(32)) == 1.0


def test_the_long_run_is_that_of_the_loop():
    """From 6 to 18 dB to 2 % in the mean, and to 14 % at each SNR."""
    snrs_db = np.arange(6.0, 18.0, 0.11)
    relative = [LAW.rate_bps(10 ** (each / 10), 1.0) / mean(delivered(each, 288)[32:]) for each in snrs_db]

    assert mean(relative) == pytest.approx(1.0, abs=0.02)
    assert max(abs(each - 1.0) for each in relative) < 0.14


def test_more_power_never_lowers_the_rate():
    """The law rises, although loops at neighbouring SNRs swing differently."""
    rates = LAW.rates_bps(10 ** (np.arange(-10, 40, 0.05) / 10), 1.0)

    assert (np.diff(rates) >= 0).all()
    assert rates[0] == 0.0
    assert rates[-1] == pytest.approx(LAW.schemes[28].efficiency_bps_hz)
