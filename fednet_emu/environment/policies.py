"""Selection rules and planners as policies of an environment."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

from fednet_emu.algorithms.selection.base import Selection
from fednet_emu.algorithms.selection.rules import Uniform
from fednet_emu.environment.environment import Environment, choice
from fednet_emu.errors import FednetError
from fednet_emu.federation.outside import Question
from fednet_emu.network.planning.base import Planner


class Played(NamedTuple):
    """The rewards of an episode, and its last info."""

    rewards: list[float]
    info: dict[str, Any]


def play(env: Environment, *rules: Selection | Planner, seed: int | None = None) -> Played:
    """Play an episode by a selection rule, a planner, or both; the scenario's own where none is given.

    The event digest is that of a normal run of the scenario with this rule and planner.

    Raises:
        FednetError: the rule reads what devices do not send by the scenario's own rule.
    """
    inner: Environment = env.unwrapped
    own = inner.rule
    rule = next((its for its in rules if isinstance(its, Selection)), own)
    planner: Any = next((its for its in rules if isinstance(its, Planner)), inner.planner)
    lacking = [name for name in rule.reports if name not in own.reports]
    if lacking or (rule.polls and not own.polls):
        what = f"reads {', '.join(lacking) or 'losses of polled devices'}, which no device sends, got {own.kind}"
        raise FednetError(f"policy: {rule.kind} {what}; set algorithm.selection: {rule.kind}")
    memory = rule.start(inner.acts.n)

    def decide(question: Question) -> Any:
        if question.name == "grants":
            return planner.plan(question.known[1])
        view = question.known if rule == own else replace(question.known, memory=memory)
        if question.name == "dispatch":
            return None if type(rule) is Uniform else rule.choose(view)[0]
        return choice(rule, view, inner.streams)

    _, info = inner.reset(seed=seed)
    rewards, over = list[float](), False
    while not over:
        _, reward, over, _, info = inner.decide(decide)
        rewards.append(reward)
    return Played(rewards, info)
