"""The three updates of the saddle point problem, and the Frank-Wolfe oracles, as functions of tensors and arrays.

Symbols: n clients with shared parameters x [n, d]; one weight w [pairs] and one multiplier lam for each pair i < j, in
the order of `pairs_of(n)`. Only the upper triangle of the matrix W is stored: W is symmetric with a unit diagonal, and
lam_ji = -lam_ij.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator

import numpy as np
import torch
from torch import Tensor

from fednet_emu.arrays import Array, IntArray

TIED = 0.5
"""Weight threshold: two clients are in one cluster if their weight exceeds this threshold."""


def pairs_of(n: int) -> tuple[IntArray, IntArray]:
    """Return the clients i < j of all pairs of `n` clients, as two arrays [n (n - 1) / 2]."""
    i, j = np.triu_indices(n, 1)
    return i.astype(np.int64), j.astype(np.int64)


def matrix_of(w: Array, n: int) -> Array:
    """Return the symmetric matrix W [n, n] with a unit diagonal and the upper triangle `w` [pairs]."""
    matrix = np.eye(n)
    i, j = pairs_of(n)
    matrix[i, j] = matrix[j, i] = w
    return matrix


def components(w: Array, n: int) -> IntArray:
    """Return the cluster [n] of each client: its component in the graph of pairs with a weight above `TIED`."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    i, j = (side[w > TIED] for side in pairs_of(n))
    _, labels = connected_components(coo_array((np.ones(len(i)), (i, j)), shape=(n, n)), directed=False)
    return np.asarray(labels, np.int64)


def differences(x: Tensor) -> Tensor:
    """Return the differences x_i - x_j [pairs, d] between the clients of each pair, from parameters `x` [n, d]."""
    i, j = (torch.from_numpy(side) for side in pairs_of(len(x)))
    return x[i].sub_(x[j])


def ascended(lam: Tensor, w: Array, apart: Tensor, lr: float, radius: float) -> Tensor:
    """Return the multipliers [pairs, d] after an ascent step along w_ij (x_i - x_j), with norms clipped to `radius`."""
    lam = torch.addcmul(lam, apart, lr * _like(w, apart)[:, None])
    norm = lam.norm(dim=1, keepdim=True)
    return lam.mul_((radius / norm.clamp_min(torch.finfo(norm.dtype).tiny)).clamp_max(1.0))


def pulls(w: Array, lam: Tensor, n: int) -> Tensor:
    """Return the linear terms c_i = n sum_j w_ij lam_ij [n, d], the gradient of n times the coupling by x_i."""
    return n * (_like(_incidence(n) * w, lam) @ lam)


def slopes(lam: Tensor, apart: Tensor, alpha: float) -> Array:
    """Return the gradient [pairs] of the objective with respect to weights: G_ij = <lam_ij, x_i - x_j> - `alpha`."""
    products: Array = (lam * apart).sum(1, dtype=torch.float64).cpu().numpy()
    return products - alpha


def springs(w: Array, lam: Array, x: Tensor, lr: float, smoothing: float) -> tuple[Tensor, Tensor]:
    """Return each client's linear term c_i [n, d] and the factor [n] of its step size, for the norm coupling.

    The terms are the gradient of n sum_j w_ij lam_ij r_ij, with r_ij = sqrt(||x_i - x_j||^2 + smoothing^2). Steps of
    constant size would oscillate around r = 0, where the coupling has the stiffness n sum_j w_ij lam_ij / r_ij. Steps
    of size lr / (1 + 2 lr stiffness) do not oscillate.
    """
    n, apart = len(x), differences(x)
    stiffness = _like(w * lam, x) / (apart.square().sum(1) + smoothing**2).sqrt()
    incidence = _like(_incidence(n), x)
    total = n * (incidence.abs() @ stiffness)
    return n * (incidence @ (stiffness[:, None] * apart)), 1.0 / (1.0 + 2.0 * lr * total)


def distances(apart: Tensor) -> Array:
    """Return the distances ||x_i - x_j|| [pairs], from the differences `apart` [pairs, d]."""
    return np.asarray(torch.linalg.vector_norm(apart, dim=1, dtype=torch.float64).cpu().numpy())


