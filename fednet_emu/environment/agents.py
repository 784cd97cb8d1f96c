"""Several agents that control one run: devices decide whether to join a round, or base stations divide their bands."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from copy import deepcopy
from typing import Any, Literal

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray
from pettingzoo import ParallelEnv

from fednet_emu.environment.environment import Environment
from fednet_emu.environment.observation import LARGEST, MASK, OF_RUN, Observation
from fednet_emu.environment.rewards import Reward
from fednet_emu.errors import ScenarioError


class Parallel(ParallelEnv):  # type: ignore[misc]
    """PettingZoo parallel environment, whose agents are either devices or base stations.

    Each device decides whether to join a round; each base station divides its band among its devices.

    Args:
        env: the environment to control; its acts must be `invite` for devices, and `("share",)` for stations.
        agents: `devices` or `stations`.
        reward: mapping from the name of each agent to its reward, a function of a `Step`; None gives all agents the
            reward of the environment.

    Attributes:
        keys: the keys in the observation of an agent: first `action_mask` and the keys with one number per device, then
            the keys with one number for the whole run. Of `action_mask` and of each key with one number per device, a
            device observes only its own number. A station observes all numbers, with 0 for devices of other cells.
    """

    metadata: dict[str, Any] = {"name": "fednet_emu_rounds_v0", "render_modes": []}  # noqa: RUF012

    def __init__(
        self,
        env: Environment,
        agents: Literal["devices", "stations"] = "devices",
        reward: Mapping[str, Reward] | None = None,
    ) -> None:
        self._env, self._n, self._rewards, cells = env, env.acts.n, reward, env.scenario.network.cells.count
        self._devices, self.agents = agents == "devices", list[str]()
        kind, count = ("dev", self._n) if self._devices else ("station", cells)
        self.possible_agents = [f"{kind}-{number}" for number in range(count)]
        if problems := list(self._refusals(agents, cells)):
            raise ScenarioError(*problems)
        self._own = [MASK, *(key for key in env.keys if key not in OF_RUN)]
        self._whole = [key for key in env.keys if key in OF_RUN]
        self.keys = (*self._own, *self._whole)
        size = len(self._own) * (1 if self._devices else self._n) + len(self._whole)
        seen = spaces.Box(-LARGEST, LARGEST, (size,), np.float32)
        self.observation_spaces = {name: deepcopy(seen) for name in self.possible_agents}
        act: Any = spaces.Discrete(2) if self._devices else spaces.Box(0.0, 1.0, (self._n,), np.float32)
        self.action_spaces = {name: deepcopy(act) for name in self.possible_agents}

    def _refusals(self, agents: str, cells: int) -> Iterator[str]:
        wanted, acts, reward = "invite" if self._devices else "share", self._env.acts.acts, self._rewards
        if agents not in ("devices", "stations"):
            yield f"agents: no such agents, got {agents!r}; choose devices or stations"
        elif acts != (wanted,):
            yield f"agents: {agents} act on {wanted}, got act={', '.join(acts)}; make the environment with it"
        if agents == "stations" and cells < 2:
            yield f"agents: stations need several cells, got {cells}; set network.cells"
        if reward and set(reward) != set(self.possible_agents):
            yield f"reward: not one for each agent, got {len(reward)}; give {self.possible_agents[0]}, ..."

    def observation_space(self, agent: str) -> Any:
        """Return the observation space of an agent: a one-dimensional box for the values of `keys`."""
        return self.observation_spaces[agent]

    def action_space(self, agent: str) -> Any:
        """Return the action space: for a device, 1 to join or 0; for a station, the band share of each device."""
        return self.action_spaces[agent]

    def reset(self, seed: int | None = None, options: Any = None) -> tuple[dict[str, Any], dict[str, Any]]:
        seen, info = self._env.reset(seed=seed, options=options)
        self.agents = list(self.possible_agents)
        return self._seen(seen), {name: dict(info) for name in self.agents}

    def step(self, actions: Mapping[str, Any]) -> tuple[dict[str, Any], ...]:
        """Run one round with the agents' actions (0 if missing); return observations, rewards and more by agent."""
        env, names = self._env, self.agents
        owners = np.arange(self._n) if self._devices else self._cells()
        given = [np.broadcast_to(np.asarray(actions.get(name, 0.0), float), self._n) for name in self.possible_agents]
        joint = np.array([given[owner][device] for device, owner in enumerate(owners)])
        seen, reward, over, _, info = env.step(joint if env.acts.alone else {env.acts.acts[0]: joint})
        own = {name: reward if self._rewards is None else float(self._rewards[name](info["step"])) for name in names}
        found, self.agents = self._seen(seen), [] if over else names
        return found, own, dict.fromkeys(names, over), dict.fromkeys(names, False), {name: dict(info) for name in names}

    def close(self) -> None:
        self._env.close()

    def _cells(self) -> NDArray[np.int64]:
        return np.array([self._env.fed.network.serving_cell(k) for k in range(self._n)])

    def _seen(self, seen: Observation) -> dict[str, NDArray[np.float32]]:
        own = np.array([seen[key] for key in self._own], np.float32)
        whole = np.array([seen[key][0] for key in self._whole], np.float32)
        cells = None if self._devices else self._cells()
        mine = own.T if cells is None else [own * (cells == place) for place in range(len(self.agents))]
        return {name: np.append(part, whole) for name, part in zip(self.agents, mine, strict=True)}


parallel = Parallel
