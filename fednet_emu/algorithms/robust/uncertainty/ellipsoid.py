"""The ellipsoid around the prior."""

from __future__ import annotations

import numpy as np
from pydantic import Field, field_validator

from fednet_emu.algorithms.robust.simplex import as_weights
from fednet_emu.algorithms.robust.uncertainty.base import PerDevice, UncertaintySet, per_device, relative
from fednet_emu.arrays import Array


class Ellipsoid(UncertaintySet):
    """sum_j (p_j - q_j)^2 / variance_j <= budget, with the matrix diagonal."""

    budget: float = Field(ge=0)
    """How far from the prior the weights may be, in the measure above."""
    variance: PerDevice = 1.0
    """One number above 0, or one per worker: how far a weight may go, squared, in units of the budget."""

    @field_validator("variance")
    @classmethod
    def _every_weight_can_move(cls, variance: PerDevice) -> PerDevice:
        if np.min(variance) <= 0:
            raise ValueError(f"variances must be above 0, got {variance}; a device that shall not move has a small one")
        return variance

    def worst_case(self, losses: Array, prior: Array) -> Array:
        """The closed form, and again without the workers whose weights it makes negative, until there are none: O(N^2).

        Let S be the workers that are left. p_j = q_j + variance_j (lift + step (f_j - mean)), with the mean of f over S
        by variance, the lift that gives S the prior of the others, and the step that uses up the budget. Whoever has
        left stays at 0 for larger steps, and each time S shrinks the step grows, so nobody comes back.
        """
        f, variance = relative(losses), per_device("variance", self.variance, len(losses))
        if self.budget == 0 or not f.any():
            return prior.copy()
        held = np.ones(len(f), np.bool_)
        while True:
            v, q = variance[held], prior[held]
            excess = f[held] - v @ f[held] / v.sum()
            lift = (1.0 - q.sum()) / v.sum()
            left = self.budget - lift**2 * v.sum() - (prior[~held] ** 2 / variance[~held]).sum()
            power = float(v @ excess**2)  # 0 when only equal losses are left
            step = np.sqrt(max(left, 0.0) / power) if power > 0 else 0.0
            p = np.zeros_like(f)
            p[held] = q + v * (lift + step * excess)
            if (p >= 0).all():
                return as_weights(p)
            held &= p >= 0
