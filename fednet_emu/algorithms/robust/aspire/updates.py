"""The updates (12) to (16) of ASPIRE, and its stationarity gap (32), as pure functions.

A master step takes O(S P + S L) operations, independent of N (see the symbols below).

Symbols: N workers, of which S have sent a report; P parameters; L planes. Planes are stored as the weights p_l = pbar +
a_l, because the Lagrangian contains pbar and a_l only in this sum:

    L_p = h + sum_l lam_l (p_l' f(w) - h) + sum_j phi_j' (z - w_j) + (prox / 2) sum_j |z - w_j|^2

Update (12) is a training step on lam' p_.j * f_j with the linear term -phi_j and the proximal term at z:

    w_j <- clip(w_j - lr ((sum_l lam_l p_lj) grad f_j(w_j) - phi_j + prox (w_j - z)), -bound, bound)              (12)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from fednet_emu.arrays import Array


@dataclass(frozen=True, slots=True)
class Steps:
    """Step sizes, factors and bounds of one master step; comments give the paper's symbols."""

    n_workers: int  # N
    lr_z: float  # eta_z
    lr_h: float  # eta_h
    rho_lam: float  # rho_1
    rho_phi: float  # rho_2
    prox: float  # kappa_1, the factor of the quadratic penalty
    c_lam: float  # c_1^t, or its limit
    c_phi: float  # c_2^t, or its limit
    model_bound: float  # alpha_1, bound of every entry of z; infinite for no bound
    level_bound: float  # alpha_2, bound of h
    multiplier_bound: float  # alpha_3, bound of every lam_l
    dual_bound: float  # alpha_4, bound of every entry of phi_j
    multiplier_floor: float = 0.0  # minimum of lam_l: 0, or 1 if the planes are fixed
    falling: bool = False  # True if c_1 and c_2 fall as 1 / (rho (t + 1)^(1/6)), as in the theorems

    def at(self, t: int) -> Steps:
        """Return the settings for iteration `t`, counted from 0; c_1 and c_2 decrease with `t` if `falling` is True."""
        if not self.falling:
            return self
        slow = (t + 1) ** (-1 / 6)
        return replace(self, c_lam=max(self.c_lam, slow / self.rho_lam), c_phi=max(self.c_phi, slow / self.rho_phi))


class State(NamedTuple):
    """The master's state after an iteration; `slopes` and `shares` are for the workers that reported, in order."""

    z: Tensor  # global model [P]
    h: float  # the level
    lam: Array  # multiplier of each plane [L]
    lam_before: Array  # lam [L] one iteration earlier
    values: Array  # p_l' f for every plane [L], with the latest loss of each worker
    pull: Tensor  # sum_j (phi_j - prox (w_j - z_0)) [P] in double precision, from the initial model z_0
    slopes: tuple[Tensor, ...] = ()  # -phi_j [P], the linear terms of the workers' next updates (12)
    shares: tuple[float, ...] = ()  # sum_l lam_l p_lj, by which the workers scale their gradients

    def slope(self, place: int) -> Tensor:
        return self.slopes[place]

    def share(self, place: int) -> float:
        return self.shares[place]


class Heard(NamedTuple):
    """The report of a worker, and the previous values of the same worker."""

    w: Tensor  # the new model [P]
    w_before: Tensor  # the previous model, or z_0
    loss: float
    loss_before: float  # the previous loss, or 0
    enters: float  # weight with which the loss is added to the level h: q_j at the worker's first report, else 0
    slope: Tensor  # -phi_j [P] of this worker
    column: Array  # p_lj of every plane [L]


def initial_state(z_0: Tensor, n_planes: int) -> State:
    """Return the initial state: all models are z_0, all phi_j and losses are 0, and all lam_l are 1 / `n_planes`."""
    zeros = torch.zeros_like(z_0, dtype=torch.float64)
    lam = np.full(n_planes, 1.0 / n_planes)
    return State(z_0, 0.0, lam, lam, np.zeros(n_planes), zeros)


