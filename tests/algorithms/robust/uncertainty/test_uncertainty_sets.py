"""Claims about the uncertainty sets: each solver against a general one, and the laws that all of them keep."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import linprog, minimize

from fednet_emu.algorithms.robust.uncertainty import (
    UNCERTAINTY_SETS,
    Box,
    CdNorm,
    Ellipsoid,
    KlBall,
    Polyhedron,
    UncertaintySet,
    Wasserstein,
    _rising,
    per_device,
)
from fednet_emu.algorithms.robust.uncertainty import _divergence as kl_divergence
from fednet_emu.algorithms.robust.weights import project
from fednet_emu.arrays import Array
from tests.quick import examples, share

LOSSES: dict[str, Callable[[Array], Array]] = {
    "plain": lambda f: f,
    "offset": lambda f: f + 1e8,
    "huge": lambda f: f * 1e8,
    "tiny": lambda f: f * 1e-12,
    "equal": lambda f: np.full_like(f, f[0]),
    "equal but for rounding": lambda f: f[0] + np.spacing(f[0]) * (np.arange(len(f)) % 2),
    "single": lambda f: np.where(np.arange(len(f)) == 0, f, 0.0),
    "tied": np.round,
}
"""What is made of random losses."""

every_loss = pytest.mark.parametrize("kind", LOSSES)


class Instance(NamedTuple):
    """A generator, a number of workers, losses f, a prior q, and f on a scale that general solvers can take."""

    rng: np.random.Generator
    n: int
    f: Array
    q: Array
    scaled: Array


def instances(kind: str, count: int = share(50)) -> Iterator[Instance]:
    """Of one to eight workers; every third prior is uniform. Losses that are equal but for rounding count as equal."""
    for seed in range(count):
        rng = np.random.default_rng([seed, list(LOSSES).index(kind)])
        n = 1 if seed == 0 else int(rng.integers(2, 9))
        prior = np.full(n, 1 / n) if seed % 3 == 0 else rng.dirichlet(np.ones(n))
        f = LOSSES[kind](rng.exponential(size=n))
        spread = np.ptp(f)
        yield Instance(rng, n, f, prior, (f - f.mean()) / (spread if spread > 1e-15 * np.abs(f).max() else np.inf))


def budget_of(rng: np.random.Generator, low: float, high: float) -> float:
    """A power of ten between these powers, or 0 in one of ten cases."""
    return 0.0 if rng.random() < 0.1 else float(10 ** rng.uniform(low, high))


def worst_case_weights(uncertainty: UncertaintySet, losses: Array, prior: Array | None = None) -> Array:
    """The worst case around a prior that is scaled to a sum of 1; uniform by default."""
    q = np.ones_like(losses) if prior is None else prior
    return uncertainty.worst_case(losses, q / q.sum())


def weights(uncertainty: UncertaintySet, f: Array, q: Array) -> Array:
    """The worst case, which must be a point of the simplex whatever the losses are."""
    p = worst_case_weights(uncertainty, f, q)
    assert p.min() >= 0
    assert p.sum() == pytest.approx(1, abs=1e-12)
    return p


def linear_optimum(f: Array, **constraints: object) -> float:
    """The largest f'p over the simplex with further linear constraints, by HiGHS."""
    n_variables = len(f)
    found = linprog(-f, **{"bounds": [(0, None)] * n_variables, **constraints})
    assert found.success
    return -float(found.fun)


def smooth_optimum(f: Array, start: Array, slack) -> float:
    """The largest f'p over the simplex with slack(p) >= 0, by SLSQP from several starts."""
    sum_to_one = {"type": "eq", "fun": lambda p: p.sum() - 1}
    constraints = [sum_to_one, {"type": "ineq", "fun": slack}]
    best = -np.inf
    for towards in (0.0, 0.1, 0.3):
        p0 = (1 - towards) * start + towards * (f == f.max()) / (f == f.max()).sum()
        found = minimize(lambda p: -f @ p, p0, jac=lambda p: -f, bounds=[(1e-14, 1)] * len(f),
                         constraints=constraints, method="SLSQP", options={"ftol": 1e-14, "maxiter": 500})  # fmt: skip
        if abs(found.x.sum() - 1) < 1e-9 and slack(found.x) > -1e-9:
            best = max(best, -float(found.fun))
    assert best > -np.inf
    return best


def ones(n: int) -> dict[str, object]:
    """The constraint sum(p) = 1."""
    return {"A_eq": np.ones((1, n)), "b_eq": [1.0]}


@every_loss
def test_the_box_is_the_linear_programme(kind: str) -> None:
    """Random bounds on both sides; without room between them the prior remains."""
    for rng, n, f, q, scaled in instances(kind):
        room = rng.integers(0, 3) / 2
        low = q * (1 - room * rng.random(n))
        high = q + room * (1 - q) * rng.random(n)
        p = weights(Box(lower=tuple(low), upper=tuple(high)), f, q)

        assert ((p >= low - 1e-12) & (p <= high + 1e-12)).all()
        optimum = linear_optimum(scaled, bounds=list(zip(low, high, strict=True)), **ones(n))
        assert scaled @ p == pytest.approx(optimum, abs=1e-7)


