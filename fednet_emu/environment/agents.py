"""Many agents in one run: devices that decide whether to take part, or base stations that divide their bands."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Literal

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray
from pettingzoo import ParallelEnv

from fednet_emu.environment.environment import Environment
from fednet_emu.environment.observation import LARGEST, MASK, PER_DEVICE, Observation
from fednet_emu.environment.rewards import Reward
from fednet_emu.errors import ScenarioError


class Parallel(ParallelEnv):  # type: ignore[misc]
    """The agents of an environment, which act at the same time.

    Attributes:
        keys: the names of the numbers that an agent observes: `action_mask`, the keys of devices, the keys of the run.
            A device observes one number per key; a station one per device, 0 for devices of other cells.
    """

    metadata: dict[str, Any] = {"name": "fednet_emu_rounds_v0", "render_modes": []}  # noqa: RUF012

    def __init__(self, env: Environment, agents: str, reward: Mapping[str, Reward] | None) -> None:
        self._env, n, cells = env, env.acts.n, env.scenario.network.cells.count
        self._devices, self._rewards = agents == "devices", reward
        kind, count = ("dev", n) if self._devices else ("station", cells)
        self.possible_agents, self.agents = [f"{kind}-{number}" for number in range(count)], list[str]()
        problems = list(self._refusals(agents, cells))
        if problems:
            raise ScenarioError(*problems)
        own = [MASK, *(key for key in env.keys if key in PER_DEVICE)]
        self.keys, self._n_own = (*own, *(key for key in env.keys if key not in own)), len(own)
        size = self._n_own * (1 if self._devices else n) + len(self.keys) - self._n_own
        self.observation_spaces = {
            name: spaces.Box(-LARGEST, LARGEST, (size,), np.float32) for name in self.possible_agents
        }
        self.action_spaces = {
            name: spaces.Discrete(2) if self._devices else spaces.Box(0.0, 1.0, (n,), np.float32)
            for name in self.possible_agents
        }

    def _refusals(self, agents: str, cells: int) -> Iterator[str]:
        if agents not in ("devices", "stations"):
            yield f"agents: no such agents, got {agents!r}; choose devices or stations"
        wanted, acts, reward = "invite" if self._devices else "share", self._env.acts.acts, self._rewards
        if acts != (wanted,):
            yield f"agents: {agents} act on {wanted}, got act={', '.join(acts)}; make the environment with it"
        if not self._devices and cells < 2:
            yield f"agents: stations need several cells, got {cells}; set network.cells"
        if reward and set(reward) != set(self.possible_agents):
            yield f"reward: not one for each agent, got {len(reward)}; give {self.possible_agents[0]}, ..."

    def observation_space(self, agent: str) -> Any:
        """The observation space of an agent."""
        return self.observation_spaces[agent]

    def action_space(self, agent: str) -> Any:
        """Whether a device takes part; or shares of all devices (a station uses the shares of its own devices)."""
        return self.action_spaces[agent]

    def reset(
        self, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
        """Begin a run, as `Environment.reset`."""
        seen, info = self._env.reset(seed=seed, options=options)
        self.agents = list(self.possible_agents)
        return self._seen(seen), {name: dict(info) for name in self.agents}

    def step(self, actions: Mapping[str, Any]) -> tuple[dict[str, Any], ...]:
        """Play a round by the actions of all agents."""
        n, env, agents = self._env.acts.n, self._env, self.agents
        joint, owners = np.zeros(n), np.arange(n) if self._devices else self._cells()
        for place, name in enumerate(self.possible_agents):
            mine = owners == place
            joint[mine] = np.broadcast_to(np.asarray(actions.get(name, 0.0), float), n)[mine]
        seen, reward, over, cut, info = env.step(joint if env.acts.alone else {env.acts.acts[0]: joint})
        own = {name: reward if self._rewards is None else float(self._rewards[name](info["step"])) for name in agents}
        infos = {name: dict(info) for name in agents}
        found = self._seen(seen), own, dict.fromkeys(agents, over), dict.fromkeys(agents, cut), infos
        if over or cut:
            self.agents = []
        return found

    def close(self) -> None:
        """End the run."""
        self._env.close()

    def _cells(self) -> NDArray[np.int64]:
        """The station that serves each device now."""
        assert self._env.episode is not None, "an episode has begun"
        return np.array([self._env.episode.fed.network.serving_cell(k) for k in range(self._env.acts.n)])

    def _seen(self, seen: Observation) -> dict[str, NDArray[np.float32]]:
        own = np.array([seen[key] for key in self.keys[: self._n_own]], np.float32)
        whole = np.array([seen[key][0] for key in self.keys[self._n_own :]], np.float32)
        if self._devices:
            return {name: np.concatenate((own[:, k], whole)) for k, name in enumerate(self.agents)}
        cells = self._cells()
        served = (np.where(cells == c, own, np.float32(0.0)).ravel() for c in range(len(self.agents)))
        return {name: np.concatenate((mine, whole)) for name, mine in zip(self.agents, served, strict=True)}


def parallel(
    env: Environment, agents: Literal["devices", "stations"] = "devices", reward: Mapping[str, Reward] | None = None
) -> Parallel:
    """The parallel interface of PettingZoo: devices that decide whether to take part, or stations that divide bands.

    Args:
        env: the environment; its act is `invite` for devices, and `("share",)` for stations.
        agents: `devices` or `stations`.
        reward: functions of a `Step` by agent; None gives all agents the reward of the environment.
    """
    return Parallel(env, agents, reward)
