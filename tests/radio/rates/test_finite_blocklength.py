"""Claims about the rate of short blocks, against Polyanskiy's numbers and limits."""

import math

import numpy as np
import pytest
from scipy.stats import norm

from fednet_emu.radio.rates.finite_blocklength import FiniteBlocklength


def test_rate_is_capacity_less_the_dispersion_penalty():
    """At 0 dB, n = 500 and e = 1e-3: (1 - sqrt(0.75 / 500) log2(e) 3.0902) bit per symbol, less failed blocks."""
    law = FiniteBlocklength(block_symbols=500, error_rate=1e-3)
    expected = (1 - math.sqrt(0.75 / 500) / math.log(2) * norm.isf(1e-3)) * 0.999

    assert law.rate_bps(1.0, 1.0) == pytest.approx(expected, rel=1e-12)
    assert expected == pytest.approx(0.8265, abs=5e-4)


def test_long_blocks_reach_capacity():
    """The penalty falls with the root of the block length."""
    short, long = (FiniteBlocklength(block_symbols=n, error_rate=1e-6).rate_bps(10.0, 1.0) for n in (10_000, 1_000_000))

    assert math.log2(11) - long == pytest.approx((math.log2(11) - short) / 10, rel=1e-3)


def test_nothing_gets_through_below_the_root():
    """The approximation is zero at `min_sinr`, and clamped to zero below."""
    law = FiniteBlocklength(block_symbols=200, error_rate=1e-5)
    root = law.min_sinr
    capacity, dispersion = math.log(1 + root), math.sqrt((1 - (1 + root) ** -2) / 200)

    assert capacity == pytest.approx(dispersion * norm.isf(1e-5), rel=1e-9)
    np.testing.assert_array_equal(law.rates_bps(np.array([0.0, root / 2, root]), 1e6), 0.0)


def test_stricter_or_shorter_blocks_are_slower():
    """Fewer symbols and fewer errors both cost rate."""
    base = FiniteBlocklength(block_symbols=400, error_rate=1e-3).rate_bps(3.0, 1.0)

    assert FiniteBlocklength(block_symbols=100, error_rate=1e-3).rate_bps(3.0, 1.0) < base
    assert FiniteBlocklength(block_symbols=400, error_rate=1e-6).rate_bps(3.0, 1.0) < base