@every_loss
@pytest.mark.parametrize("equal", [False, True])
def test_the_cd_norm_is_the_linear_programme(equal: bool, kind: str) -> None:
    """Unequal and equal deviations, also such that would make weights negative; p = q + up - down, both >= 0."""
    for rng, n, f, q, scaled in instances(kind):
        reach = np.full(n, rng.random()) if equal else rng.random(n) + 1e-3
        budget = n * budget_of(rng, -2, 0)
        p = weights(CdNorm(budget=budget, deviation=tuple(reach)), f, q)
        move = np.concatenate([reach, -reach])
        optimum = scaled @ q + linear_optimum(
            move * np.tile(scaled, 2), A_eq=move[None], b_eq=[0.0], A_ub=np.ones((1, 2 * n)), b_ub=[budget],
            bounds=[*[(0, 1)] * n, *[(0, min(1, a / b)) for a, b in zip(q, reach, strict=True)]])  # fmt: skip

        assert (np.abs(p - q) <= reach + 1e-12).all()
        assert (np.abs(p - q) / reach).sum() <= budget + 1e-9
        assert scaled @ p == pytest.approx(optimum, abs=1e-7)


@every_loss
def test_the_ellipsoid_is_the_conic_optimum(kind: str) -> None:
    """Small budgets have the closed form, large ones press weights to zero."""
    for rng, n, f, q, scaled in instances(kind, share(12)):
        variance, budget = rng.random(n) + 0.1, budget_of(rng, -3, 1)
        p = weights(Ellipsoid(budget=budget, variance=tuple(variance)), f, q)

        def slack(p, q=q, variance=variance, budget=budget):
            return budget - ((p - q) ** 2 / variance).sum()

        assert slack(p) >= -1e-9 * (1 + budget)
        assert scaled @ p == pytest.approx(smooth_optimum(scaled, q, slack), abs=1e-6)


@every_loss
def test_the_polyhedron_is_the_linear_programme(kind: str) -> None:
    """The set is that of random half spaces around the prior; the optimum is that of its dual programme."""
    for rng, n, f, q, scaled in instances(kind):
        rows = rng.standard_normal((4, n))
        bounds = rows @ q + rng.random(4) * 0.3
        p = weights(Polyhedron(matrix=tuple(map(tuple, rows)), bounds=tuple(bounds)), f, q)
        columns = np.column_stack([rows.T, np.ones(n), -np.ones(n)])
        dual = linprog(np.append(bounds, [1.0, -1.0]), A_ub=-columns, b_ub=-scaled, bounds=[(0, None)] * 6)

        assert (rows @ p <= bounds + 1e-9).all()
        assert scaled @ p == pytest.approx(dual.fun, abs=1e-7)


@every_loss
def test_the_kl_ball_is_the_entropy_optimum(kind: str) -> None:
    """The tilted prior meets the dual bound eta * (budget + log sum q exp(f / eta)), minimised over eta."""
    for rng, _, f, q, scaled in instances(kind):
        budget = budget_of(rng, -3, 0.7)
        p = weights(KlBall(budget=budget), f, q)
        some = p > 0

        def bound(log_eta, f=scaled, q=q, budget=budget):
            eta, top = np.exp(log_eta), f.max()
            return top + eta * (budget + np.log(np.exp((f - top) / eta[:, None]) @ q))

        grid = np.linspace(-40, 15, 4401)
        start = grid[np.argmin(bound(grid))]
        lowest = bound(np.linspace(start - 0.0125, start + 0.0125, 2001)).min()

        assert p[some] @ np.log(p[some] / q[some]) <= budget + 1e-9
        assert scaled @ p == pytest.approx(lowest, abs=1e-6 if budget == 0 else 1e-7)


def test_the_kl_ball_ends_at_its_coldest_temperature() -> None:
    """Losses that differ by 1e-310 share the weight, though one nat is more than they can use: log(3 / 2)."""
    p = KlBall(budget=1.0).worst_case(np.array([0.0, -1e-310, -1.0]), np.full(3, 1 / 3))

    assert p == pytest.approx([0.5, 0.5, 0.0], abs=1e-6)


def test_the_kl_ball_meets_tiny_budgets() -> None:
    """Close to the prior the worst case is q + sqrt(2 budget / var) q (f - mean): to 1e-6 of it with 1e-16 nats."""
    f, q = np.array([1.0, 2.0, 4.0]), np.array([0.2, 0.3, 0.5])
    excess = f - q @ f
    for budget in (1e-12, 1e-14, 1e-16):
        moved = np.sqrt(2 * budget / (q @ excess**2)) * q * excess

        assert worst_case_weights(KlBall(budget=budget), f, q) - q == pytest.approx(moved, rel=1e-6, abs=1e-15)


