"""Uncertainty sets: the weights of the devices against which a model is to be robust.

The sets are from Table II in Jiao, Yang, Song: "Federated Distributionally Robust Optimization with Non-Convex
Objectives: Algorithm and Analysis", https://arxiv.org/abs/2307.14364, all kept within p >= 0 and sum(p) = 1.
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
"""One number for all devices, or one for each."""

_COLDEST = -700.0
"""Logarithm of a temperature at which only the largest losses have weight."""
_HOT = 1e3
"""Above this temperature the tilted prior differs from the prior by at most a thousandth."""
RESOLUTION = 4.0 * float(np.finfo(np.float64).eps)
"""Losses that differ by less than this part of the largest of them are equal up to rounding."""
_MAX_TANGENTS = 1000


class UncertaintySet(Component):
    """Weights p of N devices with p >= 0 and sum(p) = 1, around a prior q."""

    @abstractmethod
    def worst_case(self, losses: Array, prior: Array) -> Array:
        """The weights p [N] of the set with the largest sum(p * losses), exactly.

        From the losses [N] of the devices, and the prior weights q [N] in the middle of the set, not negative and with
        a sum of 1.

        Raises:
            ScenarioError: the set is empty, or was made for another number of devices.
        """


def relative(losses: Array) -> Array:
    """The losses [N] on a scale from -1, the smallest, to 0, the largest; all 0 when they are equal up to rounding.

    This scale removes offset and unit of the losses, which do not change a worst case.
    """
    below = losses - losses.max()
    spread = -float(below.min())
    if spread <= RESOLUTION * float(np.abs(losses).max()):
        return np.zeros_like(below)
    return np.asarray(below / spread)


def per_device(name: str, values: PerDevice, count: int) -> Array:
    """The values as an array [count]."""
    given = np.asarray(values, dtype=np.float64)
    if given.ndim and len(given) != count:
        raise ScenarioError(
            f"uncertainty.{name}: not one for each worker, got {len(given)}; give one number or {count}"
        )
    return np.broadcast_to(given, count)


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


class CdNorm(UncertaintySet):
    """|p_j - q_j| <= deviation_j and sum_j |p_j - q_j| / deviation_j <= budget, the set that the paper adds.

    The paper sorts deviation_j * loss_j, which is exact for equal deviations only. Here sum(p) = 1 gets a multiplier;
    for a fixed one a fractional knapsack remains, and the dual function is convex and piecewise linear: tangents from
    both sides meet in its minimum after a few steps, O(N log N) each.
    """

    budget: float = Field(ge=0)
    """The paper's Gamma: 0 leaves the prior alone, N makes it a box."""
    deviation: PerDevice | None = None
    """The paper's p tilde, one number or one per worker; null takes the prior: a weight may vanish or double."""

    def worst_case(self, losses: Array, prior: Array) -> Array:
        """Mix the two knapsacks, one too heavy and one too light, between which the multiplier lies."""
        reach = prior if self.deviation is None else per_device("deviation", self.deviation, len(losses))
        moves, p = reach > 0, prior.copy()
        f = relative(losses[moves]) if moves.any() else losses[moves]
        if self.budget == 0 or not f.any():
            return p
        p[moves] += reach[moves] * _best_moves(f, reach[moves], prior[moves], self.budget)
        return as_weights(p)


