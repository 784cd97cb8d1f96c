"""Local accuracies of FEDL and of Yang et al. against generic solvers; equal parts and turns against definitions."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize, minimize_scalar

from fednet_emu.network.planning import EqualBand, Fedl, LeastEnergy, LeastTime, Turns
from fednet_emu.network.planning.baselines import energy_j
from fednet_emu.network.planning.local_accuracy import Convergence, RoundCost, fedl_cost, infocom_accuracy, ton_accuracy
from fednet_emu.radio.rates.shannon import Shannon
from tests.network.planning.instances import CAPACITY, PRACTICAL, end_s, random_round
from tests.network.planning.instances import energy_j as defined_energy_j
from tests.quick import examples

SEEDS = st.integers(0, 10_000)
COSTS = st.builds(RoundCost, *[st.floats(0.01, 10)] * 4)
EXACT = {"xatol": 1e-13}


@examples(30)
@given(COSTS, st.floats(1e-3, 1e3))
def test_sub3_of_infocom_is_the_least_cost(cost, kappa):
    """A scalar solver over theta finds no lower cost, and theta solves ln theta + 1/theta = 1/eta."""
    found = infocom_accuracy(cost, kappa)

    def spent(theta):
        both = [cost.send_j + kappa * cost.send_s, -np.log(theta) * (cost.compute_j + kappa * cost.compute_s)]
        return sum(both) / (1 - theta)

    solved = minimize_scalar(spent, bounds=(1e-9, 1 - 1e-9), method="bounded", options=EXACT)
    assert found.cost == pytest.approx(solved.fun, rel=1e-9)
    assert np.log(found.theta) + 1 / found.theta == pytest.approx(1 / found.eta, rel=1e-9)


@examples(15)
@given(COSTS, st.floats(1e-3, 1e3))
def test_sub3_of_ton_is_the_least_cost(cost, kappa):
    """A simplex search over theta and eta, from the solution and from other points, finds no lower cost."""
    found = ton_accuracy(cost, kappa)

    def spent(x):
        theta, eta = x
        bound = 4 * eta * ((1 - theta) ** 2 / 4 - theta * (1 + theta) - (1 + theta) ** 2 * eta / 2)
        if not 0 < theta < 1 or bound <= 0:
            return np.inf
        computing = (np.log(2) - np.log(theta)) / 0.5 * (cost.compute_j + kappa * cost.compute_s)
        return (cost.send_j + kappa * cost.send_s + computing) / bound

    starts = [(found.theta, found.eta), (0.01, 0.2), (0.1, 0.05)]
    solved = [minimize(spent, x, method="Nelder-Mead", options={"xatol": 1e-10, "fatol": 1e-12}).fun for x in starts]
    assert spent((found.theta, found.eta)) == pytest.approx(found.cost, rel=1e-9)
    assert found.cost <= min(solved) * (1 + 1e-9)


@examples(15)
@given(SEEDS, st.floats(1e-3, 10), st.floats(2.0, 10.0))
def test_time_that_is_worth_more_is_bought_with_energy(seed, kappa, more):
    """As kappa rises, the times of SUB1 and SUB2 fall and their energies rise; powers stay above the lowest."""
    round_ = random_round(seed, 5, CAPACITY)
    cheap, dear = (fedl_cost(round_, k, min_power_w=0.02) for k in (kappa, more * kappa))

    assert cheap.compute_s >= dear.compute_s
    assert cheap.send_s >= dear.send_s * (1 - 1e-12)
    assert cheap.compute_j <= dear.compute_j * (1 + 1e-12)
    assert cheap.send_j <= dear.send_j * (1 + 1e-12)
    parts = Fedl(j_per_s=kappa, min_power_w=0.02).plan(round_).power_part
    assert (parts * round_.power_w >= 0.02 * (1 - 1e-9)).all()


def test_the_lowest_power_holds_where_time_is_worth_nothing():
    """At a price of 1e-9 J/s devices send at 0.02 W, the one with 0.01 W at its full power."""
    round_ = replace(random_round(0, 3, CAPACITY), power_w=np.array([0.01, 0.1, 0.4]))
    parts = Fedl(j_per_s=1e-9, min_power_w=0.02).plan(round_).power_part

    assert parts == pytest.approx([1.0, 0.2, 0.05], rel=1e-9)


@examples(10)
@given(SEEDS, st.sampled_from([CAPACITY, PRACTICAL]))
def test_equal_parts_end_at_their_shannon_rate(seed, law):
    """Each device sends s bits at B/n log2(1 + n gamma), capped by the rate law, after computing at full clock."""
    round_ = random_round(seed, 4, law)
    grants = EqualBand().plan(round_)
    gamma = round_.snr / 10 ** (law.gap_db / 10)
    rate_bps = round_.bandwidth_hz / 4 * np.minimum(np.log2(1 + 4 * gamma), law.max_efficiency_bps_hz or np.inf)

    assert grants.ends_s == pytest.approx(round_.ready_s + round_.compute_s + round_.size_bit / rate_bps, rel=1e-12)


@examples(8)
@given(SEEDS, st.floats(1.2, 4.0))
def test_turns_spend_the_least_energy_within_their_time(seed, stretch):
    """SLSQP over the time of computing and the times of all uploads finds the same energy to 1e-6."""
    n = 3
    round_ = replace(random_round(seed, n, CAPACITY), ready_s=np.zeros(n))
    shortest_s = float(round_.compute_s.max() + round_.shortest_s.sum())
    within_s = stretch * shortest_s
    grants = Turns(round_s=within_s).plan(round_)

    def spent(x):
        clock = np.clip(round_.compute_s / x[0], round_.min_clock, 1.0)
        power_w = (np.exp(round_.need_s / x[1:]) - 1) / round_.gamma * round_.power_w
        return np.sum(round_.compute_j * clock**2) + np.sum(power_w * x[1:])

    bounds = [(round_.compute_s.max(), within_s), *((s, within_s) for s in round_.shortest_s)]
    room = {"type": "ineq", "fun": lambda x: within_s - x.sum()}
    start = np.array([round_.compute_s.max(), *round_.shortest_s]) * stretch
    solved = minimize(spent, start, bounds=bounds, constraints=[room], options={"ftol": 1e-13, "maxiter": 500})
    assert sum(map(np.sum, energy_j(round_, grants))) == pytest.approx(solved.fun, rel=1e-6)
    assert grants.ends_s.max() <= within_s * (1 + 1e-9)


def test_turns_without_time_to_spare_are_at_full_power():
    """No time, and half of the shortest, are both full power and clock."""
    round_ = random_round(1, 3, CAPACITY)

    for planner in (Turns(), Turns(round_s=0.5 * float(round_.compute_s.max()))):
        assert all((part == 1).all() for part in planner.plan(round_)[:3])


@examples(6)
@given(SEEDS)
def test_energies_are_those_of_the_definitions(seed):
    """Computing and sending add up to clocks squared and drawn power times air time."""
    round_ = random_round(seed, 3, CAPACITY, circuit_w=0.1, efficiency=0.5)
    grants = LeastEnergy(stretch=1.5).plan(round_)

    assert sum(map(np.sum, energy_j(round_, grants))) == pytest.approx(defined_energy_j(round_, *grants[:3]), rel=1e-9)


@pytest.mark.parametrize("law", [CAPACITY, Shannon(), Shannon(gap_db=0, min_efficiency_bps_hz=0.5)])
@pytest.mark.parametrize("compute_s", [0.0, 0.1])
def test_devices_with_weak_signals_have_their_full_power_for_the_planned_time(law, compute_s):
    """At an SNR of 0.01, a minimum efficiency leaves a part of the band; the energy is 10 mW times the airtime."""
    one = np.ones(1)
    round_ = replace(random_round(1, 1, law), compute_s=compute_s * one, compute_j=0.3 * one, ready_s=0 * one)
    round_ = replace(round_, snr=0.01 * one, power_w=0.01 * one, circuit_w=0.0, amplifier_efficiency=1.0)
    planned_s = float(Fedl(j_per_s=1e9).plan(round_).ends_s[0])
    cost = fedl_cost(round_, 1e9)

    assert energy_j(round_, Turns().plan(round_))[1] == pytest.approx(0.01 * (planned_s - compute_s), rel=1e-9)
    assert cost.compute_s + cost.send_s == pytest.approx(planned_s, rel=1e-12)
    assert cost.send_j == pytest.approx(0.01 * cost.send_s, rel=1e-9)
    assert cost.compute_j == pytest.approx(0.3 if compute_s else 0.3 * float(round_.min_clock[0]) ** 2)


def test_the_outer_search_over_the_local_accuracy_is_that_of_a_grid():
    """No accuracy of a grid has a shorter completion time, and no neighbour less energy within 1.5 times that."""
    round_ = random_round(4, 3, CAPACITY)
    step = replace(round_, ready_s=np.zeros(3), min_clock=np.full(3, 1e-9))
    needs, grid = Convergence(rounds=160, steps=4), np.linspace(0.01, 0.99, 99)
    eta, min_s = needs.shortest(step, LeastTime())
    times_s = [needs.completion_s(step, x, LeastTime()) for x in grid]

    assert min(times_s) * (1 - 1e-3) < min_s <= min(times_s)
    assert abs(eta - grid[np.argmin(times_s)]) <= 0.01
    for in_turns in (False, True):
        within_s = 1.5 * needs.shortest(step, Turns() if in_turns else LeastTime())[1]
        best, min_j = needs.cheapest(step, within_s, in_turns=in_turns)
        round_s = within_s / needs.total_rounds(best)
        planner = Turns(round_s=round_s) if in_turns else LeastEnergy(round_s=round_s)
        grants = planner.plan(needs.round_of(step, best))
        assert grants.ends_s.max() <= round_s * (1 + 1e-6)
        for other in (0.95 * best, min(1.02 * best, 0.99)):
            other_s = within_s / needs.total_rounds(other)
            rival = Turns(round_s=other_s) if in_turns else LeastEnergy(round_s=other_s)
            late = rival.plan(needs.round_of(step, other)).ends_s.max() > other_s * (1 + 1e-6)
            assert late or min_j <= sum(needs.energies_j(step, other, rival)) * (1 + 1e-9)
    assert np.isnan(needs.cheapest(step, 0.5 * min_s)).all()


def test_a_round_of_the_outer_search_has_its_local_steps():
    """At eta = 1/4 a round has 8 steps of the least work, and there are 160 / 0.75 rounds."""
    round_, needs = random_round(0, 2, CAPACITY), Convergence(160, 4)

    assert needs.round_of(round_, 0.25).compute_s == pytest.approx(8 * round_.compute_s)
    end = end_s(needs.round_of(round_, 0.25), np.full(2, 0.5), np.ones(2), np.ones(2)).max()
    assert needs.completion_s(round_, 0.25, EqualBand()) == pytest.approx(160 / 0.75 * end, rel=1e-12)
