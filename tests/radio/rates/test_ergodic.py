"""Claims about the ergodic rate, against the closed form of Rayleigh capacity and against averages over blocks."""

import math

import numpy as np
import pytest
from scipy.special import exp1

from fednet_emu.radio.fading import Nakagami, Rayleigh, Rician
from fednet_emu.radio.nr.mcs import NrMcs
from fednet_emu.radio.rates.ergodic import ErgodicRate
from fednet_emu.radio.rates.finite_blocklength import FiniteBlocklength
from fednet_emu.radio.rates.shannon import FixedRate, Shannon
from tests.quick import crossed

CAPACITY = Shannon(gap_db=0, max_efficiency_bps_hz=None, min_efficiency_bps_hz=0)
MIDPOINTS = (np.arange(400_000) + 0.5) / 400_000
LAWS = [
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
    ("fading", "law"), crossed([Rayleigh(), Rician(k_db=9), Nakagami(m=0.5)], LAWS), ids=lambda law: law.kind
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


def test_scalar_and_vector_follow_one_law():
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
