"""An environment of Gymnasium over runs: a step is a round, with the decisions of the agent."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, Literal, NamedTuple

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AsyncVectorEnv
from gymnasium.wrappers import TransformObservation

from fednet_emu.algorithms.asynchronous.dispatcher import Concurrent
from fednet_emu.algorithms.base import Synchronous
from fednet_emu.algorithms.selection.base import Selection, ServerView
from fednet_emu.algorithms.selection.rules import Uniform
from fednet_emu.compression.sparse import Sparse
from fednet_emu.emulation.given import ScenarioLike, Settings, scenario_of
from fednet_emu.emulation.guard import none_left_behind
from fednet_emu.environment import actions, observation
from fednet_emu.environment.actions import Actions, Answer
from fednet_emu.environment.episode import Episode, Step
from fednet_emu.environment.observation import LARGEST, LIMIT, MASK, ORACLE, PER_DEVICE, REPORTED, Observation, divided
from fednet_emu.environment.rewards import Curve, Reward, reads_accuracy, reward_of
from fednet_emu.errors import FednetError, ScenarioError, did_you_mean
from fednet_emu.federation import cohort_size
from fednet_emu.federation.cohort import draw
from fednet_emu.federation.learning_task import LearningTask
from fednet_emu.federation.outside import Outside, Question
from fednet_emu.host import clean_context, main_left_out
from fednet_emu.kernel.streams import Streams
from fednet_emu.network.planning.access import Planned
from fednet_emu.network.planning.base import Planner
from fednet_emu.results.run import Run
from fednet_emu.scenario.algorithms import ALGORITHMS

ENDS = ("event_digest", "simulated_s", "energy_j", "verified")
"""Totals of a run in the last `info` of an episode."""
CHOICES = {"vary": ("all", "chance", "nothing"), "per": ("round", "answer"), "invalid": ("drop", "error")}
Stepped = tuple[Observation, float, bool, bool, dict[str, Any]]


@dataclass(frozen=True, eq=False)
class Known:
    """A question with the server's knowledge, for policies in Python. It refers to the run, so its copies are None."""

    name: str
    known: ServerView

    def __reduce__(self) -> Any:
        return type(None), ()

    def __eq__(self, other: object) -> bool:  # for checkers of environments: the same question at the same time
        own = self.name, self.known.t, self.known.now_s
        return isinstance(other, Known) and own == (other.name, other.known.t, other.known.now_s)

    __hash__ = None  # type: ignore[assignment]


