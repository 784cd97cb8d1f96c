"""Environments in processes of their own, which start in a second because their server has imported the package."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from gymnasium.vector import AsyncVectorEnv

from fednet_emu.environment.environment import Environment
from fednet_emu.host import clean_context, main_left_out


def vector(n: int, scenario: Any, *, wrap: Callable[[Environment], Any] | None = None, **how: Any) -> AsyncVectorEnv:
    """Environments of a scenario in `n` processes, which share nothing with this one and do not run its script.

    Processes pay where episodes train; without training, `gymnasium.vector.SyncVectorEnv` is as fast. Place i has the
    seed `seed + i` at `reset(seed=seed)`, and each further episode the one that its own `np_random` draws.

    Args:
        n: number of processes.
        scenario: as `Environment` takes it.
        wrap: what each environment is wrapped in, for example `scaled`.
        how: as `Environment` takes it.
    """
    context = clean_context(f"{__package__}.environment")
    with main_left_out():
        return AsyncVectorEnv([partial(_made, scenario, how, wrap)] * n, context=context.get_start_method())


def _made(scenario: Any, how: Mapping[str, Any], wrap: Callable[[Environment], Any] | None) -> Any:
    env = Environment(scenario, **how)
    return env if wrap is None else wrap(env)
