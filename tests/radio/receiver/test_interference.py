"""Claims about interference, against Shannon's sum rate and ns-3's rectangle of two cells."""

import json
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fednet_emu.radio.receiver.interference import (
    successive_cancellation,
    sum_of_others,
)
from tests.quick import examples

TABLE = json.loads((Path(__file__).parents[1] / "reference" / "analytic_checkpoints.json").read_text())
POWERS = st.lists(st.floats(1e-6, 1e6), min_size=1, max_size=12).map(np.array)
LEVELS_DB = st.floats(-100, 100)
WIDE_POWERS = st.lists(LEVELS_DB, min_size=1, max_size=12).map(lambda db: 10 ** (np.array(db) / 10))


def exact_sinr(own, others, noise):
    """Own power over noise and others, in fractions."""
    return float(Fraction(own) / (Fraction(noise) + sum(map(Fraction, others), Fraction(0))))


def sinr_at_one_receiver(received_w, noise_w):
    """SINR of each transmission at their common receiver, all others being noise to it."""
    return received_w / (noise_w + sum_of_others(received_w))


@examples(200)
@given(powers=WIDE_POWERS)
def test_the_sum_of_others_is_exact_over_200_db(powers):
    """Against fractions: 1e-13 of each sum, however far one power is above the others."""
    values = list(map(Fraction, powers.tolist()))
    exact = [float(sum(values[:i] + values[i + 1 :], Fraction(0))) for i in range(len(values))]

    assert sum_of_others(powers) == pytest.approx(exact, rel=1e-13, abs=0)


def test_the_sum_of_others_goes_along_any_axis():
    """Each cross-section of an array [2, 3, 4] is summed alone; a lone entry has no others."""
    power = np.random.default_rng(5).exponential(size=(2, 3, 4))

    for axis in range(3):
        expected = power.sum(axis=axis, keepdims=True) - power
        assert sum_of_others(power, axis) == pytest.approx(expected, rel=1e-12)
    assert sum_of_others(np.array([[7.0], [2.0]])).tolist() == [[0.0], [0.0]]


@examples(200)
@given(received_w=WIDE_POWERS, noise_w=LEVELS_DB.map(lambda db: 10 ** (db / 10)))
def test_sinr_at_one_receiver_is_exact_over_200_db(received_w, noise_w):
    """The strongest of all is as exact as the weakest: 1e-12 against fractions."""
    powers = received_w.tolist()
    exact = [exact_sinr(own, powers[:i] + powers[i + 1 :], noise_w) for i, own in enumerate(powers)]

    assert sinr_at_one_receiver(received_w, noise_w) == pytest.approx(exact, rel=1e-12, abs=0)


def test_cancellation_gives_the_rates_of_the_table():
    """SNRs 10, 3 and 1 in any order: 1.58496, 1.32193 and 1 bit/s/Hz, together log2(15)."""
    case = TABLE["noma_sic"]
    order = [1, 2, 0]

    rates = np.log2(1 + successive_cancellation(np.array(case["snr_lin"], float)[order], 1.0).sinr)

    assert rates == pytest.approx(np.array(case["rates"])[order])
    assert rates.sum() == pytest.approx(case["log2(1+sum)"])


@examples(60)
@given(received_w=POWERS, noise_w=st.floats(1e-3, 1e3))
def test_perfect_cancellation_adds_up_to_the_capacity_of_the_sum(received_w, noise_w):
    """Sum of log2(1 + SINR) = log2(1 + sum p g / N) for any powers, ties included."""
    sinr, decoded = successive_cancellation(np.append(received_w, received_w[0]), noise_w)

    assert decoded.all()
    total = received_w.sum() + received_w[0]
    assert np.log2(1 + sinr).sum() == pytest.approx(np.log2(1 + total / noise_w), rel=1e-6)


def test_who_cannot_be_decoded_stays_in_the_way():
    """Received 10, 6 and 1, noise 1, threshold 1.2: the first passes (10 / 8), 6 / 2 passes, 1 / 1 does not."""
    sinr, decoded = successive_cancellation(np.array([1.0, 6.0, 10.0]), 1.0, threshold=1.2)

    assert sinr == pytest.approx([1.0, 3.0, 1.25])
    np.testing.assert_array_equal(decoded, [False, True, True])


def test_a_failure_of_the_strongest_fails_everybody():
    """Ten against ten: neither is twice the rest, and the third has both against it."""
    sinr, decoded = successive_cancellation(np.array([10.0, 10.0, 1.0]), 1.0, threshold=2.0)

    assert not decoded.any()
    assert sinr == pytest.approx([10 / 12, 10 / 12, 1 / 21])


def test_imperfect_cancellation_leaves_a_share_behind():
    """5 % of 10 stay with the second: 3 / (1 + 1 + 0.5), and 0.65 with the third."""
    sinr, _ = successive_cancellation(np.array([10.0, 3.0, 1.0]), 1.0, residual=0.05)

    assert sinr == pytest.approx([10 / 5, 3 / 2.5, 1 / 1.65])


def test_cancellation_works_on_stacks():
    """Fading blocks along the first axis are independent of each other."""
    received_w = np.random.default_rng(2).exponential(size=(6, 5))

    stacked = successive_cancellation(received_w, 0.1, threshold=0.4, residual=0.02)

    for row in range(6):
        alone = successive_cancellation(received_w[row], 0.1, threshold=0.4, residual=0.02)
        assert stacked.sinr[row] == pytest.approx(alone.sinr)
        np.testing.assert_array_equal(stacked.decoded[row], alone.decoded)


@pytest.mark.parametrize(("threshold_db", "exponent"), [(-10, 4), (0, 4), (10, 4), (0, 3.5)])
def test_coverage_of_poisson_cells(threshold_db, exponent):
    """Nearest base station of a Poisson field, Rayleigh fading, no noise: the coverage integral, 0.5601 at 0 dB."""
    expected = TABLE["ppp_coverage_no_noise"][f"alpha{exponent:g}"][str(threshold_db)]
    rng = np.random.default_rng(8)
    squared_m2 = np.cumsum(rng.exponential(size=(20_000, 150)), axis=1)
    received_w = rng.exponential(size=squared_m2.shape) * squared_m2 ** (-exponent / 2)

    beyond_w = squared_m2[:, -1:] ** (1 - exponent / 2) / (exponent / 2 - 1)  # mean power of all farther stations

    sinr = sinr_at_one_receiver(received_w, beyond_w)[:, 0]

    assert (sinr >= 10 ** (threshold_db / 10)).mean() == pytest.approx(expected, abs=0.01)


@pytest.mark.parametrize("exponent", [3, 4])
def test_success_of_poisson_bipolar_aloha(exponent):
    """A link of 5 m amid 0.001 active interferers per square metre: exp(-lambda p C r^2) at 0 dB."""
    expected = TABLE["bipolar_aloha_success"][f"alpha{exponent}_theta0dB_lam.01_p.1_r5"]
    rng = np.random.default_rng(9)
    squared_m2 = np.cumsum(rng.exponential(size=(20_000, 150)), axis=1) / (np.pi * 0.001)
    received_w = rng.exponential(size=(20_000, 151))
    received_w[:, 0] *= 5.0**-exponent
    received_w[:, 1:] *= squared_m2 ** (-exponent / 2)
    beyond_w = np.pi * 0.001 * squared_m2[:, -1:] ** (1 - exponent / 2) / (exponent / 2 - 1)

    sinr = sinr_at_one_receiver(received_w, beyond_w)[:, 0]

    assert (sinr >= 1.0).mean() == pytest.approx(expected, abs=0.01)
