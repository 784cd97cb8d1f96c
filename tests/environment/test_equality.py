"""An episode is the normal run with the same decisions: digests of events, losses, conservation laws; and controls."""

from __future__ import annotations

import numpy as np
import pytest
from simpy.events import NORMAL

from fednet_emu.algorithms.base import Algorithm
from fednet_emu.algorithms.selection import SELECTIONS, Selection, ServerView
from fednet_emu.environment import Environment, play
from fednet_emu.errors import ScenarioError
from fednet_emu.federation import Federation, Process, Work
from fednet_emu.federation.outside import Outside, Question
from fednet_emu.kernel.clock import Clock
from fednet_emu.network.planning import PLANNERS
from fednet_emu.testing import small_federation
from tests.environment.scenes import CELLS, FADING, PLANNED, SCENES, losses, normal, scene
from tests.quick import crossed


def with_rule(name: str, kind: str):
    return scene(*SCENES[name], f"algorithm.selection={kind}")


RUNS = [(0, True), (1, True), (2, True), (3, False)]
"""Seeds, and whether the run is without training."""


@pytest.mark.parametrize(("name", "kind", "run"), crossed(SCENES, SELECTIONS, RUNS))
def test_every_rule_is_a_policy(name: str, kind: str, run: tuple[int, bool]) -> None:
    """Played step by step, each rule gives the events of its normal run, and with training the losses, bit for bit."""
    seed, timing_only = run
    scenario = with_rule(name, kind)
    env = Environment(scenario, timing_only=timing_only)
    fed = normal(scenario, seed, timing_only=timing_only)

    played = play(env, SELECTIONS[kind](), seed=seed)

    assert played.info["event_digest"] == fed.ledger.event_digest()
    assert len(played.rewards) >= fed.round
    assert timing_only or losses(env.fed.ledger.evaluations) == losses(fed.ledger.evaluations)


@pytest.mark.parametrize(("planner", "cells", "seed"), crossed(PLANNERS, [(), CELLS], [0, 1, 2, 3]))
def test_every_planner_is_a_policy(planner: str, cells: tuple[str, ...], seed: int) -> None:
    """In one cell and in seven, where it is asked once per cell; the band is still divided as its class says."""
    scenario = scene(PLANNED[0], PLANNED[1].replace("PLANNER", planner), *cells)
    own = scenario.network.uplink.access.planner
    env = Environment(scenario, act=("power", "clock"), timing_only=True)

    played = play(env, own, seed=seed)

    fed = normal(scenario, seed)
    assert played.info["event_digest"] == fed.ledger.event_digest()
    asked = len(env.fed.ledger.series["plan"])
    assert asked == len(fed.ledger.series["plan"]) > 0


class Given(Selection):
    """Asks whom a list says, round by round."""

    rounds: tuple[tuple[int, ...], ...]

    def choose(self, view: ServerView) -> tuple[int, ...]:
        return self.rounds[view.t]


@pytest.mark.parametrize(("name", "timing_only", "seed"), crossed(SCENES, [True, False], [3, 4]))
def test_a_random_episode_is_replayed_by_a_normal_run(name: str, timing_only: bool, seed: int) -> None:
    """Random invitations, written down and given to a normal run as a rule: the same events and the same losses."""
    scenario = scene(*SCENES[name])
    env = Environment(scenario, act="invite", timing_only=timing_only)
    env.reset(seed=seed)
    env.action_space.seed(seed)
    over, chosen = False, []
    while not over:
        action = env.action_space.sample()
        chosen.append(env.acts.read(action, env.view).invited)
        *_, over, _, info = env.step(action)
    ledger = env.fed.ledger

    given = scenario.algorithm.model_copy(
        update={"selection": Given(rounds=tuple(map(tuple, played_by(ledger, chosen))))}
    )
    again = normal(scenario.model_copy(update={"algorithm": given}), seed, timing_only=timing_only)

    assert info["verified"]
    assert info["event_digest"] == again.ledger.event_digest()
    assert timing_only or losses(ledger.evaluations) == losses(again.ledger.evaluations)


def played_by(ledger, chosen):
    """Whom the run asked; a drawn device stands in the records of a round whose action names nobody."""
    asked: dict[int, list[int]] = {}
    for row in ledger.series["selection"]:
        asked.setdefault(row["round"] - 1, []).append(row["device"])
    return [sorted(asked.get(t, chosen[t])) for t in range(len(chosen))]


def test_a_joint_action_keeps_the_laws() -> None:
    """Random shares, powers and clocks for random cohorts in seven cells: every conservation law holds."""
    scenario = scene(PLANNED[0], PLANNED[1].replace("PLANNER", "least-time"), *CELLS)
    env = Environment(scenario, act=("invite", "share", "power", "clock"), timing_only=True)
    env.action_space.seed(0)
    env.reset(seed=0)
    over = False
    while not over:
        *_, over, _, info = env.step(env.action_space.sample())
    plan = env.fed.ledger.series["plan"]

    assert info["verified"]
    assert {row["round"] for row in plan} == set(range(1, 7))
    assert len({row["power_part"] for row in plan}) > len(plan) / 2


def answers_later(clock: Clock, value: object, delay_ns: int) -> None:
    """Answer as a driver would that goes through the queue of events."""
    decision, clock.asked = clock.asked, None
    decision._value = value
    clock.schedule(decision, NORMAL, delay_ns)


