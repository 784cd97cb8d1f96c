"""The lemma of cyclic participation: the exact remainder of a cycle."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fednet_emu.arrays import Array


def remainder(curvatures: Sequence[Array], gradients: Sequence[Array], lr: float) -> Array:
    """The remainder r [P]: a cycle with summed updates changes w by exactly -eta (sum of q_k) + eta^2 r.

    Of each group, `curvatures` has S_k [P, P], the sum of b_mk times the mean Hessian between the cycle's start and the
    current point, and `gradients` q_k [P], the sum of b_mk times the gradient at the cycle's start; `lr` is eta.
    """
    drift, r = np.zeros_like(gradients[0]), np.zeros_like(gradients[0])
    for curvature, gradient in zip(curvatures, gradients, strict=True):
        r = r + curvature @ drift
        drift = drift + gradient - lr * curvature @ drift
    return r
