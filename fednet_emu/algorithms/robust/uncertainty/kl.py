"""The Kullback-Leibler ball around the prior."""

from __future__ import annotations

import math

import numpy as np
from pydantic import Field

from fednet_emu.algorithms.robust.simplex import as_weights
from fednet_emu.algorithms.robust.uncertainty.base import UncertaintySet, relative
from fednet_emu.arrays import Array


class KlBall(UncertaintySet):
    """sum_j p_j log(p_j / q_j) <= budget, in nats."""

    kind = "kl"
    budget: float = Field(ge=0)
    """Largest divergence from the prior, in nats."""

    def worst_case(self, losses: Array, prior: Array) -> Array:
        """The prior tilted by exp(losses / eta), with the temperature eta that uses up the budget."""
        held = prior > 0
        f, q = relative(losses[held]), prior[held]
        if self.budget == 0 or not f.any():
            return prior.copy()
        best = np.where(f == 0, q, 0.0)
        p = np.zeros_like(prior)
        p[held] = best if self.budget >= -math.log(best.sum()) else _tilted(q, f, self._temperature(q, f))
        return as_weights(p)

    def _temperature(self, prior: Array, f: Array) -> float:
        """The eta with a divergence of `budget`, between one that is too low and one that is too high."""
        from scipy.optimize import brentq

        def excess(log_eta: float) -> float:
            return _divergence(prior, f, math.exp(log_eta)) - self.budget

        high = 0.0
        while excess(high) > 0:
            high += 2.0
        low = high - 2.0
        while excess(low) < 0 and low > _COLDEST:
            low -= 2.0
        return math.exp(brentq(excess, low, high, xtol=1e-14) if excess(low) > 0 else low)


_COLDEST = -700.0
"""Logarithm of a temperature at which everything but the largest loss is gone."""
_HOT = 1e3
"""Above this temperature the tilted prior is the prior, but for a thousandth."""


def _tilted(prior: Array, f: Array, eta: float) -> Array:
    tilted: Array = prior * np.exp(f / eta)
    return tilted


def _divergence(prior: Array, f: Array, eta: float) -> float:
    """That of the tilted prior p from the prior q: sum_j p_j log(p_j / q_j).

    Close to the prior these terms cancel, so there it is sum_j q_j (r_j log r_j - r_j + 1) with r = p / q, all above 0.
    """
    if eta > _HOT:
        rise = np.expm1(f / eta)
        by = (rise - prior @ rise) / (1.0 + prior @ rise)  # r - 1
        return float(prior @ ((1.0 + by) * np.log1p(by) - by))
    tilted = _tilted(prior, f, eta)
    return float(tilted @ (f / eta)) / float(tilted.sum()) - math.log(tilted.sum())
