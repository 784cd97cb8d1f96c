"""Oort: devices with the most useful data for their duration.

Lai, Zhu, Madhyastha, Chowdhury: "Oort: Efficient Federated Learning via Guided Participant Selection", OSDI 2021,
Algorithm 1, https://www.usenix.org/conference/osdi21/presentation/lai

Line by line: in round R = 1, 2, ..., the utility of device i that has been explored is U(i) = |B_i| sqrt(mean of loss^2
over B_i), cut off at a high percentile, plus sqrt(0.1 log R / L(i)), L(i) being the round of its latest update, the
whole times (T / D(i))^alpha if its duration D(i) exceeds the preferred T; a share 1 - epsilon of the cohort is drawn in
proportion to utility among all whose utility is at least c times the utility of the last device that would be selected
without a draw; the others are unexplored devices, drawn by their speed. epsilon decays. The pacer gives more time, T +
Delta, when the utility of the rounds of a window is less than in the window before. Devices that have taken part often
enough are left out.

Symbols: alpha is `penalty`, epsilon `exploration`, c `cut_off`, W `window`, Delta `pacer_percent`.

Differences from the paper: T is a percentile of the durations of all explored devices, and Delta a step of that
percentile, as in the authors' code, so that neither depends on the scenario's seconds; the pacer looks once in each
window, as there. A device cancelled at a deadline has the deadline as its duration. The speed of an unexplored device
is 1 over its estimated time to compute and upload. A place that one of the two draws cannot fill is filled by the
other.

Differences from the authors' code: the loss is the mean over all samples of all local steps, before each step, where
the code keeps the last batch only (https://github.com/SymbioticLab/FedScale/issues/249); utilities are not normalised
to [0, 1] before the second term is added, which therefore weighs less.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
from pydantic import Field

from fednet_emu.algorithms.selection.base import Selection, ServerView, weighted
from fednet_emu.arrays import Array, IntArray
from fednet_emu.federation import Statistic


@dataclass
class Pacer:
    """The preferred duration, as a percentile of the known durations, and the utility of each past round."""

    percent: float
    brought: list[float] = field(default_factory=list)


class Oort(Selection):
    """Exploits devices of high utility, statistical and in time, and explores unknown devices.

    Every device sends two metrics with its upload: the mean square of its samples' losses, and their number.
    """

    single_uploads: ClassVar[str] = "reads the losses that single devices report"
    reports: ClassVar[tuple[Statistic, ...]] = ("square", "samples")
    exploration: float = Field(0.9, ge=0, le=1)
    """Share of the cohort that is unexplored devices in the first round (epsilon); 0.9 in the paper."""
    exploration_decay: float = Field(0.98, gt=0, le=1)
    """Factor of that share from round to round; 0.98 in the paper."""
    least_exploration: float = Field(0.2, ge=0, le=1)
    """The share does not decay below this; 0.2 in the paper."""
    penalty: float = Field(2.0, ge=0)
    """Power of T over duration for slow devices (alpha); 2 in the paper, 0 ignores time."""
    cut_off: float = Field(0.95, ge=0, le=1)
    """Devices are drawn whose utility is at least this share of the last place's (c); 0.95 in the paper."""
    clip_percent: float = Field(95.0, gt=0, le=100)
    """Statistical utilities above this percentile count as much as it; 95 in the paper."""
    preferred_percent: float = Field(30.0, gt=0, le=100)
    """Percentile of the known durations that is preferred at first (T); 30 in the authors' code."""
    pacer_percent: float = Field(5.0, ge=0, le=100)
    """Step by which the pacer raises that percentile (Delta); 5 in the authors' code."""
    window: int = Field(20, gt=0)
    """Rounds whose utilities the pacer adds up (W); 20 in the paper."""
    most_rounds: int | None = Field(None, gt=0)
    """Updates after which a device is left out while there are others; null never leaves a device out."""

    def _check(self) -> None:
        if self.least_exploration > self.exploration:
            raise ValueError(
                f"least_exploration is more than exploration, got {self.least_exploration:g} and {self.exploration:g}"
            )

    def start(self, n_devices: int) -> Pacer:
        return Pacer(self.preferred_percent)

    def choose(self, view: ServerView) -> Sequence[int]:
        utility = statistical_utility(view.told["samples"], view.told["square"])
        self._pace(view, utility)
        there = self._not_worn_out(view)
        explored = ~np.isnan(utility)
        known, unknown = there[explored[there]], there[~explored[there]]
        epsilon = max(self.exploration * self.exploration_decay**view.t, self.least_exploration)
        exploit = min(int(view.size * (1.0 - epsilon)), len(known))
        explore = min(view.size - exploit, len(unknown))
        exploit = min(view.size - explore, len(known))
        chosen: list[int] = []
        if exploit:
            preferred_s = self._preferred_s(view)
            total = self.utility(
                utility[known], view.took_s[known], view.last_arrived[known] + 1, view.t + 1, preferred_s
            )
            edge = self.cut_off * np.sort(total)[-exploit]
            admitted = total >= edge
            chosen += weighted(known[admitted], total[admitted], exploit, view.rng)
        if explore:
            speed = 1.0 / (view.compute_s[unknown] + view.upload_s[unknown])
            chosen += weighted(unknown, speed, explore, view.rng)
        return chosen

    def utility(
        self, statistical: Array, took_s: Array, last_round: IntArray, round_: int, preferred_s: float
    ) -> Array:
        """Utilities [n] of explored devices in round `round_`, from 1 (R).

        From their statistical utilities [n], durations `took_s` [n] and the rounds [n], from 1, of their latest updates
        (L), with the preferred duration T.
        """
        clipped = np.minimum(statistical, np.percentile(statistical, self.clip_percent))
        total = clipped + np.sqrt(0.1 * math.log(round_) / last_round)
        late = took_s > preferred_s
        factor = np.ones(len(total))
        factor[late] = (preferred_s / took_s[late]) ** self.penalty
        return total * factor

    def _pace(self, view: ServerView, utility: Array) -> None:
        """Record the utility of the latest round; prefer longer durations when the utility of rounds falls."""
        pacer: Pacer = view.memory
        if not view.t:
            return
        pacer.brought.append(float(utility[view.last_arrived == view.t - 1].sum()))
        w = self.window
        if view.t >= 2 * w and view.t % w == 0 and sum(pacer.brought[-2 * w : -w]) > sum(pacer.brought[-w:]):
            pacer.percent = min(100.0, pacer.percent + self.pacer_percent)

    def _preferred_s(self, view: ServerView) -> float:
        pacer: Pacer = view.memory
        known_s = view.took_s[~np.isnan(view.took_s)]
        return float(np.percentile(known_s, pacer.percent)) if pacer.percent < _ALL else math.inf

    def _not_worn_out(self, view: ServerView) -> IntArray:
        """The present devices below `most_rounds`; if these are too few, the devices with the fewest updates."""
        if self.most_rounds is None:
            return view.there
        often = view.arrived[view.there]
        fresh = view.there[often < self.most_rounds]
        if len(fresh) >= view.size:
            return fresh
        return np.sort(view.there[np.argsort(often, kind="stable")[: view.size]])


_ALL = 100.0


def statistical_utility(samples: Array, square: Array) -> Array:
    """|B| sqrt(mean of loss^2) of each device [N], from its number of samples and that mean; nan where unknown."""
    return samples * np.sqrt(square)
