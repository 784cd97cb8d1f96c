"""Linear minimisation oracles of Frank-Wolfe: the weights in a set at which a linear function is smallest."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from fednet_emu.algorithms.clustered.frank_wolfe.updates import matrix_of, pairs_of
from fednet_emu.arrays import Array, IntArray

Oracle = Callable[[Array, Array], Array]
"""The weights s [pairs] that minimise <s, g>, from the gradient g [pairs] and the current weights w [pairs]."""

ENUMERATED = 10
"""Largest number of clients for which every partition is tried (at most 42,525 partitions)."""
RESTARTS = 10


def box(g: Array, w: Array) -> Array:
    """The exact minimiser over all weights in [0, 1], pair by pair; where the slope is zero the weight is kept."""
    return np.where(g < 0, 1.0, np.where(g > 0, 0.0, w))


def clusters_oracle(n: int, k: int) -> Oracle:
    """The oracle over the partitions of n clients into exactly k clusters, whose matrices W have rank k.

    Minimising over these is correlation clustering, which is NP-hard. Up to `ENUMERATED` clients all partitions are
    tried; for more, the best of at most ten spectral starts is improved by moving one client at a time until no move
    helps.
    """
    i, j = pairs_of(n)
    if n > ENUMERATED:
        return lambda g, _: tied(_searched(g, n, k))
    labels = np.array(list(partitions(n, k)), dtype=np.int8)
    atoms: Array = (labels[:, i] == labels[:, j]).astype(np.float64)

    def enumerated(g: Array, _: Array) -> Array:
        best = int(np.argmin(atoms @ g))
        chosen: Array = atoms[best]
        return chosen

    return enumerated


def tied(labels: IntArray) -> Array:
    """The weights [pairs] of a partition given as labels [n]: 1 for pairs in one cluster, 0 for others."""
    i, j = pairs_of(len(labels))
    weights: Array = (labels[i] == labels[j]).astype(np.float64)
    return weights


def partitions(n: int, k: int | None = None) -> Iterator[tuple[int, ...]]:
    """All partitions of n clients, or those into exactly k clusters, as n labels; labels appear in ascending order."""

    def extended(prefix: tuple[int, ...], used: int) -> Iterator[tuple[int, ...]]:
        left = n - len(prefix)
        if k is not None and used + left < k:
            return
        if not left:
            yield prefix
            return
        for label in range(used + 1 if k is None else min(used + 1, k)):
            yield from extended((*prefix, label), max(used, label + 1))

    return extended((), 0)


def _searched(g: Array, n: int, k: int) -> IntArray:
    """Labels [n] of a partition into k clusters; moving any one client does not lower the sum of slopes in clusters."""
    slope = matrix_of(g, n) - np.eye(n)
    _, vectors = np.linalg.eigh(-slope)
    points = vectors[:, -k:]
    found = [_descended(slope, _grouped(points, start, k), k) for start in range(min(RESTARTS, n))]
    return min(found, key=lambda labels: float(tied(labels) @ g))


def _grouped(points: Array, start: int, k: int) -> IntArray:
    """Labels [n] of Lloyd's k-means; centre 0 is point `start`, each next one the point farthest from the others."""
    centres = points[[start]]
    while len(centres) < k:
        centres = np.vstack([centres, points[np.argmax(_squared(points, centres).min(1))]])
    labels = _squared(points, centres).argmin(1)
    for _ in range(20):
        sizes = np.bincount(labels, minlength=k)
        sums = np.stack([points[labels == c].sum(0) for c in range(k)])
        centres = np.where(sizes[:, None] > 0, sums / np.maximum(sizes, 1)[:, None], centres)
        labels = _squared(points, centres).argmin(1)
    return _filled(labels, k)


def _squared(points: Array, centres: Array) -> Array:
    squared: Array = np.square(points[:, None, :] - centres[None, :, :]).sum(2)
    return squared


def _filled(labels: IntArray, k: int) -> IntArray:
    """Labels [n] without empty clusters: each empty cluster takes one client of the largest cluster."""
    labels = labels.copy()
    for empty in np.flatnonzero(np.bincount(labels, minlength=k) == 0):
        largest = np.bincount(labels, minlength=k).argmax()
        labels[np.flatnonzero(labels == largest)[0]] = empty
    return labels


def _descended(slope: Array, labels: IntArray, k: int) -> IntArray:
    """Labels [n] after moving single clients, best move first, while the sum of slopes falls; no cluster is emptied."""
    labels, clients = labels.copy(), np.arange(len(labels))
    while True:
        inside = slope @ np.eye(k)[labels]
        change = inside - inside[clients, labels][:, None]
        change[np.bincount(labels, minlength=k)[labels] == 1] = 0.0
        client, cluster = np.unravel_index(change.argmin(), change.shape)
        if change[client, cluster] > -1e-12:
            return labels
        labels[client] = cluster
