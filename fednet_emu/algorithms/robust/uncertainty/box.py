"""The box: every weight between bounds of its own."""

from __future__ import annotations

import numpy as np
from pydantic import Field

from fednet_emu.algorithms.robust.simplex import as_weights
from fednet_emu.algorithms.robust.uncertainty.base import PerDevice, UncertaintySet, per_device
from fednet_emu.arrays import Array
from fednet_emu.errors import ScenarioError


class Box(UncertaintySet):
    """lower <= p <= upper; with the default bounds it is the whole simplex, and the prior does not matter."""

    lower: PerDevice = Field(0.0)
    """Least weight, one for all devices or one each."""
    upper: PerDevice = Field(1.0)
    """Largest weight, one for all devices or one each."""

    def worst_case(self, losses: Array, prior: Array) -> Array:
        """Fill up from the lower bounds, the largest loss first: O(N log N)."""
        low = np.maximum(per_device("lower", self.lower, len(losses)), 0.0)
        high = per_device("upper", self.upper, len(losses))
        rest = 1.0 - low.sum()
        if (high < low).any() or rest < -1e-12 or high.sum() < 1.0 - 1e-12:
            found = f"got bounds that sum to {low.sum():g} and {high.sum():g}"
            raise ScenarioError(
                f"uncertainty: the box holds no weights, {found}; 1 must lie between, and lower <= upper"
            )
        order = np.argsort(-losses, kind="stable")
        room = (high - low)[order]
        added = np.clip(rest - (np.cumsum(room) - room), 0.0, room)
        p = low.copy()
        p[order] += added
        return as_weights(p)
