"""The stationarity gap of ASPIRE, eq. (32): how far the updates would move everything at the present point."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from torch import Tensor

from fednet_emu.algorithms.robust.aspire.updates import Master, Steps, clipped
from fednet_emu.arrays import Array


def squared_gap(
    master: Master,
    models: Sequence[Tensor],
    descended: Sequence[Tensor],
    losses: Sequence[float],
    duals: Sequence[Tensor],
    planes: Array,
    lr: float,
    steps: Steps,
) -> float:
    """The squared norm of the gap of L_p, without its regularisation by c_1 and c_2.

    Each block is (x - P(x - step * dL/dx)) / step, with P the projection onto the block's box.

    Args:
        master: z, h, lam.
        models: w_j [P] of every worker.
        descended: w_j - grad f_j(w_j) [P], one full step of size 1.
        losses: f_j(w_j).
        duals: phi_j [P].
        planes: p [L, N].
        lr: eta_w.
        steps: The other step sizes, bounds and the strength of the quadratic term.
    """
    z, (h, lam) = master.z, master.dual
    values, shares = planes @ np.asarray(losses), lam @ planes
    dz, total = z.double() * 0.0, 0.0
    for w, below, phi, share in zip(models, descended, duals, shares, strict=True):
        dw = float(share) * (w - below) - phi + steps.prox * (w - z)
        dphi = z - w
        dz += phi.double() - steps.prox * (w - z).double()
        total += _square((w - clipped(w - lr * dw, steps.model_bound)) / lr)
        total += _square((phi - clipped(phi + steps.rho_phi * dphi, steps.dual_bound)) / steps.rho_phi)
    total += _square((z - clipped(z - steps.lr_z * dz, steps.model_bound)) / steps.lr_z)
    dh = (h - np.clip(h - steps.lr_h * (1.0 - lam.sum()), 0.0, steps.level_bound)) / steps.lr_h
    dlam = (
        lam - np.clip(lam + steps.rho_lam * (values - h), steps.multiplier_floor, steps.multiplier_bound)
    ) / steps.rho_lam
    return total + float(dh**2) + float((dlam**2).sum())


def _square(vector: Tensor) -> float:
    return float(vector.double().square().sum())
