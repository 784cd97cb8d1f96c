"""What an environment adds to a round, and what a kept task saves of a reset, by turns in one process."""

from __future__ import annotations

import gc
from statistics import median
from time import process_time

import numpy as np
import pytest

from fednet_emu.emulation.build import build
from fednet_emu.emulation.record import totals
from fednet_emu.environment import Environment

TURNS = 12


@pytest.fixture(autouse=True)
def _no_collections():
    """Without the garbage collector, whose time would count for whichever turn it interrupts."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def plain_s(env: Environment) -> float:
    """Processor time of a round of a plain run."""
    fed = build(env.scenario, timing_only=True)
    began = process_time()
    fed.run(env.scenario.algorithm)
    totals(fed, env.scenario, measured=False)  # a part of every run, and of the last step
    return (process_time() - began) / fed.round


def stepped_s(env: Environment, scores: np.ndarray) -> float:
    """Processor time of a step."""
    env.reset(seed=0)
    began, steps, over = process_time(), 0, False
    while not over:
        *_, over, _, _ = env.step(scores[steps])
        steps += 1
    return (process_time() - began) / steps


ROUNDS = {
    "arrays": {},
    "loop": {"algorithm.deadline_s": 1000.0},
    "loop with batteries": {"devices.battery": {"capacity_j": 1e6}},
}


@pytest.mark.parametrize("rule", ["age", "uniform"])
@pytest.mark.parametrize("rounds", ROUNDS)
def test_a_step_costs_little_more_than_a_round(rule: str, rounds: str) -> None:
    """Twenty devices, timing only: at most 1.4 times a round with a rule that keeps a history; `uniform` keeps none."""
    settings = {"algorithm.selection": rule, **ROUNDS[rounds]}
    env = Environment("quickstart", settings=settings, timing_only=True, vary="chance")
    scores = np.random.default_rng(0).uniform(-1, 1, (60, 20))
    turns = [(plain_s(env), stepped_s(env, scores)) for _ in range(TURNS)]
    ratio = median(step / plain for plain, step in turns)
    added_ms = 1e3 * median(step - plain for plain, step in turns)
    round_ms = 1e3 * median(turn[0] for turn in turns)
    print(f"\n{rounds}, {rule}: {round_ms:.3f} ms a round, + {added_ms:.3f} ms, x {ratio:.2f}")
    assert ratio < (1.4 if rule == "age" else 1.6)


def test_a_kept_task_saves_most_of_a_reset() -> None:
    """The quickstart: at most 0.3."""
    kept, new = (Environment("quickstart", timing_only=True, vary=vary) for vary in ("chance", "all"))

    def reset_s(env: Environment) -> float:
        began = process_time()
        env.reset()
        return process_time() - began

    kept.reset()
    turns = [(reset_s(kept), reset_s(new)) for _ in range(4 * TURNS)]
    ratio = median(short / long for short, long in turns)
    print(f"\nreset: {1e3 * median(turn[0] for turn in turns):.2f} ms with a kept task, x {ratio:.2f} of one without")
    assert ratio < 0.3
