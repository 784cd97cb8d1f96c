"""Projections onto the simplex: the weights p >= 0 with sum(p) = 1."""

from __future__ import annotations

import numpy as np

from fednet_emu.arrays import Array


def project(v: Array) -> Array:
    """The point of the simplex that is nearest to v [N]: O(N log N), by sorting."""
    return project_weighted(v, np.ones_like(v))


def project_weighted(v: Array, variance: Array) -> Array:
    """The point p of the simplex with the smallest sum((p - v)^2 / variance), for v and variance > 0, both [N].

    p = max(0, v - theta * variance) with theta such that the sum is 1: entries leave in the order of v / variance.
    """
    order = np.argsort(-v / variance, kind="stable")
    theta = (np.cumsum(v[order]) - 1.0) / np.cumsum(variance[order])
    last = np.flatnonzero(v[order] > theta * variance[order])[-1]
    p: Array = np.maximum(v - theta[last] * variance, 0.0)
    p /= p.sum()
    return p
