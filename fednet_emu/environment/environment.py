"""Gymnasium environment whose episodes are runs; each step is a round that follows a decision of the agent."""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from typing import Any, Literal, NamedTuple

import gymnasium
import numpy as np
import torch
from gymnasium import spaces
from gymnasium.vector import AsyncVectorEnv
from gymnasium.wrappers import TransformObservation

from fednet_emu.algorithms.asynchronous.dispatcher import Concurrent
from fednet_emu.algorithms.base import Synchronous
from fednet_emu.algorithms.selection.base import Selection, ServerView
from fednet_emu.algorithms.selection.rules import Uniform
from fednet_emu.compression.sparse import Sparse
from fednet_emu.emulation.build import build
from fednet_emu.emulation.final_model import final_model
from fednet_emu.emulation.given import ScenarioLike, Settings, scenario_of
from fednet_emu.emulation.guard import none_left_behind
from fednet_emu.emulation.play import Ended, describe
from fednet_emu.emulation.record import totals
from fednet_emu.environment import observation, rewards
from fednet_emu.environment.actions import GRANTS, WHO, Actions, Answer
from fednet_emu.environment.observation import LARGEST, LIMIT, MASK, OF_RUN, REPORTED, Observation, divided
from fednet_emu.environment.rewards import Curve, Reward, Step, reward_of
from fednet_emu.errors import Deadlock, Diverged, FednetError, ScenarioError, did_you_mean, require_number
from fednet_emu.federation import cohort_size
from fednet_emu.federation.cohort import draw
from fednet_emu.federation.learning_task import LearningTask
from fednet_emu.federation.outside import Outside, Question
from fednet_emu.files.data_folder import data_folder
from fednet_emu.host import clean_context, main_left_out
from fednet_emu.kernel.streams import Streams
from fednet_emu.limits import MAX_INTEGER
from fednet_emu.network.planning.access import Planned
from fednet_emu.network.planning.base import Planner
from fednet_emu.records.ledger import SERVER, SEVERAL
from fednet_emu.records.reasons import REASONS
from fednet_emu.records.table import Table
from fednet_emu.results.run import Run
from fednet_emu.scenario.algorithms import ALGORITHMS

CHOICES = {"vary": ("all", "chance", "nothing"), "per": ("round", "answer"), "invalid": ("drop", "error")}


class Known:
    """A decision that a run requests, and the server's knowledge, for policies in Python; a copy of it is None."""

    def __init__(self, question: Question) -> None:
        self.name, self.known = question

    def __reduce__(self) -> Any:
        return type(None), ()

    def __eq__(self, other: object) -> bool:  # Gymnasium's checker compares infos
        return isinstance(other, Known) and (self.name, self.known.now_s) == (other.name, other.known.now_s)

    __hash__ = None  # type: ignore[assignment]


