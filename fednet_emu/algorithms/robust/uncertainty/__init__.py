"""Uncertainty sets: the weights of the devices against which a model shall be robust, one kind per file.

They are those of Table II in Jiao, Yang, Song: "Federated Distributionally Robust Optimization with Non-Convex
Objectives: Algorithm and Analysis", https://arxiv.org/abs/2307.14364, all kept within p >= 0 and sum(p) = 1.
"""

from typing import Annotated

import numpy as np

from fednet_emu.algorithms.robust.uncertainty.base import UncertaintySet
from fednet_emu.algorithms.robust.uncertainty.box import Box
from fednet_emu.algorithms.robust.uncertainty.cd_norm import CdNorm
from fednet_emu.algorithms.robust.uncertainty.ellipsoid import Ellipsoid
from fednet_emu.algorithms.robust.uncertainty.kl import KlBall
from fednet_emu.algorithms.robust.uncertainty.polyhedron import Polyhedron
from fednet_emu.algorithms.robust.uncertainty.wasserstein import Wasserstein
from fednet_emu.arrays import Array
from fednet_emu.component.slot import Slot, kinds

UNCERTAINTY_SETS: dict[str, type[UncertaintySet]] = kinds(Box, CdNorm, Ellipsoid, KlBall, Polyhedron, Wasserstein)
"""Every kind of uncertainty set that is built in."""

AnyUncertaintySet = Annotated[UncertaintySet, Slot("uncertainty", UNCERTAINTY_SETS)]
"""Type of a field that holds one uncertainty set."""


def worst_case_weights(uncertainty: UncertaintySet, losses: Array, prior: Array | None = None) -> Array:
    """The weights p [N] of an uncertainty set with the largest weighted loss sum(p * losses).

    Args:
        uncertainty: The set, for example `CdNorm(budget=2)`.
        losses: Loss of each device [N], finite.
        prior: The weights q [N] around which the set lies, scaled to sum 1; uniform when None.

    Raises:
        ValueError: The losses are not finite, or the prior does not go with them.
        ScenarioError: The set holds no weights, or was made for another number of devices.
    """
    f = np.asarray(losses, dtype=np.float64)
    if f.ndim != 1 or len(f) == 0 or not np.isfinite(f).all():
        raise ValueError(f"losses: not one finite number per device, got {losses}; give an array [N]")
    q = np.ones_like(f) if prior is None else np.asarray(prior, dtype=np.float64)
    if q.shape != f.shape or not (q >= 0).all() or not 0 < q.sum() < np.inf:
        raise ValueError(f"prior: not one weight >= 0 per device, got {prior}; give {len(f)} of them")
    return uncertainty.worst_case(f, q / q.sum())
