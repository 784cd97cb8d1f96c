"""Short selection rules: uniform, all devices, cell interior, Poisson, round robin, highest rates, ages or charges."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from pydantic import Field

from fednet_emu.algorithms.selection.base import Selection, ServerView, highest
from fednet_emu.arrays import Array, IntArray
from fednet_emu.federation.cohort import draw


class Uniform(Selection):
    """Draws devices uniformly from the present devices, as in McMahan et al., AISTATS 2017."""

    def choose(self, view: ServerView) -> Sequence[int]:
        return draw(view.there, view.size, view.rng)


class Everybody(Selection):
    """Selects all present devices; `cohort` has no effect."""

    kind = "all"

    def most(self, cohort: int, n_devices: int) -> int:
        return n_devices

    def rate(self, cohort: int, n_devices: int) -> float:
        return 1.0

    def choose(self, view: ServerView) -> Sequence[int]:
        chosen: list[int] = view.there.tolist()
        return chosen


class CellInterior(Selection):
    """Draws devices uniformly from the interior of the cell, i.e. from the devices with the highest uplink rates.

    Zhu, Wang, Huang: "Broadband Analog Aggregation for Low-Latency Federated Edge Learning", IEEE Transactions on
    Wireless Communications 19(1), 2020, https://arxiv.org/abs/1812.11494. If the devices at the edge of the cell are
    excluded, aligned signals are stronger, but less data contributes to the model.

    Differences from the paper: the server knows expected rates instead of distances, so the interior consists of the
    fraction `share` of devices with the highest expected uplink rates. With equal powers and without shadowing, these
    devices are the nearest. The cohort is drawn from the interior.
    """

    share: float = Field(0.5, gt=0, le=1)
    """Share of all devices that belong to the interior; the interior contains at least one device. For an interior of
    radius r in a cell of radius R with uniform placement, the share is (r / R)^2."""

    def most(self, cohort: int, n_devices: int) -> int:
        return min(cohort, self._inside(n_devices))

    def choose(self, view: ServerView) -> Sequence[int]:
        order = view.there[np.argsort(-view.rate_bps[view.there], kind="stable")]
        return draw(np.sort(order[: self._inside(len(view.invited))]), view.size, view.rng)

    def _inside(self, n_devices: int) -> int:
        return max(1, round(self.share * n_devices))


class Poisson(Selection):
    """Selects each present device independently with probability `cohort` / (number of devices), possibly none.

    This sampling is used in differential privacy, see McMahan et al., ICLR 2018, https://arxiv.org/abs/1710.06963.
    """

    def most(self, cohort: int, n_devices: int) -> int:
        return n_devices

    def rate(self, cohort: int, n_devices: int) -> float:
        return cohort / n_devices

    def choose(self, view: ServerView) -> Sequence[int]:
        drawn = view.rng.random(len(view.invited))[view.there] < view.size / len(view.invited)
        chosen: list[int] = view.there[drawn].tolist()
        return chosen


class RoundRobin(Selection):
    """Selects the devices whose last invitation was longest ago; ties go to the lowest indices.

    While all devices are present, the cohorts are cyclic groups of `cohort` consecutive devices; a device that was
    absent is selected when it returns.
    """

    def choose(self, view: ServerView) -> Sequence[int]:
        there = view.there
        order = np.lexsort((there, view.invited[there], view.last_invited[there]))
        chosen: list[int] = there[order[: view.size]].tolist()
        return chosen


class Age(Selection):
    """Selects the devices whose latest arrived update is oldest; devices without an arrived update come first.

    Yang, Arafa, Quek, Poor: "Age-Based Scheduling Policy for Federated Learning in Mobile Edge Networks", ICASSP 2020,
    https://arxiv.org/abs/1910.14648. The age of a device grows by 1 in every round, and is 0 after a round in which its
    update has arrived. The scheduled devices maximise the sum of f(age), where f is an increasing function. Unlike
    `round-robin`, the rule selects a device again after a lost upload.

    Differences from the paper: `cohort` devices are scheduled in each round, whereas the paper allocates sub-channels
    by channel state. The devices with the largest ages therefore maximise the sum for any f, so f need not be
    specified. Ties are broken at random.
    """

    def choose(self, view: ServerView) -> Sequence[int]:
        return highest((view.t - view.last_arrived).astype(float), view)


class MostCharged(Selection):
    """Selects the devices with the most energy in their batteries; ties are broken at random.

    The rule is the power term of EAFL: Arouj, Abdelmoniem, "Towards Energy-Aware Federated Learning on Battery-Powered
    Clients", FedEdge at MobiCom 2022, https://arxiv.org/abs/2208.04505.
    """

    def choose(self, view: ServerView) -> Sequence[int]:
        return highest(view.charge_j, view)


class BestChannel(Selection):
    """Selects the devices with the highest expected uplink rates; rounds are fast, but far devices never take part."""

    def choose(self, view: ServerView) -> Sequence[int]:
        return highest(view.rate_bps, view)


class Past(NamedTuple):
    """Mean rates [N] of the devices in past rounds, and the number of rounds [N] over which each mean is taken."""

    mean_bps: Array
    rounds: IntArray


class ProportionalFair(Selection):
    """Selects the devices whose expected uplink rate is highest relative to its mean over earlier rounds.

    Yang, Liu, Quek, Poor: "Scheduling Policies for Federated Learning in Wireless Networks", IEEE Transactions on
    Communications 68(1), 2020, https://arxiv.org/abs/1908.06287, compares this rule with random scheduling and round
    robin. In the paper, the rule selects the devices with the largest ratios of the current SNR to the time average of
    the SNR.

    Differences from the paper: expected rates at the current mean SNR replace the SNR in the ratio. The ratio therefore
    follows distance, shadowing and recorded links, but not the fading of the transmission itself, which is unknown when
    a round begins. The average is over the earlier rounds at whose start the device was present. If devices do not
    move, all ratios are 1 and the selection is uniform.
    """

    def start(self, n_devices: int) -> Past:
        return Past(np.zeros(n_devices), np.zeros(n_devices, np.int64))

    def choose(self, view: ServerView) -> Sequence[int]:
        past: Past = view.memory
        there, rate_bps = view.there, view.rate_bps
        known = there[(past.rounds[there] > 0) & (past.mean_bps[there] > 0)]
        ratio = np.ones(len(rate_bps))
        ratio[known] = rate_bps[known] / past.mean_bps[known]
        chosen = highest(ratio, view)
        past.rounds[there] += 1
        past.mean_bps[there] += (rate_bps[there] - past.mean_bps[there]) / past.rounds[there]
        return chosen
