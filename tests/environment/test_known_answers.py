"""Two scenes whose best policies are known by hand, and what other policies are worth in them."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from fednet_emu.algorithms.selection import SELECTIONS
from fednet_emu.environment import Environment, Step, play, scaled
from fednet_emu.kernel.streams import Streams
from fednet_emu.testing import small_scenario
from tests.environment.scenes import SPEEDS

PAIRS = (SPEEDS, "algorithm.cohort=2", "stop.rounds=10")
"""Two of four devices, ten rounds: 0.64 ms on the air and the slower one's 0.72, 1.44, 2.16 or 2.88 ms."""


def minus_ms(step: Step) -> float:
    return -1e3 * step.duration_s


def pairs(kind: str = "uniform", *, timing_only: bool = True, **how) -> Environment:
    scenario = small_scenario(*PAIRS, f"algorithm.selection={kind}")
    return Environment(scenario, reward=minus_ms, timing_only=timing_only, **how)


@pytest.mark.parametrize("timing_only", [True, False])
def test_each_pair_by_hand(timing_only: bool) -> None:
    """0.64 ms + that of the slower one: 1 subset of 2.08, 2 of 2.80 and 3 of 3.52 ms."""
    env = pairs(act="subset", timing_only=timing_only)
    env.reset(seed=0)
    rewards = [env.step(number)[1] for number in range(6)]
    assert rewards == pytest.approx([-2.08, -2.80, -3.52, -2.80, -3.52, -3.52], abs=1e-5)


SEEDS = 30
SURE = {"fedcs", "round-robin"}
"""Rules without a draw: a few seeds tell as much as thirty."""
ERROR = 3 * (10 * 0.288 / SEEDS) ** 0.5
"""Three standard errors of a mean over the seeds: the six pairs have the variance 0.288 ms^2."""


@pytest.mark.parametrize(
    ("kind", "value", "measured"),
    [
        ("fedcs", -20.80, -20.80),
        ("round-robin", 5 * -(2.08 + 3.52), -28.00),
        ("uniform", -30.40, None),
        pytest.param("age", -30.40, -30.04, marks=pytest.mark.slow),
        pytest.param("best-channel", -30.40, -30.09, marks=pytest.mark.slow),
        ("oort", None, -23.29),
        ("power-of-choice", 10 * -(0.32 + 1.44 + 0.032) - 30.40, -49.04),
    ],
)
def test_the_value_of_each_rule(kind: str, value: float | None, measured: float | None) -> None:
    """The optimum is {0, 1} always; a random pair has the mean 3.04 ms; `measured` are means over 30 seeds.

    Without training, polled losses are alike, so that `power-of-choice` is a random pair after the slowest answer. By
    hand that is -48.32; the -49.04 of these 30 seeds is its sample mean, 2.3 standard errors (0.31) away by chance, see
    `test_pairs_of_power_of_choice`.
    """
    seeds = range(3 if kind in SURE else SEEDS)
    values = [sum(play(pairs(kind), SELECTIONS[kind](), seed=seed).rewards) for seed in seeds]
    assert value is None or np.mean(values) == pytest.approx(value, abs=ERROR)
    assert measured is None or np.mean(values) == pytest.approx(measured, abs=6e-3)


def test_pairs_of_power_of_choice() -> None:
    """Its pairs by NumPy, from the random streams of its rounds: 300 of them give -49.04, and 9,000 give -48.32."""

    def values(seed: int, rounds: int) -> list[float]:
        streams = (Streams(seed)("selection", t) for t in range(rounds))
        slower = [rng.permutation(np.argsort(rng.exponential(size=4)))[:2].max() for rng in streams]
        return [-(0.32 + 1.44 + 0.032) - 0.64 - 0.72 * (k + 1) for k in slower]

    assert np.mean([sum(values(seed, 10)) for seed in range(SEEDS)]) == pytest.approx(-49.04, abs=1e-6)
    assert 10 * np.mean([values(seed, 300) for seed in range(SEEDS)]) == pytest.approx(-48.32, abs=0.2)


