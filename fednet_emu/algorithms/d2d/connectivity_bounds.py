"""Connectivity of device-to-device clusters: singular values of mixing matrices, bounds on them, and sample sizes.

Theory of `connectivity_aware.py`. A cluster mixes updates by a column-stochastic matrix A with the largest singular
values sigma_1 and sigma_2. The *connectivity factor* of the cluster is phi = sigma_1^2 + sigma_2^2 - 1. Let v [n] be
the weights with which the cluster's devices are sampled, and v' the vector v minus its mean. Then |A^T v - 1/n|^2 <=
phi |v'|^2, so phi bounds the fraction of the sampling variance that remains after mixing.

Symbols for a cluster: n devices; d+ and d- are out- and in-degrees, including self-loops; alpha = min d+ / n; eps =
(max d+ - min d+) / min d+; varphi = (max d- - min d+) / min d+; alpha_minus = 1 / alpha - 1.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from fednet_emu.arrays import Array, IntArray, Mask
from fednet_emu.federation import Digraph


class Degrees(NamedTuple):
    """Size and extreme degrees (including self-loops) of each cluster, as arrays [clusters] available to the server."""

    size: IntArray
    out_min: IntArray
    out_max: IntArray
    in_max: IntArray

    @property
    def alpha(self) -> Array:
        return np.asarray(self.out_min / self.size)

    @property
    def alpha_minus(self) -> Array:
        return np.asarray(self.size / self.out_min - 1.0)

    @property
    def eps(self) -> Array:
        """Relative spread of the out-degrees, (max d+ - min d+) / min d+."""
        return np.asarray((self.out_max - self.out_min) / self.out_min)

    @property
    def varphi(self) -> Array:
        """Relative excess of the largest in-degree over the smallest out-degree, (max d- - min d+) / min d+."""
        return np.asarray((self.in_max - self.out_min) / self.out_min)

    @classmethod
    def of(cls, graph: Digraph) -> Degrees:
        order = np.concatenate(graph.members) if graph.members else np.empty(0, np.int64)
        starts = np.cumsum(graph.sizes) - graph.sizes
        out, into = graph.out_degree[order], graph.in_degree[order]
        low, high = np.minimum.reduceat(out, starts), np.maximum.reduceat(out, starts)
        return cls(graph.sizes, low, high, np.maximum.reduceat(into, starts))


def singular_values(graph: Digraph) -> Array:
    """Return the two largest singular values [clusters, 2] of each mixing matrix; 1 and 0 for a single device."""
    top = np.zeros((len(graph.sizes), 2))
    place = np.zeros(graph.n_devices, np.int64)
    for members in graph.members:
        place[members] = np.arange(len(members))
    edge_cluster = graph.cluster[graph.sender]
    for size in np.unique(graph.sizes).tolist():
        clusters = np.flatnonzero(graph.sizes == size)
        row = np.full(len(graph.sizes), -1)
        row[clusters] = np.arange(len(clusters))
        mine = row[edge_cluster] >= 0
        adjacency = np.zeros((len(clusters), size, size))
        adjacency[:, np.arange(size), np.arange(size)] = 1.0
        adjacency[row[edge_cluster[mine]], place[graph.receiver[mine]], place[graph.sender[mine]]] = 1.0
        sigma = np.linalg.svd(adjacency / adjacency.sum(axis=1, keepdims=True), compute_uv=False)
        top[clusters, : min(size, 2)] = sigma[:, :2]
    return top


def factors(graph: Digraph) -> Array:
    """Return the exact connectivity factor sigma_1^2 + sigma_2^2 - 1 [clusters] of each cluster's mixing matrix."""
    return np.asarray((singular_values(graph) ** 2).sum(axis=1) - 1.0)


def safe(d: Degrees) -> Array:
    """Return an upper bound [clusters] on phi: 2 varphi + alpha_minus^2 if alpha > 1/2, else 1 + 2 varphi.

    The bound is tight for regular clusters. In general, sigma_1^2 <= |A|_1 |A|_inf <= 1 + varphi. If alpha > 1/2, any
    two devices share at least (2 alpha - 1) n receivers, so every entry of A^T A is at least (1 - alpha_minus^2) / n.
    By Weyl's inequality, the bound on sigma_2^2 is then lower by 1 - alpha_minus^2.
    """
    base = 1.0 + 2.0 * d.varphi
    return np.where(d.alpha > 0.5, base - 1.0 + d.alpha_minus**2, base)


