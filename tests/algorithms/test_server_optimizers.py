"""Server optimizers: one step by hand, the papers' loops, and every way to run them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest
import torch
from torch import Tensor

from fednet_emu.algorithms.server_optimizers import (
    SERVER_OPTIMIZERS,
    ServerAdagrad,
    ServerAdam,
    ServerMomentum,
    ServerOptimizer,
    ServerSgd,
    ServerYogi,
)
from fednet_emu.testing import run_small, small_federation, small_scenario
from tests.algorithms.small import assert_it_goes_on, final

KINDS = {
    "sgd": "{kind: sgd, lr: 0.7}",
    "momentum": "{kind: momentum, lr: 0.5, beta: 0.6}",
    "adagrad": "{kind: adagrad, lr: 0.3, tau: 0.01}",
    "adam": "{kind: adam, lr: 0.1, beta1: 0.8, beta2: 0.95, tau: 0.01}",
    "yogi": "{kind: yogi, lr: 0.1, beta1: 0.8, beta2: 0.95, tau: 0.01}",
}
WORK = "algorithm={kind: fedavg, cohort: 3, lr: 0.1, local_steps: 2, batch_size: 8}"
Step = Callable[[np.ndarray], np.ndarray]


def steps(optimizer: ServerOptimizer, updates: Sequence[Sequence[float]], start: Sequence[float]) -> Tensor:
    """The model after one step per update, in double precision."""
    w = torch.tensor(start, dtype=torch.float64)
    memory = optimizer.start(w)
    for update in updates:
        w, memory = optimizer.step(w, torch.tensor(update, dtype=torch.float64), memory)
    assert len(memory) == optimizer.vectors
    return w


def test_no_kind_is_untested() -> None:
    """Every kind of the table has its settings here, under its own name."""
    assert set(KINDS) == set(SERVER_OPTIMIZERS)
    assert all(SERVER_OPTIMIZERS[kind].kind == kind for kind in KINDS)


# ---- one step by hand ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("optimizer", "updates", "expected"),
    [
        (ServerSgd(lr=0.5), [2.0, -1.0], 0.5),
        (ServerMomentum(lr=0.5, beta=0.5), [2.0, 1.0], 0.5 * 2 + 0.5 * (1 + 1)),
        (ServerAdagrad(lr=1.0, tau=3.0), [4.0], 4 / (5 + 3)),  # v = 9 + 16
        (ServerAdam(lr=1.0, beta1=0.5, beta2=0.5, tau=1.0), [7.0], 3.5 / (5 + 1)),  # v = 1/2 + 49/2
        (ServerYogi(lr=1.0, beta1=0.0, beta2=0.5, tau=1.0), [4.0], 4 / (3 + 1)),  # upwards: v = 1 + 16/2
        (ServerYogi(lr=1.0, beta1=0.0, beta2=0.0, tau=5.0), [4.0], 4 / (3 + 5)),  # downwards: v = 25 - 16
        (ServerYogi(lr=1.0, beta1=0.0, beta2=0.0, tau=4.0), [4.0], 4 / (4 + 4)),  # v = 16 is where it stays
    ],
)
def test_steps_by_hand(optimizer: ServerOptimizer, updates: list[float], expected: float) -> None:
    """Numbers worked out on paper, from zero; v starts at tau^2."""
    assert steps(optimizer, [[update] for update in updates], [0.0]).item() == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("optimizer", [ServerSgd(), *(SERVER_OPTIMIZERS[kind](lr=1.0) for kind in KINDS)])
def test_nothing_moves_without_updates(optimizer: ServerOptimizer) -> None:
    """Updates of zero leave the model bit for bit, and what is given is never written to."""
    w, memory = torch.randn(9), optimizer.start(torch.randn(9))
    kept = [vector.clone() for vector in (w, *memory)]
    update = torch.zeros(9)

    assert torch.equal(optimizer.step(w, update, memory)[0], w)
    assert all(torch.equal(vector, before) for vector, before in zip((w, *memory), kept, strict=True))


# ---- runs ------------------------------------------------------------------------------------------------------------


def rule(kind: str) -> Callable[[], Step]:
    """The server's step as the papers print it, in NumPy: from the mean update to the change of the model."""

    def start() -> Step:
        m, v = 0.0, 0.01**2

        def step(d: np.ndarray) -> np.ndarray:
            nonlocal m, v
            if kind == "sgd":
                return 0.7 * d
            if kind == "momentum":
                m = 0.6 * m + d
                return 0.5 * m
            if kind == "adagrad":
                v = v + d**2
                return 0.3 * d / (np.sqrt(v) + 0.01)
            m = 0.8 * m + 0.2 * d
            v = 0.95 * v + 0.05 * d**2 if kind == "adam" else v - 0.05 * d**2 * np.sign(v - d**2)
            return 0.1 * m / (np.sqrt(v) + 0.01)

        return step

    return start


