"""Bounds on the remainder term of a cycle and on the convergence rate of cyclic participation, for given groups.

From "Participation Strategies in Federated Learning with Heterogeneous Client Communications", for full-batch gradient
descent on an exact split and summed updates. All functions take the shares b_mk of each group k: the fraction of its
samples that member m uses there.

Differences from the paper: products run to k - 1, as in its lemma (in its scenarios they run to K, which seems to
favour them); the squared lemma includes the missing factor C^2; the rate counts cycles; its last terms are those that
follow from the lemmas, eta^2 U1^2 / 2 + L eta^4 V1; and their geometric sum is not simplified, so that the bound equals
the gap at the start.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from fednet_emu.arrays import Array

Shares = Sequence[Sequence[float]]
"""For each group, the share b_mk of each member."""


class Constants(NamedTuple):
    """Constants of the losses, and the step size, that the theory needs."""

    smoothness: float  # L, largest curvature of any device's loss on any part of its samples
    gradient: float  # C, largest norm of any sample's gradient
    dissimilarity: float  # alpha, largest distance of a group's mean gradient from the global one
    lr: float  # eta, step size with summed updates; with the mean over groups of n devices, the step size divided by n


class RemainderBound(NamedTuple):
    """Bounds on the remainder r of a cycle: |r| <= u1 + u2 |grad F| and |r|^2 <= v1 + v2 |grad F|^2."""

    u1: float
    u2: float
    v1: float
    v2: float


def remainder_bound(shares: Shares, constants: Constants) -> RemainderBound:
    """The bounds U1, U2, V1 and V2 for groups in the given order."""
    curvature, gradient, alpha, lr = constants
    b = np.array([sum(group) for group in shares], np.float64)
    s = np.array([len(group) for group in shares], np.float64)
    d = s - b
    d_squared = np.array([sum((1.0 - share) ** 2 for share in group) for group in shares])
    count = len(b)
    growth = np.concatenate(([0.0], np.cumsum(np.log1p(lr * curvature * b))))
    j, k = np.triu_indices(count, 1)
    product = np.exp(growth[k] - growth[j + 1])  # over j' from j + 1 to k - 1
    first, second = curvature * b[k] * product, count * k * (curvature * b[k] * product) ** 2
    return RemainderBound(
        u1=float(np.sum(first * (gradient * d + s * alpha)[j])),
        u2=float(np.sum(first * s[j])),
        v1=float(np.sum(second * (2 * gradient**2 * s * d_squared + 4 * s**2 * alpha**2)[j])),
        v2=float(np.sum(second * 4 * s[j] ** 2)),
    )


def remainder(curvatures: Sequence[Array], gradients: Sequence[Array], lr: float) -> Array:
    """The remainder r [P] of the lemma: a cycle with summed updates changes w by exactly -eta (sum of q_k) + eta^2 r.

    Of each group, `curvatures` has S_k [P, P], the sum of b_mk times the mean Hessian between the cycle's start and the
    current point, and `gradients` q_k [P], the sum of b_mk times the gradient at the cycle's start; `lr` is eta.
    """
    drift, r = np.zeros_like(gradients[0]), np.zeros_like(gradients[0])
    for curvature, gradient in zip(curvatures, gradients, strict=True):
        r = r + curvature @ drift
        drift = drift + gradient - lr * curvature @ drift
    return r


def descent(bound: RemainderBound, constants: Constants, devices: int) -> float:
    """The coefficient of the guaranteed decrease of F in a cycle; if it is negative, the theory guarantees nothing.

    F(w+) - F(w) <= -descent |grad F|^2 + floor, with `floor` from the function of that name.
    """
    curvature, lr = constants.smoothness, constants.lr
    loss = lr**2 * bound.u2 + lr**2 / 2 + curvature * lr**2 * devices**2 + curvature * lr**4 * bound.v2
    return lr * devices - loss


def floor(bound: RemainderBound, constants: Constants) -> float:
    """The possible increase of F in a cycle that does not depend on the gradient: eta^2 U1^2 / 2 + L eta^4 V1."""
    return constants.lr**2 * bound.u1**2 / 2 + constants.smoothness * constants.lr**4 * bound.v1


def rate_bound(
    cycles: int, gap: float, bound: RemainderBound, constants: Constants, devices: int, convexity: float
) -> float:
    """Upper bound on F - F* after I `cycles` from a given gap, for losses with |grad F|^2 / 2 >= mu (F - F*).

    M is `devices`, and mu `convexity`, the strong convexity of F. The bound is infinite when the step size is too large
    for the theory: when `descent` is below eta M / 2.
    """
    if descent(bound, constants, devices) < constants.lr * devices / 2:
        return float("inf")
    lost = constants.lr * devices * convexity
    kept = (1.0 - lost) ** cycles
    return kept * gap + (1.0 - kept) * floor(bound, constants) / lost
