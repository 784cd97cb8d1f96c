"""FedProx: its loop by hand, its limit as FedAvg, the rule for mu, and devices that do what they can."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch

from fednet_emu.algorithms.fedprox import Pull, adapted
from fednet_emu.federation.federation import Federation
from fednet_emu.testing import run_small
from tests.algorithms.small import ENGINES, final

WORK = "cohort: 4, lr: 0.1, batch_size: null, local_steps: 5"
RAGGED = ("data.n_samples=83", "partition=iid", "stop.rounds=5")
SPEEDS = "devices.speed={kind: list, flop_per_s: [1e6, 5e5, 2.5e5, 1e5]}"
"""A step takes 0.72, 1.44, 2.88 and 7.2 ms."""


def fedprox(more: str, work: str = WORK) -> str:
    return f"algorithm={{kind: fedprox, {work}, {more}}}"


def loop(fed: Federation, mus: list[float] | None = None, mu: float = 0.0) -> tuple[np.ndarray, list[float]]:
    """The model after the rounds of a federation, by NumPy: local descent on h_k, and the mean that samples weigh.

    The number of steps of each device is that of the series `partial_work`, if there is one, else 5. With `mus`, one
    for each round, the pull changes. Also returns the weighted mean of the local losses of each round.
    """
    data, n = fed.task.data, fed.task.n_samples
    x, y = np.column_stack([data.x.double().numpy(), np.ones(len(data.y))]), data.y.double().numpy()
    partial = fed.ledger.frames().get("partial_work", pd.DataFrame({"round": [], "device": [], "steps": []}))
    steps = {(row.round, row.device): row.steps for row in partial.itertuples()}
    w, means = fed.task.model.initial().double().numpy(), []
    for t, arrived in enumerate(fed.ledger.rounds.column("arrived").tolist()):
        assert arrived == 4
        update, total = np.zeros_like(w), 0.0
        for k in range(4):
            own, w_k, losses = fed.task.slice_of(k), w.copy(), []
            for _ in range(steps.get((t + 1, k), 5)):
                error = x[own] @ w_k - y[own]
                losses.append(np.mean(error**2))
                w_k -= 0.1 * (2 / n[k] * x[own].T @ error + (mus[t] if mus else mu) * (w_k - w))
            update += n[k] / n.sum() * (w_k - w)
            total += n[k] / n.sum() * np.mean(losses)
        w = w + update
        means.append(total)
    return w, means


# ---- the method ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mu", [0.3, 2.0])
def test_a_run_is_the_hand_written_loop(mu: float) -> None:
    """Five rounds on ideal links with unequal numbers of samples."""
    fed, w = final(*RAGGED, fedprox(f"mu: {mu}"))

    assert w.double().numpy() == pytest.approx(loop(fed, mu=mu)[0], abs=1e-5)
    assert np.abs(w.double().numpy() - loop(fed)[0]).max() > 1e-3


@pytest.mark.parametrize("engine", ENGINES)
def test_without_a_pull_it_is_fedavg(engine: str) -> None:
    """With mu = 0 and full work, every record of a lossy run and every bit of the model are those of `fedavg`."""
    lossy = (
        "network.uplink.message_loss={kind: random, probability: 0.3}",
        "stop.rounds=6",
        f"training.engine={engine}",
    )
    prox, w = final(*lossy, fedprox("mu: 0, retries: 1"))
    plain, expected = final(*lossy, f"algorithm={{kind: fedavg, {WORK}, retries: 1}}")

    assert torch.equal(w, expected)
    for name, frame in plain.ledger.frames().items():
        pd.testing.assert_frame_equal(prox.ledger.frame(name), frame, check_exact=True)


# ---- adaptive mu -----------------------------------------------------------------------------------------------------


def test_mu_by_hand() -> None:
    """It rises with the loss, falls after three falls in a row, stays at zero, and begins to count anew."""
    pull, mus = Pull(0.1, None, 0), []
    for loss in (5.0, 6.0, 5.0, 4.0, 3.0, 2.0, 1.0, 0.5, 0.5, 0.4, 0.3, 0.2, 0.1, 0.05, 0.02, 0.03):
        pull = adapted(pull, [loss - 1, loss + 2], [2, 1], 0.1, 3)
        mus.append(round(pull.mu, 9))

    assert mus == [0.1, 0.2, 0.2, 0.2, 0.1, 0.1, 0.1, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.1]


def test_an_adaptive_run_is_the_hand_written_loop() -> None:
    """The losses of a loop of its own, handed to a rule written anew, give the recorded mu and the final model."""
    fed, w = final(*RAGGED[:2], "stop.rounds=12", fedprox("mu: 0.5, adaptive: true, falls: 2, mu_step: 0.2"))
    mus, streak = [0.5], 0
    for t in range(1, 13):
        _, losses = loop(fed, [*mus, *[0.0] * 12])
        known = losses[:t]
        mu, fell = mus[-1], t > 1 and known[-1] < known[-2]
        streak = streak + 1 if fell else 0
        if t > 1 and known[-1] > known[-2]:
            mu += 0.2
        if streak == 2:
            mu, streak = max(mu - 0.2, 0), 0
        mus.append(mu)

    assert fed.ledger.frame("proximal")["mu"].tolist() == pytest.approx(mus[1:])
    assert len({round(mu, 9) for mu in mus}) > 2
    assert w.double().numpy() == pytest.approx(loop(fed, mus)[0], abs=1e-5)


def test_an_adaptive_mu_costs_one_number_each_way() -> None:
    """A broadcast and four uploads of 11 numbers instead of 10."""
    fixed, adaptive = (run_small(fedprox(f"mu: 0.5, adaptive: {on}"), timing_only=True) for on in ("false", "true"))

    assert fixed.ledger.sent_bit == [3 * 4 * 320, 3 * 320, 0]
    assert adaptive.ledger.sent_bit == [3 * 4 * 352, 3 * 352, 0]


def test_everything_of_averaging_may_be_added() -> None:
    """A median and a server optimizer change the model, and nothing that is sent."""
    plain, w = final(fedprox("mu: 0.5"))
    more, other = final(fedprox("mu: 0.5, aggregation: median, server_optimizer: {kind: adam, lr: 0.1}"))

    assert plain.ledger.event_digest() == more.ledger.event_digest()
    assert not torch.allclose(w, other, atol=1e-4)


# ---- partial work ----------------------------------------------------------------------------------------------------


def done(fed: Federation) -> list[list[int]]:
    frame = fed.ledger.frame("partial_work").sort_values(["round", "device"])
    return [group["steps"].tolist() for _, group in frame.groupby("round")]


def test_devices_do_what_fits_before_the_deadline() -> None:
    """Of 5 ms, 0.32 are for the broadcast and four times 0.32 kept for uploads: 3.4 ms are 4, 2, 1 and no steps.

    The slowest makes one all the same, and is late. With full work three of four are.
    """
    deadline = "deadline_s: 5.0e-3, mu: 0.1"
    fed = run_small(SPEEDS, fedprox(f"{deadline}, partial_work: {{kind: deadline, reserve: 4}}"), timing_only=True)
    rounds = fed.ledger.frame("rounds")
    full = run_small(SPEEDS, fedprox(deadline), timing_only=True)

    assert done(fed) == [[4, 2, 1, 1]] * 3
    assert rounds["arrived"].tolist() == [3, 3, 3]
    assert (rounds["ended_s"] - rounds["started_s"]).max() == pytest.approx(5e-3)
    assert full.ledger.rounds.column("arrived").tolist() == [1, 1, 1]
    assert "partial_work" not in full.ledger.frames()


def test_time_that_is_just_enough_is_enough() -> None:
    """A deadline at the nanosecond of the fifth step's upload allows five steps, one a microsecond earlier four."""
    lone = ("devices.count=1", "stop.rounds=1")
    for deadline_s, steps in ((320e-6 + 5 * 720e-6 + 320e-6, 5), (320e-6 + 5 * 720e-6 + 319e-6, 4)):
        work = f"cohort: 1, lr: 0.1, batch_size: null, local_steps: 8, deadline_s: {deadline_s!r}"
        data = ("data.n_samples=20",)
        fed = run_small(*lone, *data, fedprox("mu: 0.1, partial_work: deadline", work), timing_only=True)

        assert done(fed) == [[steps]]
        assert fed.ledger.rounds.column("arrived").tolist() == [1]


