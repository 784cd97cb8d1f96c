"""Many agents: PettingZoo's checks, and what a joint action does."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from pettingzoo.test import parallel_api_test, parallel_seed_test

from fednet_emu.environment import Environment, parallel
from fednet_emu.errors import ScenarioError
from tests.environment.scenes import CELLS, PLANNED, SCENES, scene

STATIONS = scene(PLANNED[0], PLANNED[1].replace("PLANNER", "least-time"), *CELLS, "algorithm.cohort=8")


def devices(**how):
    return parallel(Environment(scene(*SCENES["coming and going"]), act="invite", timing_only=True), **how)


def stations(**how):
    """Seven stations that divide the band among eight devices."""
    return parallel(Environment(STATIONS, act=("share",), timing_only=True), "stations", **how)


@pytest.mark.parametrize("make", [devices, stations])
def test_pettingzoo_finds_nothing_wrong(make) -> None:
    """Its tests of the interface and of seeds."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        parallel_api_test(make(), num_cycles=12)
        parallel_seed_test(make, num_cycles=6)


def test_a_device_sees_itself_and_the_whole() -> None:
    """Its own row, then the global keys."""
    env = devices()
    seen, _ = env.reset(seed=0)
    whole = env._env.reset(seed=0)[0]
    for k in range(8):
        expected = [whole[key][k if len(whole[key]) == 8 else 0] for key in env.keys]
        assert seen[f"dev-{k}"].tolist() == [float(value) for value in expected]


def test_devices_decide_for_themselves() -> None:
    """Two say yes, of whom those that are there take part; all have one reward, or each its own."""
    env = devices()
    seen, _ = env.reset(seed=1)
    there = [name for name in env.agents if seen[name][0]]
    _, rewards, *_, infos = env.step({name: int(name in there[:2]) for name in env.agents})
    assert infos[there[0]]["step"].invited == 2
    assert len(set(rewards.values())) == 1
    own = devices(reward={f"dev-{k}": (lambda step, k=k: k + step.arrived) for k in range(8)})
    own.reset(seed=1)
    _, rewards, *_ = own.step({name: int(name in there[:2]) for name in own.agents})
    assert rewards["dev-3"] - rewards["dev-1"] == 2


def test_a_station_divides_among_its_own_devices() -> None:
    """Shares of devices of other cells count for nothing; where one station asks for all, each has its part of it."""
    env = stations()
    env.reset(seed=0)
    cells = env._cells()
    busiest = int(np.bincount(cells).argmax())
    env.step({name: np.full(8, 0.9 if name == f"station-{busiest}" else 0.25) for name in env.agents})
    shares = {row["device"]: row["share"] for row in env._env.fed.ledger.series["plan"]}
    count = int((cells == busiest).sum())

    assert count >= 2
    assert all(shares[k] == pytest.approx(1 / count) for k in shares if cells[k] == busiest)
    assert all(shares[k] in (0.25, pytest.approx(0.25)) for k in shares if (cells == cells[k]).sum() == 1)


def test_what_does_not_go_together_is_refused() -> None:
    """The act, the number of cells, and rewards of some agents only."""
    env = Environment(scene(), timing_only=True)
    with pytest.raises(ScenarioError, match="agents: devices act on invite, got act=scores"):
        parallel(env)
    with pytest.raises(ScenarioError, match=r"^agents: no such agents, got 'dev'; choose devices or stations$"):
        parallel(env, "dev")
    with pytest.raises(ScenarioError) as refusal:
        parallel(env, "stations", {"station-9": lambda _step: 0.0})
    assert [its.partition(":")[0] for its in refusal.value.problems] == ["agents", "agents", "reward"]
