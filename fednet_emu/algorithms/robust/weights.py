"""Device weights: projection onto the simplex (p >= 0, sum(p) = 1), and the prior weights before training."""

from __future__ import annotations

import numpy as np
from pydantic import Field

from fednet_emu.arrays import Array, IntArray
from fednet_emu.component.component import Component


class Prior(Component):
    """Prior weights q of the devices: equal, except for suspected devices."""

    suspects: tuple[int, ...] = ()
    """Indices of the devices that may be malicious."""
    suspect_share: float = Field(0.1, ge=0, le=1)
    """Weight of a suspected device in units of 1 / N for N devices; the other devices share the remaining weight
    equally."""

    def weights(self, workers: IntArray) -> Array:
        """Return the prior weights q [N] of the devices `workers` [N], with a sum of 1; equal if all are suspected."""
        count = len(workers)
        suspect = np.isin(workers, self.suspects)
        if suspect.all():
            return np.full(count, 1.0 / count)
        own = self.suspect_share / count
        return np.where(suspect, own, (1.0 - own * suspect.sum()) / (~suspect).sum())


def project(v: Array) -> Array:
    """Return the point of the simplex nearest to `v` [N], by sorting in O(N log N).

    The result is p = max(0, v - theta), with theta such that the sum of p is 1. The largest entry is subtracted first,
    so that the sum of 1 is not lost to rounding if entries are above 1e16.
    """
    below = v - v.max()
    falling = -np.sort(-below)
    theta = (np.cumsum(falling) - 1.0) / np.arange(1, len(v) + 1)
    last = np.flatnonzero(falling > theta)[-1]
    return as_weights(below - theta[last])


def as_weights(p: Array) -> Array:
    """Return the weights `p` [N] without rounding errors: clipped at 0, and normalised to a sum of 1."""
    positive: Array = np.maximum(p, 0.0)
    positive /= positive.sum()
    return positive
