"""Intervals for few repetitions, against published tables and by simulation."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy import stats

from fednet_emu.analysis.statistics import (
    ALPHA,
    cost_interval,
    fewest_seeds,
    gaps,
    mean_interval,
    mean_intervals,
    paired_difference,
    sign_test,
)

RUNS = 1000


def coverage(difference, truth: float) -> float:
    """How often an interval holds the truth."""
    return sum(interval.low <= truth <= interval.high for interval in (difference() for _ in range(RUNS))) / RUNS


def test_few_values_get_students_interval():
    """Five values with standard deviation sqrt(2.5): t(4) = 2.776 (Student's table) times sqrt(0.5)."""
    found = mean_interval(np.array([1.0, 2.0, 3.0, 4.0, 5.0]))

    assert found == pytest.approx((3.0, 3.0 - 2.776 * 0.5**0.5, 3.0 + 2.776 * 0.5**0.5), abs=1e-3)


def test_many_values_get_the_bootstrap():
    """From eight values on the interval lies within the values, and for normal ones near Student's."""
    values = np.random.default_rng(1).normal(0.0, 1.0, 30)
    found = mean_interval(values)
    reach = 2.045 * values.std(ddof=1) / 30**0.5  # t(29), Student's table

    assert found.mean == pytest.approx(values.mean())
    assert found.high - found.low == pytest.approx(2 * reach, rel=0.06)
    assert mean_interval(values) == found


def test_resampled_means_are_those_of_resamples():
    """Counting how often each value is drawn gives the quantiles of resamples written out, for each column."""
    values = np.random.default_rng(3).normal(0.0, 1.0, (9, 4))
    drawn = np.random.Generator(np.random.PCG64(0)).integers(0, 9, (10_000, 9))
    tail = 0.0072248  # the standard normal's below -sqrt(9 / 8) * 2.3060, t(8) from Student's table
    expected = np.quantile(values[drawn].mean(axis=1), [tail, 1 - tail], axis=0)

    _, low, high = mean_intervals(values)

    np.testing.assert_allclose([low, high], expected, atol=2e-4)


@pytest.mark.parametrize("seeds", [6, 10, 20])
def test_paired_intervals_cover_a_known_difference(seeds):
    """95 % intervals of a difference of 0.5, seen through what seeds have in common, hold it 93 to 99 % of the time."""
    rng = np.random.default_rng(seeds)

    def trial():
        common = rng.normal(0.0, 1.0, seeds)
        first, second = (common + shift + rng.normal(0.0, 0.3, seeds) for shift in (0.0, 0.5))
        return paired_difference(first, second)

    assert 0.93 <= coverage(trial, 0.5) <= 0.99


@pytest.mark.parametrize("n", [3, 6, 9, 17])
def test_p_is_that_of_the_sign_flip_test(n):
    """SciPy's paired permutation test of the mean, with ties, exact up to 15 seeds."""
    differences = np.round(np.random.default_rng(n).normal(0.4, 1.0, n), 1)
    expected = stats.permutation_test((differences,), np.mean, permutation_type="samples", n_resamples=2**17 + 1)

    assert sign_test(differences).p == pytest.approx(expected.pvalue, abs=1e-12 if n <= 15 else 0.02)


def test_the_interval_has_the_shifts_that_the_test_does_not_exclude():
    """Just inside its ends a shift has a p above 0.05, just outside at most 0.05, exactly and with random exchanges."""
    for n in (6, 9, 20):
        values = np.random.default_rng(n).normal(0.5, 1.0, n)
        found = sign_test(values)
        for end, out in ((found.low, -1e-6), (found.high, 1e-6)):
            assert sign_test(values - end - out).p <= ALPHA < sign_test(values - end + out).p


@given(arrays(np.float64, st.integers(1, 17), elements=st.integers(-20, 20).map(float)))
def test_an_interval_excludes_zero_if_and_only_if_p_says_so(differences):
    """Both answer one question; fewer than six differences have no interval and no p below 0.05."""
    found = sign_test(differences)

    assert bool(found.low > 0 or found.high < 0) == found.excludes_zero == (found.p <= ALPHA)
    assert np.isnan(found.low) == np.isnan(found.high) == (len(differences) < fewest_seeds() == 6)
    if len(differences) < 6:
        assert found.p >= 2.0 ** (1 - len(differences)) > ALPHA


def test_six_equal_signs_are_the_fewest_that_show_a_difference():
    """Of six values of one sign the interval goes from the least to the largest, with p = 2 / 64."""
    assert sign_test(np.array([1.0, 2.0, 3.0, 4.0, 5.0, 9.0])) == pytest.approx((4.0, 1.0, 9.0, 0.03125))
    assert sign_test(np.arange(1.0, 6.0)).p == 2 / 2**5


def test_a_difference_of_less_than_a_millionth_is_none():
    """Two costs of 1e5 that differ by 0.05 are equal, by 0.2 they are not, whatever their sign."""
    assert gaps(np.array([1e5, -1e5, 1e5, 0.0]), np.array([1e5 + 0.05, -1e5 - 0.05, 1e5 + 0.2, 1e-9])).tolist() == (
        pytest.approx([0.0, 0.0, 0.2, 1e-9])
    )
    assert paired_difference(np.full(6, 3.0), np.full(6, 3.0 + 1e-12)) == (0.0, 0.0, 0.0, 1.0)


def test_an_interval_of_costs_is_not_below_zero():
    """Student's interval of 2 and 10 s begins at -44.8 s; that of the cost begins at 0 and keeps its mean and end."""
    plain, cost = mean_interval(np.array([2.0, 10.0])), cost_interval(np.array([2.0, 10.0]))

    assert plain.low < -44
    assert cost == (plain.mean, 0.0, plain.high)
    assert cost_interval(np.array([5.0, 5.1])) == mean_interval(np.array([5.0, 5.1]))


def test_what_cannot_be_known_is_not_claimed():
    """No value has no mean, one value no interval; neither is more than noise."""
    assert np.isnan(mean_interval(np.array([]))).all()
    one = mean_interval(np.array([3.0]))
    assert one.mean == 3.0
    assert np.isnan([one.low, one.high]).all()
    assert np.isnan(sign_test(np.array([]))).all()


@pytest.mark.parametrize("count", [2, 8])
def test_equal_values_have_no_spread(count):
    """The interval is the point itself, to the last digit, although rounding could spoil it."""
    assert mean_interval(np.full(count, 0.1)) == pytest.approx((0.1, 0.1, 0.1), abs=1e-16)


@given(arrays(np.float64, st.tuples(st.sampled_from([3, 9]), st.just(3)), elements=st.floats(-1e3, 1e3)))
def test_columns_are_treated_alike(values):
    """Each column gets the interval that it has by itself, and the mean lies within."""
    mean, low, high = mean_intervals(values)

    for place in range(3):
        assert (mean[place], low[place], high[place]) == pytest.approx(mean_interval(values[:, place]), nan_ok=True)
        assert low[place] <= mean[place] + 1e-9
        assert mean[place] <= high[place] + 1e-9
