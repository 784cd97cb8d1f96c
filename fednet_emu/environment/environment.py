"""An environment of Gymnasium over runs: a step is a round, whose decisions the agent takes."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, Literal

import gymnasium
import numpy as np
from gymnasium import spaces
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
from fednet_emu.environment.observation import DEVICES, LARGEST, LIMIT, MASK, ORACLE, REPORTED, Observation, divided
from fednet_emu.environment.rewards import Curve, Reward, reads_accuracy, reward_of
from fednet_emu.errors import FednetError, ScenarioError, did_you_mean
from fednet_emu.federation import cohort_size
from fednet_emu.federation.cohort import draw
from fednet_emu.federation.learning_task import LearningTask
from fednet_emu.federation.outside import Orders, Outside, Question
from fednet_emu.kernel.streams import Streams
from fednet_emu.network.planning.access import Planned
from fednet_emu.results.run import Run
from fednet_emu.scenario.algorithms import ALGORITHMS

Decide = Callable[[Question], Any]
"""Answers the questions of a step."""

ENDS = ("event_digest", "simulated_s", "energy_j", "verified")
"""Totals of a run that the last `info` of an episode has."""


CHOICES = {
    "vary": ("all", "chance", "nothing"),
    "per": ("round", "answer"),
    "invalid": ("drop", "error"),
}
"""Words of three arguments of an environment."""


@dataclass(frozen=True, eq=False)
class Known:
    """A decision for policies in Python. It stays in this process, as it holds the run: copies and pickles are None.

    Attributes:
        name: of the question.
        known: what the server knows.
    """

    name: str
    known: ServerView

    def __reduce__(self) -> Any:
        """None."""
        return type(None), ()

    def __eq__(self, other: object) -> bool:
        """Whether it is the same question at the same time, for checkers of environments."""
        own = self.name, self.known.t, self.known.now_s
        return isinstance(other, Known) and own == (other.name, other.known.t, other.known.now_s)

    __hash__ = None  # type: ignore[assignment]


class Environment(gymnasium.Env, gymnasium.utils.EzPickle):  # type: ignore[misc]
    """Runs of a scenario as episodes: `reset(seed=s)` begins the run of seed s, and a step is a round of it.

    The run is that of `fe.run` with the same decisions: the same events, to the nanosecond, and the same losses.

    Args:
        scenario: as `fe.run` takes it.
        settings: changes, as `fe.run` takes them.
        act: what is acted on: `scores`, `invite` or `subset` say who is asked; `share`, `power` and `clock` divide what
            a planner divides; `deadline`, `steps` and `ratio` order what devices do. A tuple makes a `Dict`.
        observe: `server`, `oracle`, or names of keys; `action_mask` is always there.
        reward: a name, weights by name, or a function of a `Step`.
        vary: what a new seed changes: `all`; `chance`, so that data, split, initial model, placement, speeds and
            shadowing stay (`scene_seed`); or `nothing`.
        per: a step is a `round`, or, of asynchronous algorithms, an `answer` of the agent to who is asked next.
        invalid: whether devices that cannot be asked are left out (`drop`) or an error (`error`).
        timing_only: whether to leave out training.
        data_dir: the folder with data sets.
        deadline_range_s: the bounds in s of the act `deadline`.
        proxy: accuracy by the number of updates in a timing-only environment; no result may come from it.

    Raises:
        ScenarioError: every problem of the scenario, or of what is asked of it.
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
        self._task: LearningTask | None = None
        self._episode: Episode | None = None
        self._seed: int | None = None
        self._closed, self._pid, self._updates = False, 0, 0

    def _refusals(self, acts: tuple[str, ...], deadline_range_s: tuple[float, float] | None) -> Iterator[str]:
        """What the scenario cannot be asked."""
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

    # ---- Gymnasium ---------------------------------------------------------------------------------------------------

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Begin a run: of this seed; without one, of the scenario's seed the first time, then of drawn ones."""
        self._refuse_closed("reset")
        first = self._seed is None
        super().reset(seed=seed)
        self._abandon()
        if seed is None:
            seed = self.scenario.seed if first else int(self.np_random.integers(2**31))
        self._seed = int(seed)
        self._episode, self._pid, self._updates = self._begun(self._seed), os.getpid(), 0
        return self._observed(), self._info()

    def step(self, action: Any) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        """Answer the decision of a round, and run until the next one.

        Raises:
            ResetNeeded: no episode is under way.
            FednetError: the action is none; nothing has changed then.
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

    def decide(self, decide: Decide) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        """A step whose questions a function answers, one by one, as the run takes them; see `policies.play`."""
        return self._stepped(self._under_way("decide"), decide, Answer(None, 0, False, Orders(), {}))

    def close(self) -> None:
        """End the run under way; there is no other one after that."""
        self._abandon()
        self._closed = True

    def run(self) -> Run:
        """The results of the episode that has ended.

        Raises:
            FednetError: no episode has ended.
        """
        episode = self._episode
        if episode is None or episode.ended in ("", "closed"):
            raise FednetError("environment: no episode has ended, got run; play one to its end")
        return Run.ended(episode.results(self.name), episode.scenario, None)

    @property
    def view(self) -> ServerView:
        """What the server knows at the open decision, or knew at the last one."""
        return self._view

    @property
    def streams(self) -> Streams:
        """The randomness of the run under way."""
        return self._under_way("streams").fed.streams

    @property
    def episode(self) -> Episode | None:
        """The run under way, or the last one."""
        return self._episode

    # ---- episodes ----------------------------------------------------------------------------------------------------

    def _begun(self, seed: int) -> Episode:
        kept = self._vary != "all"
        scenario = self.scenario.model_copy(update=self._seeds(seed))
        outside = Outside(frozenset(self._questions), tuple(REPORTED[key] for key in self.keys if key in REPORTED))
        how = {"timing_only": self._timing_only, "data_dir": self._data_dir, "task": self._task if kept else None}
        episode = Episode(scenario, outside, **how)
        if kept:
            self._task = episode.fed.task
        self._look(episode)
        return episode

    def _seeds(self, seed: int) -> dict[str, int]:
        own = self.scenario
        if self._vary == "all":
            return {"seed": seed}
        scene_seed = own.seed if own.scene_seed is None else own.scene_seed
        return {"seed": own.seed if self._vary == "nothing" else seed, "scene_seed": scene_seed}

    @property
    def _questions(self) -> Iterator[str]:
        yield "invite" if self._per == "round" else "dispatch"
        if set(self.acts.acts) & set(actions.GRANTS):
            yield "grants"

    @property
    def planner(self) -> Any:
        """The planner of the scenario; None where rounds are not planned."""
        return getattr(self.scenario.network.uplink.access, "planner", None)

    def _look(self, episode: Episode) -> None:
        """Take in what the server knows now, and whom the scenario's rule chooses if the agent does not."""
        self._view: ServerView = episode.question.known
        self._own: list[int] | None = None
        if self._per == "round" and not set(self.acts.acts) & set(actions.WHO):
            self._own = choice(self.rule, self._view, episode.fed.streams)

    @property
    def rule(self) -> Selection:
        """The selection rule of the scenario, whose reports and polls remain."""
        rule: Selection = getattr(self.scenario.algorithm, "selection", Uniform())
        return rule

    def _stepped(
        self, episode: Episode, decide: Decide, answer: Answer
    ) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        episode.fed.orders = answer.orders
        while True:
            episode.answer(decide(episode.question))
            if not episode.is_open or episode.question.name != "grants":
                break
        if episode.is_open:
            self._look(episode)
        step = replace(episode.step(), dropped=answer.dropped, filled=answer.filled)
        if self._proxy is not None:
            step = self._by_proxy(self._proxy, step)
        info = self._info() | {"step": step, "dropped": step.dropped, "filled": step.filled, "ended": step.ended}
        if step.ended:
            whole = episode.totals
            info |= {name: whole[name] for name in ENDS}
        return self._observed(step), float(self._reward(step)), bool(step.ended), False, info

    def _by_proxy(self, proxy: Curve, step: Step) -> Step:
        before, self._updates = self._updates, self._updates + step.arrived
        accuracy = proxy(self._updates)
        return replace(step, accuracy=accuracy, gained=accuracy - proxy(before))

    def _observed(self, step: Step | None = None) -> Observation:
        episode = self._episode
        assert episode is not None, "an episode has begun"
        oracle = dict.fromkeys(ORACLE, 0.0)
        if not set(ORACLE).isdisjoint(self.keys):
            mark = episode.marked()
            oracle = {"energy_j": mark.energy_j, "bits": float(mark.bits), "loss": episode.latest("loss")}
            oracle["accuracy"] = mark.accuracy if step is None or self._proxy is None else step.accuracy
        if episode.is_open:
            mask = None if self._own is None else np.array(self._own, np.int64)
            return observation.observed(self._view, self.keys, mask, oracle)
        last = observation.observed(self._view, self.keys, self._view.there[:0], oracle)
        now = {"round": episode.fed.round, "now_s": episode.mark.now_s, "budget_left": episode.fed.budget_left}
        return last | {key: observation.finite([value]) for key, value in now.items() if key in last}

    def _info(self) -> dict[str, Any]:
        episode = self._episode
        found = {"seed": self._seed} | ({"proxy": True} if self._proxy is not None else {})
        return found | {"question": Known(*episode.question) if episode is not None and episode.is_open else None}

    def _under_way(self, verb: str) -> Episode:
        self._refuse_closed(verb)
        episode = self._episode
        if episode is None or not episode.is_open:
            raise gymnasium.error.ResetNeeded(f"environment: no episode is under way, got {verb}; call reset")
        if self._pid != os.getpid():
            raise gymnasium.error.ResetNeeded(f"environment: the episode is another process's, got {verb}; call reset")
        return episode

    def _refuse_closed(self, verb: str) -> None:
        if self._closed:
            raise FednetError(f"environment: is closed, got {verb}; make another one")

    def _abandon(self) -> None:
        episode, self._episode = self._episode, None
        if episode is not None and self._pid == os.getpid():
            episode.close()

    @cached_property
    def constants(self) -> dict[str, float]:
        """Divisors of `scaled`: nominal times and rates of the first round of the scenario's own seed."""
        asks, how = Outside(frozenset(self._questions)), {"timing_only": True, "data_dir": self._data_dir, "task": None}
        first = Episode(self.scenario, asks, **how)
        battery = self.scenario.devices.battery
        found = observation.constants(first.question.known, battery.capacity_j if battery else 0.0)
        first.close()
        return found


def choice(rule: Selection, view: ServerView, streams: Streams) -> list[int]:
    """Whom a rule asks, as in a normal run, where `uniform` draws from a stream of its own."""
    if type(rule) is Uniform:
        return draw(view.there, view.size, streams("cohort", view.t))
    return sorted(int(number) for number in rule.choose(view))


def space(keys: Iterable[str], n: int, largest: float = LARGEST) -> Any:
    """The observation space: one-dimensional boxes by key, and the mask."""
    own = {key: n if key in DEVICES or key in REPORTED else 1 for key in keys}
    boxes = {key: spaces.Box(-largest, largest, (size,), np.float32) for key, size in own.items()}
    return spaces.Dict({MASK: spaces.MultiBinary(n), **boxes})


def scaled(env: Environment) -> TransformObservation:
    """The environment with its observations over constants of the scenario, at most 10; no running statistics.

    The divisors are its attribute `constants`, by key.
    """
    inner: Environment = env.unwrapped
    wrapped = TransformObservation(env, partial(divided, by=inner.constants), space(inner.keys, inner.acts.n, LIMIT))
    wrapped.constants = inner.constants
    return wrapped
