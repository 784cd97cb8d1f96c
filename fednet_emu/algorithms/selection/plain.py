"""Rules that need no more than who is there: a uniform draw, everybody, and in turns."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fednet_emu.algorithms.selection.base import Seen, Selection
from fednet_emu.federation.cohort import draw


class Uniform(Selection):
    """A uniform draw among the devices that are there, as in McMahan et al., AISTATS 2017."""

    def choose(self, seen: Seen) -> Sequence[int]:
        """Each subset is equally likely."""
        return draw(seen.there, seen.size, seen.rng)


class Everybody(Selection):
    """Every device that is there; `cohort` counts for nothing."""

    kind = "all"

    def most(self, cohort: int, n_devices: int) -> int:
        """All devices."""
        return n_devices

    def choose(self, seen: Seen) -> Sequence[int]:
        """All."""
        chosen: list[int] = seen.there.tolist()
        return chosen


class RoundRobin(Selection):
    """In turns: those that have waited longest since they were asked, in the order of their numbers.

    While all devices are there, these are cyclic groups of `cohort` neighbours; who was away is asked when it is back.
    """

    def choose(self, seen: Seen) -> Sequence[int]:
        """Those asked longest ago; among those asked in the same round, whoever was asked less often goes first."""
        there = seen.there
        order = np.lexsort((there, seen.asked[there], seen.last_asked[there]))
        chosen: list[int] = there[order[: seen.size]].tolist()
        return chosen
