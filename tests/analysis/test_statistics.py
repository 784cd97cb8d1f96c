"""Intervals for few repetitions and sets of best settings, against published tables and by simulation."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy import stats

from fednet_emu.analysis import confidence_set as module
from fednet_emu.analysis.confidence_set import chance_of_range, confidence_set, restricted, seeds_needed
from fednet_emu.analysis.statistics import (
    ALPHA,
    cost_interval,
    fewest_seeds,
    gaps,
    mean_interval,
    mean_intervals,
    paired_difference,
    sign_test,
    smallest_p,
)


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


TRIALS = 400


@pytest.fixture
def few_draws(monkeypatch):
    monkeypatch.setattr(module, "DRAWS", 400)
    monkeypatch.setattr(module, "EXACT", 400)


def slow_chance(costs):
    """The same probability, from all exchanges of all seeds, one by one."""

    def spread(rows):
        return np.ptp(np.mean(rows, axis=0))

    ways = [list(itertools.permutations(row)) for row in costs]
    ranges = [spread(rows) for rows in itertools.product(*ways)]
    return np.mean([each >= spread(costs) - 1e-9 for each in ranges])


@pytest.mark.parametrize("shape", [(1, 3), (2, 2), (5, 2), (3, 3), (2, 4)])
def test_the_chance_is_that_of_all_exchanges(shape):
    """Counted one by one, with ties, it is the same."""
    costs = np.round(np.random.default_rng(1).normal(size=shape), 1) + np.arange(shape[1])

    assert chance_of_range(costs) == pytest.approx(slow_chance(costs))


def test_random_exchanges_come_close_to_all(monkeypatch):
    """Where there are too many exchanges, random ones give nearly the same."""
    costs = np.random.default_rng(3).normal([0.0, 0.5, 1.0], 1.0, (5, 3))
    exact = chance_of_range(costs)
    monkeypatch.setattr(module, "EXACT", 0)

    assert chance_of_range(costs) == pytest.approx(exact, abs=0.01)


@pytest.mark.parametrize(("settings", "seeds"), [(2, 5), (2, 6), (3, 3), (4, 2)])
def test_the_smallest_p_is_reached_when_all_seeds_agree(settings, seeds):
    """The same order on all seeds is the clearest that there is; two settings need six seeds."""
    costs = np.tile(10.0 ** np.arange(settings), (seeds, 1))

    assert chance_of_range(costs) == pytest.approx(smallest_p(settings, seeds))
    assert fewest_seeds() == 6


def test_clear_settings_are_dropped_from_the_dearest_on():
    """Two good ones stay, three bad ones go; p-values do not fall towards the best."""
    rng = np.random.default_rng(4)
    costs = rng.normal([3.0, 1.0, 2.0, 1.0, 5.0], 0.1, (8, 5))

    mask, p = confidence_set(costs)

    assert mask.tolist() == [False, True, False, True, False]
    assert p[4] <= p[0] <= p[2] <= ALPHA < min(p[1], p[3])


def test_the_p_value_of_those_that_remain_is_that_of_the_last_test():
    """Dropped are those whose test came before; the two that remain share the chance of their own exchanges."""
    costs = np.array(
        [[1.0, 1.5, 9.0], [2.0, 1.8, 9.5], [1.0, 1.4, 8.0], [1.5, 1.6, 9.0], [1.2, 1.5, 9.9], [0.9, 1.0, 8.5]]
    )
    expected = slow_chance(costs[:, :2])

    mask, p = confidence_set(costs)

    assert mask.tolist() == [True, True, False]
    assert ALPHA < expected < 0.5
    assert p[:2].tolist() == pytest.approx([1.0, expected])
    assert p[2] <= ALPHA


def test_p_values_never_fall_from_one_test_to_the_next():
    """The last two differ more clearly than all three, whose p is 0.047: the second that goes has that p, not 1/32."""
    costs = np.stack([np.full(6, 1.0), np.full(6, 2.0), [3.0, 6.0, 1.0, 5.0, 4.0, 0.0]], axis=1)
    first, second = chance_of_range(costs), chance_of_range(costs[:, :2])

    mask, p = confidence_set(costs)

    assert second == 1 / 2**5 < first <= ALPHA
    assert mask.tolist() == [True, False, False]
    assert p.tolist() == [1.0, first, first]


def test_restricted_differences_are_those_up_to_the_earlier_end():
    """Ended at 5 and 3 s, arrived at 4 and 9 s: each pair by hand, and no other pair is cut."""
    apart = restricted(np.array([[5.0, 3.0, 4.0, 9.0]]), np.array([[True, True, False, False]]))[0]

    assert apart.tolist() == [[0, 0, 1, 0], [0, 0, 0, 0], [-1, 0, 0, -5], [0, 0, 5, 0]]


def test_a_setting_is_not_dropped_for_one_that_arrives_less_often():
    """Ten of ten at 100 s against six of ten at 10 s: kept, without a p; one at 100 s that is as rare goes."""
    ended, never = np.arange(10) >= 6, np.zeros(10, bool)
    fast, sure, rare = np.where(ended, 12.0, 10.0), np.full(10, 100.0), np.where(ended, 12.0, 100.0)

    mask, p = confidence_set(np.stack([fast, sure], axis=1), np.stack([ended, never], axis=1))
    assert mask.tolist() == [True, True]
    assert p.tolist() == pytest.approx([1.0, math.nan], nan_ok=True)
    mask, p = confidence_set(np.stack([fast, rare], axis=1), np.stack([ended, ended], axis=1))
    assert mask.tolist() == [True, False]
    assert p[1] == 2 / 2**6


@pytest.mark.parametrize(
    ("kind", "studies"),
    [("one", 500), ("by rounds", 500)]
    + [pytest.param(kind, 2000, marks=pytest.mark.slow) for kind in ("all", "one", "by rounds", "twenty seeds")],
)
def test_censored_studies_with_a_known_truth(few_draws, kind, studies):
    """Medians 1, 1 and 1.5: one alone is named best in at most 6.5 %, both are kept in 93.5 %, the last goes in 80 %.

    Up to 40 % of the runs are censored: of all settings alike, of one of the best only, or in relation to their speed,
    as a stop by rounds does. With 5 to 20 seeds the best are kept, with 20 the worst is out.
    """
    rng, kept, alone, out = np.random.default_rng(14), 0, 0, 0
    for _ in range(studies):
        seeds, share = 20 if kind == "twenty seeds" else int(rng.integers(5, 21)), rng.uniform(0.0, 0.4)
        costs = np.array([1.0, 1.0, 1.5]) * np.exp(0.3 * rng.normal(size=(seeds, 3)))
        ends = rng.exponential(1 / -math.log1p(-share), (seeds, 3))  # censors `share` of the runs that take 1
        if kind == "one":
            ends[:, 1:] = np.inf
        elif kind == "by rounds":
            ends = costs * np.exp(0.3 * (1 + rng.normal(size=(seeds, 3))))
        mask = confidence_set(np.minimum(costs, ends), ends < costs)[0]
        kept, alone, out = kept + bool(mask[:2].all()), alone + (mask.sum() == 1), out + (not mask[2])
    assert alone <= 0.065 * studies
    assert kept >= 0.935 * studies
    assert out >= (0.8 if kind == "twenty seeds" else 0.5) * studies


@pytest.mark.parametrize("costs", [np.ones((5, 4)), np.arange(40.0)[None]], ids=["equal", "one seed"])
def test_nothing_is_claimed_without_evidence(costs):
    """Equal costs, or a single seed, tell nothing apart; one seed has one permutation, and no list of 40! orders."""
    mask, p = confidence_set(costs)

    assert mask.all()
    assert (p == 1.0).all()


@pytest.mark.parametrize(("seeds", "settings"), [(3, 6), (5, 3), (10, 2), (6, 8)])
@pytest.mark.parametrize("kind", ["normal", "exponential", "censored"])
def test_no_difference_is_found_where_there_is_none(few_draws, kind, seeds, settings):
    """Without any difference something is dropped in at most 5 % of all studies, whatever the distribution."""
    rng = np.random.default_rng(seeds * 10 + settings)
    draws = (
        rng.normal(size=(TRIALS, seeds, settings))
        if kind == "normal"
        else rng.exponential(size=(TRIALS, seeds, settings))
    )
    common = rng.normal(0, 3, (TRIALS, seeds, 1))  # what the seed does to all settings
    costs = np.minimum(draws, 1.0) if kind == "censored" else draws + common

    found = np.mean([not confidence_set(each)[0].all() for each in costs])

    assert found <= ALPHA + 2 * math.sqrt(ALPHA * (1 - ALPHA) / TRIALS)


def test_the_recommended_number_of_seeds_suffices(few_draws):
    """With so many seeds, two settings that differ by 0.8 spreads are told apart in about 80 % of all studies."""
    rng = np.random.default_rng(5)
    pattern = np.array([-1.0, 0.0, 1.0])
    needed = int(seeds_needed(0.8 * pattern.std(ddof=1) + pattern))
    costs = np.stack([np.zeros((TRIALS, needed)), rng.normal(0.8, 1.0, (TRIALS, needed))], axis=2)

    found = np.mean([confidence_set(each)[0].sum() == 1 for each in costs])

    assert found == pytest.approx(0.8, abs=0.06)


def test_seeds_that_nobody_has_are_not_recommended():
    """Equal means need endless seeds, tiny differences more than a thousand; clear ones as many as the test needs."""
    assert seeds_needed(np.array([1.0, -1.0])) == math.inf
    assert seeds_needed(np.array([1.0, -0.99])) == math.inf
    assert seeds_needed(np.array([1.0, 1.01])) == fewest_seeds()
    assert math.isnan(seeds_needed(np.array([1.0])))