class Environment(gymnasium.Env, gymnasium.utils.EzPickle):  # type: ignore[misc]
    """Runs of a scenario as episodes: `reset(seed=s)` begins the run with seed s, and a step is one of its rounds.

    Events and losses equal a run by `fe.run` with the same decisions.

    Args:
        scenario: as `fe.run` takes it.
        settings: changes, as `fe.run` takes them.
        act: `scores`, `invite` or `subset` for the cohort; `share`, `power` and `clock` for the resources that a
            planner divides; `deadline`, `steps` and `ratio` for the work of the round. A tuple makes a `Dict`.
        observe: `server`, `oracle`, or names of keys; `action_mask` is always included.
        reward: a name, weights by name, or a function of a `Step`.
        vary: the effect of a new seed: on `all`; `chance` keeps data, split, initial model, placement, speeds and
            shadowing (`scene_seed`); or `nothing`.
        per: a step is a `round`; or, with an asynchronous algorithm, an `answer`: the invitation of the next device.
        invalid: whether devices that cannot be invited are left out (`drop`) or an error (`error`).
        timing_only: whether to leave out training.
        data_dir: the folder with data sets.
        deadline_range_s: the bounds in s of the act `deadline`.
        proxy: accuracy by the number of updates in a timing-only environment; do not report results from it.

    Raises:
        ScenarioError: every problem of the scenario and of the arguments.

    Attributes:
        view: the server's knowledge at the latest decision.
        episode: the latest run; None before the first one.
        rule: the selection rule of the scenario, whose reports and polls remain.
        planner: the planner of the scenario; None if rounds are not planned.
    """

    metadata: dict[str, Any] = {"render_modes": []}  # noqa: RUF012  (as Gymnasium declares it)

    def __init__(
        self,
        scenario: ScenarioLike,
        *,
        settings: Settings | None = None,
        act: str | Iterable[str] = "scores",
        observe: str | Iterable[str] = "server",
        reward: str | Mapping[str, float] | Reward = "time",
        vary: Literal["all", "chance", "nothing"] = "all",
        per: Literal["round", "answer"] = "round",
        invalid: Literal["drop", "error"] = "drop",
        timing_only: bool = False,
        data_dir: Any = None,
        deadline_range_s: tuple[float, float] | None = None,
        proxy: Curve | None = None,
        render_mode: None = None,
    ) -> None:
        given = {name: value for name, value in locals().items() if name not in ("self", "__class__", "scenario")}
        gymnasium.utils.EzPickle.__init__(self, scenario, **given)
        with none_left_behind():
            self.name, outlook = scenario_of(scenario, settings, data_dir=data_dir)
        whole = outlook.scenario
        self.scenario = whole.model_copy(update={"training": whole.training.model_copy(update={"workers": 1})})
        self._per, self._vary, self._timing_only, self._data_dir = per, vary, timing_only, data_dir
        acts = (act,) if isinstance(act, str) else tuple(act)
        n = self.scenario.devices.count
        k = min(cohort_size(getattr(whole.algorithm, "cohort", 1), n), n) if per == "round" else 1
        self.keys = observation.keys_of(observe)
        self._proxy, self._reward, self._scored = proxy, reward_of(reward), reads_accuracy(reward)
        self.rule: Selection = getattr(whole.algorithm, "selection", Uniform())
        self.planner: Any = getattr(whole.network.uplink.access, "planner", None)
        problems = [
            f"{name}: no such choice, got {given[name]!r}; choose of {', '.join(known)}"
            for name, known in CHOICES.items()
            if given[name] not in known
        ]
        problems += [*actions.refusals(acts, n, k), *self._refusals(acts, deadline_range_s)]
        if problems:
            raise ScenarioError(*problems)
        self.acts = Actions(acts, isinstance(act, str), n, k, invalid == "error", deadline_range_s)
        self.action_space, self.observation_space = self.acts.space, space(self.keys, n)
        asks = {"invite" if per == "round" else "dispatch"} | ({"grants"} if set(acts) & set(actions.GRANTS) else set())
        self._outside = Outside(frozenset(asks), tuple(REPORTED[key] for key in self.keys if key in REPORTED))
        self._task: LearningTask | None = None
        self.episode: Episode | None = None
        self._seed: int | None = None
        self._closed, self._pid, self._updates = False, 0, 0

    def _refusals(self, acts: tuple[str, ...], deadline_range_s: tuple[float, float] | None) -> Iterator[str]:
        """Errors of arguments that the scenario does not support."""
        scenario, algorithm, timing_only = self.scenario, self.scenario.algorithm, self._timing_only
        wanted = Synchronous if self._per == "round" else Concurrent
        if not isinstance(algorithm, wanted):
            able = ", ".join(kind for kind, its in ALGORITHMS.items() if issubclass(its, wanted))
            yield f"algorithm: {algorithm.kind} has no decisions per {self._per}, got it; choose {able}"
        elif isinstance(algorithm, Synchronous) and not algorithm.asks_selection:
            yield f"algorithm.sampling: {algorithm.kind} draws its cohort itself, got samples; give sampling: uniform"
        yield from self._link_refusals(acts)
        if self._per == "answer" and acts not in (("scores",), ("subset",)):
            yield f"act: an answer names one device, got {', '.join(acts)}; give scores or subset"
        if "steps" in acts and "steps" not in algorithm.uses:
            yield f"act: steps does not go with {algorithm.kind}, got it; choose {scenario.users('steps')}"
        low_s, high_s = deadline_range_s or (0.0, 0.0)
        if "deadline" in acts and not 0.0 < low_s <= high_s < math.inf:
            yield f"deadline_range_s: gives no bounds of the deadline, got {deadline_range_s}; for example (1.0, 60.0)"
        for key in self.keys:
            if key not in observation.KNOWN:
                hint = did_you_mean(key, observation.KNOWN) or f"; choose server, oracle, {', '.join(REPORTED)}"
                yield f"observe: no such key, got {key!r}{hint}"
            if key in REPORTED and (self._per == "answer" or timing_only):
                yield f"observe: {key} needs training and rounds, got per={self._per}, timing_only={timing_only}"
            if key in ("accuracy", "loss") and timing_only and not (key == "accuracy" and self._proxy):
                yield f"observe: {key} needs training, got timing_only; leave it out"
        if self._scored and timing_only and self._proxy is None:
            yield "reward: reads the accuracy, got timing_only; train, or give a proxy for warming up"
        if self._scored and not timing_only and scenario.evaluation.every_rounds != 1:
            got = scenario.evaluation.every_rounds
            yield f"reward: reads the accuracy of every round, got evaluation.every_rounds: {got}; give 1"

    def _link_refusals(self, acts: tuple[str, ...]) -> Iterator[str]:
        """Acts that the uplink cannot follow."""
        uplink, granted = self.scenario.network.uplink, [act for act in acts if act in actions.GRANTS]
        if granted and not (isinstance(uplink.access, Planned) and uplink.trace is None):
            got = uplink.access.kind if uplink.trace is None else "recorded rates"
            yield f"act: {', '.join(granted)} needs network.uplink.access: planned, got {got}; give that"
        elif "share" in granted and isinstance(uplink.access, Planned) and uplink.access.planner.IN_TURNS:
            kind = uplink.access.planner.kind
            yield f"act: share has no effect where devices send in turns, got the planner {kind}; choose another one"
        if "ratio" in acts and not isinstance(uplink.compression, Sparse):
            kind = uplink.compression.kind
            yield f"act: ratio needs network.uplink.compression: top-k or random-k, got {kind}; give one of them"

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Begin a run with this seed; without a seed, with the scenario's seed the first time, then with drawn ones."""
        self._refuse_closed("reset")
        first = self._seed is None
        super().reset(seed=seed)
        self._abandon()
        if seed is None:
            seed = self.scenario.seed if first else int(self.np_random.integers(2**31))
        self._seed = int(seed)
        own, kept = self.scenario, self._vary != "all"
        seeds = {"seed": own.seed if self._vary == "nothing" else self._seed}
        if kept:
            seeds["scene_seed"] = own.seed if own.scene_seed is None else own.scene_seed
        episode = Episode(own.model_copy(update=seeds), self._outside, self._timing_only, self._data_dir, self._task)
        self._task = episode.fed.task if kept else None
        self.episode, self._pid, self._updates = episode, os.getpid(), 0
        self._look(episode)
        return self._observed(), self._info()

    def step(self, action: Any) -> Stepped:
        """Answer the decision of a round, and run until the next one.

        Raises:
            ResetNeeded: no run is open.
            FednetError: the action is invalid; the run continues with the next action.
        """
        episode = self._under_way("step")
        answer = self.acts.read(action, self.view)
        own = (self._own or []) if answer.invited is None else answer.invited

        def decide(question: Question) -> Any:
            if question.name == "grants":
                numbers, round_ = question.known
                return answer.grant(numbers, round_, self.planner)
            return own if self._per == "round" else own[0]

        return self._stepped(episode, decide, answer)

    def decide(self, decide: Callable[[Question], Any]) -> Stepped:
        """A step in which a function answers each question of the run, see `play`."""
        return self._stepped(self._under_way("decide"), decide, Answer())

    def close(self) -> None:
        """End the run; the environment is then unusable."""
        self._abandon()
        self._closed = True

    def run(self) -> Run:
        """The results of the episode that has ended.

        Raises:
            FednetError: no episode has ended.
        """
        episode = self.episode
        if episode is None or episode.ended in ("", "closed"):
            raise FednetError("environment: no episode has ended, got run; play one to its end")
        return Run.ended(episode.results(self.name), episode.scenario, None)

    def _look(self, episode: Episode) -> None:
        """Read the server's knowledge, and the choice of the scenario's rule if no act selects the cohort."""
        self.view: ServerView = episode.question.known
        self._own: list[int] | None = None
        if self._per == "round" and not set(self.acts.acts) & set(actions.WHO):
            self._own = choice(self.rule, self.view, episode.fed.streams)

    def _stepped(self, episode: Episode, decide: Callable[[Question], Any], answer: Answer) -> Stepped:
        episode.fed.orders = answer.orders
        while True:
            episode.answer(decide(episode.question))
            if not episode.is_open or episode.question.name != "grants":
                break
        if episode.is_open:
            self._look(episode)
        step = replace(episode.step(), dropped=answer.dropped, filled=answer.filled)
        if self._proxy is not None:
            before, self._updates = self._updates, self._updates + step.arrived
            accuracy = self._proxy(self._updates)
            step = replace(step, accuracy=accuracy, gained=accuracy - self._proxy(before))
        info = self._info() | {"step": step, "dropped": step.dropped, "filled": step.filled, "ended": step.ended}
        if step.ended:
            whole = episode.totals
            info |= {name: whole[name] for name in ENDS}
        return self._observed(step), float(self._reward(step)), bool(step.ended), False, info

    def _observed(self, step: Step | None = None) -> Observation:
        episode = self.episode
        assert episode is not None, "an episode has begun"
        oracle = dict.fromkeys(ORACLE, 0.0)
        if not set(ORACLE).isdisjoint(self.keys):
            mark = episode.marked()
            oracle = {"energy_j": mark.energy_j, "bits": float(mark.bits), "loss": episode.latest("loss")}
            oracle["accuracy"] = mark.accuracy if step is None or self._proxy is None else step.accuracy
        if episode.is_open:
            mask = None if self._own is None else np.array(self._own, np.int64)
            return observation.observed(self.view, self.keys, mask, oracle)
        last = observation.observed(self.view, self.keys, self.view.there[:0], oracle)
        now = {"round": episode.fed.round, "now_s": episode.mark.now_s, "budget_left": episode.fed.budget_left}
        return last | {key: observation.finite([value]) for key, value in now.items() if key in last}

    def _info(self) -> dict[str, Any]:
        episode = self.episode
        found = {"seed": self._seed} | ({"proxy": True} if self._proxy is not None else {})
        return found | {"question": Known(*episode.question) if episode is not None and episode.is_open else None}

    def _under_way(self, verb: str) -> Episode:
        self._refuse_closed(verb)
        episode = self.episode
        if episode is None or not episode.is_open:
            raise gymnasium.error.ResetNeeded(f"environment: no episode is under way, got {verb}; call reset")
        if self._pid != os.getpid():
            raise gymnasium.error.ResetNeeded(f"environment: the episode is another process's, got {verb}; call reset")
        return episode

    def _refuse_closed(self, verb: str) -> None:
        if self._closed:
            raise FednetError(f"environment: is closed, got {verb}; make another one")

    def _abandon(self) -> None:
        episode, self.episode = self.episode, None
        if episode is not None and self._pid == os.getpid():
            episode.close()

    @cached_property
    def constants(self) -> dict[str, float]:
        """Divisors of `scaled`: nominal times and rates of the first round of the scenario's own seed."""
        first = Episode(self.scenario, self._outside, True, self._data_dir, None)
        battery = self.scenario.devices.battery
        found = observation.constants(first.question.known, battery.capacity_j if battery else 0.0)
        first.close()
        return found


