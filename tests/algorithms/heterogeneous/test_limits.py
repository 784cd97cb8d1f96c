"""Heterogeneous devices: limits, losses and rounds of the paper."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from fednet_emu.algorithms.base import Synchronous
from fednet_emu.algorithms.heterogeneous.feddyn import FedDyn, corrected
from fednet_emu.algorithms.heterogeneous.fednova import gradient_weight
from fednet_emu.algorithms.heterogeneous.q_ffl import fair_step
from fednet_emu.algorithms.heterogeneous.scaffold import Scaffold
from fednet_emu.federation import SgdPlan, accumulated
from fednet_emu.federation.federation import Federation
from fednet_emu.learning.graph.optimizers import Optimizer
from fednet_emu.records.laws import verify
from fednet_emu.testing import run_small, small_federation, small_scenario
from tests.algorithms.heterogeneous.oracle import (
    SKEWED,
    Loop,
    Vector,
    algorithm,
    feddyn,
    fednova,
    played,
    q_ffl,
    scaffold,
    scaffold_of_niid_bench,
)
from tests.algorithms.small import ENGINES
from tests.quick import crossed

TILTED = (
    "devices.count=6",
    "data={kind: synthetic-regression, n_samples: 120, n_test: 20, features: 3, noise_std: 0.05}",
    "groups={kind: tilted-targets, count: 2, distance: 4.0}",
)
"""Six quadratics with unequal curvatures and far minima."""


def far_work(kind: str, rounds: int, **more: object) -> tuple[str, ...]:
    """Twenty full gradient steps per round of each device: far enough to drift to its own minimum."""
    work = {"lr": 0.1, "batch_size": "null", "local_epochs": "null", "local_steps": 20, "cohort": 6}
    return (
        *TILTED,
        algorithm(kind, **{**work, **more}),
        f"stop.rounds={rounds}",
        f"evaluation.every_rounds={rounds}",
        "training.engine=batched",
    )


def quadratics(fed: Federation) -> list[tuple[Tensor, Tensor]]:
    """A and b of every device, whose loss has the gradient A w - b."""
    found = []
    for k in fed.devices():
        rows = fed.task.slice_of(k.index)
        x, y = fed.task.data.x[rows].double(), fed.task.data.y[rows].double()
        x = torch.cat([x, torch.ones(len(x), 1, dtype=torch.float64)], 1)
        found.append((2 / len(y) * x.T @ x, 2 / len(y) * x.T @ y))
    return found


def minimum(fed: Federation) -> np.ndarray:
    """The minimum of the mean of all devices' losses."""
    own = quadratics(fed)
    return torch.linalg.solve(sum(a for a, _ in own), sum(b for _, b in own)).numpy()


def distance(kind: str, rounds: int, **more: object) -> float:
    """How far from the minimum of the mean a run ends."""
    fed, found = played(*far_work(kind, rounds, **more))
    return float(np.linalg.norm(found - minimum(fed)))


# ---- drift -----------------------------------------------------------------------------------------------------------


def test_fedavg_drifts_and_the_corrected_do_not() -> None:
    """On unequal quadratics FedAvg stays away from the minimum of their mean; SCAFFOLD and FedDyn arrive at it."""
    drift = distance("fedavg", 30)

    assert drift > 0.1
    assert distance("scaffold", 60) < 1e-3 * drift
    assert distance("feddyn", 30, alpha=2.0) < 1e-3 * drift
    assert distance("feddyn", 30, alpha=2.0, evaluated="server") < 1e-3 * drift


class Memories:
    """What devices held when they were invited, by round and at last, and what they were sent at last."""

    def __init__(self) -> None:
        self.by_round: dict[tuple[int, int], Any] = {}
        self.held: dict[int, Any] = {}
        self.sent: Any = None

    def note(self, t: int, device: int, memory: Any, sent: Any) -> None:
        """Note what one device holds and is sent in round t."""
        self.by_round[t, device] = self.held[device] = memory
        self.sent = sent


