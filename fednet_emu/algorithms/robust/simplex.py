"""The simplex: the weights p >= 0 with sum(p) = 1."""

from __future__ import annotations

import numpy as np

from fednet_emu.arrays import Array


def project(v: Array) -> Array:
    """The point of the simplex that is nearest to v [N]: O(N log N), by sorting.

    p = max(0, v - theta) with theta such that the sum is 1. Only differences of entries matter, so the largest one is
    taken off first: beside it the 1 would be lost in entries above 1e16.
    """
    below = v - v.max()
    falling = -np.sort(-below)
    theta = (np.cumsum(falling) - 1.0) / np.arange(1, len(v) + 1)
    last = np.flatnonzero(falling > theta)[-1]
    return as_weights(below - theta[last])


def as_weights(p: Array) -> Array:
    """Weights out of numbers [N] that are weights up to rounding: none below 0, their sum 1."""
    positive: Array = np.maximum(p, 0.0)
    positive /= positive.sum()
    return positive
