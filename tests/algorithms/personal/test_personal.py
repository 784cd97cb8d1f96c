"""pFedMe and Per-FedAvg against loops of their own, and the bits of methods that are recipes of FedPer."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from fednet_emu.federation.federation import Federation
from fednet_emu.records.summaries import spread
from fednet_emu.testing import run_small, small_federation, small_scenario
from tests.algorithms.small import ENGINES

SGD = "cohort: 4, lr: 0.05, local_steps: 3, batch_size: 8"
PFEDME = f"algorithm={{kind: pfedme, {SGD}, pull: 2, device_lr: 0.3, device_steps: 2, server_lr: 0.7}}"
PER_FEDAVG = f"algorithm={{kind: per-fedavg, {SGD}, adapt_lr: 0.2, order: ORDER}}"


def finals(*settings: str) -> tuple[Federation, list[torch.Tensor]]:
    """The federation after a run of two rounds, and every device's final model."""
    fed = small_federation(*settings, "stop.rounds=2")
    final = fed.run(small_scenario(*settings).algorithm)
    return fed, [fed.read(w).double() for w in final]


def gradient(fed: Federation, k: int, w: torch.Tensor, rows: np.ndarray) -> torch.Tensor:
    """The gradient of the squared error of the linear model on some rows."""
    x, y = fed.task.data.x[rows].double(), fed.task.data.y[rows]
    at = w.clone().requires_grad_()
    loss = fed.task.model.sample_losses(x @ at[:9][:, None] + at[9], y.double()).mean()
    return torch.autograd.grad(loss, at)[0]