TRAP = (
    "devices.count=3",
    "data.n_samples=60",
    "algorithm.cohort=1",
    "stop.rounds=3",
    "devices.speed={kind: list, flop_per_s: [1e6, 5e5, 1e5]}",
    "devices.availability={kind: windows, devices: {1: [[0, 0.0025]]}}",
)
"""A computes for 0.72, C for 1.44 and E for 7.2 ms; C is there for 2.5 ms only, and batteries last for two uploads."""
BATTERY = "devices.battery={capacity_j: 1.40e-4}"


def trap(**how) -> Environment:
    """The second scene: -ms, and -10 for each upload that is lost."""

    def reward(step: Step) -> float:
        return -1e3 * step.duration_s - 10.0 * sum(step.lost_transfers.values())

    return Environment(small_scenario(*TRAP, BATTERY), act="subset", reward=reward, timing_only=True, **how)


def value_of(course: tuple[int, ...]) -> list[float]:
    env = trap()
    env.reset(seed=0)
    return [env.step(device)[1] for device in course]


A, C, E = range(3)


def test_greedy_loses_by_hand() -> None:
    """C, A, A: 2.08 + 1.36 + 1.36 ms. Greedy: A, A, and then E, as C has left and A's third upload is lost."""
    assert value_of((C, A, A)) == pytest.approx([-2.08, -1.36, -1.36], abs=1e-4)
    assert value_of((A, A, E)) == pytest.approx([-1.36, -1.36, -7.84], abs=1e-4)
    assert sum(value_of((A, A, A))) < sum(value_of((A, A, E)))


def test_the_optimum_is_the_best_of_all_courses() -> None:
    """All 27 are played: C, A, A is the best of those that ask who is there, at -4.80."""
    values = {course: sum(value_of(course)) for course in product((A, C, E), repeat=3) if C not in course[1:]}
    best = max(values, key=values.__getitem__)

    assert best == (C, A, A)
    assert values[best] == pytest.approx(-4.80, abs=1e-3)
    assert max(value for course, value in values.items() if course[0] == A) == pytest.approx(-10.56, abs=1e-3)


def test_random_courses_by_the_tree() -> None:
    """The mean over the devices that are present, decision by decision: 16 courses, -15.9041 at the root.

    After C and A, the last decision is A or E: -3.44 + (-1.36 - 7.84) / 2 by hand.
    """
    leaves = {}

    def mean(course: tuple[int, ...]) -> float:
        env = trap()
        seen, _ = env.reset(seed=0)
        rewards = []
        for device in course:
            seen, reward, *_ = env.step(device)
            rewards.append(reward)
        if len(course) == 3:
            leaves[course] = sum(rewards)
            return leaves[course]
        return float(np.mean([mean((*course, int(k))) for k in np.flatnonzero(seen["action_mask"])]))

    firsts = [mean((first,)) for first in (A, C, E)]
    assert firsts == pytest.approx([-14.5703, -13.6667, -19.4754], abs=2e-3)
    assert np.mean(firsts) == pytest.approx(-15.9041, abs=2e-3)
    assert len(leaves) == 16
    assert np.mean([leaves[C, A, last] for last in (A, E)]) == pytest.approx(-8.04, abs=2e-3)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1])
def test_ppo_learns_the_fast_pair(seed: int) -> None:
    """4096 steps of PPO: a score of at least 0.95 between random (-30.40) and the optimum (-20.80).

    The settings are those of `examples/environment/train.py`; all of the seeds 0 to 4 have the score 1 by then.
    """
    ppo = pytest.importorskip("stable_baselines3").PPO
    from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

    env = scaled(pairs())
    envs = VecNormalize(DummyVecEnv([lambda: scaled(pairs())]), norm_obs=False, gamma=0.9)
    how = {"n_steps": 256, "learning_rate": 1e-3, "gamma": 0.9, "policy_kwargs": {"log_std_init": -1.0}}
    model = ppo("MultiInputPolicy", envs, seed=seed, device="cpu", **how)
    model.learn(4096)
    seen, _ = env.reset(seed=100)
    total, over = 0.0, False
    while not over:
        seen, reward, over, *_ = env.step(model.predict(seen, deterministic=True)[0])
        total += reward
    assert (total + 30.40) / (-20.80 + 30.40) >= 0.95
