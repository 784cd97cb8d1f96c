"""Rules by the channel: the best rates, and proportional fairness.

Yang, Liu, Quek, Poor: "Scheduling Policies for Federated Learning in Wireless Networks", IEEE Transactions on
Communications 68(1), 2020, https://arxiv.org/abs/1908.06287, compares random scheduling, round robin and proportional
fair, which schedules the devices with the largest ratios of the SNR now to its time average.

Differences from the paper: the ratio is one of expected rates, at the mean SNR of this instant. So it follows distance,
shadowing and recorded links, and not the fading of the transmission itself, which nobody can know when a round begins.
The average is over the starts of earlier rounds at which the device was there. Where nothing moves, all ratios are 1
and the draw is uniform.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from fednet_emu.algorithms.selection.base import Seen, Selection, highest
from fednet_emu.arrays import Array, IntArray


class BestChannel(Selection):
    """The devices with the highest expected uplink rates: fast rounds, and the far devices never take part."""

    def choose(self, seen: Seen) -> Sequence[int]:
        """The highest rates."""
        return highest(seen.rate_bps, seen)


class Past(NamedTuple):
    """Mean rates [N] over the past, and over how many rounds [N]."""

    mean_bps: Array
    rounds: IntArray


class ProportionalFair(Selection):
    """The devices whose expected uplink rate is highest in proportion to its own mean over earlier rounds."""

    def start(self, n_devices: int) -> Past:
        """No past."""
        return Past(np.zeros(n_devices), np.zeros(n_devices, np.int64))

    def choose(self, seen: Seen) -> Sequence[int]:
        """The highest ratios; 1 for a device without a past."""
        past: Past = seen.memory
        there, rate_bps = seen.there, seen.rate_bps
        known = there[(past.rounds[there] > 0) & (past.mean_bps[there] > 0)]
        ratio = np.ones(len(rate_bps))
        ratio[known] = rate_bps[known] / past.mean_bps[known]
        chosen = highest(ratio, seen)
        past.rounds[there] += 1
        past.mean_bps[there] += (rate_bps[there] - past.mean_bps[there]) / past.rounds[there]
        return chosen