def seed1_printed(d: Degrees) -> Array:
    """Return the first published bound [clusters], never below 1, as it bounds sigma_1^2 + sigma_2^2 = phi + 1."""
    a = d.alpha
    return 1.0 + d.eps + d.alpha_minus**2 + 2.0 * d.eps * (1.0 + 2.0 / a - 1.0 / a**2)


def seed1m(d: Degrees) -> Array:
    """Return the first published bound minus 1 [clusters]: an upper bound on phi where `seed1_valid` is True."""
    return seed1_printed(d) - 1.0


def seed2_printed(d: Degrees) -> Array:
    """Return the second published bound [clusters], which is singular: -inf for regular clusters with d+ = n - 1."""
    return _second_form(d, -1.0)


def seed2p(d: Degrees) -> Array:
    """Return the second bound with the opposite sign of alpha_minus, minus 1: a bound on phi if `seed2_valid`."""
    return _second_form(d, 1.0) - 1.0


def _second_form(d: Degrees, sign: float) -> Array:
    e_net = d.varphi + d.eps / d.alpha
    room = d.size * (e_net + 1.0) * (e_net + sign * d.alpha_minus + 1.0 / (d.alpha * d.size))
    room = np.where(np.abs(room) < _ROUNDING, 0.0, room)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(2.0 + 2.0 * d.varphi - _common(d) / room)


def _common(d: Degrees) -> Array:
    shared = (1.0 - d.eps) ** 2 * (1.0 - d.alpha_minus**2)
    return np.asarray(shared * (shared - d.alpha_minus))


_ROUNDING = 1e-12


def seed1_valid(d: Degrees) -> Mask:
    """Return a mask [clusters], True where the first bound is valid: alpha > 1/2, and max d- is at most max d+."""
    return np.asarray((d.alpha > 0.5) & (d.in_max <= d.out_max))


def seed2_valid(d: Degrees) -> Mask:
    """Return a mask [clusters], True where the second bound is valid: alpha > 1/2, and its numerator is positive."""
    return np.asarray((d.alpha > 0.5) & (_common(d) > 0))


Bound = tuple[Callable[[Degrees], Array], Callable[[Degrees], Mask]]

BOUNDS: dict[str, Bound] = {
    "safe": (safe, lambda d: np.ones(len(d.size), np.bool_)),
    "seed1m": (seed1m, seed1_valid),
    "seed2p": (seed2p, seed2_valid),
    "seed1_printed": (seed1_printed, seed1_valid),
    "seed2_printed": (seed2_printed, seed2_valid),
}
"""For each name of a bound, the function that computes the bound, and the function that returns the mask of clusters
for which the bound is valid."""


def guarded(d: Degrees, form: str) -> Array:
    """Return the bound [clusters] named `form` where it is valid and finite, and the bound `safe` elsewhere."""
    bound, valid = BOUNDS[form]
    value = bound(d)
    return np.where(valid(d) & np.isfinite(value), value, safe(d))


def mean_factor(sizes: IntArray, psi: Array) -> float:
    """Return the mean of the factors `psi` [clusters], weighted by the cluster `sizes`: sum of (n_l / n) psi_l."""
    return float((sizes * psi).sum() / sizes.sum())


def network_factor(n: int, sampled: int, mean: float) -> float:
    """Return the connectivity factor (n / m - 1) `mean` of a network in which m = `sampled` of `n` devices upload.

    `mean` is the result of `mean_factor`.
    """
    return (n / sampled - 1.0) * mean if sampled < n else 0.0


def devices_needed(n: int, mean: float, largest: float) -> int:
    """Return the smallest number m of sampled devices, from 1 to `n`, for which (n / m - 1) `mean` <= `largest`."""
    if mean <= 0.0:
        return 1
    if math.isinf(mean) or largest <= 0.0:
        return n
    return min(n, max(1, math.ceil(n * mean / (largest + mean) - _ROUNDING * n)))


def shares_of(sampled: int, sizes: IntArray) -> IntArray:
    """Return the number of devices to sample in each cluster l, ceil(m n_l / n) [clusters], with n_l from `sizes`."""
    return np.asarray(-(-sampled * sizes // sizes.sum()))
