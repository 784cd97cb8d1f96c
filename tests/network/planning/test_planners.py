"""Planners against a generic solver, brute force and their stationarity conditions."""

from dataclasses import replace
from itertools import permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mpmath import mp
from scipy.optimize import minimize_scalar

from fednet_emu.network.planning import Fedl, LeastEnergy, LeastTime, ResourceBlocks
from fednet_emu.network.planning.base import Round
from fednet_emu.network.planning.closed_forms import full_power_efficiency, priced_efficiency
from fednet_emu.network.planning.fedl import computing_s, in_turns
from fednet_emu.network.planning.resource_blocks import assign
from fednet_emu.radio.rates.narrowing import Narrowed
from fednet_emu.radio.rates.shannon import CQI_1_BPS_HZ
from tests.network.planning.instances import (
    CAPACITY,
    PRACTICAL,
    end_s,
    energy_j,
    random_round,
    solved_least_energy,
    solved_least_time,
)
from tests.quick import examples

SEEDS = st.integers(0, 10_000)


@given(st.floats(1e-3, 30))
def test_the_efficiency_at_full_power_solves_its_equation(u):
    """(e^u - 1) / u = a is solved by the lower branch of W."""
    assert full_power_efficiency(np.array([np.expm1(u) / u]))[0] == pytest.approx(u, rel=1e-9)


@given(st.floats(-12, np.log10(30)))
def test_the_efficiency_for_a_price_solves_its_equation(log_u):
    """(u - 1) e^u + 1 = y is solved by W, however close to its branch point."""
    with mp.workdps(50):
        u = mp.mpf(10.0**log_u)
        y = float((u - 1) * mp.exp(u) + 1)

    assert priced_efficiency(np.array([y]))[0] == pytest.approx(float(u), rel=1e-11)


def test_no_bandwidth_is_wide_enough_for_too_high_a_rate():
    """At a = 1 the rate is that of an endless band, and above it nothing helps."""
    assert full_power_efficiency(np.array([0.5, 1.0])).tolist() == [0.0, 0.0]


@examples(12)
@given(SEEDS, st.integers(1, 6))
def test_the_shortest_round_is_that_of_a_generic_solver(seed, n):
    """SLSQP finds the same end to 1e-6, and all uploads end then, on all of the band."""
    round_ = random_round(seed, n)
    grants = LeastTime().plan(round_)

    assert grants.ends_s[0] == pytest.approx(solved_least_time(round_), rel=1e-6)
    assert end_s(round_, grants.share, grants.power_part, grants.clock_part) == pytest.approx(grants.ends_s, rel=1e-9)
    assert grants.share.sum() == pytest.approx(1.0, abs=1e-9)
    assert grants.share.sum() <= 1.0
    assert grants.power_part == pytest.approx(np.ones(n), abs=1e-9)


@examples(12)
@given(SEEDS, st.integers(1, 5), st.sampled_from([CAPACITY, PRACTICAL]), st.sampled_from([1.02, 1.5, 3.0]))
def test_the_least_energy_is_that_of_a_generic_solver(seed, n, law, stretch):
    """SLSQP over bands, powers and clocks, from other divisions that are in time, ends at the same energy to 1e-6."""
    round_ = random_round(seed, n, law, circuit_w=0.1 * (seed % 2), efficiency=0.5)
    fastest, grants = LeastTime().plan(round_), LeastEnergy(stretch=stretch).plan(round_)
    within_s = stretch * fastest.ends_s[0]
    ours_j = energy_j(round_, grants.share, grants.power_part, grants.clock_part)
    starts = [(part * grants.share + (1 - part) * fastest.share, *fastest[1:3]) for part in (0.5, 0.3, 0.7, 0.1)]
    solved_j = solved_least_energy(round_, within_s, starts)

    assert ours_j == pytest.approx(solved_j, rel=1e-6)
    assert end_s(round_, grants.share, grants.power_part, grants.clock_part).max() <= within_s * (1 + 1e-9)
    assert grants.share.sum() <= 1 + 1e-12
    assert ours_j <= energy_j(round_, fastest.share, fastest.power_part, fastest.clock_part) * (1 + 1e-9)


@examples(40)
@given(SEEDS, st.integers(1, 6), st.floats(-90, 60), st.sampled_from([1.0001, 2.0, 1e6]))
def test_links_of_any_strength_have_a_plan_in_time(seed, n, gain_db, stretch):
    """From -90 dB to 90 dB, and for a time just above the shortest or a million times it: finite, in time, in band."""
    round_ = random_round(seed, n, PRACTICAL, circuit_w=0.1 * (seed % 2))
    round_ = replace(round_, snr=round_.snr * 10 ** (gain_db / 10))
    end = LeastTime().plan(round_).ends_s[0]
    grants = LeastEnergy(stretch=stretch).plan(round_)

    assert np.isfinite(np.concatenate([grants.share, grants.power_part, grants.clock_part])).all()
    assert end_s(round_, *grants[:3]).max() <= stretch * end * (1 + 1e-6)
    assert grants.share.sum() <= 1 + 1e-12


