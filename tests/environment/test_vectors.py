"""Vectors of environments: the same episodes in one process and in several."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from gymnasium.vector import SyncVectorEnv

from fednet_emu.environment import Environment, scaled, vector
from tests.environment.scenes import FADING, scene


def played(envs, steps: int) -> tuple[list[float], list[str]]:
    """All numbers of some steps, and the digests of the episodes that have ended."""
    numbers, digests = [], []
    seen, _ = envs.reset(seed=5)
    for step in range(steps):
        action = np.random.default_rng(step).uniform(-1, 1, envs.action_space.shape).astype(np.float32)
        seen, rewards, over, cut, info = envs.step(action)
        numbers += [*rewards, *over, *cut, *(value for key in sorted(seen) for value in seen[key].ravel())]
        digests += [digest for digest in info.get("event_digest", ()) if digest]
    envs.close()
    return numbers, digests


def test_several_in_one_process_are_each_by_itself() -> None:
    """Two side by side, and one alone with the seed of the second."""
    make = partial(Environment, scene(FADING), timing_only=True)
    _, both = played(SyncVectorEnv([make, make]), 8)
    env = make()
    env.reset(seed=6)
    over = False
    for step in range(6):
        action = np.random.default_rng(step).uniform(-1, 1, (2, 8)).astype(np.float32)[1]
        *_, over, _, info = env.step(action)
    assert over
    assert info["event_digest"] in both


@pytest.mark.parametrize("timing_only", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_processes_give_the_same_episodes(timing_only: bool) -> None:
    """Every observation, reward, end and digest, of two places over several episodes."""
    make = partial(Environment, scene(FADING), timing_only=timing_only)
    here = played(SyncVectorEnv([lambda: scaled(make())] * 2), 15)
    there = played(vector(2, scene(FADING), wrap=scaled, timing_only=timing_only), 15)

    assert here == there
    assert len(here[1]) >= 4