def batches(fed: Federation, k: int, steps: int, *key: object) -> list[np.ndarray]:
    """The rows of each step, drawn from the stream of this name."""
    rng, own = fed.streams("batch", k, *key), fed.task.slice_of(k)
    rows = np.arange(own.start, own.stop)
    order = np.concatenate([rng.permutation(rows)[:20] for _ in range(-(-steps // 3))])
    return [order[8 * step : 8 * step + 8] if step % 3 < 2 else order[16:20] for step in range(steps)]


@pytest.mark.parametrize("engine", ENGINES)
def test_pfedme_is_its_loop(engine: str) -> None:
    """Two rounds of Algorithm 1, batch by batch; personal models are what is evaluated."""
    fed, found = finals(PFEDME, f"training.engine={engine}")
    w = fed.task.model.initial().double()
    personal = [w] * 4
    for t in range(2):
        local = []
        for k in range(4):
            own = w
            for step in range(2):
                theta = own
                for rows in batches(fed, k, 3, t, step):
                    theta = theta - 0.05 * (gradient(fed, k, theta, rows) + 2 * (theta - own))
                personal[k], own = theta, own - 0.3 * 2 * (own - theta)
            local.append(own)
        w = 0.3 * w + 0.7 * torch.stack(local).mean(0)
    for mine, theirs in zip(personal, found, strict=True):
        assert torch.allclose(mine, theirs, atol=1e-5)


def test_pfedme_ends_where_its_formulas_do() -> None:
    """With many steps on all samples, theta solves (A + lambda I) theta = b + lambda w_k."""
    sgd = "cohort: 4, lr: 0.2, local_steps: 60, batch_size: null"
    fed = run_small(f"algorithm={{kind: pfedme, {sgd}, pull: 2}}", "stop.rounds=1")
    w = fed.task.model.initial().double()
    zeros, eye = torch.zeros_like(w), torch.eye(10, dtype=torch.float64)
    for k, mine in enumerate(fed.latest):
        rows = np.arange(20 * k, 20 * k + 20)
        zero = gradient(fed, k, zeros, rows)
        a = torch.stack([gradient(fed, k, e, rows) - zero for e in eye], 1)
        assert torch.allclose(torch.linalg.solve(a + 2 * eye, 2 * w - zero), fed.read(mine).double(), atol=1e-4)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("order", ["first", "hessian-free"])
def test_per_fedavg_is_its_loop(order: str, engine: str) -> None:
    """Two rounds, three batches a step, the exact Hessian of a quadratic; evaluated after one step of alpha."""
    fed, found = finals(PER_FEDAVG.replace("ORDER", order), f"training.engine={engine}")
    w = fed.task.model.initial().double()
    for t in range(2):
        local = []
        for k in range(4):
            own = w
            for step in range(3):
                one, two, three = (batches(fed, k, 1, t, step, name)[0] for name in ("adapt", "outer", "hessian"))
                g = gradient(fed, k, own - 0.2 * gradient(fed, k, own, one), two)
                if order == "hessian-free":
                    g = g - 0.2 * (gradient(fed, k, own + g, three) - gradient(fed, k, own, three))
                own = own - 0.05 * g
            local.append(own)
        w = torch.stack(local).mean(0)
    for k, theirs in enumerate(found):
        mine = w - 0.2 * gradient(fed, k, w, batches(fed, k, 1, 1, "own")[0])
        assert torch.allclose(mine, theirs, atol=1e-4 if order == "hessian-free" else 1e-5)


@pytest.mark.parametrize(("order", "gradients"), [("first", 2), ("hessian-free", 4)])
def test_work_and_bits(order: str, gradients: int) -> None:
    """A step of Per-FedAvg costs two or four gradients; 32 bit an entry each way, as for pFedMe."""
    fed = run_small(PER_FEDAVG.replace("ORDER", order), "stop.rounds=1")
    per_step = fed.task.model.flop_per_sample * 8
    work = fed.ledger.frames()["computes"].groupby("device")["flop"].sum()
    assert work.tolist() == pytest.approx([3 * gradients * per_step] * 4)
    for run in (fed, run_small(PFEDME, "stop.rounds=1")):
        sent = run.ledger.frames()["transfers"]
        assert sent[sent["kind"] == "uplink"]["size_bit"].tolist() == [320] * 4


MLP = ("data={kind: synthetic, features: 9, classes: 3, n_samples: 80, n_test: 40}", "model={kind: mlp, hidden: [4]}")
"""9-4-3: 40 parameters and 15."""


@pytest.mark.parametrize(("private", "shared"), [("[0]", 15), ("[-1]", 40), ("['*.bias']", 48)])
def test_recipes_of_fedper_send_what_is_not_private(private: str, shared: int) -> None:
    """LG-FedAvg keeps the first layers, FedPer the last ones; patterns name parts, as FedBN its norm layers."""
    fed = run_small(*MLP, f"algorithm={{kind: fedper, {SGD}, private: {private}}}", "stop.rounds=1")
    assert set(fed.ledger.transfers.column("size_bit")) == {32 * shared}


def test_fedbn_keeps_batch_norm_on_its_device() -> None:
    """Norm layers of 2 + 2 + 3 + 5 + 4 channels, each with four numbers, stay: all else is sent, and is the same."""
    norms = "['2.*', '6.*', '10.*', '14.*', '17.*']"
    settings = (
        "data=digits",
        "model={kind: digit-model, channels: [2, 2, 3], units: [5, 4]}",
        "partition={kind: dirichlet, alpha: 0.5}",
        f"algorithm={{kind: fedper, cohort: 4, lr: 0.05, local_steps: 2, batch_size: 16, private: {norms}}}",
    )
    fed, found = finals(*settings)
    parts = [fed.task.model.unflatten(w) for w in found]
    own = {name for name, one in parts[0].items() if any(not torch.equal(one, its[name]) for its in parts[1:])}
    layers = {name.partition(".")[0] for name in own}

    assert set(fed.ledger.transfers.column("size_bit")) == {32 * (fed.task.model.size - 4 * 16)}
    assert layers == {"2", "6", "10", "14", "17"}
    assert {name for name in parts[0] if name.partition(".")[0] in layers} == own
    assert sum(parts[0][name].numel() for name in own) == 4 * 16


def test_the_spread_over_devices_by_hand() -> None:
    """Nineteen accuracies 0.05, 0.10, ..., 0.95: the two lowest, quantiles by straight lines, Jain's index."""
    found = spread(np.append(np.arange(19, 0, -1) / 20, np.nan))
    assert found["worst_tenth_accuracy"] == pytest.approx(0.075)
    assert (found["accuracy_q05"], found["accuracy_q50"], found["accuracy_q95"]) == pytest.approx((0.095, 0.5, 0.905))
    assert found["accuracy_jain"] == pytest.approx(190**2 / (19 * 2470))
    assert spread(np.array([np.nan])) == {}
