"""The record of a step, and reward functions: named functions of a `Step`, weighted sums of them, or any function."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from fednet_emu.analysis.run import RunRecords
from fednet_emu.errors import FednetError, did_you_mean, require_number


@dataclass(frozen=True, slots=True)
class Step:
    """Record of a step, which lasts from one decision of the agent to the next."""

    round: int  #: number of completed rounds
    began_s: float  #: simulated time of the decision, in s
    ended_s: float  #: simulated time of the next decision or of the end of the run, in s
    energy_j: float  #: energy of the whole network in J, as in the summary of a run
    device_j: float  #: energy of the devices in J, for computing, sending, receiving and idling
    bits: int  #: number of bits sent over the air, on all links
    invited: int  #: number of invited devices
    arrived: int  #: number of arrived uploads
    lost_transfers: Mapping[str, int]  #: number of lost transfers, by the reason for the loss
    dropped: int = 0  #: number of devices in the action that were absent or have no samples
    filled: bool = False  #: True if the action named no available device, so that a random device was invited
    accuracy: float = math.nan  #: accuracy of the latest evaluation; nan before the first
    gained: float = 0.0  #: change of accuracy since the previous decision; 0 without an evaluation
    loss: float = math.nan  #: loss of the latest evaluation; nan before the first
    ended: str = ""  #: reason why the run has ended: stop, deadlock or diverged; empty if the run continues

    @property
    def duration_s(self) -> float:
        """Simulated time between the two decisions, in s."""
        return self.ended_s - self.began_s


Reward = Callable[[Step], float]

NAMED: dict[str, Reward] = {
    "time": lambda step: -step.duration_s,
    "energy": lambda step: -step.energy_j,
    "gain": lambda step: step.gained,
    "arrived": lambda step: step.arrived,
    "lost_transfers": lambda step: -sum(step.lost_transfers.values()),
}


def _weighted(weights: Mapping[str, float], step: Step) -> float:  # like the cost in Zhan et al., INFOCOM 2020
    return sum(weight * NAMED[name](step) for name, weight in weights.items())


def _towards(target: float, base: float, step: Step) -> float:
    return float(base ** ((0.0 if math.isnan(step.accuracy) else step.accuracy) - target) - 1.0)


def towards(accuracy: float, base: float = 64.0) -> Reward:
    """Return the reward function base^(a - accuracy) - 1, where a is the latest accuracy (0 before any evaluation).

    This is the reward of FAVOR, whose experiments use the base 64 (Wang, Kaplan, Niu, Li: "Optimizing Federated
    Learning on Non-IID Data with Reinforcement Learning", INFOCOM 2020).
    """
    return partial(_towards, require_number("accuracy", accuracy, 0, 1), require_number("base", base, 1))


def _within(energy_j: float, each: float, step: Step) -> float:
    return -each * max(0.0, step.energy_j - energy_j)


def within(energy_j: float, each: float = 1.0) -> Reward:
    """Return a reward function that is -`each` for every joule by which the energy of a step exceeds `energy_j`."""
    return partial(_within, require_number("energy_j", energy_j, 0), require_number("each", each, 0))


def reward_of(given: str | Mapping[str, float] | Reward) -> Reward:
    """Return the reward function for a name, a mapping from names to weights in a sum, or a function of a `Step`."""
    weights = {given: 1.0} if isinstance(given, str) else given
    if not isinstance(weights, Mapping):
        return weights
    return partial(_weighted, {name: require_number(f"reward.{name}", its, -math.inf) for name, its in weights.items()})


def refusals(reward: Any, *, trained: bool, every_rounds: int | None) -> Iterator[str]:
    """Yield errors about unknown rewards, and about rewards that read accuracies which the run lacks."""
    function = getattr(reward, "func", None)
    names = reward.args[0] if function is _weighted else {}
    if not callable(reward) or (function is _weighted and not names):
        yield f"reward: none, got {'no names' if function else reward}; choose {', '.join(NAMED)} or a function"
    for name in filter(lambda name: name not in NAMED, names):
        hint = did_you_mean(str(name), NAMED) or f"; choose {', '.join(NAMED)} or a function of a Step"
        yield f"reward: no such reward, got {name!r}{hint}"
    if function is _towards or "gain" in names:
        if not trained:
            yield "reward: reads the accuracy, got timing_only; train, or give a proxy for warming up"
        elif every_rounds != 1:
            yield f"reward: reads the accuracy of every round, got evaluation.every_rounds: {every_rounds}; give 1"


class Curve(NamedTuple):
    """Curve of accuracy against the number of arrived updates, which replaces training in timing-only runs.

    A curve ignores which devices send the updates, and can reward harmful policies if data are skewed: use it only for
    pre-training, and do not report results that depend on it. `updates` [n] must increase.
    """

    updates: tuple[float, ...]
    accuracy: tuple[float, ...]

    @classmethod
    def of(cls, run: Any) -> Curve:
        """Return the curve that an `fe.Run` has measured; raise a `FednetError` if it is none or has no accuracies."""
        if not isinstance(run, RunRecords):
            raise FednetError(f"proxy: needs a run with accuracies, got {run!r:.60}; give what fednet_emu.run returns")
        scores = run.table("evaluations").dropna(subset=["accuracy"])
        if not len(scores):
            raise FednetError(f"proxy: needs a run with accuracies, got {run.name}; run it with training")
        total = np.append(0.0, np.cumsum(run.table("rounds")["arrived"].to_numpy()))
        places = np.minimum(scores["round"].to_numpy(), len(total) - 1)
        return cls(tuple(total[places].tolist()), tuple(scores["accuracy"].tolist()))

    def __call__(self, updates: float) -> float:
        """Return the accuracy after `updates` arrived updates, by linear interpolation."""
        return float(np.interp(updates, *self))