def _best_moves(f: Array, reach: Array, prior: Array, budget: float) -> Array:
    """The u = (p - q) / reach that is best, in [-min(1, q / reach), 1] with sum |u| <= budget and sum(reach u) = 0.

    The losses f are relative, in [-1, 0].
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
    """The u with the largest sum(reach * excess * u) within its bounds and the budget: the largest gains first."""
    capacity = np.where(excess > 0, 1.0, down)
    order = np.argsort(-reach * np.abs(excess), kind="stable")
    room = capacity[order]
    u = np.empty_like(excess)
    u[order] = np.clip(budget - (np.cumsum(room) - room), 0.0, room)
    return np.sign(excess) * u


class Ellipsoid(UncertaintySet):
    """sum_j (p_j - q_j)^2 / variance_j <= budget, with the matrix diagonal."""

    budget: float = Field(ge=0)
    """How far from the prior the weights may be, in the measure above."""
    variance: PerDevice = 1.0
    """One number above 0, or one per worker: how far a weight may go, squared, in units of the budget."""

    @field_validator("variance")
    @classmethod
    def _every_weight_can_move(cls, variance: PerDevice) -> PerDevice:
        if np.min(variance) <= 0:
            raise ValueError(f"variances must be above 0, got {variance}; give a fixed device a small one")
        return variance

    def worst_case(self, losses: Array, prior: Array) -> Array:
        """The closed form, and again without the workers whose weights it makes negative, until there are none: O(N^2).

        Let S be the remaining workers. p_j = q_j + variance_j (lift + step (f_j - mean)), with the mean of f over S by
        variance, the lift that gives S the prior of the others, and the step that uses up the budget. A removed worker
        stays at 0 for larger steps, and each time S shrinks the step grows, so that no worker has to be added again.
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
            power = float(v @ excess**2)  # 0 when only equal losses are left
            step = np.sqrt(max(left, 0.0) / power) if power > 0 else 0.0
            p = np.zeros_like(f)
            p[held] = q + v * (lift + step * excess)
            if (p >= 0).all():
                return as_weights(p)
            held &= p >= 0


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
        """The eta at which the divergence is `budget`, by root finding in a bracket."""
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
    """Divergence of the tilted prior p from the prior q: sum_j p_j log(p_j / q_j).

    Close to the prior these terms cancel, so there it is sum_j q_j (r_j log r_j - r_j + 1) with r = p / q, all above 0.
    """
    if eta > _HOT:
        rise = np.expm1(f / eta)
        by = (rise - prior @ rise) / (1.0 + prior @ rise)  # r - 1
        return float(prior @ ((1.0 + by) * np.log1p(by) - by))
    tilted = _tilted(prior, f, eta)
    return float(tilted @ (f / eta)) / float(tilted.sum()) - math.log(tilted.sum())


class Polyhedron(UncertaintySet):
    """sum_j matrix_ij p_j <= bounds_i for every row i; the prior does not matter."""

    matrix: tuple[tuple[float, ...], ...] = Field(min_length=1)
    """One row of coefficients for each inequality, one column for each device."""
    bounds: tuple[float, ...]
    """Right-hand side of each inequality."""

    def _check(self) -> None:
        if len(self.matrix) != len(self.bounds):
            raise ValueError(f"one bound per row is needed, got {len(self.matrix)} rows and {len(self.bounds)} bounds")

    def worst_case(self, losses: Array, prior: Array) -> Array:
        """The linear programme, by HiGHS, whose tolerances are absolute."""
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
    """Weights that the prior becomes when mass is moved, by worker numbers times mass at most `budget`."""

    budget: float = Field(ge=0)
    """Largest sum of distance in worker numbers times mass."""

    def worst_case(self, losses: Array, prior: Array) -> Array:
        """Each worker's mass climbs the concave hull of (distance, loss), steepest steps of all workers first.

        Exact in O(N^2 log N): the transport problem of N^2 variables falls apart by source once the budget has a price.
        """
        tours = [_hull(losses, source) if mass > 0 else [source] for source, mass in enumerate(prior)]
        steps = [
            ((losses[b] - losses[a]) / (abs(b - source) - abs(a - source)), source, a, b)
            for source, tour in enumerate(tours)
            for a, b in pairwise(tour)
        ]
        p, left = prior.copy(), self.budget
        for _, source, a, b in sorted(steps, key=lambda step: -step[0]):  # stable, so a tour keeps its order
            length = abs(b - source) - abs(a - source)
            mass = min(prior[source], left / length)
            p[a] -= mass
            p[b] += mass
            left -= mass * length
            if mass < prior[source]:
                break
        return np.maximum(p, 0.0)


def _hull(losses: Array, source: int) -> list[int]:
    """Corners of the concave hull of (distance from the source, loss), as worker numbers, while it rises."""
    place: list[int] = []
    for here in _rising(losses, source):
        while len(place) > 1 and _slope(losses, source, place[-1], here) >= _slope(losses, source, *place[-2:]):
            place.pop()
        place.append(here)
    return place


def _slope(losses: Array, source: int, a: int, b: int) -> float:
    return float((losses[b] - losses[a]) / (abs(b - source) - abs(a - source)))


def _rising(losses: Array, source: int) -> list[int]:
    """The workers whose loss exceeds the loss of all nearer ones, by distance, the source itself first."""
    distance = np.abs(np.arange(len(losses)) - source)
    order = np.argsort(distance, kind="stable")
    values = losses[order]
    nearer = np.concatenate([[-np.inf], np.maximum.accumulate(values)[:-1]])
    rising = order[values > nearer]
    last = np.append(np.diff(distance[rising]) > 0, True)  # of two at one distance, the higher comes second
    return [int(worker) for worker in rising[last]]


UNCERTAINTY_SETS: dict[str, type[UncertaintySet]] = kinds(Box, CdNorm, Ellipsoid, KlBall, Polyhedron, Wasserstein)

AnyUncertaintySet = Annotated[UncertaintySet, Slot("uncertainty", UNCERTAINTY_SETS)]
