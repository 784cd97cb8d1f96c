"""Claims about fading, against closed forms of the exponential law."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fednet_emu.radio.fading import (
    FADINGS,
    Fading,
    FadingByLineOfSight,
    Nakagami,
    NoFading,
    Rayleigh,
    Rician,
    coherence_time_s,
)
from fednet_emu.radio.rates.shannon import Shannon
from tests.quick import examples

MIDPOINTS = (np.arange(200_000) + 0.5) / 200_000
CAPACITY = Shannon(gap_db=0, max_efficiency_bps_hz=None, min_efficiency_bps_hz=0)
LAWS = [NoFading(), Rayleigh(), Rician(k_db=9), Rician(k_db=-20), Nakagami(m=0.5), Nakagami(m=4), FadingByLineOfSight()]
ALL_KINDS = pytest.mark.parametrize("fading", LAWS, ids=lambda law: f"{law.kind}-{getattr(law, 'm', '')}")
BOTH_STATES = pytest.mark.parametrize("los", [False, True], ids=["unseen", "seen"])
UNIFORM = st.floats(0.0, 1.0, exclude_min=True, exclude_max=True)


@BOTH_STATES
@ALL_KINDS
def test_mean_power_gain_is_one(fading, los):
    """Fading moves power in time, it neither adds nor takes any."""
    assert fading.gains(MIDPOINTS, los).mean() == pytest.approx(1.0, abs=2e-5)


@BOTH_STATES
@ALL_KINDS
def test_distribution_function_undoes_the_quantile(fading, los):
    """The share of blocks below the gain of a uniform is that uniform."""
    uniforms = np.linspace(0.001, 0.999, 97)

    share = fading.cdf(fading.gains(uniforms, los), los)

    np.testing.assert_allclose(share, np.ones(97) if fading.kind == "none" else uniforms, rtol=1e-9)


@ALL_KINDS
@examples(60)
@given(low=UNIFORM, high=UNIFORM)
def test_gain_is_a_quantile(fading, low, high):
    """More luck never means less power, and power is never negative."""
    low, high = sorted((low, high))

    assert 0.0 <= fading.gain(low) <= fading.gain(high) < math.inf


@ALL_KINDS
@examples(60)
@given(uniform=UNIFORM)
def test_scalar_and_vector_follow_one_law(fading, uniform):
    """The hot path and its vectorised twin agree to the last digits."""
    for los in (False, True):
        one, many = fading.gain(uniform, los), fading.gains(np.array([uniform]), los)
        assert many[0] == pytest.approx(one, rel=1e-14, abs=0)


@ALL_KINDS
def test_every_kind_says_how_long_a_block_lasts(fading):
    """The coherence time is a positive number of seconds, infinite for a channel that never changes."""
    assert isinstance(fading, Fading)
    assert fading.coherence_s > 0
    assert math.isinf(fading.coherence_s) == isinstance(fading, NoFading)


@pytest.mark.parametrize("m", [0.5, 1, 1.5, 2, 4])
def test_nakagami_power_has_the_gamma_distribution(m):
    """P(gain < 0.1) and P(gain < 1) of the analytic table for each shape; m = 1 is Rayleigh."""
    table = json.loads((Path(__file__).parent / "reference" / "analytic_checkpoints.json").read_text())
    expected = table["nakagami_power_cdf"][f"m={m:g}"]
    gains = Nakagami(m=m).gains(MIDPOINTS)

    assert (gains < 0.1).mean() == pytest.approx(expected["0.1"], abs=1e-5)
    assert (gains < 1.0).mean() == pytest.approx(expected["1"], abs=1e-5)


@pytest.mark.parametrize("k_db", [-10, 0, 9])
def test_rician_power_is_that_of_a_path_and_complex_noise(k_db):
    """Quantiles of |sqrt(K/(K+1)) + CN(0, 1/(K+1))|^2 from 400,000 draws, and its variance (1 + 2K) / (1 + K)^2."""
    k = 10 ** (k_db / 10)
    rng = np.random.default_rng(5)
    noise = rng.normal(scale=np.sqrt(0.5 / (k + 1)), size=(2, 400_000))
    power = (np.sqrt(k / (k + 1)) + noise[0]) ** 2 + noise[1] ** 2
    levels = np.array([0.01, 0.1, 0.5, 0.9, 0.99])

    assert Rician(k_db=k_db).gains(levels) == pytest.approx(np.quantile(power, levels), rel=0.03)
    assert Rician(k_db=k_db).gains(MIDPOINTS).var() == pytest.approx((1 + 2 * k) / (1 + k) ** 2, rel=1e-3)


def test_limits_of_the_families_meet():
    """Rician without a path and Nakagami with m = 1 are Rayleigh; a very strong path hardly fades."""
    uniforms = np.linspace(0.01, 0.99, 50)
    rayleigh = Rayleigh().gains(uniforms)

    assert Nakagami(m=1).gains(uniforms) == pytest.approx(rayleigh, rel=1e-12)
    assert Rician(k_db=-40).gains(uniforms) == pytest.approx(rayleigh, rel=1e-3)
    assert Rician(k_db=40).gains(uniforms) == pytest.approx(np.ones(50), abs=0.04)


def test_line_of_sight_picks_the_law_of_each_link():
    """Links in sight fade as Rician of the same K, others as Rayleigh, in one vectorised call."""
    law, uniforms = FadingByLineOfSight(k_db=6), np.array([[0.1, 0.8], [0.1, 0.8]])

    gains = law.gains(uniforms, np.array([[True], [False]]))

    assert gains[0] == pytest.approx(Rician(k_db=6).gains(uniforms[0]))
    assert gains[1] == pytest.approx(Rayleigh().gains(uniforms[1]))
    assert law.gain(0.1, True) == pytest.approx(gains[0, 0])


def test_without_fading_the_gain_is_one_for_certain():
    """It is never below 1, and always at most 1."""
    assert NoFading().cdf(np.array([0.0, 0.999999, 1.0, 2.0])).tolist() == [0.0, 0.0, 1.0, 1.0]


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


def test_every_kind_of_fading_has_claims_here():
    """The table and the laws of this file name the same kinds."""
    assert {law.kind for law in LAWS} == set(FADINGS)


def test_a_coherence_time_of_zero_is_refused():
    """Blocks of no length would stop the clock."""
    with pytest.raises(ValueError, match="greater than 0"):
        Rayleigh(coherence_s=0.0)