@pytest.mark.parametrize("kind", KINDS)
def test_a_run_is_the_hand_written_loop(kind: str) -> None:
    """Five rounds on ideal links with unequal numbers of samples: the final model is that of a loop in NumPy."""
    changes = ("data.n_samples=83", "partition=iid", "stop.rounds=5", "algorithm.local_steps=3",
               f"algorithm.server_optimizer={KINDS[kind]}")  # fmt: skip
    fed = small_federation(*changes)
    final = fed.run(small_scenario(*changes).algorithm)
    data, n = fed.task.data, fed.task.n_samples
    x = np.column_stack([data.x.double().numpy(), np.ones(83)])
    y, w, step = data.y.double().numpy(), fed.task.model.initial().double().numpy(), rule(kind)()
    for _ in range(5):
        update = np.zeros(10)
        for k in range(4):
            own, w_k = fed.task.slice_of(k), w.copy()
            for _ in range(3):
                w_k -= 0.1 * 2 / n[k] * x[own].T @ (x[own] @ w_k - y[own])
            update += n[k] / 83 * (w_k - w)
        w = w + step(update)

    assert fed.read(final).double().numpy() == pytest.approx(w, abs=1e-5)


def with_optimizer(kind: str, *more: str) -> tuple[str, ...]:
    return (WORK, f"algorithm.server_optimizer={KINDS[kind]}",
            "network.uplink.message_loss={kind: random, probability: 0.3}",
            "devices.straggler={kind: shifted-exponential, mean_factor: 0.5}", "stop.rounds=6", *more)  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_how_training_is_run_changes_no_event(kind: str) -> None:
    """Serial, batched and timing-only runs have one digest, that of plain averaging; the engines agree on the model."""
    serial, w = final(*with_optimizer(kind))
    batched, w_batched = final(*with_optimizer(kind, "training.engine=batched"))
    timed = run_small(*with_optimizer(kind), timing_only=True)
    plain = run_small(*with_optimizer(kind, "algorithm.server_optimizer=null"), timing_only=True)

    assert len({fed.ledger.event_digest() for fed in (serial, batched, timed, plain)}) == 1
    assert torch.allclose(w, w_batched, atol=1e-4)


@pytest.mark.parametrize("kind", KINDS)
def test_it_goes_on_from_a_checkpoint(kind: str) -> None:
    """The memory of the server is in the file."""
    assert_it_goes_on(*with_optimizer(kind, "evaluation.every_rounds=3", "stop.rounds=3"))


@pytest.mark.parametrize("kind", KINDS)
def test_rounds_in_which_nothing_arrives_make_no_step(kind: str) -> None:
    """With every upload lost, the model stays bit for bit."""
    fed, w = final(*with_optimizer(kind, "network.uplink.message_loss={kind: random, probability: 0.999999}"))

    assert torch.equal(w, fed.task.model.initial())


def test_the_two_ways_to_name_a_step_size_are_one() -> None:
    """A `server_lr` is the step size of plain steps, bit for bit; without either it is 1."""
    for short, long in (("algorithm.server_lr=0.5", "{kind: sgd, lr: 0.5}"), ("algorithm.server_lr=1", "sgd")):
        assert torch.equal(final(short)[1], final(f"algorithm.server_optimizer={long}")[1])
    assert torch.equal(final("algorithm.server_lr=1")[1], final()[1])


def test_adam_learns_where_plain_averaging_hardly_moves() -> None:
    """With small local steps, twenty rounds of FedAdam get nearer to the known optimum than twenty of FedAvg."""
    work = ("algorithm.lr=0.002", "stop.rounds=20")
    optimum = small_scenario().data.load(None, small_federation().streams("data")).optimum
    plain, adam = final(*work)[1], final(*work, "algorithm.server_optimizer={kind: adam, lr: 0.1}")[1]

    assert (adam - optimum).norm() < 0.5 * (plain - optimum).norm()
