"""Claims about truncated channel inversion: its closed forms, by the exponential integral and by simulation."""

import math

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import exp1

from fednet_emu.network.over_the_air import mean_inverse, misalignment, n_slots, relative_error
from fednet_emu.radio.fading import NoFading, Rayleigh, Rician


@pytest.mark.parametrize("cutoff", [1e-200, 1e-9, 1e-6, 1e-3, 0.01, 0.2, 1.0, 3.0, 20.0])
def test_the_mean_power_is_the_exponential_integral(cutoff):
    """For Rayleigh fading the mean of 1 / |h|^2 above the cutoff is E1(cutoff); 1.2227 at 0.2."""
    assert mean_inverse(Rayleigh(), cutoff) == pytest.approx(exp1(cutoff), rel=2e-6)
    assert mean_inverse(Rayleigh(), 0.2) == pytest.approx(1.2227, abs=5e-5)


def test_the_mean_power_of_other_laws_is_an_integral_of_their_density():
    """Rician fading, integrated over the derivative of its distribution function."""
    law, step = Rician(k_db=3.0), 1e-5

    def integrand(gain):
        below, above = law.cdf(np.array([gain - step, gain + step]))
        return (above - below) / (2 * step) / gain

    assert mean_inverse(law, 0.3) == pytest.approx(quad(integrand, 0.3, 30.0, limit=200)[0], rel=1e-4)


@pytest.mark.parametrize(("cutoff", "mean"), [(0.2, 1.0), (1.0, 1.0), (1.001, 0.0)])
def test_a_link_that_never_fades_sends_always_or_never(cutoff, mean):
    """Its gain is 1."""
    assert mean_inverse(NoFading(), cutoff) == mean


@pytest.mark.parametrize(("entries", "symbols", "slots"), [(1, 10, 1), (10, 10, 1), (11, 10, 2), (2410, 100, 25)])
def test_a_vector_takes_whole_slots(entries, symbols, slots):
    """ceil(entries / symbols per slot), by `math.ceil` of the fraction."""
    assert n_slots(entries, symbols) == slots == math.ceil(entries / symbols)


def test_a_channel_that_is_known_is_inverted_exactly():
    """Without error every factor is 1, whatever the draws."""
    assert (misalignment(np.array([0.2, 1.0, 5.0]), 0.0, np.array([-3.0, 0.5, 2.0])) == 1.0).all()


def test_misaligned_signals_have_the_moments_of_complex_channels():
    """Factors by complex channels, h = sqrt(1 - e) h' + sqrt(e) z: mean sqrt(1 - e), variance e / (2 |h'|^2)."""
    rng, error, n = np.random.default_rng(0), 0.1, 200_000
    measured = 0.7 * np.exp(0.4j)
    change = (rng.standard_normal(n) + 1j * rng.standard_normal(n)) / math.sqrt(2)
    slow = ((math.sqrt(1 - error) * measured + math.sqrt(error) * change) / measured).real
    fast = misalignment(np.full(n, abs(measured) ** 2), error, rng.standard_normal(n))

    assert fast.mean() == pytest.approx(math.sqrt(0.9), abs=4e-3)
    assert fast.var() == pytest.approx(error / (2 * 0.49), rel=0.02)
    assert (slow.mean(), slow.var()) == (pytest.approx(fast.mean(), abs=4e-3), pytest.approx(fast.var(), rel=0.02))


def test_the_error_falls_with_the_square_of_the_devices():
    """K = 10, eta = 1, sigma^2 = 0.1: 1e-3."""
    assert relative_error(1 / 0.1, 10) == pytest.approx(1e-3)
