"""The weights of collaborative relaying: unbiased, with the smallest variance for given link probabilities.

Theory of `colrel.py`, in the symbols of the paper: relay j reaches the server with probability p[j] and receives source
i with probability P[i, j] (P[i, i] = 1); it sends the sum of a[j, i] delta_i over the sources i that it received, where
delta_i is the update of source i.
"""

from __future__ import annotations

import numpy as np

from fednet_emu.arrays import Array

_BISECTIONS = 60


def start_weights(p: Array, reach: Array) -> Array:
    """Initial unbiased weights a [relays, sources] from p [devices] and P [sources, relays].

    All usable relays of a source contribute equally.
    """
    chance = (reach * p[None, :]).T
    usable = chance > 0
    count = np.maximum(usable.sum(axis=0), 1)
    return np.where(usable, 1.0 / (count * np.where(usable, chance, 1.0)), 0.0)


def bias(a: Array, p: Array, reach: Array) -> Array:
    """Expected weight of each source minus 1, [sources]; it is -1 for a source that no device can relay."""
    return np.asarray((a * (reach * p[None, :]).T).sum(axis=0) - 1.0)


def variance(a: Array, p: Array, reach: Array, *, reciprocal: bool = False) -> float:
    """The paper's S(p, P, A), to which the variance of the server's update is proportional.

    With weights a [relays, sources], p [devices] and P [sources, relays]; `reciprocal` is for directions of a link that
    work in the same rounds, instead of independently.
    """
    heard = reach.T
    relayed = (heard * a).sum(axis=1)
    through_server = (p * (1.0 - p) * relayed**2).sum()
    between = (p[:, None] * heard * (1.0 - heard) * a**2).sum()
    both = (p[:, None] * p[None, :] * heard * (1.0 - heard) * a * a.T).sum() if reciprocal else 0.0
    return float(through_server + between + both)


def best_weights(p: Array, reach: Array, *, reciprocal: bool = False, sweeps: int = 50) -> Array:
    """The unbiased, non-negative weights a [relays, sources] that minimise `variance`.

    Gauss-Seidel over sources: with all other weights fixed, the optimal weights of a source are
    max(0, (mu - c_j) / d_j), and bisection finds the multiplier mu for which they are unbiased. It stops early when a
    sweep improves by less than 1e-9.
    """
    a = start_weights(p, reach)
    last = variance(a, p, reach, reciprocal=reciprocal)
    for _ in range(sweeps):
        for source in range(len(p)):
            _renew(a, p, reach, source, reciprocal=reciprocal)
        now = variance(a, p, reach, reciprocal=reciprocal)
        if last - now <= 1e-9 * abs(last):
            break
        last = now
    return a


def _renew(a: Array, p: Array, reach: Array, source: int, *, reciprocal: bool) -> None:
    """Replace the weights of one source by their optimal values, in place."""
    heard = reach[source]
    relays = np.flatnonzero(heard * p > 0)
    if not len(relays):
        return
    p_j, h_j = p[relays], heard[relays]
    chance = p_j * h_j
    free = chance >= 1.0
    if free.any():  # relays that never fail add no variance
        a[:, source] = 0.0
        a[relays[free], source] = 1.0 / free.sum()
        return
    others = (reach[:, relays].T * a[relays]).sum(axis=1) - h_j * a[relays, source]
    cost = (1.0 - p_j) * others
    if reciprocal:
        cost += np.where(relays == source, 0.0, p[source] * (1.0 - h_j) * a[source, relays])
    a[relays, source] = unbiased(cost, 1.0 - chance, chance)


def unbiased(cost: Array, steepness: Array, chance: Array) -> Array:
    """Weights max(0, (mu - cost) / steepness) [relays], with mu such that their sum weighted by `chance` is 1."""
    low, high = float(cost.min()), float(cost.max() + (steepness / chance).max() + 1.0)
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2.0
        if (chance * np.maximum(0.0, (middle - cost) / steepness)).sum() < 1.0:
            low = middle
        else:
            high = middle
    weights = np.maximum(0.0, (high - cost) / steepness)
    return np.asarray(weights / (chance * weights).sum())