@every_loss
def test_the_wasserstein_ball_is_the_transport_problem(kind: str) -> None:
    """All N^2 amounts from i to j as variables."""
    for rng, n, f, q, scaled in instances(kind):
        budget = n * budget_of(rng, -2, -0.3)
        p = weights(Wasserstein(budget=budget), f, q)
        cost = np.abs(np.arange(n)[:, None] - np.arange(n)).reshape(1, -1)
        optimum = linear_optimum(np.tile(scaled, n), A_eq=np.kron(np.eye(n), np.ones((1, n))), b_eq=q, A_ub=cost,
                                 b_ub=[budget])  # fmt: skip

        assert np.abs(np.cumsum(p - q)).sum() <= budget + 1e-9
        assert scaled @ p == pytest.approx(optimum, abs=1e-7)


SETS: dict[str, UncertaintySet] = {
    "box": Box(upper=0.7),
    "cd-norm": CdNorm(budget=1.5),
    "ellipsoid": Ellipsoid(budget=0.1),
    "kl": KlBall(budget=0.2),
    "polyhedron": Polyhedron(matrix=((1.0, 0.0, 0.0, 0.0),), bounds=(0.5,)),
    "wasserstein": Wasserstein(budget=0.4),
}


def test_no_set_is_untested() -> None:
    """Every kind of the table is here."""
    assert SETS.keys() == UNCERTAINTY_SETS.keys()


@pytest.mark.parametrize("kind", SETS)
@examples(40)
@given(losses=st.lists(st.floats(0, 1e3), min_size=4, max_size=4), offset=st.floats(-10, 10))
def test_weights_are_weights_and_only_differences_of_losses_count(
    kind: str, losses: list[float], offset: float
) -> None:
    """All p >= 0, sum 1, never milder than the prior; one more unit of loss for all adds one unit."""
    f, prior = np.array(losses), np.full(4, 0.25)
    p = worst_case_weights(SETS[kind], f, prior)
    shifted = worst_case_weights(SETS[kind], f + offset, prior)

    assert p.min() >= 0
    assert p.sum() == pytest.approx(1, abs=1e-12)
    assert f @ p >= f @ prior - 1e-9 * (1 + f.max())
    assert f @ shifted == pytest.approx(f @ p, rel=1e-6, abs=1e-6)


@pytest.mark.parametrize(
    "uncertainty", [CdNorm(budget=0), Ellipsoid(budget=0), KlBall(budget=0), Wasserstein(budget=0)]
)
def test_without_a_budget_the_prior_remains(uncertainty: UncertaintySet) -> None:
    """To the last bit, so that no plane is ever added."""
    prior = np.random.default_rng(1).dirichlet(np.ones(7))

    assert (worst_case_weights(uncertainty, np.arange(7.0), prior) == prior / prior.sum()).all()


@examples(50)
@given(st.lists(st.floats(-10, 10), min_size=1, max_size=8))
def test_projecting_twice_changes_nothing(values: list[float]) -> None:
    """The projection is on the simplex, and a point of the simplex is its own."""
    p = project(np.array(values))

    assert p.min() >= 0
    assert p.sum() == pytest.approx(1)
    assert project(p) == pytest.approx(p, abs=1e-12)


def test_large_numbers_have_a_projection() -> None:
    """By hand: equal entries share the 1, and of entries that differ by more than 1 the largest has it all."""
    assert project(np.array([1e16, 1e16])) == pytest.approx([0.5, 0.5])
    assert project(np.array([-1e300, 1e300])) == pytest.approx([0, 1])
    assert project(np.array([1e8, 1e8 + 0.5])) == pytest.approx([0.25, 0.75])


@pytest.mark.parametrize("losses", [[0.1] * 3, [0.3, 0.1 + 0.2, 0.3], [1e8] * 3, [1e-12] * 3, [0.0] * 3])
def test_equal_losses_leave_the_prior_of_an_ellipsoid(losses: list[float]) -> None:
    """Also when they differ in their last bit, with a budget that reaches no corner and one that reaches them all."""
    for budget in (0.1, 0.8):
        assert worst_case_weights(Ellipsoid(budget=budget), np.array(losses)).tolist() == [1 / 3] * 3


def test_both_forms_of_the_divergence_agree_where_one_takes_over():
    """The sum over p log(p / q), by its definition, just below and just above the temperature of 1000."""
    prior, f = np.array([0.5, 0.3, 0.2]), np.array([0.0, -400.0, -900.0])
    for eta in (999.0, 1001.0, 1500.0):
        p = prior * np.exp(f / eta)
        p /= p.sum()

        assert kl_divergence(prior, f, eta) == pytest.approx(float(p @ np.log(p / prior)), rel=1e-9)


def test_numbers_per_device_are_floats() -> None:
    """Whole numbers too; one number stands for all."""
    assert [per_device("deviation", values, 2).dtype for values in (1, (1, 2), 0.5)] == [np.float64] * 3
    assert per_device("deviation", 3, 2).tolist() == [3.0, 3.0]


def test_of_two_equals_at_one_distance_the_lower_number_is_met_first() -> None:
    """With losses that are distances from the middle of 101 workers, 49 comes before 51, and so on to 0."""
    assert _rising(np.abs(np.arange(101) - 50.0), 50) == list(range(50, -1, -1))