class Environment(gymnasium.Env, gymnasium.utils.EzPickle):  # type: ignore[misc]
    """Environment whose episodes are runs of a scenario: `reset(seed=s)` begins the run with seed s; a step is a round.

    An episode has the same events and losses as `fe.run` with the same decisions.

    Args:
        scenario: the scenario, in any form that `fe.run` accepts.
        settings: overrides of settings, in any form that `fe.run` accepts.
        act: the decisions of the agent: the cohort (`scores`, `invite` or `subset`); the resources that a planner would
            divide (`share`, `power`, `clock`); the work of the round (`deadline`, `steps`, `ratio`). A tuple of names
            gives a `Dict` action space.
        observe: the keys of an observation: `server`, `oracle` (sets of keys), or names of keys; `action_mask` is
            always included.
        reward: the name of a reward, a mapping from names to weights, or a function of a `Step`.
        vary: what a new seed changes: `all` for everything; `chance` for everything except data, split, initial model,
            placement, speeds and shadowing (see `scene_seed`); or `nothing`.
        per: `round` for one step per round, or `answer` (asynchronous algorithms) for one step per invited device.
        invalid: treatment of devices that cannot be invited: `drop` leaves them out, `error` raises an error.
        timing_only: True to simulate only the timing, without training.
        data_dir: the folder with data sets.
        deadline_range_s: minimum and maximum deadline in s, between which the act `deadline` chooses.
        proxy: curve that replaces the accuracy in a timing-only environment; do not report results from a proxy.

    Raises:
        ScenarioError: the scenario or an argument is invalid; all problems are listed.

    Attributes:
        fed: the federation of the latest run.
        view: the server's knowledge at the latest decision.
        now: totals and scores of the run at the latest decision.
        rule: the selection rule of the scenario; devices still send the reports and answer the polls of this rule.
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
        whole, n = outlook.scenario, outlook.scenario.devices.count
        self.scenario = whole.model_copy(update={"training": whole.training.model_copy(update={"workers": 1})})
        self._per, self._vary, self._timing_only, self._data_dir, self._proxy = per, vary, timing_only, data_dir, proxy
        acts = (act,) if isinstance(act, str) or not isinstance(act, Iterable) else tuple(act)
        k = min(cohort_size(getattr(whole.algorithm, "cohort", 1), n), n) if per == "round" else 1
        self.acts = Actions(acts, isinstance(act, str), n, k, invalid == "error", deadline_range_s)
        self.keys, self._reward = observation.keys_of(observe), reward_of(reward)
        self.rule: Selection = getattr(whole.algorithm, "selection", Uniform())
        self.planner: Any = getattr(whole.network.uplink.access, "planner", None)
        problems = [*self.acts.refusals(), *self._refusals(given), *self._key_refusals()]
        every = 1 if timing_only else whole.evaluation.every_rounds
        problems += rewards.refusals(self._reward, trained=not timing_only or proxy is not None, every_rounds=every)
        if problems:
            raise ScenarioError(*problems)
        self.action_space, self.observation_space = self.acts.space, space(self.keys, n)
        asks = {"invite" if per == "round" else "dispatch"} | ({"grants"} if set(acts) & set(GRANTS) else set())
        self._outside = Outside(frozenset(asks), tuple(REPORTED[key] for key in self.keys if key in REPORTED))
        self._task: LearningTask | None = None
        self._seed: int | None = None
        self._own: list[int] | None = None  # cohort that the scenario's rule has chosen, if no act selects a cohort
        self._error: Deadlock | Diverged | None = None
        self._ended, self._closed, self._pid = "closed", False, 0

    def _refusals(self, given: Mapping[str, Any]) -> Iterator[str]:
        for name, known in CHOICES.items():
            if given[name] not in known:
                yield f"{name}: no such choice, got {given[name]!r}; choose of {', '.join(known)}"
        scenario, acts, uplink = self.scenario, self.acts.acts, self.scenario.network.uplink
        algorithm, access = scenario.algorithm, uplink.access
        wanted = Synchronous if self._per == "round" else Concurrent
        if not isinstance(algorithm, wanted):
            able = ", ".join(kind for kind, its in ALGORITHMS.items() if issubclass(its, wanted))
            yield f"algorithm: {algorithm.kind} has no decisions per {self._per}, got it; choose {able}"
        elif isinstance(algorithm, Synchronous) and not algorithm.asks_selection:
            yield f"algorithm.sampling: {algorithm.kind} draws its cohort itself, got samples; give sampling: uniform"
        granted = ", ".join(act for act in acts if act in GRANTS)
        if granted and not (isinstance(access, Planned) and uplink.trace is None):
            got = access.kind if uplink.trace is None else "recorded rates"
            yield f"act: {granted} needs network.uplink.access: planned, got {got}; give that"
        elif "share" in acts and self.planner.IN_TURNS:
            kind = self.planner.kind
            yield f"act: share has no effect where devices send in turns, got the planner {kind}; choose another one"
        if "ratio" in acts and not isinstance(uplink.compression, Sparse):
            kind = uplink.compression.kind
            yield f"act: ratio needs network.uplink.compression: top-k or random-k, got {kind}; give one of them"
        if self._per == "answer" and acts not in (("scores",), ("subset",)):
            yield f"act: an answer names one device, got {', '.join(acts)}; give scores or subset"
        if self._proxy is not None and not self._timing_only:
            yield "proxy: replaces the accuracy of training, got training; set timing_only, or leave it out"
        if "steps" in acts and "steps" not in algorithm.uses:
            yield f"act: steps does not go with {algorithm.kind}, got it; choose {scenario.users('steps')}"

    def _key_refusals(self) -> Iterator[str]:
        timing_only = self._timing_only
        for key in self.keys:
            if key not in observation.KNOWN:
                hint = did_you_mean(str(key), observation.KNOWN) or f"; choose server, oracle, {', '.join(REPORTED)}"
                yield f"observe: no such key, got {key!r}{hint}"
            if key in REPORTED and (self._per == "answer" or timing_only):
                yield f"observe: {key} needs training and rounds, got per={self._per}, {timing_only=}; leave it out"
            if key in ("accuracy", "loss") and timing_only and not (key == "accuracy" and self._proxy):
                yield f"observe: {key} needs training, got timing_only; leave it out"

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Observation, dict[str, Any]]:
        """Begin a run with `seed`; if None, the first run has the scenario's seed, and later runs have random seeds."""
        self._refuse_closed("reset")
        first, own, kept = self._seed is None, self.scenario, self._vary != "all"
        seed = seed if seed is None else require_number("seed", seed, 0, MAX_INTEGER, whole=True)
        super().reset(seed=seed)
        self.close()
        self._closed = False
        if seed is None:
            seed = own.seed if first else int(self.np_random.integers(2**31))
        self._seed = int(seed)
        seeds = {"seed": own.seed if self._vary == "nothing" else self._seed}
        if kept:
            seeds["scene_seed"] = own.seed if own.scene_seed is None else own.scene_seed
        self._played, self._threads, self._updates, self._error = own.model_copy(update=seeds), 0, 0, None
        with self._settings():
            how = {"data_dir": self._data_dir, "timing_only": self._timing_only, "task": self._task}
            self.fed = build(self._played, **how)
            self._threads = torch.get_num_threads()
        self.fed.outside, ledger, self._task = self._outside, self.fed.ledger, self.fed.task if kept else None
        self._tables: list[Table[Any]] = [ledger.transfers, ledger.receptions, ledger.computes, ledger.rounds]
        self._rows, self._ended, self._pid = [0] * len(self._tables), "", os.getpid()
        before = self._totals()  # before `begin`, so that the first step includes polls before the first decision
        if not self._go(partial(self.fed.begin, own.algorithm)):
            what = f"algorithm: the run ends before its first decision, got {own.algorithm.kind}"
            raise self._error or ScenarioError(f"{what}; raise the limits of stop, or choose another algorithm")
        self.now = self._totals()
        self._before = before | {"accuracy": self.now["accuracy"]}
        return self._seen()

    def step(self, action: Any) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        """Apply an action to the pending decision, and run until the next decision.

        `action` is a member of the action space, or a function that returns the decision for each `Question` of the run
        (see `play`).

        Raises:
            ResetNeeded: no run is in progress.
            FednetError: the action is invalid; the decision stays pending, so that `step` can be called again. An
                invalid decision of a function ends the run.
        """
        self._refuse_closed("step")
        question, decide, answer = self.question, action, Answer()
        if question is None or self._pid != os.getpid():
            raise gymnasium.error.ResetNeeded("environment: no episode runs in this process, got step; call reset")
        if not callable(action):
            answer = self.acts.read(action, self.view)
            answer = answer if self._own is None else answer._replace(invited=self._own)
            decide = partial(answer.to, self.planner)
        self.fed.orders = answer.orders
        self._go(partial(self.fed.answer, decide(question)))
        while (question := self.question) is not None and question.name == "grants":
            self._go(partial(self.fed.answer, decide(question)))
        step = self._step(answer)
        seen, info = self._seen()
        info |= {"step": step, "dropped": step.dropped, "filled": step.filled, "ended": step.ended}
        if step.ended:
            whole = totals(self.fed, self._played, measured=False)
            info |= {name: whole[name] for name in ("event_digest", "simulated_s", "energy_j", "verified")}
        return seen, float(self._reward(step)), bool(step.ended), False, info

    @property
    def question(self) -> Question | None:
        """The decision for which the run waits; None before and after an episode."""
        return None if self._ended else self.fed.question

    def close(self) -> None:
        """End the run; the environment cannot be used afterwards."""
        if not self._ended and self._pid == os.getpid():
            self.fed.close()
        self._ended, self._closed = self._ended or "closed", True

    def run(self) -> Run:
        """Return the results of the episode that has ended.

        Raises:
            FednetError: no episode has ended.
        """
        if self._ended in ("", "closed"):
            raise FednetError("environment: no episode has ended, got run; play one to its end")
        fed, scenario, diverged = self.fed, self._played, self._ended == "diverged"
        status = {"deadlock": "failed", "diverged": "diverged"}.get(self._ended, "done")
        why = (fed.divergence() or str(self._error)) if diverged else None
        facts = {"name": self.name, "seed": scenario.seed, "timing_only": self._timing_only, "status": status}
        with self._settings():
            describe(fed, scenario, self._data_dir)
            facts |= totals(fed, scenario, measured=False) | {"diverged": why, "host_s": 0.0, "host_parts": {}}
            model = None if diverged else final_model(fed, data_folder(self._data_dir))
        return Run.ended(Ended(facts, fed.ledger, model), scenario, None)

    def _seen(self) -> tuple[Observation, dict[str, Any]]:
        """Return observation and info; if no act selects the cohort, the scenario's rule chooses the cohort now."""
        question, self._own = self.question, None
        info = {"seed": self._seed, "proxy": self._proxy is not None, "question": question and Known(question)}
        if question is not None:
            self.view: ServerView = question.known
            if not set(self.acts.acts) & set(WHO):
                self._own = choice(self.rule, self.view, self.fed.streams)
        else:
            self.view = self.view.later(self.fed.round)
        return observation.observed(self.view, self.keys, self._own if question else [], self.now), info

    def _step(self, answer: Answer) -> Step:
        before = self._before
        sent, heard, work, rounds = (its.since(row) for its, row in zip(self._tables, self._rows, strict=True))
        self._rows, arrived = list(map(len, self._tables)), sum(rounds["arrived"].tolist())
        self._updates += arrived
        after = self._before = self.now = self._totals()
        own_j = float(sent["energy_j"][sent["sender"] != SERVER].sum() + sent["rx_energy_j"].sum())
        lost = Counter((*sent["loss_reason"][sent["receiver"] != SEVERAL].tolist(), *heard["loss_reason"].tolist()))
        gained = after["accuracy"] - before["accuracy"]
        return Step(
            round=self.fed.round,
            began_s=before["now_s"],
            ended_s=after["now_s"],
            energy_j=after["energy_j"] - before["energy_j"],
            device_j=own_j + float(work["energy_j"].sum()) + after["idle_j"] - before["idle_j"],
            bits=after["bits"] - before["bits"],
            invited=sum(rounds["invited"].tolist()),
            arrived=arrived,
            lost_transfers={REASONS[code]: count for code, count in sorted(lost.items()) if code},
            dropped=answer.dropped,
            filled=answer.filled,
            accuracy=after["accuracy"],
            gained=0.0 if math.isnan(gained) else gained,
            loss=after["loss"],
            ended=self._ended,
        )

    def _totals(self) -> dict[str, Any]:
        fed, ledger, now_ns, scores = self.fed, self.fed.ledger, self.fed.clock.now, self.fed.ledger.evaluations
        accuracy = fed.accuracy if self._proxy is None else self._proxy(self._updates)
        return {
            "now_s": fed.now_s,
            "energy_j": ledger.spent_j(now_ns),
            "idle_j": ledger.idle.until_j(now_ns),
            "bits": sum(ledger.sent_bit),
            "accuracy": math.nan if accuracy is None else accuracy,
            "loss": float(scores.since(len(scores) - 1)["loss"][-1]) if len(scores) else math.nan,
        }

    def _go(self, run: Callable[[], bool]) -> bool:
        """Continue the run; return True at the next decision, False at the end. An unexpected error closes the run."""
        try:
            with nullcontext() if self._timing_only else self._settings():
                if run():
                    return True
                self._ended = "diverged" if self.fed.divergence() else "stop"
        except (Deadlock, Diverged) as error:
            self._ended, self._error = ("deadlock" if isinstance(error, Deadlock) else "diverged"), error
            self.fed.close()
        except BaseException:
            self._ended = "closed"
            self.fed.close()
            raise
        return False

    @contextmanager
    def _settings(self) -> Iterator[None]:
        """Apply the PyTorch settings that training needs inside the `with` block."""
        with none_left_behind(), torch.inference_mode(mode=False), torch.enable_grad():
            if self._threads and torch.get_num_threads() != self._threads:
                torch.set_num_threads(self._threads)
            yield

    def _refuse_closed(self, verb: str) -> None:
        if self._closed:
            raise FednetError(f"environment: is closed, got {verb}; make another one")


