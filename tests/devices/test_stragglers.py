"""Straggler laws against their closed forms."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError
from scipy.integrate import quad
from scipy.stats import beta

from fednet_emu.devices.stragglers import LogNormal, NoStraggler, Pareto, ShiftedExponential, SlowWindow, Straggler
from fednet_emu.kernel.streams import mix, uniform
from tests.quick import examples

LAWS = [NoStraggler(), ShiftedExponential(mean_factor=0.7), LogNormal(sigma=0.6), Pareto(alpha=3.0)]


def expected_order_statistic(law: Straggler, k: int, n: int) -> float:
    """Mean of the k-th fastest of n computations of 1 s: the quantile function weighted with a beta density."""
    value, _ = quad(lambda u: law.duration_s(1.0, 0, 0.0, u) * float(beta.pdf(u, k, n - k + 1)), 0.0, 1.0, limit=200)
    return float(value)


@pytest.mark.parametrize(
    ("law", "mean"),
    [
        (NoStraggler(), 1.0),
        (ShiftedExponential(mean_factor=0.7), 1.7),
        (LogNormal(sigma=0.6), math.exp(0.18)),
        (Pareto(alpha=3.0), 1.5),
    ],
)
def test_mean_duration_is_the_closed_form(law: Straggler, mean: float) -> None:
    """The mean over the uniform draw is (1 + m), exp(sigma^2 / 2) and alpha / (alpha - 1) times nominal."""
    assert expected_order_statistic(law, 1, 1) == pytest.approx(mean, rel=1e-6)


@pytest.mark.parametrize(
    ("k", "n", "factor"), [(10, 10, 2.92897), (8, 10, 1.42897), (100, 100, 5.18738), (90, 100, 2.25841)]
)
def test_waiting_for_k_of_n_exponentials_is_the_published_number(k: int, n: int, factor: float) -> None:
    """E[k-th of n] = a + (H_n - H_(n-k)) / mu for the shifted exponential, here with a = 1 / mu = 1."""
    assert expected_order_statistic(ShiftedExponential(mean_factor=1.0), k, n) == pytest.approx(1.0 + factor, abs=2e-5)


@pytest.mark.parametrize(("n", "factor"), [(10, 5.67546), (100, 17.74671)])
def test_slowest_of_n_paretos_is_the_published_number(n: int, factor: float) -> None:
    """E[max of n] for the Pareto law with alpha = 2 and minimum 1."""
    assert expected_order_statistic(Pareto(alpha=2.0), n, n) == pytest.approx(factor, rel=1e-4)


@pytest.mark.parametrize(
    ("law", "u", "duration_s"),
    [
        (ShiftedExponential(mean_factor=0.5), 1 - 1 / math.e, 3.0),
        (LogNormal(sigma=0.6), 0.5, 2.0),
        (LogNormal(sigma=0.6), 0.8413447460685429, 2 * math.exp(0.6)),
        (Pareto(alpha=2.0), 0.75, 4.0),
    ],
)
def test_quantiles_are_the_closed_form(law: Straggler, u: float, duration_s: float) -> None:
    """Work of 2 s at known quantiles of each law."""
    assert law.duration_s(2.0, 0, 0.0, u) == pytest.approx(duration_s, rel=1e-9)


@examples(30)
@given(st.sampled_from(LAWS), st.floats(1e-6, 1e3), st.floats(1e-9, 1 - 1e-9), st.floats(1e-9, 1 - 1e-9))
def test_durations_scale_with_the_work_and_grow_with_the_draw(
    law: Straggler, work_s: float, u: float, v: float
) -> None:
    """Twice the work takes twice the time, and a quantile function never falls."""
    low, high = law.duration_s(work_s, 0, 0.0, min(u, v)), law.duration_s(work_s, 0, 0.0, max(u, v))

    assert low <= high
    assert law.duration_s(2 * work_s, 0, 0.0, u) == pytest.approx(2 * law.duration_s(work_s, 0, 0.0, u))


def test_the_hashed_draws_have_the_law_of_the_formula() -> None:
    """The mean over the draws that a run really makes is the closed form within five standard errors."""
    law = ShiftedExponential(mean_factor=1.0)
    count = 20_000

    mean_s = sum(law.duration_s(1.0, 0, 0.0, uniform(mix(5, i % 20), i // 20)) for i in range(count)) / count

    assert mean_s == pytest.approx(2.0, abs=5 / math.sqrt(count))


@examples(60)
@given(st.floats(1e-3, 50), st.floats(0, 30), st.floats(0, 20), st.floats(0.01, 20), st.floats(1.01, 50))
def test_a_slow_window_does_exactly_the_nominal_work(
    work_s: float, start_s: float, from_s: float, length_s: float, factor: float
) -> None:
    """Speed integrated from start to end, 1 / factor inside the window and 1 outside, is the work."""
    to_s = from_s + length_s
    law = SlowWindow(devices=(3,), factor=factor, from_s=from_s, to_s=to_s)

    duration_s = law.duration_s(work_s, 3, start_s, 0.5)
    inside_s = max(0.0, min(start_s + duration_s, to_s) - max(start_s, from_s))

    assert duration_s - inside_s + inside_s / factor == pytest.approx(work_s, rel=1e-9)
    assert law.duration_s(work_s, 4, start_s, 0.5) == work_s


@pytest.mark.parametrize(
    ("start_s", "duration_s"), [(0, 2), (7.9, 2), (9, 11), (10, 11), (15, 6.5), (19, 2.9), (20, 2)]
)
def test_a_slow_window_by_hand(start_s: float, duration_s: float) -> None:
    """Work of 2 s, ten times slower from 10 s to 20 s: before it, into it, through it, out of it and after it."""
    law = SlowWindow(devices=(0,), factor=10.0, from_s=10.0, to_s=20.0)

    assert law.duration_s(2.0, 0, start_s, 0.5) == pytest.approx(duration_s)


def test_an_empty_window_is_refused() -> None:
    """A window that ends before it begins is an error that shows both ends."""
    with pytest.raises(ValidationError, match="to_s must be after from_s, got 5 and 5"):
        SlowWindow(devices=(0,), factor=2.0, from_s=5.0, to_s=5.0)
