"""The constrained D-norm: each weight within its own deviation of the prior, and a budget for all of them together."""

from __future__ import annotations

import numpy as np
from pydantic import Field

from fednet_emu.algorithms.robust.simplex import as_weights
from fednet_emu.algorithms.robust.uncertainty.base import PerDevice, UncertaintySet, per_device, relative
from fednet_emu.arrays import Array

_MAX_TANGENTS = 1000


class CdNorm(UncertaintySet):
    """|p_j - q_j| <= deviation_j and sum_j |p_j - q_j| / deviation_j <= budget, the set that the paper adds.

    The paper sorts deviation_j * loss_j, which is exact for equal deviations only. Here sum(p) = 1 gets a multiplier;
    for a fixed one a fractional knapsack remains, and the dual function is convex and piecewise linear: tangents from
    both sides meet in its minimum after a few steps, O(N log N) each.
    """

    budget: float = Field(ge=0)
    """The paper's Gamma: 0 leaves the prior alone, N makes it a box."""
    deviation: PerDevice | None = None
    """The paper's p tilde, one number or one per worker; null takes the prior: a weight may vanish or double."""

    def worst_case(self, losses: Array, prior: Array) -> Array:
        """Mix the two knapsacks, one too heavy and one too light, between which the multiplier lies."""
        reach = prior if self.deviation is None else per_device("deviation", self.deviation, len(losses))
        moves, p = reach > 0, prior.copy()
        f = relative(losses[moves]) if moves.any() else losses[moves]
        if self.budget == 0 or not f.any():
            return p
        p[moves] += reach[moves] * _best_moves(f, reach[moves], prior[moves], self.budget)
        return as_weights(p)


def _best_moves(f: Array, reach: Array, prior: Array, budget: float) -> Array:
    """The u = (p - q) / reach that is best, in [-min(1, q / reach), 1] with sum |u| <= budget and sum(reach u) = 0.

    The losses f are relative, in [-1, 0].
    """
    down = np.minimum(1.0, prior / reach)
    low, high = (_knapsack(f - nu, reach, down, budget) for nu in (f.min() - 1.0, f.max() + 1.0))
    for _ in range(_MAX_TANGENTS):
        (value_low, mass_low), (value_high, mass_high) = ((reach @ (f * u), reach @ u) for u in (low, high))
        if mass_low <= 0 or mass_low == mass_high:
            return low
        nu = (value_low - value_high) / (mass_low - mass_high)
        tangent = value_low - nu * mass_low
        u = _knapsack(f - nu, reach, down, budget)
        if reach @ ((f - nu) * u) <= tangent + 1e-15 * (1.0 + abs(tangent)):
            break
        low, high = (u, high) if reach @ u > 0 else (low, u)
    share = mass_high / (mass_high - mass_low)
    mixed: Array = share * low + (1 - share) * high
    return mixed


def _knapsack(excess: Array, reach: Array, down: Array, budget: float) -> Array:
    """The u with the largest sum(reach * excess * u) within its bounds and the budget: the largest gains first."""
    capacity = np.where(excess > 0, 1.0, down)
    order = np.argsort(-reach * np.abs(excess), kind="stable")
    room = capacity[order]
    u = np.empty_like(excess)
    u[order] = np.clip(budget - (np.cumsum(room) - room), 0.0, room)
    return np.sign(excess) * u
