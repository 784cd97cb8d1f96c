"""Action spaces in which every action is valid, and the decisions that follow from an action."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from itertools import combinations, islice
from typing import Any, NamedTuple

import numpy as np
from gymnasium import spaces

from fednet_emu.algorithms.selection.base import ServerView
from fednet_emu.arrays import Array
from fednet_emu.environment.observation import best
from fednet_emu.errors import FednetError, did_you_mean
from fednet_emu.federation.cohort import draw
from fednet_emu.federation.outside import Orders, Question
from fednet_emu.network.planning.base import Grant, Planner

WHO = ("scores", "invite", "subset")  # acts that select the cohort; at most one of these is allowed
GRANTS = ("share", "power", "clock")  # acts that set shares of the band, powers and clock frequencies
ACTS = (*WHO, *GRANTS, "deadline", "steps", "ratio")
MOST_SUBSETS = 10_000
LEAST = 1e-9  # minimum value of an act that is a fraction, such as a share of the band


class Answer(NamedTuple):
    """The decisions derived from an action; `to` returns the decision for a `Question` of the run."""

    invited: list[int] = []  # noqa: RUF012  (never modified)
    dropped: int = 0  # number of devices in the action that cannot be invited
    filled: bool = False  # True if the action names no available device, so that a random device is invited
    orders: Orders = Orders()
    grants: Mapping[str, Array] = {}  # fractions [devices] of the band, power or clock frequency, by act

    def to(self, planner: Planner, question: Question) -> Any:
        """Return the decision that the run requests by `question`: the devices to invite, or the division of resources.

        If the action does not divide a resource (band, power or clock frequency), the planner divides it.
        """
        if question.name != "grants":
            return self.invited[0] if question.name == "dispatch" else self.invited
        numbers, round_ = question.known
        n, parts = len(numbers), {act: part[numbers] for act, part in self.grants.items()}
        planned = Grant.undisturbed(*np.ones((4, n))) if len(parts) == len(GRANTS) else planner.plan(round_)
        share = parts.get("share")
        return planned._replace(
            share=planned.share if share is None else share / max(float(share.sum()), 1.0),
            power_part=parts.get("power", planned.power_part),
            clock_part=np.maximum(parts.get("clock", planned.clock_part), round_.min_clock),
            ends_s=np.full(n, math.nan),
        )


class Actions(NamedTuple):
    """The decisions (acts) of an agent in an environment with `n` devices, of which a cohort has `k` devices."""

    acts: tuple[str, ...]
    alone: bool  # True if an action is the value of the only act, not a mapping from acts to values
    n: int
    k: int
    strict: bool = False  # True if it is an error to choose a device that cannot be invited
    deadline_range_s: tuple[float, float] | None = None  # deadlines in s at the values 0 and 1

    @property
    def space(self) -> Any:
        """The action space: the space of the only act, or a `Dict` space with an entry for each act."""
        return self._space(self.acts[0]) if self.alone else spaces.Dict({act: self._space(act) for act in self.acts})

    def _space(self, act: str) -> Any:
        if act == "subset":
            return spaces.Discrete(math.comb(self.n, self.k))
        if act == "invite":
            return spaces.MultiBinary(self.n)
        n = 1 if act == "deadline" else self.n
        return spaces.Box(-1.0 if act == "scores" else 0.0, 1.0, (n,), np.float32)

    def read(self, action: Any, view: ServerView) -> Answer:
        """Return the decisions that follow from `action`, if the server has the knowledge `view`.

        Raises:
            FednetError: the action has a wrong shape, contains nan, or names a subset out of range. If `strict` is set,
                the error is also raised if the action invites no device or a device that cannot be invited.
        """
        given = {self.acts[0]: action} if self.alone else action
        if not isinstance(given, Mapping) or set(given) != set(self.acts):
            got = ", ".join(map(str, given)) if isinstance(given, Mapping) else type(given).__name__
            raise FednetError(f"action: has not the keys of the acts, got {got}; give {', '.join(self.acts)}")
        answer, parts = Answer(), dict[str, Any]()
        for act, value in given.items():
            where = "action" if self.alone else f"action.{act}"
            if act in WHO:
                answer = self._invited(act, where, value, view)
            else:
                parts[act] = np.clip(self._array(where, act, value), 0.0 if act == "deadline" else LEAST, 1.0)
        if self.deadline_range_s is not None and "deadline" in parts:
            low_s, high_s = self.deadline_range_s
            parts["deadline_s"] = float(low_s * (high_s / low_s) ** float(parts.pop("deadline")[0]))
        grants = {act: parts.pop(act) for act in GRANTS if act in parts}
        return answer._replace(orders=Orders(**parts), grants=grants)

    def _array(self, where: str, act: str, value: Any) -> Array:
        values, n = np.asarray(value), 1 if act == "deadline" else self.n
        if values.shape != (n,) or values.dtype.kind not in "biuf":
            raise FednetError(f"{where}: must be {n} numbers, got {values.dtype} {values.shape}; see action_space")
        wrong, right = (~np.isin(values, (0, 1)), "0 or 1") if act == "invite" else (np.isnan(values), "numbers")
        if wrong.any():
            raise FednetError(f"{where}: an entry is invalid, got {values[wrong][0]}; give {right}")
        return values.astype(np.float64)

    def _invited(self, act: str, where: str, value: Any, view: ServerView) -> Answer:
        if act == "scores":
            return Answer(best(self._array(where, act, value), view))
        if act == "invite":
            wanted = np.flatnonzero(self._array(where, act, value)).tolist()
        else:
            count, number = math.comb(self.n, self.k), np.asarray(value)
            if number.shape != () or number.dtype.kind not in "iu" or not 0 <= int(number) < count:
                raise FednetError(f"{where}: is no choice, got {value}; must be from 0 to {count - 1}")
            wanted = list(next(islice(combinations(range(self.n), self.k), int(number), None)))  # lexicographic order
        away = sorted({*wanted} - {*view.there.tolist()})
        able = [device for device in wanted if device not in away]
        if self.strict and away and not (act == "subset" and len(able) == len(view.there)):
            raise FednetError(f"{where}: invites {away}, absent or without samples; take those of action_mask")
        if self.strict and not wanted:
            raise FednetError(f"{where}: invites no device; invite at least one")
        return Answer(able or draw(view.there, 1, view.rng), len(away), not able)

    def refusals(self) -> Iterator[str]:
        """Yield errors about unknown acts and invalid combinations of acts."""
        acts, subsets = self.acts, math.comb(self.n, self.k)
        if not acts:
            yield "act: nothing is acted on, got none; give for example scores"
        for act in filter(lambda act: act not in ACTS, acts):
            yield f"act: no such act, got {act!r}{did_you_mean(str(act), ACTS) or '; choose of ' + ', '.join(ACTS)}"
        if len([act for act in acts if act in WHO]) > 1:
            yield f"act: several acts choose devices, got {', '.join(acts)}; give one of {', '.join(WHO)}"
        if "subset" in acts and subsets > MOST_SUBSETS:
            yield f"act: subset has too many choices, got {subsets}; {MOST_SUBSETS} are the most, take scores"
        span_s: Any = self.deadline_range_s
        low_s, high_s = span_s if np.shape(span_s or 0) == (2,) else (0.0, 0.0)
        if "deadline" in acts and not 0.0 < low_s <= high_s < math.inf:
            yield f"deadline_range_s: gives no bounds of the deadline, got {span_s}; for example (1.0, 60.0)"
