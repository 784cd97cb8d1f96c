"""The hand-written loops: they do the same arithmetic, and the right one."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
import torch
from peers import loops
from peers.contestants.reference import Loop, Processes, Threads
from peers.models import build_model
from peers.workloads import Workload

LOOPS = {
    "naive": loops.Naive,
    "vmap": partial(loops.Stacked, gradient=loops.by_vmap),
    "stacked": partial(loops.Stacked, gradient=loops.by_autograd),
    "analytic": loops.Analytic,
    "analytic in two threads": partial(Threads, loops.Analytic),
}


@pytest.mark.parametrize(
    ("model", "loop"),
    [(m, n) for m in ("softmax", "mlp", "cnn") for n in LOOPS if m != "cnn" or not n.startswith("analytic")],
)
def test_every_loop_gives_the_model_of_the_lean_one(model: str, loop: str) -> None:
    """On the same batches all loops agree to rounding, for every model that they can train."""
    workload = Workload("", model, clients=5, samples=8, cohort=3, batch=4, steps=2, lr=0.1, rounds=1)
    rng = np.random.default_rng(0)
    x, y = torch.from_numpy(rng.random((40, 1, 28, 28), np.float32)), torch.from_numpy(rng.integers(10, size=40))
    module = build_model(model)
    w = loops.flat(module)
    _, rows = loops.draw_batches(workload, rng)

    expected = loops.Lean(module, x, y, workload.lr).round(w, rows)
    trained = LOOPS[loop](module, x, y, workload.lr).round(w, rows)

    assert float((expected - w).abs().max()) > 1e-4
    torch.testing.assert_close(trained, expected, rtol=1e-4, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("loop", [loops.Lean, loops.Analytic])
def test_two_processes_make_the_mean_of_all_clients(loop: Loop) -> None:
    """Three clients over two processes, two and one, come to the mean of the three."""
    workload = Workload("", "softmax", clients=5, samples=8, cohort=3, batch=4, steps=2, lr=0.1, rounds=1)
    rng = np.random.default_rng(0)
    x, y = torch.from_numpy(rng.random((40, 1, 28, 28), np.float32)), torch.from_numpy(rng.integers(10, size=40))
    module = build_model("softmax")
    w = loops.flat(module)
    _, rows = loops.draw_batches(workload, rng)

    with Processes(loop, module, x, y, workload.lr) as pool:
        trained = [pool.round(w, rows), pool.round(w, rows)]

    expected = loops.Lean(module, x, y, workload.lr).round(w, rows)
    for model in trained:
        torch.testing.assert_close(model, expected, rtol=1e-4, atol=1e-6)


def test_a_step_of_softmax_regression_from_zero_is_the_closed_form() -> None:
    """From zero all classes have probability 1/10, so the step is lr / B times (one-hot - 1/10) transposed times x."""
    rng = np.random.default_rng(0)
    x, y = torch.from_numpy(rng.random((6, 1, 28, 28), np.float32)), torch.tensor([0, 1, 2, 0, 9, 5])
    module = build_model("softmax")
    rows = torch.arange(6).view(1, 1, 6)

    trained = loops.Lean(module, x, y, lr=0.5).round(torch.zeros(7850), rows)

    slope = torch.nn.functional.one_hot(y, 10).float() - 0.1
    expected = torch.cat([(slope.T @ x.flatten(1)).flatten(), slope.sum(0)]) * 0.5 / 6
    torch.testing.assert_close(trained, expected, rtol=1e-4, atol=1e-6)


def test_batches_are_drawn_without_replacement_from_the_clients_own_samples() -> None:
    """A client's batches of one epoch are all of its samples, each once."""
    workload = Workload("", "softmax", clients=5, samples=8, cohort=3, batch=4, steps=2, lr=0.1, rounds=1)

    cohort, rows = loops.draw_batches(workload, np.random.default_rng(0))

    assert len(set(cohort)) == 3
    for client, own in zip(cohort, rows, strict=True):
        assert sorted(own.flatten().tolist()) == list(range(8 * client, 8 * client + 8))
