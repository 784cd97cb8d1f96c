"""Claims about ASPIRE-EASE and its variants on problems whose solutions, times and bits are known."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
import torch

from fednet_emu.algorithms.robust.aspire import algorithm as flow
from fednet_emu.algorithms.robust.aspire.algorithm import Aspire, Master, Worker, iteration_bit
from fednet_emu.algorithms.robust.aspire.updates import Planes, moved_to, renewed
from fednet_emu.algorithms.robust.uncertainty import CdNorm
from fednet_emu.arrays import Array
from fednet_emu.emulation.play import play
from fednet_emu.federation.federation import Federation
from fednet_emu.records.laws import verify
from fednet_emu.testing import run_small, small_federation, small_scenario

N = 8
CENTRES = np.random.default_rng(0).standard_normal((N, 3))
OPTIMA = {0: 1.080105, 2: 1.396353, 8: 1.706752}
"""Worst-case objective at the optimum for budgets of the constrained D-norm, with prior and deviations 1 / N."""


ASPIRE = "algorithm={kind: aspire, active: null, lr: 0.1, uncertainty: {kind: cd-norm, budget: 1}}"
LOSSY = tuple(f"network.{kind}.message_loss={{kind: random, probability: 0.3}}" for kind in ("uplink", "downlink"))
ADP = "algorithm.adaptive={threshold_s: 0.01, tick_s: 0.001}"


TWO_PACES = ("algorithm.active=2", "algorithm.plane_every=3", "stop.rounds=40")


@pytest.mark.parametrize("form", [("wire=reduced",), ("planes=fixed",), ("wire=reduced", "planes=cp")])
def test_events_that_do_not_depend_on_planes_are_those_without_training(form: tuple[str, ...]) -> None:
    """When messages do not grow with the planes, a timing-only run has the full run's events."""
    settings = (ASPIRE, *TWO_PACES, *(f"algorithm.{setting}" for setting in form))
    trained, timed = run_small(*settings), run_small(*settings, timing_only=True)
    n_planes = trained.ledger.frame("aspire")["planes"].max()

    assert not small_scenario(*settings).events_depend_on_learning
    assert (n_planes > 1) == ("planes=fixed" not in form)
    assert trained.ledger.event_digest() == timed.ledger.event_digest()


def test_events_that_depend_on_planes_are_announced(tmp_path: Path) -> None:
    """With a multiplier per plane in each message, log and summary say that a timing-only run is an approximation."""
    settings = (ASPIRE, *TWO_PACES)
    trained, timed = run_small(*settings), run_small(*settings, timing_only=True)
    summary = play(small_scenario(*settings), "aspire", tmp_path / "run", timing_only=True).summary
    first, second, *_ = (tmp_path / "run" / "log.txt").read_text().splitlines()

    assert trained.ledger.event_digest() != timed.ledger.event_digest()
    assert summary["events_depend_on_learning"]
    assert summary["nominal_values"]
    assert "aspire, seed 0" in first
    assert "events depend on learnt numbers: a timing-only run, which takes nominal ones, is an approximation" in second


class Solution(NamedTuple):
    """The final model, and what it is worth."""

    fed: Federation
    z: Array
    objective: float


def objective(z: Array, budget: float) -> float:
    losses = 0.5 * ((z - CENTRES) ** 2).sum(1)
    return float(CdNorm(budget=budget, deviation=1 / N).worst_case(losses, np.full(N, 1 / N)) @ losses)


Toy = Callable[..., Solution]