def choice(rule: Selection, view: ServerView, streams: Streams) -> list[int]:
    """The cohort of a rule, as in a normal run, where `uniform` draws from another stream."""
    if type(rule) is Uniform:
        return draw(view.there, view.size, streams("cohort", view.t))
    return sorted(int(number) for number in rule.choose(view))


def space(keys: Iterable[str], n: int, largest: float = LARGEST) -> Any:
    """The observation space: one-dimensional boxes by key, and the mask."""
    own = {key: n if key in PER_DEVICE else 1 for key in keys}
    boxes = {key: spaces.Box(-largest, largest, (size,), np.float32) for key, size in own.items()}
    return spaces.Dict({MASK: spaces.MultiBinary(n), **boxes})


def scaled(env: Environment) -> TransformObservation:
    """The environment with observations divided by constants of the scenario, at most 10; no running statistics.

    The divisors are its attribute `constants`, by key.
    """
    inner: Environment = env.unwrapped
    wrapped = TransformObservation(env, partial(divided, by=inner.constants), space(inner.keys, inner.acts.n, LIMIT))
    wrapped.constants = inner.constants
    return wrapped


class Played(NamedTuple):
    """The rewards of an episode, and its last info."""

    rewards: list[float]
    info: dict[str, Any]


def play(env: Environment, *rules: Selection | Planner, seed: int | None = None) -> Played:
    """Play an episode by a selection rule, a planner, or both; by default the scenario's own.

    The event digest equals a normal run of the scenario with this rule and planner.

    Raises:
        FednetError: the rule reads numbers that the scenario's own rule does not request from devices.
    """
    inner: Environment = env.unwrapped
    own = inner.rule
    rule = next((its for its in rules if isinstance(its, Selection)), own)
    planner: Any = next((its for its in rules if isinstance(its, Planner)), inner.planner)
    lacking = [name for name in rule.reports if name not in own.reports]
    if lacking or (rule.polls and not own.polls):
        what = f"reads {', '.join(lacking) or 'losses of polled devices'}, which no device sends, got {own.kind}"
        raise FednetError(f"policy: {rule.kind} {what}; set algorithm.selection: {rule.kind}")
    _, info = inner.reset(seed=seed)
    streams, memory = inner._under_way("play").fed.streams, rule.start(inner.acts.n)

    def decide(question: Question) -> Any:
        if question.name == "grants":
            return planner.plan(question.known[1])
        view = question.known if rule == own else replace(question.known, memory=memory)
        if question.name == "dispatch":
            return None if type(rule) is Uniform else rule.choose(view)[0]
        return choice(rule, view, streams)

    rewards, over = list[float](), False
    while not over:
        _, reward, over, _, info = inner.decide(decide)
        rewards.append(reward)
    return Played(rewards, info)


def vector(n: int, scenario: Any, *, wrap: Callable[[Environment], Any] | None = None, **how: Any) -> AsyncVectorEnv:
    """Environments of a scenario in `n` processes, which start fast because their server has imported the package.

    They pay off with training; without training, `gymnasium.vector.SyncVectorEnv` is as fast. Environment i has the
    seed `seed + i` at `reset(seed=seed)`, and each further episode a seed that its own `np_random` draws.

    Args:
        n: number of processes.
        scenario: as `Environment` takes it.
        wrap: wraps each environment, for example `scaled`.
        how: as `Environment` takes it.
    """
    context = clean_context(__name__)
    with main_left_out():
        return AsyncVectorEnv([partial(_made, scenario, how, wrap)] * n, context=context.get_start_method())


def _made(scenario: Any, how: Mapping[str, Any], wrap: Callable[[Environment], Any] | None) -> Any:
    env = Environment(scenario, **how)
    return env if wrap is None else wrap(env)
