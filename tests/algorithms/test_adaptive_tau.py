"""Adaptive tau: known answers of the control in double precision, and its behaviour on the emulated network."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from fednet_emu.algorithms.adaptive_tau import Control, Cost, Estimates, averaged, divergence, ratios, report
from fednet_emu.errors import ScenarioError
from fednet_emu.results.published import program
from fednet_emu.testing import run_small, small_scenario

DATA = Path(os.environ.get("FEDNET_DATA", Path(__file__).parents[3] / "shared" / "data"))
needs_mnist = pytest.mark.skipif(not (DATA / "mnist").is_dir(), reason="MNIST is not in the data folder")
SLOW = pytest.mark.slow
SHAPE = np.array([0.2, 0.5, 1.0, 2.0])
"""Curvatures of the quadratics."""
CENTRES = {
    0.0: [[4.0, -2.0, 1.0, 3.0]] * 5,
    1.0: [
        [3.0081, -2.1556, 0.4535, 3.2609],
        [5.4887, -1.1007, 0.1644, 5.1738],
        [2.3242, -2.2741, 0.6077, 1.3991],
        [4.3206, -2.2411, 1.0446, 3.5822],
        [4.1128, -2.0065, 1.4959, 2.7024],
    ],
    3.0: [
        [4.5885, -5.4242, -0.6708, 5.2886],
        [4.881, -7.495, 1.0209, 1.7639],
        [2.905, -4.7228, 4.8317, 0.8745],
        [7.8528, -0.7542, 2.0978, 4.765],
        [1.4997, -0.7984, 2.0976, 1.5813],
    ],
}
"""Centres of the quadratics of five nodes, by their spread."""


def quadratics(spread: float, tau: int | None) -> tuple[list[int], float]:
    """The steps of all rounds of quadratics that share one Hessian, and the loss of the returned model."""
    centres = [np.array(centre) for centre in CENTRES[spread]]

    def at(w: np.ndarray, centre: np.ndarray) -> tuple[float, np.ndarray]:
        return 0.5 * float(np.sum(SHAPE * (w - centre) ** 2)), SHAPE * (w - centre)

    control = Control(15.0, 0.05, tau=tau or 1, tau_max=tau or 100)
    w, least, best, before, taus = np.zeros(4), np.inf, None, None, []
    while True:
        now = [at(w, centre) for centre in centres]
        if (loss := np.mean([value for value, _ in now])) < least:
            least, best = loss, w
        found = None
        if tau is None and before is not None:
            own = [ratios(x, w, f, value, g, grad) for (x, f, g), (value, grad) in zip(before, now, strict=True)]
            found = Estimates(*np.mean(own, 0), divergence([grad for _, grad in now], [1.0] * 5))
        models = []
        for centre in centres:
            x = w
            for _ in range(control.tau):
                x = x - 0.05 * at(x, centre)[1]
            models.append(x)
        before = [(x, *at(x, centre)) for x, centre in zip(models, centres, strict=True)]
        w = np.mean(models, 0)
        taus.append(control.tau)
        if not control.end_of_round(Cost(0.01, 0.1), found):
            return taus, float(np.mean([at(best, centre)[0] for centre in centres]))


@pytest.mark.parametrize(
    ("spread", "rounds", "steps", "loss"),
    [(0.0, 18, 1320, 4.8951198671597755e-12), (1.0, 126, 248, 1.7945893457957314), (3.0, 137, 137, 7.220275054143248)],
)
def test_the_control_has_the_known_answers_for_quadratics(spread: float, rounds: int, steps: int, loss: float) -> None:
    """Rounds, steps and losses of a program of the specification; without spread tau is 1, 1, 10, then 100."""
    taus, found = quadratics(spread, None)

    assert (len(taus), sum(taus)) == (rounds, steps)
    assert found == pytest.approx(loss, rel=1e-8)
    if spread == 0:
        assert taus == [1, 1, 10, *[100] * 13, 7, 1]


def test_near_optimality_is_no_theorem() -> None:
    """Nodes that share a Hessian average without bias: 100 steps are best, and adaptive tau stays at 1, 1.8 % worse."""
    adaptive, best = quadratics(3.0, None)[1], quadratics(3.0, 100)

    assert best[1] == pytest.approx(7.093813253603161, rel=1e-9)
    assert adaptive / best[1] - 1 == pytest.approx(0.0178, abs=1e-4)
    assert quadratics(3.0, 10)[1] == pytest.approx(7.093813895426898, rel=1e-9)


@needs_mnist
@pytest.mark.parametrize(
    ("case", "step_s", "aggregation_s", "rounds", "loss", "fixed"),
    [
        (1, 0.020613052, 0.137093837, 17, 0.19059089452981062, {1: 0.22229327496908582, 100: 0.19028919282537565}),
        pytest.param(3, 0.095353094, 0.157255906, 6, 0.21067280681012537, {10: 0.213237854907038}, marks=SLOW),
        pytest.param(4, 0.022075891, 0.108598094, 77, 0.2081549450654116, {100: 0.2785122673342924}, marks=SLOW),
    ],
)
def test_gradient_descent_on_mnist_has_the_known_answers(
    case: int, step_s: float, aggregation_s: float, rounds: int, loss: float, fixed: dict[int, float]
) -> None:
    """The first 1,000 digits in cases 1, 3 and 4 with constant times: rounds, losses, and steps of case 1."""
    paper = program("adaptive-tau")
    svm = paper.Svm.mnist(DATA, 1000)

    def draw(tau: int) -> Cost:
        return Cost(step_s, aggregation_s)

    found = paper.play(svm, case, draw=draw, batch=None)
    assert len(found.taus) == rounds
    assert found.loss == pytest.approx(loss, rel=1e-8)
    if case == 1:
        assert found.taus == [1, 1, 10, 11, 22, 25, 39, 44, 55, 59, 64, 66, 68, 69, 70, 9, 1]
    for tau, known in fixed.items():
        assert paper.play(svm, case, tau=tau, draw=draw, batch=None).loss == pytest.approx(known, rel=1e-8)


def test_the_search_takes_the_first_least_value_of_the_bound() -> None:
    """Against a plain loop over G, from small to large divergences; at most ten times tau, and at most tau_max."""
    lr, phi, budget, cost = 0.01, 0.025, 15.0, Cost(0.013, 0.13)

    def plain(found: Estimates, most: int) -> int:
        best, least = 1, np.inf
        for tau in range(1, most + 1):
            rho, beta, delta = found
            h = max(0.0, delta / beta * ((lr * beta + 1) ** tau - 1) - lr * delta * tau)
            total = (budget - sum(cost)) * tau / (cost.step * tau + cost.aggregation)
            gap = (1 + np.sqrt(1 + 4 * total**2 * phi * rho * lr * h / tau)) / (2 * total * lr * phi) + rho * h
            if gap < least:
                best, least = tau, gap
        return best

    seen = set()
    for delta in (1e-3, 0.1, 0.5, 2.0, 20.0):
        control = Control(budget, lr, phi, tau=7, cost=cost)
        found = Estimates(0.3, 8.0, delta)
        assert control.searched(found) == plain(found, 70)
        seen.add(control.searched(found))
    assert len(seen) == 5
    assert Control(budget, lr, phi, tau=50, cost=cost, tau_max=20).searched(Estimates(0.3, 8.0, 1e-9)) == 20


def test_the_last_steps_fill_the_budget_and_one_round_evaluates() -> None:
    """10 s, 1 s a step and an aggregation: 3 steps, the 3 that are left but for a step and two aggregations, one."""
    control, taus, goes_on = Control(10.0, 0.1, tau=3, tau_max=3), [], True
    while goes_on:
        taus.append(control.tau)
        goes_on = control.end_of_round(Cost(1.0, 1.0), None)

    assert taus == [3, 3, 1]
    assert control.spent == 10.0


def test_reports_become_weighted_means() -> None:
    """Two devices with 1 and 3 samples: rho, beta, delta and losses, with lambda / 2 |w|^2 in each loss, by hand."""
    import torch

    w, own = torch.tensor([1.0, 0.0]), torch.tensor([1.0, 2.0])
    first = report(w, torch.tensor([0.0, 0.0]), 1.0, w, 1.0, 0.2, own, torch.tensor([1.0, -2.0]), 2.0)
    second = report(w, torch.tensor([1.0, -4.0]), 2.0, w, 3.0, 0.2, own, torch.tensor([1.0, 0.0]), 2.0)
    rho, beta, delta, loss, of_best = averaged([first, second], [1, 3])

    assert loss == pytest.approx((1 + 3 * 2) / 4 + 0.1)
    assert of_best == pytest.approx((1 + 3 * 3) / 4 + 0.1)
    assert rho == pytest.approx((abs(2.5 - 1.1) / 2 + 3 * abs(2.5 - 2.1) / 2) / 4)
    assert beta == pytest.approx((np.hypot(1, 4) / 2 + 3 * np.hypot(0, 2) / 2) / 4)
    mean = np.array([1 / 4, 3.0])
    assert delta == pytest.approx((np.hypot(*(np.array([1, 0]) - mean)) + 3 * np.hypot(*(np.array([0, 4]) - mean))) / 4)


SETTINGS = (
    "data={kind: synthetic, features: 9, classes: 2, n_samples: 320, n_test: 60}",
    "partition={kind: dirichlet, alpha: 0.3}",
    "model={kind: linear, bias: false, loss: squared-hinge}",
    "algorithm={kind: adaptive-tau, lr: 0.02, weight_decay: 0.1, budget_s: 0.6}",
    "stop={rounds: 1000}",
)


def taus_of(*more: str) -> list[int]:
    """The steps of each round in a run of the small federation."""
    return [row["tau"] for row in run_small(*SETTINGS, *more).ledger.series["adaptive_tau"]]


def test_slower_links_mean_more_local_steps() -> None:
    """On half of the bit rate, with the same computing and twice the budget, the mean number of steps grows."""
    fast, slow = (
        taus_of(f"channel.rate.bit_rate_bps={rate}", f"algorithm.budget_s={budget_s}")
        for rate, budget_s in ((1e6, 0.6), (2.5e5, 1.2))
    )

    assert np.mean(slow[2:-2]) > np.mean(fast[2:-2])


@pytest.mark.parametrize("budget", ["budget_s: 0.6", "budget_j: 0.02"])
def test_a_budget_of_time_or_energy_is_nearly_spent(budget: str) -> None:
    """The run ends with the last steps that fit; the least loss is that of the model that is returned."""
    fed = run_small(
        *SETTINGS,
        f"algorithm={{kind: adaptive-tau, lr: 0.02, weight_decay: 0.1, {budget}}}",
        "devices.compute_energy={kind: cmos, clock_hz: 1.0e+9, flop_per_cycle: 1.0e-3}",
    )
    rows = fed.ledger.series["adaptive_tau"]
    spent = fed.now_s if budget.startswith("budget_s") else fed.ledger.spent_j(fed.clock.now)
    last = rows[-1]

    whole = float(budget.rsplit(maxsplit=1)[-1])
    assert 0.7 * whole < spent < whole + last["step"] + 2 * last["aggregation"]
    assert last["tau"] == 1
    assert np.nanmin([row["min_loss"] for row in rows]) == last["min_loss"]


def test_a_fixed_tau_is_kept_until_the_budget_ends() -> None:
    """Five steps in each round but the last two."""
    taus = taus_of("algorithm.fixed_tau=5")

    assert set(taus[:-2]) == {5}
    assert taus[-1] == 1


def test_what_it_cannot_use_is_refused() -> None:
    """Two budgets, and an energy that nothing counts."""
    with pytest.raises(ScenarioError, match="exactly one of budget_s and budget_j is needed, got budget_s"):
        small_scenario(*SETTINGS, "algorithm.budget_j=3")
    [(path, what)] = small_scenario(*SETTINGS, "algorithm={kind: adaptive-tau, budget_j: 1}").contradictions()
    assert path == ("algorithm", "budget_j")
    assert what.startswith("counts the energy of steps, got devices without it")
