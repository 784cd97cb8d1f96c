"""Actions: their spaces, and what a run is answered. Every member of a space is legal."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, islice
from typing import Any, NamedTuple

import numpy as np
from gymnasium import spaces

from fednet_emu.algorithms.selection.base import ServerView
from fednet_emu.arrays import Array, IntArray
from fednet_emu.environment.observation import best
from fednet_emu.errors import FednetError, did_you_mean
from fednet_emu.federation.cohort import draw
from fednet_emu.federation.outside import Orders
from fednet_emu.network.planning.base import Grant, Planner, Round

WHO = ("scores", "invite", "subset")
"""Acts that say who is invited; at most one of them."""
GRANTS = ("share", "power", "clock")
"""Acts that divide the band, the powers and the clocks."""
ORDERS = ("deadline", "steps", "ratio")
"""Acts that order what the devices of a round do."""
ACTS = (*WHO, *GRANTS, *ORDERS)

MOST_SUBSETS = 10_000
LEAST = 1e-9
"""Least part of the band, of a power, of the local steps and of the entries."""


class Answer(NamedTuple):
    """An action as the run takes it.

    Attributes:
        invited: numbers of the devices to ask; None leaves that to the scenario's rule.
        dropped: devices of the action that cannot be asked.
        filled: whether nobody was left, so that one was drawn.
        orders: what the devices of the round are ordered to do.
        grants: parts [devices] by act.
    """

    invited: list[int] | None
    dropped: int
    filled: bool
    orders: Orders
    grants: Mapping[str, Array]

    def grant(self, numbers: IntArray, round_: Round, planner: Planner) -> Grant[Array]:
        """The grants of the devices of a cell; parts that are not acted on are those of the planner."""
        n, parts = len(numbers), {act: part[numbers] for act, part in self.grants.items()}
        planned = Grant.undisturbed(np.ones(n), np.ones(n), np.ones(n), np.full(n, math.nan))
        if len(parts) < len(GRANTS):
            planned = planner.plan(round_)
        share = parts.get("share", planned.share)
        if "share" in parts:
            share = np.maximum(share / max(float(share.sum()), 1.0), LEAST)
        return planned._replace(
            share=share,
            power_part=np.maximum(parts.get("power", planned.power_part), LEAST),
            clock_part=np.maximum(parts.get("clock", planned.clock_part), round_.least_clock),
            ends_s=np.full(n, math.nan),
        )


@dataclass(frozen=True)
class Actions:
    """The acts of an environment.

    Attributes:
        acts: names of the table `ACTS`; several make one `Dict`.
        alone: whether the single act is given as a name, so that the action is no mapping.
        n: devices.
        k: devices of a cohort.
        strict: whether devices that cannot be asked are an error.
        deadline_range_s: the deadlines in s of the positions 0 and 1.
    """

    acts: tuple[str, ...]
    alone: bool
    n: int
    k: int
    strict: bool = False
    deadline_range_s: tuple[float, float] | None = None

    @property
    def space(self) -> Any:
        """The action space."""
        own = {act: self._space(act) for act in self.acts}
        return own[self.acts[0]] if self.alone else spaces.Dict(own)

    def _space(self, act: str) -> Any:
        if act == "scores":
            return spaces.Box(-1.0, 1.0, (self.n,), np.float32)
        if act == "invite":
            return spaces.MultiBinary(self.n)
        if act == "subset":
            return spaces.Discrete(math.comb(self.n, self.k))
        return spaces.Box(0.0, 1.0, (1 if act == "deadline" else self.n,), np.float32)

    def read(self, action: Any, view: ServerView) -> Answer:
        """What an action means at a decision.

        Raises:
            FednetError: it has another shape, a nan or no such choice; with `strict`, it names who cannot be asked.
        """
        parts = {self.acts[0]: action} if self.alone else self._mapping(action)
        invited, dropped, filled, own = None, 0, False, {act: value for act, value in parts.items() if act not in WHO}
        where = {act: "action" if self.alone else f"action.{act}" for act in parts}
        arrays = {act: self._array(where[act], act, value) for act, value in own.items()}
        for act in WHO:
            if act in parts:
                invited, dropped, filled = self._invited(act, where[act], parts[act], view)
        share = {act: np.clip(arrays[act], LEAST, 1.0) for act in ("steps", "ratio") if act in arrays}
        orders = Orders(self._deadline_s(arrays.get("deadline")), share.get("steps"), share.get("ratio"))
        return Answer(invited, dropped, filled, orders, {act: arrays[act] for act in GRANTS if act in arrays})

    def _mapping(self, action: Any) -> Mapping[str, Any]:
        if not isinstance(action, Mapping) or set(action) != set(self.acts):
            got = ", ".join(map(str, action)) if isinstance(action, Mapping) else type(action).__name__
            raise FednetError(f"action: has not the keys of the acts, got {got}; give {', '.join(self.acts)}")
        return action

    def _array(self, where: str, act: str, value: Any) -> Array:
        values, shape = np.asarray(value, np.float64), (1 if act == "deadline" else self.n,)
        if values.shape != shape:
            raise FednetError(f"{where}: has the shape {values.shape}; must be {shape}")
        if np.isnan(values).any():
            raise FednetError(f"{where}: a {'score' if act == 'scores' else act} is nan")
        return values if act in WHO else np.clip(values, 0.0, 1.0)

    def _deadline_s(self, position: Array | None) -> float | None:
        if position is None or self.deadline_range_s is None:
            return None
        low_s, high_s = self.deadline_range_s
        return float(low_s * (high_s / low_s) ** float(position[0]))

    def _invited(self, act: str, where: str, value: Any, view: ServerView) -> tuple[list[int], int, bool]:
        there = view.there
        if act == "scores":
            return best(self._array(where, act, value), view), 0, False
        if act == "subset":
            wanted = subset(self._choice(where, value), self.n, self.k)
        else:
            wanted = np.flatnonzero(self._array(where, act, value)).tolist()
        known = set(there.tolist())
        away = [k for k in wanted if k not in known]
        if self.strict and away:
            raise FednetError(f"{where}: invites {away}, who are away or have no samples; take those of action_mask")
        if self.strict and not wanted:
            raise FednetError(f"{where}: invites nobody; invite at least one device")
        able = [k for k in wanted if k in known]
        return able or draw(there, 1, view.rng), len(away), not able

    def _choice(self, where: str, value: Any) -> int:
        count, number = math.comb(self.n, self.k), np.asarray(value)
        if number.shape != () or number.dtype.kind not in "iu" or not 0 <= int(number) < count:
            raise FednetError(f"{where}: is no choice, got {value}; must be from 0 to {count - 1}")
        return int(number)


def subset(number: int, n: int, k: int) -> list[int]:
    """Subset `number` of k of n, in lexicographic order."""
    return list(next(islice(combinations(range(n), k), number, None)))


def refusals(acts: Sequence[str], n: int, k: int) -> Iterator[str]:
    """Sentences about acts that do not exist or do not go together."""
    if not acts:
        yield "act: nothing is acted on, got none; give for example scores"
    for act in acts:
        if act not in ACTS:
            yield f"act: no such act, got {act!r}{did_you_mean(act, ACTS) or '; choose of ' + ', '.join(ACTS)}"
    if len(set(acts) & set(WHO)) > 1:
        yield f"act: several acts say who is invited, got {', '.join(acts)}; give one of {', '.join(WHO)}"
    if "subset" in acts and math.comb(n, k) > MOST_SUBSETS:
        yield f"act: subset has too many choices, got {math.comb(n, k)}; {MOST_SUBSETS} are the most, take scores"
