"""The Kullback-Leibler ball around the prior."""

from __future__ import annotations

import math
from typing import Literal

import numpy as np
from pydantic import Field

from fednet_emu.algorithms.robust.uncertainty.base import UncertaintySet
from fednet_emu.arrays import Array


class KlBall(UncertaintySet):
    """sum_j p_j log(p_j / q_j) <= budget, in nats."""

    kind: Literal["kl"] = "kl"
    budget: float = Field(ge=0)
    """Largest divergence from the prior, in nats."""

    def worst_case(self, losses: Array, prior: Array) -> Array:
        """The prior tilted by exp(losses / eta), with the temperature eta that uses up the budget."""
        from scipy.optimize import brentq

        held = prior > 0
        top = losses[held].max()
        best = np.where(held & (losses >= top), prior, 0.0)
        if self.budget == 0 or best.sum() >= 1.0:
            return prior.copy()
        if self.budget >= -math.log(best.sum()):
            face: Array = best / best.sum()
            return face
        below = np.where(held, losses - top, -np.inf)

        def excess(log_eta: float) -> float:
            p = _tilted(prior, below, math.exp(log_eta))
            some = p > 0
            return float(p[some] @ np.log(p[some] / prior[some])) - self.budget

        spread = math.log(max(-below[held].min(), 1e-300))
        log_high = spread
        while excess(log_high) > 0:
            log_high += 2.0
        log_low = spread
        while excess(log_low) < 0 and log_low > spread - 700.0:
            log_low -= 2.0
        return _tilted(prior, below, math.exp(brentq(excess, log_low, log_high, xtol=1e-14)))


def _tilted(prior: Array, below: Array, eta: float) -> Array:
    weights = prior * np.exp(below / eta)
    p: Array = weights / weights.sum()
    return p
