"""Oort: selects devices whose data are useful in relation to the time that the devices need in a round.

Lai, Zhu, Madhyastha, Chowdhury: "Oort: Efficient Federated Learning via Guided Participant Selection", OSDI 2021,
Algorithm 1, https://www.usenix.org/conference/osdi21/presentation/lai

Method: a device is explored once one of its updates has arrived. In round R = 1, 2, ..., the utility of an explored
device i with samples B_i is the statistical utility U(i) = |B_i| sqrt(mean of loss^2 over B_i), limited to a high
percentile, plus sqrt(0.1 log R / L(i)), where L(i) is the round of its latest update. The sum is multiplied by (T /
D(i))^alpha if the device's round duration D(i) exceeds the preferred duration T. A share 1 - epsilon of the cohort is
drawn in proportion to utility, among all devices whose utility is at least c times the lowest utility that a selection
of only the most useful devices would contain. The rest of the cohort consists of unexplored devices, drawn in
proportion to speed. The share epsilon decays. The pacer increases T by Delta if the utility of the rounds in a window
is lower than in the previous window. Devices that have taken part often enough are left out.

Symbols: alpha is `penalty`, epsilon `exploration`, c `cut_off`, W `window`, Delta `pacer_percent`.

Differences from the paper: as in the authors' code, T is a percentile of the durations of all explored devices, and
Delta is a step of this percentile, so both adapt to the time scale of the scenario. The pacer checks once per window,
as in the authors' code. The duration of a device that was cancelled at a deadline is the time until the deadline. The
speed of an unexplored device is 1 over its estimated time to compute and upload. If there are too few explored or too
few unexplored devices, more devices of the other group are drawn.

Differences from the authors' code: the loss is the mean over all samples of all local steps, before each step; the
authors' code uses only the last batch (https://github.com/SymbioticLab/FedScale/issues/249). Statistical utilities are
not normalised to [0, 1] before the second term is added, so the second term has less weight.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from pydantic import Field

from fednet_emu.algorithms.selection.base import Selection, ServerView, weighted
from fednet_emu.arrays import Array, IntArray


@dataclass
class Pacer:
    """State of the pacer: percentile of the preferred duration, and the total utility of each past round."""

    percent: float
    brought: list[float] = field(default_factory=list)


class Oort(Selection):
    """Selects mostly devices with useful data and short rounds, and also some devices that were never selected.

    Every device sends two metrics with its upload: the mean of its squared losses, and its number of samples.
    """

    single_uploads = "reads the losses that single devices report"
    reports = ("square", "samples")
    exploration: float = Field(0.9, ge=0, le=1)
    """Share of the cohort that is reserved for unexplored devices in the first round (epsilon); 0.9 in the paper."""
    exploration_decay: float = Field(0.98, gt=0, le=1)
    """Factor by which the exploration share is multiplied from round to round; 0.98 in the paper."""
    min_exploration: float = Field(0.2, ge=0, le=1)
    """Minimum of the decaying exploration share; 0.2 in the paper."""
    penalty: float = Field(2.0, ge=0)
    """Exponent alpha of the factor (preferred duration / own duration), which reduces the utility of devices that are
    slower than the preferred duration; 2 in the paper. If it is 0, durations have no effect."""
    cut_off: float = Field(0.95, ge=0, le=1)
    """Minimum utility of a device in the random draw, as a share c of the lowest utility that a selection of only the
    most useful devices would contain; 0.95 in the paper."""
    clip_percent: float = Field(95.0, gt=0, le=100)
    """Percentile of the devices' statistical utilities at which higher statistical utilities are clipped; 95 in the
    paper."""
    preferred_percent: float = Field(30.0, gt=0, le=100)
    """Initial preferred duration T, as a percentile of the known durations; 30 in the authors' code."""
    pacer_percent: float = Field(5.0, ge=0, le=100)
    """Step by which the pacer raises the percentile of the preferred duration (Delta); 5 in the authors' code."""
    window: int = Field(20, gt=0)
    """Number of rounds over which the pacer, which adapts the preferred duration, sums utilities (W); 20 in the paper.
    """
    max_rounds: int | None = Field(None, gt=0)
    """Number of updates after which a device is no longer selected, if enough other devices remain; null for no limit.
    """

    def _check(self) -> None:
        if self.min_exploration > self.exploration:
            raise ValueError(
                f"min_exploration is more than exploration, got {self.min_exploration:g} and {self.exploration:g}"
            )

    def start(self, n_devices: int) -> Pacer:
        return Pacer(self.preferred_percent)

    def choose(self, view: ServerView) -> Sequence[int]:
        utility = statistical_utility(view.told["samples"], view.told["square"])
        self._pace(view, utility)
        there = self._not_worn_out(view)
        explored = ~np.isnan(utility)
        known, unknown = there[explored[there]], there[~explored[there]]
        epsilon = max(self.exploration * self.exploration_decay**view.t, self.min_exploration)
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
        """Return the utilities [n] of explored devices in round `round_` = 1, 2, ... (R).

        For these devices, `statistical` contains the statistical utilities [n], `took_s` the durations [n], and
        `last_round` the rounds [n] of the latest updates, from 1 (L). `preferred_s` is the preferred duration T.
        """
        clipped = np.minimum(statistical, np.percentile(statistical, self.clip_percent))
        total = clipped + np.sqrt(0.1 * math.log(round_) / last_round)
        late = took_s > preferred_s
        factor = np.ones(len(total))
        factor[late] = (preferred_s / took_s[late]) ** self.penalty
        return total * factor

    def _pace(self, view: ServerView, utility: Array) -> None:
        """Record the utility of the latest round; increase the preferred duration if utilities have fallen."""
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
        """Return present devices with fewer than `max_rounds` updates; if too few, devices with the fewest updates."""
        if self.max_rounds is None:
            return view.there
        often = view.arrived[view.there]
        fresh = view.there[often < self.max_rounds]
        if len(fresh) >= view.size:
            return fresh
        return np.sort(view.there[np.argsort(often, kind="stable")[: view.size]])


_ALL = 100.0


def statistical_utility(samples: Array, square: Array) -> Array:
    """Return `samples` times the root of `square`, the mean of loss^2, for each device [N]; nan if unknown."""
    return samples * np.sqrt(square)