class Watched(Synchronous):
    """Notes what each device holds that is invited."""

    seen: Any

    def round(self, fed: Any, t: int, message: Any, client: Any, own: Any, **more: Any) -> Any:
        """As in the method; the last argument of the client is what devices hold."""
        arrived = yield from super().round(fed, t, message, client, own, **more)
        for k in arrived.cohort:
            self.seen.note(t, k.index, own[k], arrived.sent)
        return arrived


class WatchedScaffold(Watched, Scaffold):
    """Notes the control variates."""


class WatchedFedDyn(Watched, FedDyn):
    """Notes the remembered gradients."""


def watched(watch: type, *settings: str) -> tuple[Federation, Memories]:
    given = small_scenario(*settings).algorithm.model_dump()
    fed, seen = small_federation(*settings), Memories()
    fed.run(watch(**given, seen=seen))
    return fed, seen


# ---- FedNova ---------------------------------------------------------------------------------------------------------


def test_with_equal_steps_fednova_is_fedavg() -> None:
    """Equal numbers of steps, unequal numbers of samples: the same model after six rounds."""
    equal = {"local_epochs": "null", "local_steps": 4}
    _, normalised = played(*SKEWED, algorithm("fednova", **equal))
    _, plain = played(*SKEWED, algorithm("fedavg", **equal))
    _, unequal = played(*SKEWED, algorithm("fednova"))
    _, other = played(*SKEWED, algorithm("fedavg"))

    np.testing.assert_allclose(normalised, plain, atol=1e-6)
    assert np.abs(unequal - other).max() > 1e-3


class HeavyBall(Optimizer):
    """SGD with a momentum of 0.9."""

    kind = "heavy-ball"

    def start(self, weights: Tensor, lr: float) -> Callable[[Tensor], None]:
        velocity = torch.zeros_like(weights)

        def move(gradient: Tensor) -> None:
            velocity.mul_(0.9).add_(gradient)
            weights.sub_(velocity, alpha=lr)

        return move


@pytest.mark.parametrize("steps", [1, 3, 17])
def test_the_weight_follows_the_plans_optimizer(steps: int) -> None:
    """With momentum rho it is the paper's (tau - rho (1 - rho^tau) / (1 - rho)) / (1 - rho), by no formula of ours."""
    plan = SgdPlan(lr=0.1, steps=1, optimizer=HeavyBall())

    assert gradient_weight(plan, steps) == pytest.approx((steps - 0.9 * (1 - 0.9**steps) / 0.1) / 0.1)


# ---- q-FFL -----------------------------------------------------------------------------------------------------------


def test_with_q_zero_it_is_fedavg() -> None:
    """With q = 0 and the cohorts of FedAvg it is FedAvg with uniform weights."""
    _, fair = played(*SKEWED, algorithm("q-ffl", q=0, sampling="uniform"))
    _, plain = played(*SKEWED, algorithm("fedavg", weighting="uniform"))

    np.testing.assert_allclose(fair, plain, atol=1e-6)


def test_a_device_without_loss_does_not_stop_the_others() -> None:
    """At a loss of zero and q below one, the weight of the paper's step is infinite; here the other device decides."""
    parts = [0.0, torch.tensor([0.0]), 1.0, torch.tensor([1.0])]

    [found] = accumulated(fair_step(torch.zeros(1), 2, 0.5, 1.0), parts).tolist()

    assert found == pytest.approx(1 / 1.5, rel=1e-4)