@pytest.fixture
def toy(tmp_path: Path) -> Callable[..., Solution]:
    """A function that runs ASPIRE on the toy: `toy(budget, *settings)`."""

    def run(budget: float, *settings: str, rounds: int = 6000) -> Solution:
        path, scale = tmp_path / "toy.npz", np.sqrt(1.5)  # three samples per worker: their mean loss is f_j
        x, y, group = np.tile(scale * np.eye(3), (N, 1)), (scale * CENTRES).reshape(-1), np.repeat(np.arange(N), 3)
        np.savez(path, train_x=x, train_y=y, test_x=x, test_y=y, train_group=group, test_group=group)
        changes = (
            f"data={{kind: npz, path: {path}}}", "partition=group", f"devices.count={N}", f"stop.rounds={rounds}",
            "model={kind: module, path: 'torch.nn:Linear', args: {in_features: 3, out_features: 1, bias: false}}",
            "evaluation.every_rounds=1000000", "algorithm={kind: aspire, active: 1, max_delay: 20, lr: 0.1}",
            f"algorithm.uncertainty={{kind: cd-norm, budget: {budget}, deviation: {1 / N}}}", *settings,
        )  # fmt: skip
        fed = small_federation(*changes)
        model = fed.run(small_scenario(*changes).algorithm)
        z = fed.graph.read(model).double().numpy()
        return Solution(fed, z, objective(z, budget))

    return run


def lock_step(start: Array, budget: float, rounds: int, *, printed_sign: bool = False) -> Array:
    """Synchronous ASPIRE-EASE in plain NumPy, double precision: the second implementation.

    `printed_sign` takes -w_j in place of -phi_j in update (12), as the paper prints it.
    """
    uncertainty, prior = CdNorm(budget=budget, deviation=1 / N), np.full(N, 1 / N)
    z, w, phi, planes = start.copy(), np.tile(start, (N, 1)), np.zeros((N, 3)), Planes(0, prior[None])
    lam = before = np.ones(1)
    h, f = 0.0, np.zeros(N)
    for t in range(rounds):
        slope = w if printed_sign else phi
        w = w - 0.1 * ((lam @ planes.p)[:, None] * (w - CENTRES) - slope + (w - z))
        f, first = 0.5 * ((w - CENTRES) ** 2).sum(1), t == 0
        h = h + prior @ f if first else h
        z = z - 0.4 / N * (phi.sum(0) + (z - w).sum(0))
        h = float(np.clip(h - 0.02 * (1 - lam.sum()), 0, 100))
        lam, before = np.clip(lam + 0.02 * (planes.p @ f - h - 1e-3 * lam), 0, 10), lam
        phi = np.clip(phi + 0.1 * (z - w), -10, 10)
        if (t + 1) % 10 == 0:
            planes, origin, _ = renewed(planes, "ease", uncertainty.worst_case(f, prior), f, lam, before, 20)
            lam, before = moved_to(origin, lam), moved_to(origin, before)
    return z


def series(fed: Federation, name: str, column: str) -> list[float]:
    return [row[column] for row in fed.ledger.series[name]]


# ---- where it converges to -------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("budget", OPTIMA)
def test_the_toy_reaches_its_optimum_asynchronously(toy: Toy, budget: int) -> None:
    """With S = 1, 6000 iterations end within 1e-3 of the worst-case optimum, and the stationarity gap falls by 100."""
    solution = toy(budget, "devices.straggler={kind: log-normal, sigma: 1.0}", "algorithm.gap_every=100")
    gaps = series(solution.fed, "stationarity", "squared_gap")

    assert solution.objective == pytest.approx(OPTIMA[budget], abs=1e-3)
    assert min(gaps[-5:]) < 1e-2 * gaps[0]


def test_without_a_budget_it_is_the_prior_problem(toy: Toy) -> None:
    """No plane is ever added, and the model is the mean of the centres."""
    solution = toy(0, "algorithm.active=null", "training.engine=batched", rounds=400)

    assert set(series(solution.fed, "aspire", "planes")) == {1}
    assert solution.objective == pytest.approx(OPTIMA[0], abs=1e-3)


