"""Claims about schedulers: equal finish is the best split there is, proportional fair gains what the maximum gains."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize

from fednet_emu.kernel.clock import NS_PER_S
from fednet_emu.network.access.orthogonal import Ofdma
from fednet_emu.network.access.schedulers import best_of_each_block, equal_finish_shares
from fednet_emu.network.air.transfer import Message
from fednet_emu.radio.fading import Rayleigh
from fednet_emu.radio.rates.shannon import FixedRate, Shannon
from fednet_emu.records.ledger import SERVER
from tests.quick import examples

CAPACITY = Shannon(gap_db=0, max_efficiency_bps_hz=None, min_efficiency_bps_hz=0)
LINKS = st.lists(st.tuples(st.floats(0.1, 1e4), st.integers(1000, 10**7)), min_size=2, max_size=6)


def times_s(shares, snr, left_bit, law=CAPACITY):
    """How long each link takes on its part of 1 MHz."""
    return left_bit / law.rates_bps(snr / shares, 1e6 * shares)


# ---- equal finish ----------------------------------------------------------------------------------------------------


@examples(30)
@given(links=LINKS, seed=st.integers(0, 1000))
def test_equal_finish_ends_together_and_no_other_split_ends_earlier(links, seed):
    """All times agree to 1e-5, and the last of any other split of the band ends no earlier."""
    snr, left_bit = (np.array(values, float) for values in zip(*links, strict=True))
    shares = equal_finish_shares(snr, left_bit, CAPACITY, 1e6)
    together_s = times_s(shares, snr, left_bit)

    assert shares.sum() == pytest.approx(1.0, rel=1e-12)
    assert together_s == pytest.approx(np.full(len(snr), together_s[0]), rel=1e-5)
    others = np.random.default_rng(seed).dirichlet(np.ones(len(snr)), 50)
    near = shares * np.exp(0.05 * np.random.default_rng(seed + 1).standard_normal((50, len(snr))))
    for other in (*others, *(near / near.sum(axis=1, keepdims=True))):
        assert times_s(other, snr, left_bit).max() >= together_s.max() * (1 - 1e-5)


def test_equal_finish_is_the_optimum_that_scipy_finds():
    """Sequential quadratic programming on (shares, T) ends at the same T to 1e-4."""
    snr, left_bit = np.array([100.0, 1.0, 10.0, 0.5]), np.array([1e6, 2e6, 5e5, 1e6])
    ours_s = times_s(equal_finish_shares(snr, left_bit, CAPACITY, 1e6), snr, left_bit).max()
    start = np.array([0.25, 0.25, 0.25, 0.25, times_s(np.full(4, 0.25), snr, left_bit).max()])
    best = minimize(
        lambda x: x[4],
        start,
        constraints=[
            {"type": "eq", "fun": lambda x: x[:4].sum() - 1},
            {"type": "ineq", "fun": lambda x: x[4] - times_s(x[:4], snr, left_bit)},
        ],
        bounds=[(1e-4, 1)] * 4 + [(0, None)],
        options={"ftol": 1e-12, "maxiter": 500},
    )

    assert best.success
    assert ours_s == pytest.approx(best.x[4], rel=1e-4)


@pytest.mark.parametrize("repetitions", [1, 8])
def test_a_link_below_the_lowest_rate_gets_what_it_can_use_and_no_more(repetitions):
    """At -13 dB the whole band carries nothing, or no more than a narrow part; the others end together in the rest."""
    snr, left_bit = np.array([0.05, 10.0, 100.0]), np.array([1e6, 1e6, 1e6])
    law = Shannon(repetitions=repetitions)
    shares = equal_finish_shares(snr, left_bit, law, 1e6)
    ends_s = times_s(shares, snr, left_bit, law)

    assert shares[0] == pytest.approx(snr[0] / law.lowest[0], rel=5e-3)
    assert shares.sum() == pytest.approx(1.0)
    assert ends_s[1] == pytest.approx(ends_s[2], rel=1e-5)
    assert ends_s[0] > ends_s[1]


def test_who_needs_nothing_and_a_fixed_rate_do_not_stop_it():
    """A link without a signal or without bits leaves the band to the others; a fixed rate makes all parts equal."""
    shares = equal_finish_shares(np.array([0.0, 3.0, 3.0]), np.array([1e6, 1e6, 0.0]), CAPACITY, 1e6)
    fixed = equal_finish_shares(np.array([1.0, 3.0]), np.array([1e6, 1.0]), FixedRate(bit_rate_bps=1e6), 1e6)

    assert shares == pytest.approx([0.0, 1.0, 0.0], abs=1e-8)
    assert fixed.tolist() == [0.5, 0.5]


def test_on_the_air_all_end_in_one_instant(cell):
    """Four uplinks of different size and distance: the ends differ by less than 1e-5 of the time that they take."""
    world = cell(Ofdma(scheduler="equal-finish"), CAPACITY, snr=[100.0, 1.0, 10.0, 0.5])
    deliveries = world.play((0.0, 0, 10**6), (0.0, 1, 2 * 10**6), (0.0, 2, 500_000), (0.0, 3, 10**6))
    ends_s = [delivery.ended_s for delivery in deliveries]

    assert max(ends_s) - min(ends_s) < 1e-5 * max(ends_s)


# ---- proportional fair -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [1, 2, 4, 8])
def test_proportional_fair_gains_the_mean_of_the_maximum(cell, count):
    """At low SNR the rate is as the gain: n Rayleigh links carry 1 + 1/2 + ... + 1/n times what one carries.

    Each has the band for a part 1/n of the blocks, whatever its mean SNR (four standard deviations).
    """
    blocks, snr = 20_000, [1e-4 * (1 + device) for device in range(count)]
    world = cell(Ofdma(scheduler="proportional-fair"), CAPACITY, Rayleigh(coherence_s=0.001), snr=snr, drawn_w=1.0)
    for device in range(count):
        world.medium.send(device, SERVER, Message(None, 10**8, 0))
    world.clock.run(until=blocks * NS_PER_S // 1000)
    world.close()

    gain = world.rows["air_bit"].to_numpy() / (1e6 / math.log(2) * np.array(snr) * blocks * 1e-3)
    harmonic = sum(1 / k for k in range(1, count + 1))
    assert gain.sum() == pytest.approx(harmonic, rel=4 * 1.3 / math.sqrt(blocks) + 1e-3)
    turns = world.rows["energy_j"].to_numpy() / (blocks * 1e-3)
    assert turns == pytest.approx(np.full(count, 1 / count), abs=4 * math.sqrt(1 / count / blocks) + 1e-9)
    assert turns.sum() == pytest.approx(1.0, rel=1e-9)


def test_without_fading_proportional_fair_is_equal_parts(cell):
    """Nobody is ever better than its own mean."""
    requests = [(0.0, 0, 10**6), (0.2, 1, 10**6)]
    fair, equal = (
        [delivery.ended_s for delivery in cell(Ofdma(scheduler=kind), CAPACITY, snr=[3.0, 30.0]).play(*requests)]
        for kind in ("proportional-fair", "equal")
    )

    assert fair == equal


def test_a_broadcast_competes_with_its_worst_receiver():
    """Bursts of legs (0, 1) and (2): relative gains 3 and 1 against 2; in the next block 2 and 2 against 1."""
    signal = np.array([[6.0, 4.0], [10.0, 20.0], [2.0, 1.0]])

    assert best_of_each_block(signal, np.array([2.0, 10.0, 1.0]), np.array([0, 2])).tolist() == [1, 0]


def test_gains_that_differ_by_rounding_alone_tie():
    """Two bursts on one link whose device moved in between: the same fading over means of 10 and 3."""
    fading = np.random.default_rng(0).exponential(size=1000)
    mean = np.array([10.0, 3.0])
    signal = mean[:, None] * fading

    assert not best_of_each_block(signal, mean, np.array([0, 1])).any()