WORK = {"lr": 0.05, "batch_size": 8, "local_epochs": "null", "local_steps": 3}
TROUBLES = {
    "loss": "network.uplink.message_loss={{kind: random, probability: 0.4}}",
    "loss of both": "network={{uplink: {{message_loss: {some}}}, downlink: {{message_loss: {some}}}}}",
    "deadline": "algorithm.deadline_s={deadline_s}",
    "departures": (
        "devices.availability={{kind: windows, devices: "
        "{{0: [[0, 2e-3], [1.2e-2, 9]], 1: [[0, 7e-3], [1.3e-2, 9]], 2: [[0, 9]], 3: [[0, 9]]}}}}"
    ),
}
METHODS = {
    "scaffold, I": (WatchedScaffold, algorithm("scaffold", **WORK, cohort=4, option="I")),
    "scaffold, II": (WatchedScaffold, algorithm("scaffold", **WORK, cohort=4)),
    "feddyn": (WatchedFedDyn, algorithm("feddyn", **WORK, cohort=4, alpha=0.5, evaluated="server")),
}
DEADLINES_S = {"scaffold, I": 4.8e-3, "scaffold, II": 3.4e-3, "feddyn": 2.0e-3}
"""With these, about half of the uploads of a round are in time."""
STRAGGLERS = "devices.straggler={kind: shifted-exponential, mean_factor: 0.5}"


def troubled(method: str, trouble: str) -> tuple[Federation, Memories]:
    """Twelve rounds of four devices under some trouble, and what they held."""
    watch, setting = METHODS[method]
    what = TROUBLES[trouble].format(deadline_s=DEADLINES_S[method], some="{kind: random, probability: 0.2}")
    return watched(watch, "devices.count=4", "stop.rounds=12", STRAGGLERS, setting, what)


def arrivals(fed: Federation) -> list[set[int]]:
    frames = fed.ledger.frames()
    uplinks = frames["transfers"].query("direction == 'uplink' and loss_reason == ''")
    rounds = [uplinks[(uplinks["ended_s"] > row.started_s) & (uplinks["ended_s"] <= row.ended_s)]
              for row in frames["rounds"].itertuples()]  # fmt: skip
    return [set(own["sender"]) for own in rounds]


@pytest.mark.parametrize(("trouble", "method"), crossed(TROUBLES, METHODS))
def test_a_device_remembers_what_arrived(method: str, trouble: str) -> None:
    """A memory is a new one when the device is asked again if and only if its last upload arrived."""
    fed, seen = troubled(method, trouble)
    arrived = arrivals(fed)
    changed = {}
    for k in range(4):
        asked = [t for t, device in seen.by_round if device == k]
        changed |= {(t, k): seen.by_round[t, k] is not seen.by_round[later, k] for t, later in pairwise(asked)}

    assert 3 < sum(changed.values()) < len(changed)
    assert changed == {(t, k): k in arrived[t] for t, k in changed}
    assert not any(verify(fed.ledger, frozenset({"uplink", "downlink"})).values())


