"""Uncertainty sets: the sets of device weights against which a model should be robust.

The sets are from Table II in Jiao, Yang, Song: "Federated Distributionally Robust Optimization with Non-Convex
Objectives: Algorithm and Analysis", https://arxiv.org/abs/2307.14364, restricted to p >= 0 and sum(p) = 1.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from itertools import pairwise
from typing import Annotated

import numpy as np
from pydantic import Field, field_validator

from fednet_emu.algorithms.robust.weights import as_weights
from fednet_emu.arrays import Array
from fednet_emu.component.component import Component
from fednet_emu.component.slot import Slot, kinds
from fednet_emu.errors import ScenarioError

PerDevice = float | tuple[float, ...]
"""One number for all devices, or one number per device."""

_COLDEST = -700.0
"""Logarithm of a temperature that is so low that only the largest losses have weight."""
_HOT = 1e3
"""Temperature above which the prior, multiplied by exp(losses / temperature), changes by at most a thousandth."""
RESOLUTION = 4.0 * float(np.finfo(np.float64).eps)
"""Relative tolerance: losses that differ by less than this fraction of the largest loss are equal up to rounding."""
_MAX_TANGENTS = 1000


class UncertaintySet(Component):
    """A set of weights p of N devices, with p >= 0 and sum(p) = 1, around a prior q."""

    @abstractmethod
    def worst_case(self, losses: Array, prior: Array) -> Array:
        """Return the exact weights p [N] in the set that maximise sum(p * losses), for the `losses` [N] of the devices.

        `prior` [N] are the weights q at the centre of the set, not negative and with a sum of 1. A `ScenarioError` is
        raised if the set is empty, or was defined for another number of devices.
        """


def relative(losses: Array) -> Array:
    """Return the losses [N] without offset and unit, from -1 (smallest) to 0 (largest); 0 if equal up to rounding."""
    below = losses - losses.max()
    spread = -float(below.min())
    if spread <= RESOLUTION * float(np.abs(losses).max()):
        return np.zeros_like(below)
    return np.asarray(below / spread)


def per_device(name: str, values: PerDevice, count: int) -> Array:
    """Return `values` as an array [count]; raise an error if `values` has more than one but not `count` entries."""
    given = np.asarray(values, dtype=np.float64)
    if given.ndim and len(given) != count:
        raise ScenarioError(
            f"uncertainty.{name}: not one for each worker, got {len(given)}; give one number or {count}"
        )
    return np.broadcast_to(given, count)


class Box(UncertaintySet):
    """Bounds lower <= p <= upper; with the default bounds the set is the whole simplex, and the prior has no effect."""

    lower: PerDevice = Field(0.0)
    """Minimum weight: one number for all devices, or one number per device."""
    upper: PerDevice = Field(1.0)
    """Maximum weight: one number for all devices, or one number per device."""

    def worst_case(self, losses: Array, prior: Array) -> Array:
        """Return the weights: lower bounds, raised to upper bounds in order of descending loss until the sum is 1.

        The computation takes O(N log N) operations.
        """
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


class CdNorm(UncertaintySet):
    """The paper's set of weights p with |p_j - q_j| <= deviation_j and sum_j |p_j - q_j| / deviation_j <= budget.

    The paper finds the worst case by sorting deviation_j * loss_j, which is exact only for equal deviations. Here a
    multiplier enforces the constraint sum(p) = 1, and for a fixed multiplier the problem is a fractional knapsack. The
    dual function is convex and piecewise linear, so tangents from both sides meet at its minimum after a few steps of
    O(N log N) each.
    """

    budget: float = Field(ge=0)
    """Size of the set (the paper's Gamma): if it is 0, the set contains only the prior; if it is the number of devices,
    the set is a box."""
    deviation: PerDevice | None = None
    """Maximum change of a weight (the paper's p tilde), one number or one per device; null for the prior weight itself,
    so that a weight may vanish or double."""

    def worst_case(self, losses: Array, prior: Array) -> Array:
        """Return the combination, with a sum of 1, of two knapsack solutions with sums above and below 1."""
        reach = prior if self.deviation is None else per_device("deviation", self.deviation, len(losses))
        moves, p = reach > 0, prior.copy()
        f = relative(losses[moves]) if moves.any() else losses[moves]
        if self.budget == 0 or not f.any():
            return p
        p[moves] += reach[moves] * _best_moves(f, reach[moves], prior[moves], self.budget)
        return as_weights(p)


def _best_moves(f: Array, reach: Array, prior: Array, budget: float) -> Array:
    """Return u = (p - q) / reach for the worst-case weights p, with entries in [-min(1, q / reach), 1].

    Here q is `prior`, and `reach` is the maximum change of each weight. The constraints are sum |u| <= `budget` and
    sum(reach u) = 0. The losses `f` are relative, in [-1, 0].
    """
    down = np.minimum(1.0, prior / reach)
    low, high = (_knapsack(f - nu, reach, down, budget) for nu in (f.min() - 1.0, f.max() + 1.0))
    for _ in range(_MAX_TANGENTS):
        (value_low, mass_low), (value_high, mass_high) = ((reach @ (f * u), reach @ u) for u in (low, high))
        if mass_low <= 0 or mass_low == mass_high:
            return low
        nu = (value_low - value_high) / (mass_low - mass_high)
        tangent = value_low - nu * mass_low
        u = _knapsack(f - nu, reach, down, budget)
        if reach @ ((f - nu) * u) <= tangent + 1e-15 * (1.0 + abs(tangent)):
            break
        low, high = (u, high) if reach @ u > 0 else (low, u)
    share = mass_high / (mass_high - mass_low)
    return np.asarray(share * low + (1 - share) * high)


def _knapsack(excess: Array, reach: Array, down: Array, budget: float) -> Array:
    """Return the u that maximises sum(reach * excess * u), for -down <= u <= 1 and sum |u| <= `budget`."""
    capacity = np.where(excess > 0, 1.0, down)
    order = np.argsort(-reach * np.abs(excess), kind="stable")
    room = capacity[order]
    u = np.empty_like(excess)
    u[order] = np.clip(budget - (np.cumsum(room) - room), 0.0, room)
    return np.sign(excess) * u


class Ellipsoid(UncertaintySet):
    """Ellipsoid with a diagonal matrix: sum_j (p_j - q_j)^2 / variance_j <= budget."""

    budget: float = Field(ge=0)
    """Right-hand side of the inequality: the maximum squared distance from the prior, scaled by the variances."""
    variance: PerDevice = 1.0
    """Squared change of a single weight that uses up a budget of 1: one number above 0, or one number per device."""

    @field_validator("variance")
    @classmethod
    def _every_weight_can_move(cls, variance: PerDevice) -> PerDevice:
        if np.min(variance) <= 0:
            raise ValueError(f"variances must be above 0, got {variance}; give a fixed device a small one")
        return variance

    def worst_case(self, losses: Array, prior: Array) -> Array:
        """Return the closed-form solution, recomputed without workers of negative weight until no weight is negative.

        For the remaining workers j, p_j = q_j + variance_j (lift + step (f_j - mean)), where f_j are the scaled losses.
        Here mean is the mean of f over the remaining workers weighted by variance, lift distributes the prior weights
        of the removed workers, and step uses up the budget. Removing workers increases the step, and a removed worker
        stays at 0 for larger steps, so no removed worker returns. The cost is O(N^2).
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
            power = float(v @ excess**2)  # 0 if all remaining losses are equal
            step = np.sqrt(max(left, 0.0) / power) if power > 0 else 0.0
            p = np.zeros_like(f)
            p[held] = q + v * (lift + step * excess)
            if (p >= 0).all():
                return as_weights(p)
            held &= p >= 0


class KlBall(UncertaintySet):
    """Kullback-Leibler ball: sum_j p_j log(p_j / q_j) <= budget, in nats."""

    kind = "kl"
    budget: float = Field(ge=0)
    """Maximum Kullback-Leibler divergence from the prior, in nats."""

    def worst_case(self, losses: Array, prior: Array) -> Array:
        """Return the prior times exp(losses / eta), normalised; the divergence at the temperature eta is `budget`."""
        held = prior > 0
        f, q = relative(losses[held]), prior[held]
        if self.budget == 0 or not f.any():
            return prior.copy()
        best = np.where(f == 0, q, 0.0)
        p = np.zeros_like(prior)
        p[held] = best if self.budget >= -math.log(best.sum()) else _tilted(q, f, self._temperature(q, f))
        return as_weights(p)

    def _temperature(self, prior: Array, f: Array) -> float:
        """Return the temperature eta at which the divergence from the prior is `budget`, by root finding."""
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


def _tilted(prior: Array, f: Array, eta: float) -> Array:
    return np.asarray(prior * np.exp(f / eta))


def _divergence(prior: Array, f: Array, eta: float) -> float:
    """Return the Kullback-Leibler divergence sum_j p_j log(p_j / q_j) of the tilted prior p from the prior q.

    p is the prior times exp(f / `eta`), normalised. If p is close to q, the terms of this sum cancel. The divergence is
    then computed as sum_j q_j (r_j log r_j - r_j + 1) with r = p / q, whose terms are all >= 0.
    """
    if eta > _HOT:
        rise = np.expm1(f / eta)
        by = (rise - prior @ rise) / (1.0 + prior @ rise)  # r - 1
        return float(prior @ ((1.0 + by) * np.log1p(by) - by))
    tilted = _tilted(prior, f, eta)
    return float(tilted @ (f / eta)) / float(tilted.sum()) - math.log(tilted.sum())


class Polyhedron(UncertaintySet):
    """Polyhedron: sum_j matrix_ij p_j <= bounds_i for every row i; the prior has no effect."""

    matrix: tuple[tuple[float, ...], ...] = Field(min_length=1)
    """Coefficients of the inequalities: one row for each inequality, and one column for each device."""
    bounds: tuple[float, ...]
    """Right-hand side of each inequality."""

    def _check(self) -> None:
        if len(self.matrix) != len(self.bounds):
            raise ValueError(f"one bound per row is needed, got {len(self.matrix)} rows and {len(self.bounds)} bounds")

    def worst_case(self, losses: Array, prior: Array) -> Array:
        """Return the solution of the linear programme by the solver HiGHS, whose tolerances are absolute."""
        from scipy.optimize import linprog

        count = len(losses)
        if any(len(row) != count for row in self.matrix):
            widths = sorted({len(row) for row in self.matrix})
            raise ScenarioError(f"uncertainty.matrix: not one column for each worker, got {widths}; give {count}")
        found = linprog(-relative(losses), A_ub=self.matrix, b_ub=self.bounds, A_eq=np.ones((1, count)), b_eq=[1.0])
        if not found.success:
            raise ScenarioError(f"uncertainty: the polyhedron holds no weights, got {found.message}; relax the bounds")
        return as_weights(found.x)


class Wasserstein(UncertaintySet):
    """Weights to which the prior can be transformed by moving weight between workers at a total cost up to `budget`."""

    budget: float = Field(ge=0)
    """Maximum sum of moved weight times distance, where the distance of two workers is the difference of their indices.
    """

    def worst_case(self, losses: Array, prior: Array) -> Array:
        """Return the prior after weight is moved to workers with larger losses, in descending order of gain per cost.

        The moves of each worker's weight follow the upper concave envelope of the points (distance, loss). The result
        is exact, because a Lagrange multiplier for the budget splits the transport problem by source. The cost is
        O(N^2 log N).
        """
        tours = [_hull(losses, source) if mass > 0 else [source] for source, mass in enumerate(prior)]
        steps = [
            ((losses[b] - losses[a]) / (abs(b - source) - abs(a - source)), source, a, b)
            for source, tour in enumerate(tours)
            for a, b in pairwise(tour)
        ]
        p, left = prior.copy(), self.budget
        for _, source, a, b in sorted(steps, key=lambda step: -step[0]):  # a stable sort keeps the order within a tour
            length = abs(b - source) - abs(a - source)
            mass = min(prior[source], left / length)
            p[a] -= mass
            p[b] += mass
            left -= mass * length
            if mass < prior[source]:
                break
        return np.maximum(p, 0.0)


def _hull(losses: Array, source: int) -> list[int]:
    """Return the workers on the rising part of the upper concave envelope of the points (distance, loss)."""
    place: list[int] = []
    for here in _rising(losses, source):
        while len(place) > 1 and _slope(losses, source, place[-1], here) >= _slope(losses, source, *place[-2:]):
            place.pop()
        place.append(here)
    return place


def _slope(losses: Array, source: int, a: int, b: int) -> float:
    return float((losses[b] - losses[a]) / (abs(b - source) - abs(a - source)))


def _rising(losses: Array, source: int) -> list[int]:
    """Return the workers with a larger loss than all workers nearer to `source`, sorted by distance from `source`."""
    distance = np.abs(np.arange(len(losses)) - source)
    order = np.argsort(distance, kind="stable")
    values = losses[order]
    nearer = np.concatenate([[-np.inf], np.maximum.accumulate(values)[:-1]])
    rising = order[values > nearer]
    last = np.append(np.diff(distance[rising]) > 0, True)  # at equal distances, the second worker has the larger loss
    return [int(worker) for worker in rising[last]]


UNCERTAINTY_SETS: dict[str, type[UncertaintySet]] = kinds(Box, CdNorm, Ellipsoid, KlBall, Polyhedron, Wasserstein)

AnyUncertaintySet = Annotated[UncertaintySet, Slot("uncertainty", UNCERTAINTY_SETS)]