@pytest.mark.parametrize("name", SCENES)
def test_control_an_answer_a_nanosecond_late_is_noticed(name: str) -> None:
    """The digest sees it in every scene, so that equal digests above mean equal times."""
    scenario = with_rule(name, "round-robin")
    env = Environment(scenario, timing_only=True)
    env.reset(seed=0)
    env.fed.clock.answer = lambda value: answers_later(env.fed.clock, value, 1)
    own, over = SELECTIONS["round-robin"](), False
    while not over:
        *_, over, _, info = env.step(lambda question: own.choose(question.known))

    assert info["event_digest"] != normal(scenario, 0).ledger.event_digest()


class TwoAtOnce(Algorithm):
    """Two processes in one instant: the first asks which device computes, the second computes on device 0."""

    asks: bool = True

    def run(self, fed: Federation) -> Process:
        yield fed.gather([self.first(fed, fed.sleep(1e-3)), self.second(fed, fed.sleep(1e-3))])
        fed.end_of_round(fed.initial_model(), invited=2, arrived=2)

    def first(self, fed: Federation, wait) -> Process:
        yield wait
        chosen = (yield fed.decision(Question("dispatch", None))) if self.asks else 0
        yield fed.device(chosen).compute(Work(720.0, None))

    def second(self, fed: Federation, wait) -> Process:
        yield wait
        yield fed.device(0).compute(Work(1440.0, None))


def digest_of(*, delay_ns: int | None) -> str:
    """The digest of the toy with answers through the queue, or directly."""
    fed = small_federation("stop.rounds=1", timing_only=True)
    fed.outside = Outside(frozenset({"dispatch"}))
    if delay_ns is not None:
        fed.clock.answer = lambda value: answers_later(fed.clock, value, delay_ns)
    asked = fed.begin(TwoAtOnce())
    while asked:
        asked = fed.answer(0)
    return fed.ledger.event_digest()


def test_the_order_within_an_instant_is_that_of_a_normal_run() -> None:
    """An answer through the queue lets the second process compute first: the toy sees what rounds cannot see."""
    fed = small_federation("stop.rounds=1", timing_only=True)
    fed.run(TwoAtOnce(asks=False))

    assert digest_of(delay_ns=None) == fed.ledger.event_digest()
    assert digest_of(delay_ns=0) != fed.ledger.event_digest()


def test_no_observation_knows_the_future() -> None:
    """A device that slows down and goes away after three rounds changes no observation before that."""

    def played(*changes: str) -> tuple[list[dict], list[float], str]:
        env = Environment(scene(FADING, *changes), timing_only=True)
        seen, over = [env.reset(seed=0)[0]], False
        while not over:
            observation, _, over, _, info = env.step(np.linspace(1, 0, 8))
            seen.append(observation)
        return seen, [float(its["now_s"][0]) for its in seen], info["event_digest"]

    calm, times_s, digest = played()
    slow = f"devices.straggler={{kind: slow-window, devices: [0, 1, 2], factor: 7, from_s: {times_s[3]}, to_s: 99}}"
    away = f"devices.availability={{kind: windows, devices: {{2: [[0, {times_s[3] + 0.005}]]}}}}"
    changed, _, other = played(slow, away)

    assert all(np.array_equal(a[key], b[key]) for a, b in zip(calm[:4], changed[:4], strict=True) for key in a)
    assert any(not np.array_equal(calm[4][key], changed[4][key]) for key in calm[4])
    assert digest != other


@pytest.mark.parametrize(
    "algorithm", ["{kind: fedasync, concurrency: 3}", "{kind: fedbuff, concurrency: 4, buffer_size: 2}"]
)
@pytest.mark.parametrize("name", ["still", "coming and going", "moving"])
def test_answers_of_asynchronous_algorithms_are_steps(algorithm: str, name: str) -> None:
    """Whom to ask next, drawn from the dispatcher's stream: the events and losses of a normal run."""
    conditions = [its for its in SCENES[name] if "algorithm" not in its]
    scenario = scene(*conditions, f"algorithm={algorithm}", "stop.rounds=12")
    env = Environment(scenario, per="answer")
    fed = normal(scenario, 2, timing_only=False)

    played = play(env, seed=2)

    assert played.info["event_digest"] == fed.ledger.event_digest()
    assert losses(env.fed.ledger.evaluations) == losses(fed.ledger.evaluations)
    assert len(played.rewards) > 12


def test_an_answer_names_one_device() -> None:
    """Whoever is named is asked; orders and invitations of many are refused."""
    with pytest.raises(ScenarioError, match="act: an answer names one device, got invite; give scores or subset"):
        Environment(scene("algorithm={kind: fedasync}"), per="answer", act="invite")
    env = Environment(scene("algorithm={kind: fedasync, concurrency: 1}"), per="answer", act="subset", timing_only=True)
    assert env.action_space.n == 8
    env.reset(seed=0)
    assert env.step(5)[0]["arrived"].tolist() == [0, 0, 0, 0, 0, 1, 0, 0]


def test_an_agent_that_asks_the_same_devices_has_older_news_of_the_others() -> None:
    """With three in flight of eight, the scores decide who works; the others are never heard of."""
    env = Environment(scene("algorithm={kind: fedasync, concurrency: 3}", "stop.rounds=20"), per="answer")
    env.reset(seed=0)
    over = False
    while not over:
        seen, _, over, _, info = env.step(np.array([0, 0, 0, 1, 0, 1, 0, 1.0]))
    assert info["ended"] == "stop"
    assert set(np.flatnonzero(seen["arrived"])) == {3, 5, 7}