def test_too_little_time_is_the_shortest_round():
    """A time that nobody can keep, or a stretch of 1, is planned as the shortest round."""
    round_ = random_round(5, 3)
    fastest = LeastTime().plan(round_)

    for planner in (LeastEnergy(round_s=1e-3), LeastEnergy(stretch=1.0)):
        assert all(np.array_equal(*pair) for pair in zip(planner.plan(round_), fastest, strict=True))


@examples(30)
@given(SEEDS, st.integers(1, 5), st.integers(1, 5))
def test_blocks_are_given_as_by_trying_all_ways(seed, n, blocks):
    """The Hungarian method finds the best of all assignments, some pairs of which are not allowed."""
    rng = np.random.default_rng(seed)
    worth, allowed = rng.uniform(0.1, 1, (n, blocks)), rng.random((n, blocks)) < 0.7
    given_ = assign(worth, allowed)
    padded = np.zeros((n, blocks + n))
    padded[:, :blocks] = np.where(allowed, worth, 0)
    best = max(padded[range(n), list(way)].sum() for way in permutations(range(blocks + n), n))

    taken = given_[given_ >= 0]
    assert len(set(taken.tolist())) == len(taken)
    assert allowed[np.arange(n)[given_ >= 0], taken].all()
    assert worth[np.arange(n)[given_ >= 0], taken].sum() == pytest.approx(best)


def test_the_device_with_most_samples_gets_the_quiet_block():
    """Two devices with the same link: q = 1 - exp(-m (I + N) / (P h)); one block has I = 10 N."""
    round_ = random_round(0, 2, PRACTICAL)
    round_ = replace(round_, snr=np.array([20.0, 20.0]), weight=np.array([10.0, 90.0]))
    grants = ResourceBlocks(blocks=2, inr_db=(-60.0, 10.0), waterfall_db=0.0).plan(round_)

    assert grants.noise == pytest.approx([11.0, 1.0], rel=1e-5)
    assert grants.error == pytest.approx([1 - np.exp(-11 / 40), 1 - np.exp(-1 / 40)], rel=1e-5)
    assert grants.share.tolist() == [0.5, 0.5]


def test_who_has_no_block_is_not_asked():
    """Three devices, one block; limits of time and energy leave out who is over them."""
    round_ = random_round(1, 3, PRACTICAL)

    assert ResourceBlocks(blocks=1).plan(round_).share.nonzero()[0].size == 1
    assert not ResourceBlocks(max_upload_s=1e-9).plan(round_).share.any()
    assert not ResourceBlocks(max_energy_j=1e-9).plan(round_).share.any()


@pytest.mark.parametrize("efficiency", [1.0, 0.25])
def test_a_limit_of_energy_counts_what_the_amplifier_draws(efficiency):
    """One device on the whole band: computing, and (P / eta + P_c) times s / (B log2(1 + x)), just within or not."""
    round_ = random_round(3, 1, CAPACITY, circuit_w=0.05, efficiency=efficiency)
    air_s = round_.size_bit / (1e6 * np.log2(1 + round_.snr[0]))
    due_j = round_.compute_j[0] + (round_.power_w[0] / efficiency + 0.05) * air_s

    assert ResourceBlocks(blocks=1, max_energy_j=1.001 * due_j).plan(round_).share.all()
    assert not ResourceBlocks(blocks=1, max_energy_j=0.999 * due_j).plan(round_).share.any()


@examples(15)
@given(SEEDS, st.integers(1, 5), st.floats(0.01, 10))
def test_fedl_is_the_optimum_of_its_two_problems(seed, n, j_per_s):
    """A scalar solver finds the same cost for the time of computing, and for each device's time to send, to 1e-6."""
    round_ = random_round(seed, n, CAPACITY, circuit_w=0.05)
    grants = Fedl(j_per_s=j_per_s).plan(round_)

    def computing(time_s):
        clock = np.clip(round_.compute_s / time_s, round_.min_clock, 1)
        return np.sum(round_.compute_j * clock**2) + j_per_s * time_s

    longest_s = (round_.compute_s / round_.min_clock).max()
    solved = minimize_scalar(computing, bounds=(round_.compute_s.max(), longest_s), method="bounded", options=TIGHT)
    assert computing(computing_s(round_, j_per_s)) == pytest.approx(min(solved.fun, computing(longest_s)), rel=1e-6)
    for snr, power_w, part in zip(round_.snr, round_.power_w, grants.power_part, strict=True):

        def sending(part, snr=snr, power_w=power_w):
            return (part * power_w + 0.05 + j_per_s) / np.log2(1 + part * snr)

        assert sending(part) == pytest.approx(
            min(minimize_scalar(sending, bounds=(1e-9, 1), method="bounded", options=TIGHT).fun, sending(1)), rel=1e-6
        )


