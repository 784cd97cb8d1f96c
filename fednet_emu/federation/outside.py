"""Decisions that the caller of a run takes: requests of the run, and settings that the caller changes for a round."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

from fednet_emu.arrays import Array
from fednet_emu.federation.device import Statistic
from fednet_emu.learning.graph.jobs import SgdPlan


class Question(NamedTuple):
    """A request of a run for a decision of the caller of `Federation.begin`.

    Attributes:
        name: kind of the decision. `invite` requests the device indices of the cohort of a round. `dispatch` requests
            the index of the next device, or None for a random draw as in the scenario. `grants` requests shares of the
            band, transmit powers and clock frequencies, as a `Grant` of arrays.
        known: the information of the server, as a `ServerView`; for `grants`, the device indices and their `Round`.
    """

    name: Literal["invite", "dispatch", "grants"]
    known: Any

    def __repr__(self) -> str:
        return f"the question {self.name}"


class Outside(NamedTuple):
    """Set of decisions that the caller of a run takes in place of the scenario."""

    questions: frozenset[str] = frozenset()  # names of the decisions; scenario settings determine all other decisions
    statistics: tuple[Statistic, ...] = ()  # statistics sent with uploads, in addition to those of the selection rule


@dataclass(frozen=True, slots=True)
class Orders:
    """Settings for the devices of one round that replace the algorithm's settings; None keeps the algorithm's."""

    deadline_s: float | None = None  # maximum time in s that the server waits for the uploads
    steps: Array | None = None  # shares [devices] of the algorithm's local steps, in (0, 1]
    ratio: Array | None = None  # shares [devices] of the entries that a sparse upload keeps, in (0, 1]

    def plan(self, plan: SgdPlan, device: int, n_samples: int) -> SgdPlan:
        """Return the training plan of a device, shortened to the share `steps` of its local steps (at least one)."""
        if self.steps is None or not n_samples:
            return plan
        most = plan.n_steps(n_samples)
        steps = max(1, math.ceil(most * float(self.steps[device])))
        return plan if steps >= most else replace(plan, epochs=None, steps=steps)
