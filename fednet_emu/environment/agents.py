"""Many agents in one run: devices that decide whether to take part, or base stations that divide their bands."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray
from pettingzoo import ParallelEnv

from fednet_emu.environment.environment import Environment
from fednet_emu.environment.observation import DEVICES, LARGEST, MASK, REPORTED, Observation
from fednet_emu.environment.rewards import Reward
from fednet_emu.errors import ScenarioError


class Parallel(ParallelEnv):  # type: ignore[misc]
    """The agents of an environment, who act at the same time.

    Args:
        env: the environment; its act is `invite` for devices, and `("share",)` for stations.
        agents: `devices` or `stations`.
        reward: functions of a `Step` by agent; None gives all agents the reward of the environment.

    Attributes:
        keys: the names of an agent's observation: `action_mask` and the keys of devices, then those of the whole; of a
            device one number each, of a station one for each device, 0 for those that it does not serve.
    """

    metadata: dict[str, Any] = {"name": "fednet_emu_rounds_v0", "render_modes": []}  # noqa: RUF012

    def __init__(
        self,
        env: Environment,
        agents: Literal["devices", "stations"] = "devices",
        reward: Mapping[str, Reward] | None = None,
    ) -> None:
        self._env, n, cells = env, env.acts.n, env.scenario.network.cells.count
        self._devices = agents == "devices"
        problems = []
        if agents not in ("devices", "stations"):
            problems.append(f"agents: no such agents, got {agents!r}; choose devices or stations")
        wanted = ("invite",) if self._devices else ("share",)
        if env.acts.acts != wanted:
            got = ", ".join(env.acts.acts)
            problems.append(f"agents: {agents} act on {wanted[0]}, got act={got}; make the environment with it")
        if not self._devices and cells < 2:
            problems.append(f"agents: stations need several cells, got {cells}; set network.cells")
        self.possible_agents = (
            [f"dev-{k}" for k in range(n)] if self._devices else [f"station-{c}" for c in range(cells)]
        )
        strange = [name for name in reward or () if name not in self.possible_agents]
        if strange or (reward and len(reward) < len(self.possible_agents)):
            problems.append(
                f"reward: not one for each agent, got {len(reward or ())}; give {self.possible_agents[0]}, ..."
            )
        if problems:
            raise ScenarioError(*problems)
        self.agents: list[str] = []
        self._rewards = reward
        own = [key for key in env.keys if key in DEVICES or key in REPORTED]
        self.keys = (MASK, *own, *(key for key in env.keys if key not in own))
        self._n_own = 1 + len(own)
        size = self._n_own * (1 if self._devices else n) + len(self.keys) - self._n_own
        self._spaces = {name: spaces.Box(-LARGEST, LARGEST, (size,), np.float32) for name in self.possible_agents}
        self._acts = {
            name: spaces.Discrete(2) if self._devices else spaces.Box(0.0, 1.0, (n,), np.float32)
            for name in self.possible_agents
        }

    def observation_space(self, agent: str) -> Any:
        """The space of what an agent observes."""
        return self._spaces[agent]

    def action_space(self, agent: str) -> Any:
        """Whether a device takes part; or the shares of all devices, of which those served by the station count."""
        return self._acts[agent]

    def reset(
        self, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
        """Begin a run, as the environment does."""
        seen, info = self._env.reset(seed=seed, options=options)
        self.agents = list(self.possible_agents)
        return self._seen(seen), self._infos(info)

    def step(self, actions: Mapping[str, Any]) -> tuple[dict[str, Any], ...]:
        """A round, by the actions of all agents."""
        n, places = self._env.acts.n, {name: place for place, name in enumerate(self.possible_agents)}
        joint, cells = np.zeros(n), None if self._devices else self._cells()
        for name, act in actions.items():
            mine = np.arange(n) == places[name] if cells is None else cells == places[name]
            joint[mine] = np.broadcast_to(np.asarray(act, float), n)[mine]
        [key] = self._env.acts.acts
        seen, reward, over, cut, info = self._env.step(joint if self._env.acts.alone else {key: joint})
        agents = list(self.agents)
        own = {name: reward if self._rewards is None else float(self._rewards[name](info["step"])) for name in agents}
        ends = dict.fromkeys(agents, over), dict.fromkeys(agents, cut)
        found = self._seen(seen), own, *ends, self._infos(info)
        if over or cut:
            self.agents = []
        return found

    def close(self) -> None:
        """End the run under way."""
        self._env.close()

    def _cells(self) -> NDArray[np.int64]:
        """The station that serves each device now."""
        episode = self._env.episode
        assert episode is not None, "an episode has begun"
        return np.array([episode.fed.network.serving_cell(k) for k in range(self._env.acts.n)])

    def _seen(self, seen: Observation) -> dict[str, NDArray[np.float32]]:
        own = np.array([seen[key] for key in self.keys[: self._n_own]], np.float32)
        whole = np.array([seen[key][0] for key in self.keys[self._n_own :]], np.float32)
        if self._devices:
            return {name: np.concatenate((own[:, k], whole)) for k, name in enumerate(self.agents)}
        cells = self._cells()
        served = (np.where(cells == c, own, 0.0).astype(np.float32).ravel() for c in range(len(self.agents)))
        return {name: np.concatenate((mine, whole)) for name, mine in zip(self.agents, served, strict=True)}

    def _infos(self, info: dict[str, Any]) -> dict[str, dict[str, Any]]:
        return {name: dict(info) for name in self.agents}


def parallel(
    env: Environment, agents: Literal["devices", "stations"] = "devices", reward: Mapping[str, Reward] | None = None
) -> Parallel:
    """The parallel interface of PettingZoo: devices that decide whether to take part, or stations that divide bands."""
    return Parallel(env, agents, reward)