def _incidence(n: int) -> Array:
    i, j = pairs_of(n)
    incidence, pair = np.zeros((n, len(i))), np.arange(len(i))
    incidence[i, pair], incidence[j, pair] = 1.0, -1.0
    return incidence


def _like(values: Array, other: Tensor) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(values)).to(other)


Oracle = Callable[[Array, Array], Array]
"""Function that returns the weights s [pairs] that minimise <s, g>, from the gradient g [pairs] and the current weights
w [pairs]."""

ENUMERATED = 10
"""Maximum number of clients for which all partitions are tried (at most 42,525 partitions)."""
RESTARTS = 10


def box(g: Array, w: Array) -> Array:
    """Return the weights s [pairs] in [0, 1] that minimise <s, `g`>; where `g` is 0, the weights are those in `w`."""
    return np.where(g < 0, 1.0, np.where(g > 0, 0.0, w))


def clusters_oracle(n: int, k: int) -> Oracle:
    """Return the oracle that minimises over the partitions of `n` clients into exactly `k` clusters.

    The matrix W of such a partition has rank k. The minimisation is correlation clustering, which is NP-hard. Up to
    `ENUMERATED` clients, all partitions are tried. For more clients, at most ten starts by spectral clustering are
    improved by moving one client at a time, until no move improves the result. The best result is returned.
    """
    i, j = pairs_of(n)
    if n > ENUMERATED:
        return lambda g, _: tied(_searched(g, n, k))
    labels = np.array(list(partitions(n, k)), dtype=np.int8)
    atoms: Array = (labels[:, i] == labels[:, j]).astype(np.float64)
    return lambda g, _: np.asarray(atoms[np.argmin(atoms @ g)])


def tied(labels: IntArray) -> Array:
    """Return the weights [pairs] of the partition `labels` [n]: 1 for pairs in one cluster, 0 for all other pairs."""
    i, j = pairs_of(len(labels))
    return np.asarray(labels[i] == labels[j], np.float64)


def partitions(n: int, k: int | None = None) -> Iterator[tuple[int, ...]]:
    """Yield the partitions of `n` clients, each as n labels; only those into exactly `k` clusters if `k` is given."""

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
    """Return labels [n] of k clusters with a small sum of the gradient `g` over all pairs within clusters.

    No move of a single client to another cluster makes this sum smaller.
    """
    slope = matrix_of(g, n) - np.eye(n)
    _, vectors = np.linalg.eigh(-slope)
    points = vectors[:, -k:]
    found = [_descended(slope, _grouped(points, start, k), k) for start in range(min(RESTARTS, n))]
    return min(found, key=lambda labels: float(tied(labels) @ g))


def _grouped(points: Array, start: int, k: int) -> IntArray:
    """Return labels [n] by Lloyd's k-means; each empty cluster then takes a client of the largest cluster.

    The first centre is point `start`; each further centre is the point farthest from the centres so far.
    """
    from scipy.cluster.vq import kmeans2
    from scipy.spatial.distance import cdist

    centres = points[[start]]
    while len(centres) < k:
        centres = np.vstack([centres, points[np.argmax(cdist(points, centres).min(1))]])
    with warnings.catch_warnings(action="ignore"):  # silences warnings about empty clusters, which keep their centres
        _, found = kmeans2(points, centres, iter=21, minit="matrix")
    labels: IntArray = found.astype(np.int64)
    for empty in np.flatnonzero(np.bincount(labels, minlength=k) == 0):
        largest = np.bincount(labels, minlength=k).argmax()
        labels[np.flatnonzero(labels == largest)[0]] = empty
    return labels


def _descended(slope: Array, labels: IntArray, k: int) -> IntArray:
    """Move one client at a time to another cluster, until no move lowers the sum of slopes within clusters.

    The slope of a pair is the derivative of the objective with respect to the weight of the pair. Each step makes the
    move that lowers the sum most. The last client of a cluster is not moved.
    """
    labels, clients = labels.copy(), np.arange(len(labels))
    while True:
        inside = slope @ np.eye(k)[labels]
        change = inside - inside[clients, labels][:, None]
        change[np.bincount(labels, minlength=k)[labels] == 1] = 0.0
        client, cluster = np.unravel_index(change.argmin(), change.shape)
        if change[client, cluster] > -1e-12:
            return labels
        labels[client] = cluster
