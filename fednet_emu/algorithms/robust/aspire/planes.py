"""The cutting planes of ASPIRE: a versioned list of weights, and the three ways of keeping it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np

from fednet_emu.arrays import Array

Upkeep = Literal["ease", "cp", "fixed"]
"""ease adds the worst case and drops idle planes; cp only adds; fixed keeps the prior alone, its multiplier at 1."""

GAIN = 1e-12
"""A worst case is a new plane when it exceeds all planes by more than this."""
IDLE = 1e-10
"""A multiplier up to this counts as zero."""


class Planes(NamedTuple):
    """A list of planes that never changes; `version` tells it from the lists before and after."""

    version: int  # how many lists there were before
    p: Array  # weights [L, N], one row per plane


def renewed(
    planes: Planes, upkeep: Upkeep, worst: Array, losses: Array, lam: Array, lam_before: Array, max_planes: int
) -> tuple[Planes, list[int], int]:
    """The planes after a plane step of the master, eqs. (20) and (21).

    The result is the list; the old row of each of its planes, or -1 for a new one; and how many planes had to make room
    although their multipliers were above 0.

    Args:
        planes: the old list.
        upkeep: the rule that adds and drops planes.
        worst: the worst-case weights [N] for the losses; they become a plane if they cut something off.
        losses: latest loss of each worker [N].
        lam: multipliers [L].
        lam_before: multipliers [L] one iteration earlier.
        max_planes: longest list; beyond it the old planes with the smallest multipliers are dropped.
    """
    values = planes.p @ losses
    adds = float(worst @ losses) > float(values.max()) + GAIN
    kept = list(range(len(planes.p)))
    if upkeep == "ease":
        used = np.maximum(lam, lam_before) > IDLE
        kept = [row for row in kept if used[row]] or ([] if adds else [int(np.argmax(values))])
    by_use = sorted(kept, key=lambda row: -lam[row])
    room = max_planes - adds
    kept, displaced = sorted(by_use[:room]), sum(lam[row] > IDLE for row in by_use[room:])
    if not adds and len(kept) == len(planes.p):
        return planes, kept, 0
    rows = [planes.p[kept], worst[None]] if adds else [planes.p[kept]]
    return Planes(planes.version + 1, np.concatenate(rows)), kept + [-1] * adds, displaced


def moved_to(origin: Sequence[int], lam: Array) -> Array:
    """The multipliers of a new list: unchanged for kept planes, zero for a new one."""
    return np.array([lam[row] if row >= 0 else 0.0 for row in origin])