@pytest.mark.parametrize(("trouble", "method"), crossed(TROUBLES, ["scaffold, I", "scaffold, II"]))
def test_the_servers_control_variate_stays_the_mean(method: str, trouble: str) -> None:
    """Whatever does not arrive, c is the mean of all c_i, here in the last round, in which all are there."""
    fed, seen = troubled(method, trouble)
    held = torch.stack([fed.read(seen.held[k]) for k in range(4)])
    _, c = seen.sent

    assert {k for t, k in seen.by_round if t == 11} == {0, 1, 2, 3}
    assert held.norm(dim=1).min() > 0.1
    torch.testing.assert_close(fed.read(c), held.mean(0), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("trouble", TROUBLES)
def test_the_servers_h_stays_the_mean(trouble: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever does not arrive, the h behind the model of the last round is the mean of all remembered gradients."""
    used: list[Tensor] = []

    def noted(mean: Tensor, h: Tensor, alpha: float) -> Tensor:
        used.append(h)
        return corrected(mean, h, alpha)

    monkeypatch.setattr("fednet_emu.algorithms.heterogeneous.feddyn.corrected", noted)
    fed, seen = troubled("feddyn", trouble)
    came = [bool(devices) for devices in arrivals(fed)]
    remembered = -torch.stack([fed.read(seen.held[k]) for k in range(4)])

    assert {k for t, k in seen.by_round if t == 11} == {0, 1, 2, 3}
    assert len(used) == sum(came)
    torch.testing.assert_close(used[sum(came[:11]) - 1], remembered.mean(0), rtol=1e-4, atol=1e-5)


def test_nothing_arrives_and_nothing_changes() -> None:
    """When every upload is lost, memories stay the shared zero and the model is bit for bit the initial one."""
    lost = "network.uplink.message_loss={kind: random, probability: 0.999999}"
    for watch, setting in METHODS.values():
        fed, seen = watched(watch, "devices.count=4", "stop.rounds=3", setting, lost)
        assert len({id(memory) for memory in seen.by_round.values()}) == 1
        assert fed.latest is not None
        assert torch.equal(fed.read(fed.latest), fed.task.model.initial())  # type: ignore[arg-type]


# ---- bits, times, memory ---------------------------------------------------------------------------------------------

SENT = {
    "scaffold": (algorithm("scaffold", **WORK), 20, 20),
    "scaffold, option I": (algorithm("scaffold", **WORK, option="I"), 20, 20),
    "fednova": (algorithm("fednova", **WORK), 11, 10),
    "feddyn": (algorithm("feddyn", **WORK, alpha=1.0), 10, 10),
    "q-ffl": (algorithm("q-ffl", **WORK, q=1.0), 11, 10),
}


@pytest.mark.parametrize(("setting", "up", "down"), SENT.values(), ids=SENT)
@pytest.mark.parametrize(("mode", "copies"), [("broadcast", 1), ("unicast", 3)])
def test_sent_bits(setting: str, up: int, down: int, mode: str, copies: int) -> None:
    """Scalars up and down per device and round, of 10 parameters; control variates are sent, memories are not."""
    fed = run_small(f"network.downlink.mode={mode}", setting, "stop.rounds=5", timing_only=True)

    assert fed.ledger.sent_bit == [5 * 3 * 32 * up, 5 * copies * 32 * down, 0]


TIMES = {
    "feddyn": ("feddyn", {"alpha": 1.0}, 320 + 720 + 4 * 320),
    "fednova": ("fednova", {}, 320 + 720 + 4 * 352),
    "scaffold, option I": ("scaffold", {"option": "I"}, 640 + 2 * 720 + 4 * 640),
    "scaffold": ("scaffold", {}, 640 + 720 + 4 * 640),
    "q-ffl": ("q-ffl", {"q": 1.0}, 320 + 360 + 720 + 4 * 352),
}


@pytest.mark.parametrize("timing_only", [False, True])
@pytest.mark.parametrize(("kind", "more", "took_us"), TIMES.values(), ids=TIMES)
def test_a_round_takes_the_closed_form(kind: str, more: dict[str, object], took_us: int, timing_only: bool) -> None:
    """Broadcast, one full step of all samples, four uploads; option I adds a step, q-FFL a forward pass."""
    step = {"batch_size": "null", "local_epochs": "null", "local_steps": 1, "cohort": 4}
    fed = run_small("stop.rounds=1", algorithm(kind, **step, **more), timing_only=timing_only)

    assert fed.clock.now == took_us * 1000


@pytest.mark.parametrize("method", METHODS)
def test_who_never_took_part_has_no_memory_of_its_own(method: str) -> None:
    """Of 200 devices 10 are asked: the memories of all others are one vector of zeros."""
    watch, setting = METHODS[method]
    many = ("devices.count=200", "data.n_samples=4000", "stop.rounds=5", "algorithm.cohort=2")
    fed, seen = watched(watch, setting, *many)
    first = [seen.by_round[t, k] for t, k in seen.by_round if not any((s, k) in seen.by_round for s in range(t))]

    assert len(first) > 5
    assert len({id(zero) for zero in first}) == 1
    assert torch.equal(fed.read(first[0]), torch.zeros(10))
    assert fed.graph.known_byte() < 30 * 10 * 4


def test_q_ffl_draws_devices_by_their_samples() -> None:
    """A device with most samples is in most cohorts of one; drawn uniformly it is in about a sixth of them."""
    many = ("devices.count=6", "data={kind: synthetic, n_samples: 300, n_test: 20, features: 9, classes: 3}",
            "partition={kind: dirichlet, alpha: 0.3}", "model=softmax", "stop.rounds=200")  # fmt: skip
    for sampling in ("samples", "uniform"):
        setting = algorithm("q-ffl", q=1.0, cohort=1, sampling=sampling)
        fed = run_small(*many, setting, timing_only=True)
        uplinks = fed.ledger.frame("transfers").query("direction == 'uplink'")
        drawn = np.bincount(uplinks["sender"], minlength=6) / 200
        share = fed.task.n_samples / 300 if sampling == "samples" else np.full(6, 1 / 6)
        assert np.abs(drawn - share).max() < 0.11  # three standard deviations of 200 draws, at most
    assert fed.task.n_samples.max() > 2 * fed.task.n_samples.min()


CASES: dict[str, tuple[str, Callable[[Loop], Vector]]] = {
    "scaffold": (algorithm("scaffold"), scaffold),
    "scaffold, option I": (algorithm("scaffold", option="I"), lambda loop: scaffold(loop, "I")),
    "scaffold, server step": (algorithm("scaffold", server_lr=0.5), lambda loop: scaffold(loop, server_lr=0.5)),
    "scaffold, momentum": (
        algorithm("scaffold", local_optimizer="{kind: momentum, beta: 0.9}"),
        lambda loop: scaffold_of_niid_bench(loop, beta=0.9),
    ),
    "scaffold, momentum, option I": (
        algorithm("scaffold", option="I", local_optimizer="{kind: momentum, beta: 0.5, weight_decay: 0.01}"),
        lambda loop: scaffold_of_niid_bench(loop, "I", beta=0.5, decay=0.01),
    ),
    "scaffold, everything": (
        algorithm(
            "scaffold",
            local_optimizer="{kind: momentum, beta: 0.7, nesterov: true, weight_decay: 0.05}",
            lr_schedule="{kind: step, every_rounds: 1, gamma: 0.8}",
        ),
        lambda loop: scaffold_of_niid_bench(loop, beta=0.7, nesterov=True, decay=0.05, gamma=0.8),
    ),
    "scaffold, weighted": (
        algorithm("scaffold", weighting="samples", local_optimizer="{kind: momentum, beta: 0.9}"),
        lambda loop: scaffold_of_niid_bench(loop, beta=0.9, by_samples=True),
    ),
    "scaffold, decay": (
        algorithm("scaffold", local_optimizer="{kind: sgd, weight_decay: 0.1}"),
        lambda loop: scaffold_of_niid_bench(loop, decay=0.1),
    ),
    "fednova": (algorithm("fednova"), fednova),
    "fednova, proximal": (algorithm("fednova", prox=0.7), lambda loop: fednova(loop, 0.7)),
    "feddyn": (algorithm("feddyn", alpha=0.3), lambda loop: feddyn(loop, 0.3)),
    "feddyn, server": (algorithm("feddyn", alpha=0.3, evaluated="server"), lambda loop: feddyn(loop, 0.3, "server")),
    "q-ffl": (algorithm("q-ffl", q=2.0), lambda loop: q_ffl(loop, 2.0)),
    "q-ffl, uniform": (algorithm("q-ffl", q=0.5, sampling="uniform"), lambda loop: q_ffl(loop, 0.5)),
}


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(("setting", "oracle"), CASES.values(), ids=CASES)
def test_six_rounds_are_those_of_the_paper(setting: str, oracle: Callable[[Loop], Vector], engine: str) -> None:
    """Parameters after six rounds of three out of six devices agree to 1e-5, in both engines."""
    fed, found = played(*SKEWED, setting, f"training.engine={engine}")
    loop = Loop(fed)
    steps = {2 * -(-n // 10) for n in loop.n}

    assert [len(cohort) for cohort in loop.cohorts] == [3] * 6
    assert len({k for cohort in loop.cohorts for k in cohort}) > 3
    assert len(steps) > 2
    assert np.abs(found - loop.w).max() > 0.1
    np.testing.assert_allclose(found, oracle(loop), rtol=0, atol=1e-5)
