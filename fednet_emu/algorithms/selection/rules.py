"""Short rules: a uniform draw, all devices, the interior of a cell, round robin, the highest rates, ages or charges."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from pydantic import Field

from fednet_emu.algorithms.selection.base import Selection, ServerView, highest
from fednet_emu.arrays import Array, IntArray
from fednet_emu.federation.cohort import draw


class Uniform(Selection):
    """A uniform draw among the present devices, as in McMahan et al., AISTATS 2017."""

    def choose(self, view: ServerView) -> Sequence[int]:
        return draw(view.there, view.size, view.rng)


class Everybody(Selection):
    """All present devices; `cohort` has no effect."""

    kind = "all"

    def most(self, cohort: int, n_devices: int) -> int:
        return n_devices

    def rate(self, cohort: int, n_devices: int) -> float:
        return 1.0

    def choose(self, view: ServerView) -> Sequence[int]:
        chosen: list[int] = view.there.tolist()
        return chosen


class CellInterior(Selection):
    """A uniform draw among the present devices with the highest expected uplink rates, which are near the base station.

    Zhu, Wang, Huang: "Broadband Analog Aggregation for Low-Latency Federated Edge Learning", IEEE Transactions on
    Wireless Communications 19(1), 2020, https://arxiv.org/abs/1812.11494: without the devices at the edge of the cell,
    aligned signals are stronger, and the share of the data is smaller.

    Differences from the paper: the server knows expected rates instead of distances, so `share` devices with the
    highest expected uplink rates are the interior; with one power and path loss without shadowing they are the nearest.
    The cohort is drawn among them.
    """

    share: float = Field(0.5, gt=0, le=1)
    """Share of the devices that are the interior, at least one device; (r / R)^2 for the radius r in a uniform cell
    with radius R."""

    def most(self, cohort: int, n_devices: int) -> int:
        return min(cohort, self._inside(n_devices))

    def choose(self, view: ServerView) -> Sequence[int]:
        order = view.there[np.argsort(-view.rate_bps[view.there], kind="stable")]
        return draw(np.sort(order[: self._inside(len(view.asked))]), view.size, view.rng)

    def _inside(self, n_devices: int) -> int:
        return max(1, round(self.share * n_devices))


class Poisson(Selection):
    """Each present device independently, with probability `cohort` over the number of devices; the cohort may be empty.

    The draw of differential privacy with sampling, as in McMahan et al., ICLR 2018, https://arxiv.org/abs/1710.06963.
    """

    def most(self, cohort: int, n_devices: int) -> int:
        return n_devices

    def rate(self, cohort: int, n_devices: int) -> float:
        return cohort / n_devices

    def choose(self, view: ServerView) -> Sequence[int]:
        drawn = view.rng.random(len(view.asked))[view.there] < view.size / len(view.asked)
        chosen: list[int] = view.there[drawn].tolist()
        return chosen


class RoundRobin(Selection):
    """The devices with the longest time since their last invitation, in the order of their numbers.

    While all devices are present, these are cyclic groups of `cohort` neighbours; a device that was away is selected
    when it is back.
    """

    def choose(self, view: ServerView) -> Sequence[int]:
        there = view.there
        order = np.lexsort((there, view.asked[there], view.last_asked[there]))
        chosen: list[int] = there[order[: view.size]].tolist()
        return chosen


class Age(Selection):
    """The devices whose latest arrived update is oldest; devices without an arrived update are oldest of all.

    Yang, Arafa, Quek, Poor: "Age-Based Scheduling Policy for Federated Learning in Mobile Edge Networks", ICASSP 2020,
    https://arxiv.org/abs/1910.14648. The age of a device grows by 1 in every round, and is 0 after a round in which its
    update has arrived; the devices are scheduled that maximise the sum of f(age), where f increases. Unlike
    `round-robin` it selects a device again after a lost upload.

    Differences from the paper: every device costs one place of the cohort, where the paper allocates sub-channels by
    the channel, so that the largest ages maximise the sum for any f, and no f is to be chosen. Equal ages are drawn at
    random.
    """

    def choose(self, view: ServerView) -> Sequence[int]:
        return highest((view.t - view.last_arrived).astype(float), view)


class MostCharged(Selection):
    """The devices with most energy in their batteries now; ties at random, so without batteries it is a uniform draw.

    The power term of EAFL alone: Arouj, Abdelmoniem, "Towards Energy-Aware Federated Learning on Battery-Powered
    Clients", FedEdge at MobiCom 2022, https://arxiv.org/abs/2208.04505.
    """

    def choose(self, view: ServerView) -> Sequence[int]:
        return highest(view.charge_j, view)


class BestChannel(Selection):
    """The devices with the highest expected uplink rates: fast rounds, and the far devices never take part."""

    def choose(self, view: ServerView) -> Sequence[int]:
        return highest(view.rate_bps, view)


class Past(NamedTuple):
    """Mean rates [N] over the past, and over how many rounds [N]."""

    mean_bps: Array
    rounds: IntArray


class ProportionalFair(Selection):
    """The devices whose expected uplink rate is highest in proportion to its own mean over earlier rounds.

    Yang, Liu, Quek, Poor: "Scheduling Policies for Federated Learning in Wireless Networks", IEEE Transactions on
    Communications 68(1), 2020, https://arxiv.org/abs/1908.06287, which compares random scheduling, round robin and
    this: the devices with the largest ratios of the present SNR to its time average.

    Differences from the paper: the ratio is one of expected rates, at the mean SNR of this instant. So it follows
    distance, shadowing and recorded links, and not the fading of the transmission itself, which is unknown when a round
    begins. The average is over the starts of earlier rounds at which the device was present. Without mobility, all
    ratios are 1 and the draw is uniform.
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