def master_step(state: State, z_0: Tensor, heard: Sequence[Heard], steps: Steps) -> State:
    """Return the master's state after the updates (13) to (15), and update (16) for the workers that reported.

    Vectors are first converted to double precision: PyTorch is several times slower for mixed precisions.
    """
    pull, values, level = state.pull, state.values.copy(), state.h
    for arrival in heard:
        pull = pull.sub((arrival.w - arrival.w_before).double(), alpha=steps.prox)
        values += arrival.column * (arrival.loss - arrival.loss_before)
        level += arrival.enters * arrival.loss
    z = z_step(state.z, z_0, pull, steps)
    h = h_step(level, state.lam, steps)
    lam = lam_step(state.lam, values, h, steps)
    slopes = tuple(slope_step(arrival.slope, z, arrival.w, steps) for arrival in heard)
    for arrival, slope in zip(heard, slopes, strict=True):  # in place, as `pull` is a new tensor here
        pull -= (slope - arrival.slope).double()
    shares = tuple(float(lam @ arrival.column) for arrival in heard)
    return State(z, h, lam, state.lam, values, pull, slopes, shares)


def z_step(z: Tensor, z_0: Tensor, pull: Tensor, steps: Steps) -> Tensor:
    """Return the global model z [P] after update (13), clip(z - lr_z g).

    Here g = sum_j (phi_j + prox (z - w_j)), which equals `pull` + prox N (z - z_0).
    """
    gradient = torch.add(pull, (z - z_0).double(), alpha=steps.prox * steps.n_workers)
    moved = torch.sub(z.double(), gradient, alpha=steps.lr_z).to(z.dtype)
    return moved.clamp_(-steps.model_bound, steps.model_bound)


def h_step(h: float, lam: Array, steps: Steps) -> float:
    """Return the level h after update (14): clip(h - lr_h (1 - sum_l lam_l), 0, level_bound)."""
    return float(min(max(h - steps.lr_h * (1.0 - lam.sum()), 0.0), steps.level_bound))


def lam_step(lam: Array, values: Array, h: float, steps: Steps) -> Array:
    """Return the multipliers [L] after update (15): clip(lam_l + rho_lam (p_l' f - h - c_lam lam_l), floor, bound)."""
    raised = lam + steps.rho_lam * (values - h - steps.c_lam * lam)
    return np.minimum(np.maximum(raised, steps.multiplier_floor), steps.multiplier_bound)


def slope_step(slope: Tensor, z: Tensor, w: Tensor, steps: Steps) -> Tensor:
    """Return -phi_j [P] after update (16), phi_j <- clip(phi_j + rho_phi (z - w_j - c_phi phi_j)).

    `slope` is -phi_j before the update. The worker and the master have the same z, w_j and phi_j and thus the same
    result, which is therefore computed only once.
    """
    gap = z - w
    if steps.c_phi:
        gap.add_(slope, alpha=steps.c_phi)
    return slope.sub(gap, alpha=steps.rho_phi).clamp_(-steps.dual_bound, steps.dual_bound)


def share_of(state: State, column: Array) -> float:
    """Return sum_l lam_l p_lj, by which worker j scales its gradient; `column` contains p_lj [L]."""
    return float(state.lam @ column)


