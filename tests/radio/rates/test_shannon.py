"""Claims about rate laws, against ns-3 vectors and Shannon's formula."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fednet_emu.radio.channel import RATE_LAWS
from fednet_emu.radio.nr.blocks import NrBlocks
from fednet_emu.radio.nr.mcs import NrMcs
from fednet_emu.radio.rates.finite_blocklength import FiniteBlocklength
from fednet_emu.radio.rates.shannon import FixedRate, Shannon
from tests.quick import examples

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


def gap_of_mqam_db(bit_error_rate):
    """SNR gap of uncoded M-QAM, -ln(5 BER) / 1.5."""
    return 10 * math.log10(-math.log(5 * bit_error_rate) / 1.5)


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


@pytest.mark.parametrize(("gap_db", "expected_bps_hz"), [(0.0, 3.46), (2.0, 2.87), (7.43, 1.49)])
def test_the_gap_moves_the_clock_by_more_than_two(gap_db, expected_bps_hz):
    """At 10 dB, the ideal, the 5G and the uncoded gap differ as 3.46, 2.87 and 1.49 bit/s/Hz."""
    assert Shannon(gap_db=gap_db).rate_bps(10.0, 1.0) == pytest.approx(expected_bps_hz, abs=5e-3)


@pytest.mark.parametrize(
    ("snr_db", "expected_bps_hz"),
    [(-5, 0.08024), (0, 0.23983), (5, 0.65251), (10, 1.48981), (20, 4.25439), (24, 5.53693), (30, 7.50663)],
)
def test_ns3_lte_link_adaptation_vectors(snr_db, expected_bps_hz):
    """The gap of M-QAM at a bit error rate of 5e-5 gives ns-3's spectral efficiencies."""
    law = Shannon(gap_db=gap_of_mqam_db(5e-5), max_efficiency_bps_hz=None, min_efficiency_bps_hz=0)

    assert law.rate_bps(10 ** (snr_db / 10), 1.0) == pytest.approx(expected_bps_hz, abs=6e-6)


def test_capacity_doubles_with_bandwidth_at_the_same_sinr():
    """15 is log2(16) = 4 bit/s/Hz: 80 Mbit/s in 20 MHz, in bits, not bytes or nats."""
    assert CAPACITY.rate_bps(15.0, 20e6) == pytest.approx(80e6)


def test_successive_cancellation_adds_up_to_the_capacity_of_the_sum():
    """SNRs 10, 3 and 1 decoded strongest first carry 1.58496 + 1.32193 + 1 = log2(15) bit/s/Hz."""
    rates_bps = CAPACITY.rates_bps(np.array([10 / (3 + 1 + 1), 3 / (1 + 1), 1.0]), 1.0)

    assert rates_bps == pytest.approx([1.584962500721156, 1.3219280948873624, 1.0])
    assert rates_bps.sum() == pytest.approx(3.9068905956085187)


def test_default_rate_stays_within_the_cqi_table():
    """Without repetition nothing below CQI 1 (0.1523 bit/s/Hz), never more than CQI 15 (5.5547 bit/s/Hz)."""
    law = Shannon(repetitions=1)
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


def test_a_floor_above_the_cap_is_refused_with_both_values():
    """The message names both settings, since either may be the wrong one."""
    with pytest.raises(ValueError, match=r"min_efficiency_bps_hz is above max_efficiency_bps_hz, got 0\.1523 and 0\.1"):
        Shannon(max_efficiency_bps_hz=0.1)


def test_every_rate_law_has_claims_here():
    """The table and the laws of this file name the same kinds."""
    assert set(RATE_LAWS) == {law.kind for law in LAWS.values()}