def test_turns_are_a_queue():
    """Who has computed first sends first; the second waits for the first, the third for nobody."""
    ends_s = in_turns(np.array([2.0, 1.0, 9.0, 1.0]), np.array([1.0, 3.0, 1.0, 0.5]))

    assert ends_s.tolist() == [5.5, 4.0, 10.0, 4.5]


TIGHT = {"xatol": 1e-12}


@pytest.mark.parametrize(("planner", "blocks"), [(Fedl(), 1), (ResourceBlocks(blocks=4), 4)], ids=["fedl", "blocks"])
def test_a_weak_device_is_planned_at_its_narrowed_rate(planner, blocks):
    """At a fifth of the least SINR on its band or block: that part of it at the least efficiency, at full power."""
    least = 10**0.2 * (2**CQI_1_BPS_HZ - 1)
    round_ = random_round(2, 1, Narrowed(law=PRACTICAL, narrowest_hz=1e3))
    round_ = replace(round_, snr=np.array([0.2 * least / blocks]), compute_s=np.zeros(1), min_clock=np.ones(1))
    grants = planner.plan(round_)

    air_s = round_.size_bit / (0.2 * round_.bandwidth_hz / blocks * CQI_1_BPS_HZ)
    assert grants.ends_s[0] == pytest.approx(round_.ready_s[0] + air_s, rel=1e-6)
    assert grants.power_part[0] == 1.0
    assert grants.share.all()


CHEN_BLOCKS = {3: [0.01, 0.06, 0.1], 6: [0.01, 0.03, 0.05, 0.07, 0.09, 0.11]}
"""Interference in uW of each block, as in the public script of Chen et al."""


def chen_round(distance_m, rng=None):
    """Users of Chen et al. at these distances: 20 MHz down, blocks of 1 MHz up, 39,760 parameters of 16 bit."""
    d, mbit = np.array(distance_m), 39760 * 16 / 2**20
    n, samples = len(d), [100, 200, 300, 400, 500, 400, 300, 200, 100]
    return Round(
        ready_s=mbit / (20 * np.log2(1 + d**-2.0 / 1.8e-7)),
        compute_s=np.zeros(n),
        compute_j=np.full(n, 4e-8 * mbit),
        min_clock=np.ones(n),
        size_bit=mbit * 1e6,
        snr=0.01 * d**-2.0 / (20 * 1e-14),
        power_w=np.full(n, 0.01),
        amplifier_efficiency=1.0,
        circuit_w=0.0,
        weight=np.array(samples[:n], float),
        bandwidth_hz=20e6,
        law=CAPACITY,
        rng=rng,
    )


def chen_planner(blocks, **more):
    """Limits of 0.5 s for download and upload and of 3 mJ; thresholds of 1.08."""
    inr_db = tuple(10 * np.log10(1e-6 * x / 1e-14) for x in CHEN_BLOCKS[blocks])
    limits = {"max_delay_s": 0.5, "max_energy_j": 0.003, "waterfall_db": 10 * np.log10(1.08)}
    return ResourceBlocks(blocks=blocks, block_hz=1e6, inr_db=inr_db, **limits, **more)


def arriving(round_, grants):
    """Expected samples that arrive."""
    return float(((grants.share > 0) * round_.weight * (1 - grants.error)).sum())


@pytest.mark.parametrize(
    ("distance_m", "blocks", "samples"),
    [
        ([20.0, 310.476, 130.952], 3, 548.2436118768677),
        ([193.9, 484.376, 304.852, 125.328, 415.804, 236.28], 6, 1351.3496584043094),
        ([245.6, 66.076, 356.552], 6, 539.100178431481),
        ([349.0, 169.476, 459.952, 280.428, 100.904, 391.38, 211.856, 32.332, 322.808], 3, 1039.6547530104347),
    ],
)
def test_blocks_of_two_bandwidths_with_a_limit_of_the_delay(distance_m, blocks, samples):
    """Expected samples of four instances, which a separate Hungarian program gave."""
    round_ = chen_round(distance_m)
    grants = chen_planner(blocks).plan(round_)

    assert arriving(round_, grants) == pytest.approx(samples, rel=1e-9)
    assert set(grants.share.tolist()) <= {0.0, 1 / 20}


def test_baselines_deliver_fewer_samples_than_the_paper_assignment():
    """Nine users, six blocks, 100 draws: means within 4 standard errors of a separate program, in the same order."""
    rng = np.random.default_rng(0)
    found = {name: [] for name in ("most-samples", "least-error", "random-blocks", "random")}
    for _ in range(100):
        round_ = chen_round(rng.uniform(0, 500, 9), rng)
        for name, sums in found.items():
            sums.append(arriving(round_, chen_planner(6, assignment=name).plan(round_)))
    means = {name: np.mean(sums) for name, sums in found.items()}
    known = {"most-samples": 1560, "least-error": 1370, "random-blocks": 1083, "random": 803}

    assert list(found) == sorted(means, key=means.get, reverse=True)
    assert all(abs(means[name] - value) < 4 * np.std(found[name]) / 10 for name, value in known.items())
    assert (np.array(found["most-samples"]) >= np.array(found["least-error"]) - 1e-9).all()
