"""Age of update: whose latest update is oldest.

Yang, Arafa, Quek, Poor: "Age-Based Scheduling Policy for Federated Learning in Mobile Edge Networks", ICASSP 2020,
https://arxiv.org/abs/1910.14648. The age of a device grows by 1 in every round, and is 0 after a round in which its
update has arrived; the devices are scheduled that maximise the sum of f(age), where f increases.

Differences from the paper: every device costs one place of the cohort, where the paper shares out sub-channels by the
channel, so that the largest ages maximise the sum whatever f is, and no f is to be chosen. Equal ages are drawn at
random.
"""

from __future__ import annotations

from collections.abc import Sequence

from fednet_emu.algorithms.selection.base import Seen, Selection, highest


class Age(Selection):
    """The devices whose latest update that arrived is oldest; those of whom none has arrived are oldest of all.

    Unlike `round-robin` it asks a device again whose upload was lost.
    """

    def choose(self, seen: Seen) -> Sequence[int]:
        """The largest ages, in rounds."""
        return highest((seen.t - seen.last_arrived).astype(float), seen)
