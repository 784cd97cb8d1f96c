"""The ellipsoid around the prior."""

from __future__ import annotations

from typing import Literal

import numpy as np
from pydantic import Field

from fednet_emu.algorithms.robust.simplex import project_weighted
from fednet_emu.algorithms.robust.uncertainty.base import PerDevice, UncertaintySet, per_device
from fednet_emu.arrays import Array


class Ellipsoid(UncertaintySet):
    """sum_j (p_j - q_j)^2 / variance_j <= budget, with the matrix diagonal."""

    kind: Literal["ellipsoid"] = "ellipsoid"
    budget: float = Field(ge=0)
    """How far from the prior the weights may be, in the measure above."""
    variance: PerDevice = 1.0
    """Squared half-axes, one for all devices or one each."""

    def worst_case(self, losses: Array, prior: Array) -> Array:
        """In closed form while no weight is negative; else along the projections of q + s * variance * losses."""
        variance = per_device("variance", self.variance, len(losses))
        excess = losses - variance @ losses / variance.sum()
        power = variance @ excess**2
        if self.budget == 0 or power <= 0:
            return prior.copy()
        p: Array = prior + np.sqrt(self.budget / power) * variance * excess
        return p if (p >= 0).all() else self._on_the_simplex(losses, prior, variance)

    def _on_the_simplex(self, losses: Array, prior: Array, variance: Array) -> Array:
        """The boundary point with p >= 0: the larger the step s, the farther out, up to the best vertex or face."""
        from scipy.optimize import brentq

        def point(s: float) -> Array:
            return project_weighted(prior + s * variance * losses, variance)

        def excess(s: float) -> float:
            return float(((point(s) - prior) ** 2 / variance).sum()) - self.budget

        far = 1.0 / max(float(np.ptp(losses)) * float(variance.min()), 1e-300)
        s = far
        while excess(s) < 0:
            if s > 1e9 * far:  # the whole simplex, or the best face of it, is inside
                return point(s)
            s *= 4.0
        return point(float(brentq(excess, 0.0, s, xtol=1e-300, rtol=1e-15)))