def squared_gap(
    state: State,
    models: Sequence[Tensor],
    descended: Sequence[Tensor],
    losses: Sequence[float],
    slopes: Sequence[Tensor],
    planes: Array,
    lr: float,
    steps: Steps,
) -> float:
    """Return the squared stationarity gap of eq. (32), which measures how far the updates would move all variables.

    The result is the squared norm of the gap of L_p, without regularisation by c_1 and c_2. The gap of each block x of
    variables is (x - P(x - step * dL/dx)) / step, where P is the projection onto the bounds of the block. For each
    worker j, `models` contains w_j [P], `descended` w_j - grad f_j(w_j) [P], `losses` f_j(w_j), and `slopes` -phi_j
    [P]. `planes` is p [L, N], and `lr` is eta_w.
    """
    z, h, lam, box, dual_box = state.z, state.h, state.lam, steps.model_bound, steps.dual_bound
    values, shares = planes @ np.asarray(losses), lam @ planes
    dz, total = z.double() * 0.0, 0.0
    for w, below, slope, share in zip(models, descended, slopes, shares, strict=True):
        phi = -slope
        dw = float(share) * (w - below) - phi + steps.prox * (w - z)
        dphi = z - w
        dz += phi.double() - steps.prox * (w - z).double()
        total += _square((w - (w - lr * dw).clamp(-box, box)) / lr)
        total += _square((phi - (phi + steps.rho_phi * dphi).clamp(-dual_box, dual_box)) / steps.rho_phi)
    total += _square((z - (z - steps.lr_z * dz).clamp(-box, box)) / steps.lr_z)
    dh = (h - np.clip(h - steps.lr_h * (1.0 - lam.sum()), 0.0, steps.level_bound)) / steps.lr_h
    dlam = (
        lam - np.clip(lam + steps.rho_lam * (values - h), steps.multiplier_floor, steps.multiplier_bound)
    ) / steps.rho_lam
    return total + float(dh**2) + float((dlam**2).sum())


def _square(vector: Tensor) -> float:
    return float(vector.double().square().sum())


Upkeep = Literal["ease", "cp", "fixed"]
"""Rule that updates the list of cutting planes. ease: the worst case is added as a plane, and planes with a multiplier
of 0 are dropped; cp: planes are only added; fixed: the prior is the only plane."""

GAIN = 1e-12
"""Minimum by which the loss of a worst case must exceed the losses of all planes for the worst case to become a
plane."""
IDLE = 1e-10
"""Maximum value of a plane's multiplier that counts as zero."""


class Planes(NamedTuple):
    """An immutable list of cutting planes; `version` is the number of lists that preceded this list."""

    version: int
    p: Array  # weights [L, N], one row per plane


def renewed(
    planes: Planes, upkeep: Upkeep, worst: Array, losses: Array, lam: Array, lam_before: Array, max_planes: int
) -> tuple[Planes, list[int], int]:
    """Return the list of cutting planes after the master's update of the list, eqs. (20) and (21).

    `upkeep` is the rule of the update. The worst-case weights `worst` [N] for the latest `losses` [N] become a plane if
    their weighted loss exceeds that of all planes. If there are more than `max_planes`, the old planes with the
    smallest multipliers `lam` [L] are dropped. The function returns three values: the new list; for each plane, its row
    in the old list, or -1 for a new plane; and the number of planes that were dropped because of `max_planes` although
    their multipliers were above 0.
    """
    values = planes.p @ losses
    adds = float(worst @ losses) > float(values.max()) + GAIN
    kept = list(range(len(planes.p)))
    if upkeep == "ease":
        used = np.maximum(lam, lam_before) > IDLE
        kept = [row for row in kept if used[row]] or ([] if adds else [int(np.argmax(values))])
    by_use = sorted(kept, key=lambda row: -lam[row])
    room = max_planes - adds
    kept, displaced = sorted(by_use[:room]), sum(lam[row] > IDLE for row in by_use[room:])
    if not adds and len(kept) == len(planes.p):
        return planes, kept, 0
    rows = [planes.p[kept], worst[None]] if adds else [planes.p[kept]]
    return Planes(planes.version + 1, np.concatenate(rows)), kept + [-1] * adds, displaced


def moved_to(origin: Sequence[int], lam: Array) -> Array:
    """Return the multipliers of a new list of planes: `lam` at the rows `origin` of old planes, 0 for new planes."""
    return np.array([lam[row] if row >= 0 else 0.0 for row in origin])