def test_partial_work_is_the_first_part_of_the_plan() -> None:
    """The final model is that of the loop that makes the recorded numbers of steps."""
    fed, w = final(*RAGGED, SPEEDS, fedprox("mu: 0.4, deadline_s: 1.2e-2, partial_work: {kind: deadline, reserve: 4}"))

    assert done(fed) == [[5, 5, 3, 1]] * 5
    assert w.double().numpy() == pytest.approx(loop(fed, mu=0.4)[0], abs=1e-5)


def test_a_share_of_the_cohort_makes_random_parts() -> None:
    """Half of four devices do 1 to 5 steps, each number as often as another; the others do all."""
    fed = run_small(fedprox("mu: 0, partial_work: {kind: random, share: 0.5}"), "stop.rounds=400", timing_only=True)
    steps = np.array(done(fed))
    fewer = np.bincount(steps[steps < 5], minlength=5)[1:]
    expected = 400 * 2 / 5

    assert ((steps < 5).sum(1) <= 2).all()
    assert (np.abs(fewer - expected) < 5 * np.sqrt(expected)).all()
    assert (np.abs((steps < 5).mean(0) - 0.4) < 0.1).all()


def test_random_parts_of_epochs_are_whole_epochs() -> None:
    """With 20 samples in batches of 8, an epoch is three steps; all devices do one to three of three epochs."""
    work = "cohort: 4, lr: 0.1, batch_size: 8, local_epochs: 3"
    fed = run_small(fedprox("mu: 0, partial_work: {kind: random, share: 1}", work), "stop.rounds=30", timing_only=True)

    assert {steps for row in done(fed) for steps in row} == {3, 6, 9}
    assert set(fed.ledger.frame("partial_work")["of"]) == {9}
