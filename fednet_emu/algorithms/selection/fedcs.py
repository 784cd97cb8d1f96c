"""FedCS: selects as many devices as fit into a round according to their estimated times.

Nishio, Yonetani: "Client Selection for Federated Learning with Heterogeneous Resources in Mobile Edge", ICC 2019,
https://arxiv.org/abs/1804.08333, Algorithms 1 to 3

Method: some random devices report their resources. While candidates are left, the next candidate is the one that adds
the shortest time to the round: t_up + max(0, t_cmp - Theta) + the increase of the distribution time. Here t_up is the
upload time of the candidate, t_cmp its computation time, and Theta the time from the end of the distribution to the end
of the uploads chosen so far. The candidate is chosen if the round still ends before T_round. Uploads are sequential,
each after the computation of its device, and the model is sent by one multicast at the rate of the slowest chosen
device.

Differences from the paper: the rule stops when it has chosen `cohort` devices. Reports of resources take no time and no
bits, nor does aggregation. A round is never empty: if no device fits, the fastest is selected alone. T_round limits
only the estimated duration of a round; `deadline_s` ends a round.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from pydantic import Field

from fednet_emu.algorithms.selection.base import Selection, ServerView
from fednet_emu.arrays import Array
from fednet_emu.federation.cohort import draw


class FedCs(Selection):
    """Selects devices one by one, each time the device that adds least to the estimated time of the round."""

    kind = "fedcs"
    single_uploads = "fits in uploads that go one after the other"
    round_s: float = Field(180.0, gt=0)
    """Maximum estimated duration of a round, in s (T_round); 3 minutes in the paper."""
    candidates: int | None = Field(None, gt=0)
    """Number of devices, drawn uniformly, from which the rule selects; null for all present devices."""

    def problem(self, cohort: int) -> str:
        few = self.candidates is not None and self.candidates < cohort
        return f"candidates are fewer than the cohort, got {self.candidates} and {cohort}" if few else ""

    def choose(self, view: ServerView) -> Sequence[int]:
        able = draw(view.there, self.candidates or len(view.there), view.rng)
        places = greedy(view.download_s[able], view.compute_s[able], view.upload_s[able], self.round_s, view.size)
        return [able[place] for place in places]


def greedy(download_s: Array, compute_s: Array, upload_s: Array, round_s: float, size: int) -> list[int]:
    """Return the indices of at most `size` devices in the order of selection, from their estimated times [n] in s.

    Each step selects the device that adds the least time to the round, if the round then takes less than `round_s`. Of
    several such devices, the one with the lowest index is selected. If none fits, only the fastest is selected.
    """
    left, chosen = np.arange(len(upload_s)), list[int]()
    sent_s, ends_s = 0.0, 0.0  # T^d and Theta
    while len(left) and len(chosen) < size:
        wait_s = np.maximum(compute_s[left] - ends_s, 0.0)
        later_s = np.maximum(download_s[left], sent_s)
        best = int(np.argmin(later_s - sent_s + upload_s[left] + wait_s))
        place = int(left[best])
        after_s = ends_s + float(upload_s[place] + wait_s[best])
        if float(later_s[best]) + after_s < round_s:
            chosen.append(place)
            sent_s, ends_s = float(later_s[best]), after_s
        left = np.delete(left, best)
    return chosen or [int(np.argmin(download_s + compute_s + upload_s))]
