"""The theory of cyclic participation: convergence bounds for given groups, and their constants in a run.

`Theory` reads all samples of all devices, which no node of the network could; it only observes and takes no simulated
time. The bounds on the remainder term of a cycle and on the convergence rate are from "Participation Strategies in
Federated Learning with Heterogeneous Client Communications", for full-batch gradient descent on an exact split and
summed updates. The bounds are functions of the shares b_mk, the fraction of its samples that member m uses in group k.

Differences from the paper: products run to k - 1, as in the paper's lemma; in the paper's scenarios, products run to K.
The bound on the squared remainder includes the factor C^2, which is missing in the paper. Time is counted in cycles.
The last terms of the rate follow from the lemmas, eta^2 U1^2 / 2 + L eta^4 V1, and their geometric sum is not
simplified, so that at cycle 0 the bound equals the initial gap.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from fednet_emu.arrays import IntArray
from fednet_emu.errors import ScenarioError
from fednet_emu.federation import Deferred, Federation
from fednet_emu.learning.models.flat import FlatModel

Shares = Sequence[Sequence[float]]
"""For each group k, the fraction b_mk of its samples that each member m uses in the group."""


class Constants(NamedTuple):
    """The step size and the constants of the losses that enter the convergence bounds."""

    smoothness: float  # L, maximum curvature of any device's loss on any part of its samples
    gradient: float  # C, maximum norm of any sample's gradient
    dissimilarity: float  # alpha, maximum distance of a group's mean gradient from the global gradient
    lr: float  # eta, step size for summed updates; for the mean over groups of n devices, the step size divided by n


class RemainderBound(NamedTuple):
    """Bounds on the remainder r of a cycle, for objective F: |r| <= u1 + u2 |grad F|, |r|^2 <= v1 + v2 |grad F|^2."""

    u1: float
    u2: float
    v1: float
    v2: float


def remainder_bound(shares: Shares, constants: Constants) -> RemainderBound:
    """Return the bounds U1, U2, V1 and V2 on the remainder of a cycle, for groups in the given order."""
    curvature, gradient, alpha, lr = constants
    b = np.array([sum(group) for group in shares], np.float64)
    s = np.array([len(group) for group in shares], np.float64)
    d = s - b
    d_squared = np.array([sum((1.0 - share) ** 2 for share in group) for group in shares])
    count = len(b)
    growth = np.concatenate(([0.0], np.cumsum(np.log1p(lr * curvature * b))))
    j, k = np.triu_indices(count, 1)
    product = np.exp(growth[k] - growth[j + 1])  # product over j' from j + 1 to k - 1
    first, second = curvature * b[k] * product, count * k * (curvature * b[k] * product) ** 2
    return RemainderBound(
        u1=float(np.sum(first * (gradient * d + s * alpha)[j])),
        u2=float(np.sum(first * s[j])),
        v1=float(np.sum(second * (2 * gradient**2 * s * d_squared + 4 * s**2 * alpha**2)[j])),
        v2=float(np.sum(second * 4 * s[j] ** 2)),
    )


def descent(bound: RemainderBound, constants: Constants, devices: int) -> float:
    """Return the coefficient of the guaranteed decrease of the objective F in a cycle.

    For a cycle from model w to w+: F(w+) - F(w) <= -descent |grad F|^2 + floor, where the functions `descent` and
    `floor` compute the two numbers. If the coefficient is negative, no decrease is guaranteed.
    """
    curvature, lr = constants.smoothness, constants.lr
    loss = lr**2 * bound.u2 + lr**2 / 2 + curvature * lr**2 * devices**2 + curvature * lr**4 * bound.v2
    return lr * devices - loss


def floor(bound: RemainderBound, constants: Constants) -> float:
    """Return the term of the bound on F(w+) - F(w) that is independent of the gradient: eta^2 U1^2 / 2 + L eta^4 V1."""
    return constants.lr**2 * bound.u1**2 / 2 + constants.smoothness * constants.lr**4 * bound.v1


def rate_bound(
    cycles: int, gap: float, bound: RemainderBound, constants: Constants, devices: int, convexity: float
) -> float:
    """Return an upper bound on F - F* after `cycles` cycles, where F* is the minimum of the objective F.

    At the start, F - F* is `gap`. The bound assumes that |grad F|^2 / 2 >= mu (F - F*), where mu is `convexity`, the
    strong convexity of F. M is the number of `devices` and eta the step size. The bound is infinite if the step size is
    too large for the theory, that is, if `descent` is below eta M / 2.
    """
    if descent(bound, constants, devices) < constants.lr * devices / 2:
        return float("inf")
    lost = constants.lr * devices * convexity
    kept = (1.0 - lost) ** cycles
    return kept * gap + (1.0 - kept) * floor(bound, constants) / lost


Parts = Sequence[Sequence[tuple[int, IntArray | None]]]
"""For each group, pairs (device, indices of the samples that the device uses in the group; None for all samples)."""

_SAMPLES_AT_ONCE = 2048
_LEAST_CONVEXITY = 1e-12
_NOT_CONVEX = "algorithm.l2: the rate bound needs strong convexity, got 0; give a positive number"


class State(NamedTuple):
    """Values of the objective F and of gradients at one model."""

    gap: float  # F - F*, the distance from the optimum
    gradient_norm: float  # |grad F|
    largest: float  # C, the maximum norm of a sample's gradient
    dissimilarity: float  # alpha, the maximum distance of a group's mean gradient from grad F


def check_covered(model: FlatModel, l2: float, agg: str, groups: Sequence[Sequence[Any]]) -> None:
    """Raise an error if the theory does not cover the model, the regulariser, the average or the group sizes."""
    weight, *bias = model.pieces(model.initial())
    if weight.ndim != 2 or weight.shape[1] != math.prod(model.input_shape) or len(bias) != 1:
        raise ScenarioError("algorithm.bounds: the theory needs a convex model, got another; choose softmax or linear")
    if model.has_accuracy and not model.is_classifier:
        raise ScenarioError(
            "algorithm.bounds: the theory covers one class or number per sample, got labels; leave it out"
        )
    if model.is_classifier and l2 <= _LEAST_CONVEXITY:
        raise ScenarioError(_NOT_CONVEX)
    sizes = {len(group) for group in groups}
    if agg == "mean" and len(sizes) > 1:
        raise ScenarioError(
            f"algorithm.bounds: a mean is covered for groups of one size only, got sizes {sorted(sizes)}; "
            "choose agg: const or sum"
        )


class Theory:
    """The bound on the convergence rate for groups that split samples, and for models linear in their parameters.

    F is the mean over all devices in the groups of a device's regularised mean loss, in double precision. The
    smoothness follows from the largest eigenvalue of the second-moment matrix of each part of samples, because the
    curvature is at most 1/2 for softmax and 2 for a squared error. C and alpha are the maxima over all models seen so
    far. The step size `lr` is for summed updates. The flag `holds` becomes False when an update is lost; the bound is
    infinite from then on.
    """

    def __init__(self, fed: Federation, parts: Parts, l2: float, lr: float) -> None:
        task = fed.task
        self._model, self._l2, self._lr, self.holds = task.model, l2, lr, True
        self._x, self._y = task.data.x.double().cpu(), task.data.y.cpu()
        if self._y.is_floating_point():
            self._y = self._y.double()
        own = {m: torch.arange(task.offsets[m], task.offsets[m + 1]) for group in parts for m, _ in group}
        cut = [[own[m] if samples is None else own[m][samples] for m, samples in group] for group in parts]
        self.shares: Shares = [
            [len(rows) / len(own[m]) for rows, (m, _) in zip(row, group, strict=True)]
            for row, group in zip(cut, parts, strict=True)
        ]
        self._rows = torch.cat([*own.values()])
        self._owner = torch.cat([torch.full((len(rows),), place) for place, rows in enumerate(own.values())])
        place = {m: number for number, m in enumerate(own)}
        self._groups = [[place[m] for m, _ in group] for group in parts]
        self._weight = torch.cat([torch.full((len(rows),), 1 / len(rows)).double() for rows in own.values()])
        self.devices = len(own)
        curvature = 0.5 if task.model.is_classifier else 2.0
        self.smoothness = l2 + curvature * max(_eigenvalues([self._x[rows]])[-1] for row in cut for rows in row)
        lowest = 0.0 if task.model.is_classifier else _eigenvalues([self._x[rows] for rows in own.values()])[0]
        self.convexity = l2 + curvature * lowest
        if self.convexity <= _LEAST_CONVEXITY:
            raise ScenarioError(_NOT_CONVEX)
        self._largest = self._dissimilarity = self._first_gap = 0.0
        self._best = self._minimum(task.model.initial().double().cpu())

    def state(self, w: Tensor) -> State:
        """Return the distance from the optimum and the gradient norms at model `w` [P] at the start of a cycle."""
        w = w.double().cpu()
        gradients = self._gradients(w)
        whole = gradients.mean(0)
        groups = [gradients[group].mean(0) for group in self._groups]
        self._dissimilarity = max(self._dissimilarity, *(float((mean - whole).norm()) for mean in groups))
        gap = float(self._loss(w)) - self._best
        return State(gap, float(whole.norm()), self._largest, self._dissimilarity)

    def record(self, fed: Federation, w: Deferred, cycle: int) -> None:
        """Add a row to the series `cyclic_bound`: F - F*, the bound on F - F*, and the constants of the theory."""
        state = self.state(fed.read(w))
        self._first_gap = state.gap if cycle == 0 else self._first_gap
        remainder, bound = self.bound(cycle, self._first_gap)
        bound = bound if self.holds else math.inf
        parts = {**state._asdict(), **remainder._asdict(), "smoothness": self.smoothness, "convexity": self.convexity}
        fed.ledger.record("cyclic_bound", cycle=cycle, simulated_s=fed.now_s, bound=bound, **parts)

    def bound(self, cycles: int, gap: float) -> tuple[RemainderBound, float]:
        """Return the remainder bounds, and the bound on F - F* after `cycles` cycles from F - F* = `gap`."""
        constants = Constants(self.smoothness, self._largest, self._dissimilarity, self._lr)
        remainder = remainder_bound(self.shares, constants)
        return remainder, rate_bound(cycles, gap, remainder, constants, self.devices, self.convexity)

    def _loss(self, w: Tensor) -> Tensor:
        loss = self._model.loss(w, self._x[self._rows], self._y[self._rows], self._weight)
        return loss + self._l2 / 2 * w.square().sum()

    def _gradients(self, w: Tensor) -> Tensor:
        """Return the gradient [devices, P] of each device's loss, and update C, the maximum sample gradient norm."""

        def loss(w: Tensor, x: Tensor, y: Tensor) -> Tensor:
            return self._model.loss(w, x[None], y[None]) + self._l2 / 2 * w.square().sum()

        each = torch.func.vmap(torch.func.grad(loss), (None, 0, 0))
        means = torch.zeros(self.devices, len(w), dtype=w.dtype)
        places = torch.arange(len(self._rows))
        for some in torch.split(places, _SAMPLES_AT_ONCE):
            rows = self._rows[some]
            gradients = each(w, self._x[rows], self._y[rows])
            self._largest = max(self._largest, float(gradients.norm(dim=1).max()))
            means.index_add_(0, self._owner[some], gradients * self._weight[some, None])
        return means

    def _minimum(self, w: Tensor) -> float:
        """Return the minimum F* by L-BFGS, which stops when only rounding errors of the gradient remain."""
        w = w.clone().requires_grad_()
        search = torch.optim.LBFGS(
            [w], max_iter=2000, tolerance_grad=1e-10, tolerance_change=1e-16, line_search_fn="strong_wolfe"
        )

        def closure() -> Tensor:
            search.zero_grad()
            loss = self._loss(w)
            loss.backward()  # type: ignore[no-untyped-call]
            return loss

        search.step(closure)  # type: ignore[no-untyped-call]
        return float(self._loss(w.detach()))


def _eigenvalues(sets: Sequence[Tensor]) -> list[float]:
    """Return the ascending eigenvalues of the second-moment matrix of samples, averaged over the `sets`.

    A constant feature 1 is added to each sample.
    """
    designs = [torch.cat([x.flatten(1), torch.ones(len(x), 1).to(x)], 1) for x in sets]
    moments = torch.stack([design.T @ design / len(design) for design in designs]).mean(0)
    values: list[float] = torch.linalg.eigvalsh(moments).tolist()
    return values