def test_everybody_at_once_is_the_lock_step_run(toy: Toy) -> None:
    """S = N with equal delays equals a plain loop in NumPy to 1e-6, planes included."""
    solution = toy(2, "algorithm.active=null", "network.downlink.mode=broadcast", rounds=80)
    start = solution.fed.task.model.initial().double().numpy()

    assert max(series(solution.fed, "aspire", "planes")) > 1
    assert solution.z == pytest.approx(lock_step(start, 2, 80), abs=1e-6)


def test_the_printed_sign_diverges() -> None:
    """With -w_j in place of -phi_j the toy moves away from its optimum, and with -phi_j it gets there."""
    start = np.zeros(3)

    assert objective(lock_step(start, 2, 2000), 2) == pytest.approx(OPTIMA[2], abs=1e-3)
    assert objective(lock_step(start, 2, 2000, printed_sign=True), 2) > 10


# ---- who knows what --------------------------------------------------------------------------------------------------


def test_one_step_of_phi_for_each_report(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of who was heard, phi_j moves by (16) with the new z and its model; of others it stays. Messages get lost."""
    masters: list[Master] = []
    monkeypatch.setattr(flow, "Master", lambda *args: masters.append(Master(*args)) or masters[0])
    settings = (ASPIRE, *LOSSY, "stop.rounds=20")
    fed, aspire = small_federation(*settings), small_scenario(*settings).algorithm
    steps, seen = aspire.steps(4), [torch.zeros(4, 10)]

    def look(fed: Federation) -> None:
        z, models = fed.graph.read(masters[0].z), [fed.graph.read(w) for w in masters[0].models]
        heard = {row["device"] for row in fed.ledger.series["activations"] if row["step"] == fed.round}
        before = seen[-1]
        moved = [(before[j] + steps.rho_phi * (z - models[j])).clamp(-10, 10) for j in range(4)]
        expected = torch.stack([moved[j] if j in heard else before[j] for j in range(4)])
        seen.append(torch.stack([-fed.graph.read(slope) for slope in masters[0].slopes]))
        assert torch.allclose(seen[-1], expected, atol=1e-7)

    fed.observers.append(look)
    fed.run(aspire)

    assert len(seen) == 21
    assert bool(seen[-1].any(1).all())


def test_a_worker_never_mixes_versions() -> None:
    """Multipliers of planes that have not come yet are left aside until they do; older news changes nothing."""
    fed = small_federation(ASPIRE)
    master = Master(fed, np.full(4, 0.25), Aspire(active=1, lr=0.1, planes="fixed").steps(4))
    first = master.message(0, "paper")
    worker = Worker(fed.device(0), 0, master.z, master.planes, master.terms(0).share)
    newer = first._replace(t=5, planes=Planes(1, np.full((2, 4), 0.25)))
    old, new = worker.share, fed.defer(float, 1, size=1)
    worker.learn(newer, new, "paper")

    assert worker.share is old
    worker.planes = newer.planes
    worker.learn(newer, new, "paper")
    assert worker.share is new
    worker.learn(newer._replace(t=4), old, "reduced")
    assert worker.share is new


def test_an_iteration_makes_six_values() -> None:
    """With S = 1 and reduced replies: share, loss, model, state, z and -phi_j, each of which costs host time."""
    settings = (ASPIRE, "algorithm.active=1", "algorithm.planes=fixed", "algorithm.wire=reduced",
                "algorithm.loss_of=steps")  # fmt: skip
    made = [run_small(*settings, f"stop.rounds={rounds}").graph._created for rounds in (20, 30)]

    assert made[1] - made[0] == 60


# ---- bits, planes, forms ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("wire", ["paper", "reduced"])
def test_bits_on_the_air_are_the_closed_form(wire: str) -> None:
    """N workers, T iterations: 32 N T (2 P + 2 + L) bit, or (2 P + 2) reduced, as the series `aspire` says too."""
    fed = run_small(ASPIRE, "algorithm.planes=fixed", f"algorithm.wire={wire}", "stop.rounds=7",
                    "network.downlink.mode=unicast", timing_only=True)  # fmt: skip
    reply = 10 + 1 + (wire == "paper")

    assert fed.ledger.sent_bit == [32 * 4 * 7 * 11, 32 * 4 * 7 * reply, 0]
    assert series(fed, "aspire", "bits_actual")[-1] == sum(fed.ledger.sent_bit)
    assert series(fed, "aspire", "bits_paper")[-1] == 32 * 4 * 7 * (2 * 10 + 1 + 1)


def test_the_published_example_of_bits() -> None:
    """Three classes of 28 x 28 images have 2355 parameters: 150,784 bit per iteration with S = 1 and one plane."""
    fed = run_small(ASPIRE, "algorithm.active=1", "algorithm.planes=fixed", "model=softmax", "stop.rounds=1",
                    "data={kind: synthetic, n_samples: 80, n_test: 9, features: 784, classes: 3}",
                    timing_only=True)  # fmt: skip

    assert series(fed, "aspire", "bits_paper") == [150_784]


def test_bits_of_a_refresh_by_hand() -> None:
    """Two heard, 5 parameters, 3 planes sent to 4 workers: 2 (2 * 5 + 1 + 3) + 16 * 3, and 2 + 4 * 3 more in fact."""
    assert iteration_bit("paper", 2, 5, 3, 4) == (32 * 76, 32 * 90)
    assert iteration_bit("reduced", 2, 5, 3, 4) == (32 * 76, 32 * (2 * 12 + 4))


def test_the_gap_is_measured_every_so_many_iterations() -> None:
    """Every third of seven iterations: after the third and the sixth, above 0 and finite."""
    gaps = run_small(ASPIRE, "algorithm.gap_every=3", "stop.rounds=7").ledger.frame("stationarity")

    assert gaps["step"].tolist() == [3, 6]
    assert ((gaps["squared_gap"] > 0) & np.isfinite(gaps["squared_gap"])).all()


@pytest.mark.parametrize(("active", "needs"), [("null", []), ("3", [3])])
def test_a_number_of_workers_to_wait_for_needs_as_many_devices(active: str, needs: list[int]) -> None:
    """The setting is named; waiting for all needs none in particular."""
    demands = small_scenario(ASPIRE, f"algorithm.active={active}").algorithm.demands()

    assert list(demands) == [("active", "waits for more workers than there are", n) for n in needs]


@pytest.mark.parametrize(("until", "after"), [(7, [3, 6]), (5, [3])])
@pytest.mark.parametrize(("mode", "times_sent"), [("unicast", 4), ("broadcast", 1)])
def test_a_refresh_tells_all_workers_all_planes(until: int, after: list[int], mode: str, times_sent: int) -> None:
    """Every third iteration, N times N weights and a multiplier per plane go out, as long as planes are renewed."""
    refreshes = run_small(ASPIRE, "algorithm.plane_every=3", f"algorithm.plane_until={until}", "stop.rounds=12",
                          f"network.downlink.mode={mode}", timing_only=True)  # fmt: skip
    without = run_small(ASPIRE, "algorithm.planes=fixed", "stop.rounds=12", f"network.downlink.mode={mode}",
                        timing_only=True)  # fmt: skip
    times = np.diff([0, *series(refreshes, "aspire", "bits_paper")]) - np.diff(
        [0, *series(without, "aspire", "bits_paper")]
    )

    assert (np.flatnonzero(times) + 1).tolist() == after
    assert set(times[times > 0]) == {32 * 4 * 4}
    assert refreshes.ledger.sent_bit[1] - without.ledger.sent_bit[1] == len(after) * times_sent * 32 * (4 + 1)


def test_cutting_planes_pile_up_and_active_sets_do_not(toy: Toy) -> None:
    """After the same run ASPIRE-CP has more planes than ASPIRE-EASE, which keeps at least one."""
    kept, all_of_them = (series(toy(2, f"algorithm.planes={upkeep}", rounds=600).fed, "aspire", "planes")
                         for upkeep in ("ease", "cp"))  # fmt: skip

    assert min(kept) >= 1
    assert sorted(all_of_them) == all_of_them
    assert max(all_of_them) > kept[-1]


def test_several_local_steps_are_one_activation() -> None:
    """Three steps take three times the computing, and no more bits."""
    one, three = (run_small(ASPIRE, f"algorithm.local_steps={e}", "algorithm.loss_of=steps", "stop.rounds=4",
                            timing_only=True) for e in (1, 3))  # fmt: skip

    assert one.ledger.sent_bit == three.ledger.sent_bit
    assert three.ledger.computes.column("flop").sum() == 3 * one.ledger.computes.column("flop").sum()


@pytest.mark.parametrize("settings", [
    ("algorithm.active=1",), ("algorithm.active=1", "algorithm.max_delay=5"), ("algorithm.planes=cp",),
    ("algorithm.active=2", ADP), ("algorithm.wire=reduced",), ("algorithm.local_steps=3",),
])  # fmt: skip
def test_every_variant_survives_loss(settings: tuple[str, ...]) -> None:
    """With 30 % of all messages lost the run ends by its stop rule, and every law holds."""
    fed = run_small(ASPIRE, *LOSSY, *settings, "stop.rounds=60")

    assert fed.round == 60
    assert not any(verify(fed.ledger, frozenset({"uplink", "downlink"})).values())


def test_a_fixed_plane_keeps_its_multiplier(monkeypatch: pytest.MonkeyPatch) -> None:
    """Mix_Even: lam is 1 after every iteration, and each share 1 / N, however far the level is from the losses."""
    masters: list[Master] = []
    monkeypatch.setattr(flow, "Master", lambda *args: masters.append(Master(*args)) or masters[0])
    settings = (ASPIRE, "algorithm.planes=fixed", "algorithm.rho_multiplier=0.5", "algorithm.lr_level=0.5",
                "stop.rounds=30")  # fmt: skip
    fed = small_federation(*settings)
    lam: list[list[float]] = []
    fed.observers.append(lambda fed: lam.append(fed.graph.read(masters[0]._state).lam.tolist()))
    fed.run(small_scenario(*settings).algorithm)

    assert lam == [[1.0]] * 30


def test_fixed_planes_need_no_possible_set() -> None:
    """What is not used is not looked at."""
    impossible = "algorithm.uncertainty={kind: box, lower: 0.3}"

    assert not list(small_scenario(ASPIRE, impossible, "algorithm.planes=fixed").contradictions())


def test_a_full_list_counts_whom_it_displaces() -> None:
    """Of three planes with multipliers 0.2, 0.1 and 0, two may stay: the one in use that goes counts, the idle not."""
    p, lam = np.eye(3), np.array([0.2, 0.1, 0.0])
    losses, worst = np.ones(3), np.array([2.0, 0, 0])
    _, origin, displaced = renewed(Planes(0, p), "cp", worst, losses, lam, lam, 2)

    assert origin == [0, -1]
    assert displaced == 1


def test_the_papers_regularisation_falls_slowly() -> None:
    """c_1 and c_2 are 1 / (rho (t + 1)^(1/6)): at t = 63 half of what they are at the start."""
    aspire = Aspire(active=1, lr=0.1, planes="fixed", regularisation="paper", rho_multiplier=0.5, rho_dual=0.25)

    assert (aspire.steps(3).at(0).c_lam, aspire.steps(3).at(0).c_phi) == (2.0, 4.0)
    assert (aspire.steps(3).at(63).c_lam, aspire.steps(3).at(63).c_phi) == pytest.approx((1.0, 2.0))


def test_multipliers_of_fixed_planes_stay_one() -> None:
    """Whatever their bound is elsewhere."""
    steps = Aspire(active=1, lr=0.1, planes="fixed", multiplier_bound=7.0).steps(3)

    assert (steps.multiplier_floor, steps.multiplier_bound) == (1.0, 1.0)
