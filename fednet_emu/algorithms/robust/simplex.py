"""The simplex: the weights p >= 0 with sum(p) = 1."""

from __future__ import annotations

import numpy as np

from fednet_emu.arrays import Array


def project(v: Array) -> Array:
    """The point of the simplex nearest to v [N], by sorting in O(N log N).

    p = max(0, v - theta), with theta such that the sum is 1. Only differences of entries matter, so the largest entry
    is subtracted first: otherwise the 1 would be lost to rounding for entries above 1e16.
    """
    below = v - v.max()
    falling = -np.sort(-below)
    theta = (np.cumsum(falling) - 1.0) / np.arange(1, len(v) + 1)
    last = np.flatnonzero(falling > theta)[-1]
    return as_weights(below - theta[last])


def as_weights(p: Array) -> Array:
    """Remove rounding errors from weights p [N]: clip them at 0 and normalise their sum to 1."""
    positive: Array = np.maximum(p, 0.0)
    positive /= positive.sum()
    return positive
