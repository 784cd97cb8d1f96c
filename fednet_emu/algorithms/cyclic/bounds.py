"""The remainder of a cycle and the convergence rate of cyclic participation, as bounds on given groups.

From "Participation Strategies in Federated Learning with Heterogeneous Client Communications", with full-batch gradient
descent on an exact split and summed updates. Everything takes the shares b_mk of each group: what part of its samples
a member uses there.

Differences from the paper: products run to k - 1, as its lemma has them (its scenarios run to K, and seem to gain
from it); the squared lemma has its missing factor C^2; the rate counts cycles, its last terms are those that
follow from the lemmas, eta^2 U1^2 / 2 + L eta^4 V1, and their geometric sum is kept as it is, so that the bound starts
at the gap.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from fednet_emu.arrays import Array

Shares = Sequence[Sequence[float]]
"""For each group, the share b_mk of each member."""


class Constants(NamedTuple):
    """What the theory assumes of the losses and of the step size.

    Attributes:
        smoothness: L, largest curvature of any device's loss on any of its parts.
        gradient: C, largest norm of any sample's gradient.
        dissimilarity: alpha, largest distance of a group's mean gradient from the global one.
        lr: eta, step size of the sums; with a mean over groups of n, the step size over n.
    """

    smoothness: float
    gradient: float
    dissimilarity: float
    lr: float


class RemainderBound(NamedTuple):
    """Bounds of the remainder r: |r| <= u1 + u2 |grad F| and |r|^2 <= v1 + v2 |grad F|^2."""

    u1: float
    u2: float
    v1: float
    v2: float


def remainder_bound(shares: Shares, constants: Constants) -> RemainderBound:
    """U1, U2, V1 and V2 of the groups in their order."""
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
    """The lemma's r [P]: a cycle of sums moves w by -eta (sum of q_k) + eta^2 r, exactly.

    Args:
        curvatures: S_k [P, P] of each group, the sum of b_mk times the mean Hessian on the way from the cycle's start.
        gradients: q_k [P] of each group, the sum of b_mk times the gradient at the cycle's start.
        lr: eta.
    """
    drift, r = np.zeros_like(gradients[0]), np.zeros_like(gradients[0])
    for curvature, gradient in zip(curvatures, gradients, strict=True):
        r = r + curvature @ drift
        drift = drift + gradient - lr * curvature @ drift
    return r


def descent(bound: RemainderBound, constants: Constants, devices: int) -> float:
    """The factor of -|grad F|^2 in what a cycle changes of F; below zero the theory promises nothing.

    F(w+) - F(w) <= -descent |grad F|^2 + `floor`.
    """
    curvature, lr = constants.smoothness, constants.lr
    loss = lr**2 * bound.u2 + lr**2 / 2 + curvature * lr**2 * devices**2 + curvature * lr**4 * bound.v2
    return lr * devices - loss


def floor(bound: RemainderBound, constants: Constants) -> float:
    """What a cycle may add to F whatever the gradient, eta^2 U1^2 / 2 + L eta^4 V1."""
    return constants.lr**2 * bound.u1**2 / 2 + constants.smoothness * constants.lr**4 * bound.v1


def rate_bound(
    cycles: int, gap: float, bound: RemainderBound, constants: Constants, devices: int, convexity: float
) -> float:
    """Largest F - F* after some cycles from a given gap, for losses with |grad F|^2 / 2 >= mu (F - F*).

    Infinite when the step size is too large for the theory, that is when `descent` is below eta M / 2.

    Args:
        cycles: I.
        gap: F - F* at the start.
        bound: of the groups.
        constants: of the losses.
        devices: M.
        convexity: mu.
    """
    if descent(bound, constants, devices) < constants.lr * devices / 2:
        return float("inf")
    lost = constants.lr * devices * convexity
    kept = (1.0 - lost) ** cycles
    return kept * gap + (1.0 - kept) * floor(bound, constants) / lost
