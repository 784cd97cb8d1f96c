"""Claims about fading, against closed forms of the exponential law."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fednet_emu.radio.fading import FADINGS, Fading, NoFading, Rayleigh, coherence_time_s
from fednet_emu.radio.rate import Shannon

MIDPOINTS = (np.arange(200_000) + 0.5) / 200_000
CAPACITY = Shannon(gap_db=0, max_efficiency_bps_hz=None, min_efficiency_bps_hz=0)
ALL_KINDS = pytest.mark.parametrize("fading", [fading() for fading in FADINGS.values()], ids=list(FADINGS))
UNIFORM = st.floats(0.0, 1.0, exclude_min=True, exclude_max=True)


@ALL_KINDS
def test_mean_power_gain_is_one(fading):
    """Fading moves power in time, it neither adds nor takes any."""
    assert fading.gains(MIDPOINTS).mean() == pytest.approx(1.0, abs=1e-5)


@ALL_KINDS
@settings(max_examples=60, deadline=None)
@given(low=UNIFORM, high=UNIFORM)
def test_gain_is_a_quantile(fading, low, high):
    """More luck never means less power, and power is never negative."""
    low, high = sorted((low, high))

    assert 0.0 <= fading.gain(low) <= fading.gain(high) < math.inf


@ALL_KINDS
@settings(max_examples=60, deadline=None)
@given(uniform=UNIFORM)
def test_scalar_and_vector_follow_one_law(fading, uniform):
    """The hot path and its vectorised twin agree to the last digits."""
    assert fading.gains(np.array([uniform]))[0] == pytest.approx(fading.gain(uniform), rel=1e-14, abs=0)


@ALL_KINDS
def test_every_kind_says_how_long_a_block_lasts(fading):
    """The coherence time is a positive number of seconds, infinite for a channel that never changes."""
    assert isinstance(fading, Fading)
    assert fading.coherence_s > 0
    assert math.isinf(fading.coherence_s) == isinstance(fading, NoFading)


def test_rayleigh_power_has_the_exponential_distribution():
    """P(gain < 0.1) = 0.09516258 and P(gain < 1) = 0.63212056, the m = 1 row of the Nakagami table."""
    gains = Rayleigh().gains(MIDPOINTS)

    assert (gains < 0.1).mean() == pytest.approx(0.09516258, abs=1e-5)
    assert (gains < 1.0).mean() == pytest.approx(0.63212056, abs=1e-5)


def test_an_average_of_decibels_is_two_and_a_half_db_too_low():
    """The mean dB value of a unit-mean Rayleigh power is -2.507 dB, so averages are taken in linear power."""
    gains = Rayleigh().gains(MIDPOINTS)

    assert (10 * np.log10(gains)).mean() == pytest.approx(-2.507, abs=1e-3)


@pytest.mark.parametrize(("snr_db", "expected"), [(0, 0.63212056), (5, 0.27110659), (10, 0.09516258), (20, 0.00995017)])
def test_rayleigh_outage_at_one_bit_per_hertz(snr_db, expected):
    """1 - exp(-(2^R - 1) / SNR) of the blocks carry less than R = 1 bit/s/Hz."""
    sinr = 10 ** (snr_db / 10) * Rayleigh().gains(MIDPOINTS)

    assert (CAPACITY.rates_bps(sinr, 1.0) < 1.0).mean() == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize(
    ("snr_db", "expected_bps_hz"), [(0, 0.86035), (5, 1.71597), (10, 2.90651), (15, 4.3302), (20, 5.88405)]
)
def test_rayleigh_ergodic_capacity(snr_db, expected_bps_hz):
    """The mean rate over many blocks is log2(e) e^(1/s) E1(1/s), below that of the mean gain."""
    sinr = 10 ** (snr_db / 10) * Rayleigh().gains(MIDPOINTS)

    assert CAPACITY.rates_bps(sinr, 1.0).mean() == pytest.approx(expected_bps_hz, abs=3e-5)
    assert expected_bps_hz < CAPACITY.rate_bps(10 ** (snr_db / 10), 1.0)


@pytest.mark.parametrize(("speed_km_h", "expected_s"), [(3, 43.5e-3), (30, 4.35e-3), (120, 1.09e-3)])
def test_coherence_time_at_3_5_ghz(speed_km_h, expected_s):
    """A pedestrian, a bicycle and a car see blocks of 43.5, 4.35 and 1.09 ms."""
    assert coherence_time_s(speed_km_h / 3.6, 3.5e9) == pytest.approx(expected_s, rel=3e-3)


def test_default_coherence_time_is_that_of_a_pedestrian():
    """The default block is 3 km/h at 3.5 GHz to three digits."""
    assert Rayleigh().coherence_s == pytest.approx(coherence_time_s(3 / 3.6, 3.5e9), rel=5e-4)


def test_a_terminal_at_rest_has_one_block_for_ever():
    """Nothing moves, so nothing fades anew."""
    assert math.isinf(coherence_time_s(0.0, 3.5e9))


def test_a_coherence_time_of_zero_is_refused():
    """Blocks of no length would stop the clock."""
    with pytest.raises(ValueError, match="greater than 0"):
        Rayleigh(coherence_s=0.0)