def choice(rule: Selection, view: ServerView, streams: Streams) -> list[int]:
    """Return the cohort that `rule` chooses in a run without agent; the rule `uniform` draws it by `streams`."""
    if type(rule) is Uniform:
        return draw(view.there, view.size, streams("cohort", view.t))
    return sorted(int(number) for number in rule.choose(view))


def space(keys: Iterable[str], n: int, largest: float = LARGEST) -> Any:
    """Return the observation space of `n` devices: a box in +/- `largest` for each key, and a binary `action_mask`."""
    boxes = {key: spaces.Box(-largest, largest, (1 if key in OF_RUN else n,), np.float32) for key in keys}
    return spaces.Dict({MASK: spaces.MultiBinary(n), **boxes})


def scaled(env: Environment) -> TransformObservation:
    """Wrap an environment: divide its observations by constants of the scenario, and clip them to [-10, 10].

    The attribute `constants` of the wrapper has the divisor of each key: nominal times and rates in the first round of
    the scenario. In contrast to Gymnasium's normalisation, the divisors never change.
    """
    inner: Environment = env.unwrapped
    how, battery = {"timing_only": True, "observe": "server", "reward": "time"}, inner.scenario.devices.battery
    first = Environment(*inner._ezpickle_args, **(inner._ezpickle_kwargs | how))
    first.reset()
    constants = observation.constants(first.view, battery.capacity_j if battery else 0.0)
    first.close()
    wrapped = TransformObservation(env, partial(divided, by=constants), space(inner.keys, inner.acts.n, LIMIT))
    wrapped.constants = constants
    return wrapped


