"""Intervals for few repetitions, against published tables and by simulation."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from fednet_emu.analysis.statistics import (
    Interval,
    mean_interval,
    mean_intervals,
    paired_difference,
    unpaired_difference,
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


@pytest.mark.parametrize("seeds", [2, 5, 10])
def test_paired_intervals_cover_a_known_difference(seeds):
    """95 % intervals of a difference of 0.5, seen through what seeds have in common, hold it 90 to 99 % of the time."""
    rng = np.random.default_rng(seeds)

    def trial():
        common = rng.normal(0.0, 1.0, seeds)
        first, second = (common + shift + rng.normal(0.0, 0.3, seeds) for shift in (0.0, 0.5))
        return paired_difference(first, second)

    assert 0.90 <= coverage(trial, 0.5) <= 0.99


@pytest.mark.parametrize("seeds", [5, 10])
def test_unpaired_intervals_cover_a_known_difference(seeds):
    """So do unpaired ones, where the sides have nothing in common and spread differently."""
    rng = np.random.default_rng(seeds)

    assert (
        0.90
        <= coverage(lambda: unpaired_difference(rng.normal(0.0, 1.0, seeds), rng.normal(0.5, 0.4, seeds)), 0.5)
        <= 0.99
    )


def test_pairing_pays_when_seeds_have_something_in_common():
    """A common part nine times as variable as the rest makes the paired interval some three times narrower."""
    rng = np.random.default_rng(0)
    common = rng.normal(0.0, 0.9, 20)
    first, second = (common + rng.normal(0.0, 0.3, 20) for _ in range(2))
    paired, unpaired = paired_difference(first, second), unpaired_difference(first, second)

    assert paired.mean == pytest.approx(unpaired.mean)
    assert 2 < (unpaired.high - unpaired.low) / (paired.high - paired.low) < 5


def test_what_cannot_be_known_is_not_claimed():
    """No value has no mean, one value no interval; neither is more than noise."""
    assert np.isnan(mean_interval(np.array([]))).all()
    one = mean_interval(np.array([3.0]))
    assert one.mean == 3.0
    assert np.isnan([one.low, one.high]).all()
    assert not one.excludes_zero
    assert np.isnan(unpaired_difference(np.array([]), np.array([1.0])).mean)
    assert not Interval(0.5, -0.1, 1.1).excludes_zero
    assert Interval(0.5, 0.1, 1.1).excludes_zero


@pytest.mark.parametrize("count", [2, 8])
def test_equal_values_have_no_spread(count):
    """The interval is the point itself, to the last digit, although rounding could spoil it."""
    assert mean_interval(np.full(count, 0.1)) == pytest.approx((0.1, 0.1, 0.1), abs=1e-16)
    same = unpaired_difference(np.full(count, 0.1), np.full(count, 0.3))
    assert same.low == same.mean == same.high


@given(arrays(np.float64, st.tuples(st.sampled_from([3, 9]), st.just(3)), elements=st.floats(-1e3, 1e3)))
def test_columns_are_treated_alike(values):
    """Each column gets the interval that it has by itself, and the mean lies within."""
    mean, low, high = mean_intervals(values)

    for place in range(3):
        assert (mean[place], low[place], high[place]) == pytest.approx(mean_interval(values[:, place]), nan_ok=True)
        assert low[place] <= mean[place] + 1e-9
        assert mean[place] <= high[place] + 1e-9