class Played(NamedTuple):
    """The rewards of an episode, and the info of the last step."""

    rewards: list[float]
    info: dict[str, Any]


def play(env: Environment, *rules: Selection | Planner, seed: int | None = None) -> Played:
    """Run an episode with a selection rule and a planner, by default those of the scenario; return the rewards.

    The episode has the same event digest as a normal run of the scenario with this rule and planner.

    Raises:
        FednetError: the rule needs reports or polls of devices that the scenario's own rule does not request.
    """
    inner: Environment = env.unwrapped
    if wrong := [its for its in rules if not isinstance(its, Selection | Planner)]:
        raise FednetError(f"play: no selection rule or planner, got {wrong[0]!r}; give a component such as Uniform()")
    rule, own = next((its for its in rules if isinstance(its, Selection)), inner.rule), inner.rule
    planner: Any = next((its for its in rules if isinstance(its, Planner)), inner.planner)
    lacking = [name for name in rule.reports if name not in (*own.reports, *inner._outside.statistics)]
    if lacking or (rule.polls and not own.polls):
        what = f"reads {', '.join(lacking) or 'losses of polled devices'}, which no device sends, got {own.kind}"
        raise FednetError(f"policy: {rule.kind} {what}; set algorithm.selection: {rule.kind}")
    _, info = inner.reset(seed=seed)
    streams, memory = inner.fed.streams, rule.start(inner.acts.n)

    def decide(question: Question) -> Any:
        if question.name == "grants":
            return planner.plan(question.known[1])
        view = question.known if rule == own else replace(question.known, memory=memory)
        if question.name == "dispatch":
            return None if type(rule) is Uniform else rule.choose(view)[0]
        return choice(rule, view, streams)

    played, over = Played([], info), False
    while not over:
        _, reward, over, _, info = inner.step(decide)
        played.rewards.append(reward)
    return played._replace(info=info)


def vector(n: int, scenario: Any, *, wrap: Callable[[Environment], Any] | None = None, **how: Any) -> AsyncVectorEnv:
    """Return `n` environments of a scenario, each in a process forked from a server that has imported the package.

    Processes are faster only with training; without training, `gymnasium.vector.SyncVectorEnv` is as fast. After
    `reset(seed=seed)`, environment i begins with the seed `seed + i`, and draws the seeds of later episodes from its
    own `np_random`. `wrap` is a function that wraps each environment, for example `scaled`. The keyword arguments `how`
    are passed to `Environment`.
    """

    def made() -> Any:
        return wrap(Environment(scenario, **how)) if wrap else Environment(scenario, **how)

    n = require_number("n", n, 1, whole=True)
    with main_left_out():
        return AsyncVectorEnv([made] * n, context=clean_context(__name__).get_start_method())
