"""Claims about AFL, DRFA, DRFA-Prox and individual training: their maths by hand, their messages bit by bit."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from fednet_emu.algorithms.robust.afl import climbed, running_mean, weighted_step
from fednet_emu.algorithms.robust.drfa import moved
from fednet_emu.federation import Device, Federation, SgdPlan, accumulated
from fednet_emu.testing import run_small, small_federation, small_scenario

AFL = "algorithm={kind: afl, lr: 0.2, lr_lambda: 0.1, batch_size: null}"
DRFA = "algorithm={kind: drfa, cohort: 3, local_steps: 4, lr: 0.1, lr_lambda: 0.02, batch_size: 5}"
UNICAST = "network.downlink.mode=unicast"
LOSSY = tuple(f"network.{kind}.message_loss={{kind: random, probability: 0.3}}" for kind in ("uplink", "downlink"))


def test_weights_climb_by_hand() -> None:
    """(0.5, 0.5) plus 0.1 times losses (3, 1) is (0.8, 0.6), projected (0.6, 0.4); the unheard keep theirs."""
    assert climbed(np.array([0.5, 0.5]), [0, 1], [3.0, 1.0], 0.1) == pytest.approx([0.6, 0.4])
    assert climbed(np.array([0.5, 0.5]), [0], [2.0], 0.1) == pytest.approx([0.6, 0.4])


def test_the_weighted_step_by_hand() -> None:
    """From 1, models 2 and 5 with weights 0.25 and 0.75 end at 4.25; without the first at 4."""
    w, models, weights = torch.ones(1), [torch.tensor([2.0]), torch.tensor([5.0])], np.array([0.25, 0.75])

    assert accumulated(weighted_step(w, weights, [0, 1]), models).tolist() == [4.25]
    assert accumulated(weighted_step(w, weights, [1]), models[1:]).tolist() == [4.0]


def test_the_running_mean_is_the_mean() -> None:
    """Of 1, 2 and 6, one after the other."""
    mean = torch.zeros(1)
    for t, w in enumerate((1.0, 2.0, 6.0)):
        mean = running_mean(mean, torch.tensor([w]), t)

    assert mean.tolist() == pytest.approx([3.0])


def test_the_regulariser_pulls_towards_the_prior() -> None:
    """Lam = (0.5, 0.5) raised to (0.9, 0.5) is (0.7, 0.3); with pull 1 and prior (0, 1) it is (0.35, 0.65)."""
    lam, prior = np.array([0.5, 0.5]), np.array([0.0, 1.0])

    assert moved(lam, [0], [2.0], 0.2, 0.0, prior) == pytest.approx([0.7, 0.3])
    assert moved(lam, [0], [2.0], 0.2, 1.0, prior) == pytest.approx([0.35, 0.65])


def test_the_regularised_step_is_the_maximum() -> None:
    """No point of a fine grid on the simplex has a larger regularised objective."""
    rng = np.random.default_rng(3)
    lam, prior, v, pull = rng.dirichlet(np.ones(3)), rng.dirichlet(np.ones(3)), rng.random(3), 0.7
    best = moved(lam, [0, 1, 2], v, 0.5, pull, prior)
    a, b = np.meshgrid(np.linspace(0, 1, 201), np.linspace(0, 1, 201))
    grid = np.stack([a, b, 1 - a - b], axis=-1)[a + b <= 1]

    def value(u: np.ndarray) -> np.ndarray:
        return 0.5 * u @ v - pull / 2 * ((u - prior) ** 2).sum(-1) - 0.5 * ((u - lam) ** 2).sum(-1)

    assert value(best) >= value(grid).max() - 1e-12


def test_afl_sends_a_gradient_and_a_loss_each() -> None:
    """Everybody, every round: P down, P + 1 up."""
    fed = run_small(AFL, UNICAST, "stop.rounds=5", timing_only=True)

    assert fed.ledger.sent_bit == [5 * 4 * 32 * 11, 5 * 4 * 32 * 10, 0]


def test_afl_weighs_up_the_worst() -> None:
    """On overlapping classes, one per device, the worst device fares better than with equal weights."""
    data = "data={kind: synthetic, n_samples: 400, n_test: 400, features: 2, classes: 4, separation: 1}"
    settings = (data, "partition=one-class", "model=softmax", "evaluation={every_rounds: 150, per_device: true}",
                "stop.rounds=150")  # fmt: skip
    robust = run_small(AFL, "algorithm.lr=0.5", *settings)
    mean = run_small("algorithm={kind: fedavg, cohort: 4, lr: 0.5, batch_size: null, local_steps: 1}", *settings)
    worst, plain = (fed.ledger.evaluations.column("worst_accuracy")[-1] for fed in (robust, mean))

    assert worst > plain + 0.05


def test_drfa_makes_two_round_trips() -> None:
    """The m devices get the model and a step number and send two models; m devices get the snapshot and send a loss.

    With all four devices invited the first trip may draw some of them twice: those are sent to once.
    """
    fed = run_small(DRFA, UNICAST, "stop.rounds=6", timing_only=True)
    trained = fed.ledger.rounds.column("invited").sum()

    assert fed.learner.nominal
    assert fed.ledger.sent_bit[0] == 32 * (20 * trained + 6 * 3)
    assert fed.ledger.sent_bit[1] == 32 * (11 * trained + 6 * 3 * 10)


def test_drfa_invites_by_the_losses_it_is_told() -> None:
    """A large step of the weights changes who is drawn in later rounds; the first draw is the same."""
    invited = []
    for lr_lambda in (1e-9, 5.0):
        fed = run_small(DRFA, f"algorithm.lr_lambda={lr_lambda}", "algorithm.cohort=2", "stop.rounds=8")
        invited.append(fed.ledger.frame("computes")["device"].tolist())

    assert invited[0][:2] == invited[1][:2]
    assert invited[0] != invited[1]


def test_a_snapshot_costs_no_extra_step() -> None:
    """All local steps together are those of the round, wherever the snapshot is taken."""
    fed = run_small(DRFA, "stop.rounds=6", timing_only=True)
    computes = fed.ledger.frame("computes")
    per_sample, forward = fed.task.model.flop_per_sample, fed.task.model.forward_flop_per_sample
    trained = fed.ledger.rounds.column("invited").sum()

    assert computes["flop"].sum() == pytest.approx(5 * (4 * trained * per_sample + 6 * 3 * forward))


@pytest.mark.parametrize("algorithm", [AFL, DRFA])
def test_losses_only_cost_time(algorithm: str) -> None:
    """With 30 % of all messages lost everything arrives in the end, later, and the model is the same."""
    fed, lossy = (small_federation(algorithm, *more) for more in ((), LOSSY))
    models = [own.graph.read(own.run(small_scenario(algorithm).algorithm)) for own in (fed, lossy)]

    assert torch.allclose(*models, atol=1e-6)
    assert lossy.clock.now > fed.clock.now


@pytest.mark.parametrize("algorithm", [AFL, DRFA])
def test_the_averaged_model_is_the_mean_of_the_rounds(algorithm: str) -> None:
    """With `averaged` it shows the mean of the models that it shows without."""
    shown: dict[str, list[torch.Tensor]] = {}
    for averaged in ("false", "true"):
        settings = (algorithm, f"algorithm.averaged={averaged}", "stop.rounds=3")
        fed, models = small_federation(*settings), shown.setdefault(averaged, [])
        fed.observers.append(lambda fed, models=models: models.append(fed.graph.read(fed.latest)))
        fed.run(small_scenario(*settings).algorithm)

    assert torch.allclose(shown["true"][-1], torch.stack(shown["false"]).mean(0), atol=1e-6)


@pytest.mark.parametrize("algorithm", [AFL, DRFA])
def test_who_never_returns_is_left_out(algorithm: str) -> None:
    """With a device away for good after 5 ms the run goes on with the other three, within a second."""
    gone = "devices.availability={kind: windows, devices: {0: [[0, 0.005]]}}"
    fed = run_small(algorithm, gone, "stop.rounds=20", timing_only=True)

    assert fed.round == 20
    assert fed.clock.now_s < 1
    assert fed.ledger.rounds.column("arrived")[-1] <= 3
    assert fed.ledger.rounds.column("arrived").min() > 0


OUT_OF_RANGE = (
    "devices.placement={kind: list, xy_m: [[3.0e6, 0], [20, 0], [30, 0], [40, 0]]}",
    "channel.rate={kind: fixed, bit_rate_bps: 1e6, threshold_db: 10}",
)
"""Device 0 is 3000 km away: each of its transfers is an outage."""


def attempts_s(fed: Federation, device: int) -> list[float]:
    """When transfers to or from a device were asked for."""
    rows = fed.ledger.frame("transfers")
    return [float(asked_s) for asked_s in rows.loc[(rows[["sender", "receiver"]] == device).any(axis=1), "requested_s"]]


@pytest.mark.parametrize("algorithm", [AFL, DRFA])
def test_who_is_out_of_range_is_given_up(algorithm: str) -> None:
    """With a patience of a second, each trip that asks device 0 takes half a second longer, and others are heard.

    The last attempt comes after pauses of 1, 2, 4, ... 256 ms; the next pause would end after 1.023 s.
    """
    fed = run_small(algorithm, "algorithm.patience_s=1", *OUT_OF_RANGE, "stop.rounds=5", timing_only=True)
    asked = len([delay_s for delay_s in np.diff(attempts_s(fed, 0)) if delay_s == pytest.approx(0.256, abs=2e-3)])

    assert asked >= 3
    assert 0.511 * asked < fed.clock.now_s < 0.511 * asked + 0.1
    assert fed.round == 5
    assert 0 < fed.ledger.rounds.column("arrived").max() <= 3


@pytest.mark.parametrize("algorithm", [AFL, DRFA])
def test_patience_is_a_minute_unless_said(algorithm: str) -> None:
    """Five rounds with a device out of range take minutes of simulated time, not days."""
    fed = run_small(algorithm, *OUT_OF_RANGE, "stop.rounds=5", timing_only=True)

    assert fed.clock.now_s < 5 * 2 * 60


def test_alone_is_gradient_descent_on_own_samples() -> None:
    """Device 2 trains, nobody sends, and the model is that of plain descent on its twenty samples."""
    settings = ("algorithm={kind: individual, device: 2, lr: 0.1, batch_size: null, local_steps: 3}", "stop.rounds=4")
    fed = small_federation(*settings)
    model = fed.read(fed.run(small_scenario(*settings).algorithm))
    w, rows = fed.task.model.initial().requires_grad_(), fed.task.slice_of(2)
    for _ in range(12):
        (gradient,) = torch.autograd.grad(fed.task.model.loss(w, fed.task.data.x[rows], fed.task.data.y[rows]), w)
        w = (w - 0.1 * gradient).detach().requires_grad_()

    assert torch.allclose(model, w.detach(), atol=1e-6)
    assert fed.ledger.sent_bit == [0, 0, 0]
    assert set(fed.ledger.computes.column("device")) == {2}


def test_nobody_is_alone_who_is_not_there() -> None:
    """The scenario is refused with the setting and both numbers."""
    alone = "algorithm={kind: individual, device: 4, lr: 0.1, batch_size: null, local_steps: 3}"
    [(path, what)] = small_scenario(alone).contradictions()

    assert path == ("algorithm", "device")
    assert what == "counted from 1 is more than there are, got 5; must be at most devices.count, 4"


@pytest.mark.parametrize(("kind", "more", "steps"), [("afl", "lr_lambda: 0.1, averaged: false", 1),
                                                     ("individual", "device: 0, local_steps: 2", 2)])  # fmt: skip
def test_one_device_goes_from_batch_to_batch(kind: str, more: str, steps: int) -> None:
    """Alone, the model after three rounds is that of local training on batches of five, drawn anew in each round."""
    settings = ("devices.count=1", f"algorithm={{kind: {kind}, lr: 0.1, batch_size: 5, {more}}}")
    fed, other = small_federation(*settings), small_federation(*settings)
    model, w = fed.read(fed.run(small_scenario(*settings).algorithm)), other.graph.constant(other.task.model.initial())
    for t in range(3):
        w = other.device(0).training(w, SgdPlan(lr=0.1, batch_size=5, steps=steps), t).result.params

    assert torch.allclose(model, other.read(w), atol=1e-6)


def test_drfa_asks_everybody_for_a_loss_once() -> None:
    """With all four invited each of six rounds has four forward passes over batches of five, one for each device."""
    fed = run_small(DRFA, "algorithm.cohort=4", "stop.rounds=6", timing_only=True)
    computes = fed.ledger.frame("computes")
    asked = computes[computes["flop"] == 5 * fed.task.model.forward_flop_per_sample]["device"]

    assert np.sort(asked.to_numpy().reshape(6, 4), axis=1).tolist() == [[0, 1, 2, 3]] * 6


def test_drfa_draws_batches_by_the_names_that_runs_are_reproduced_by(monkeypatch: pytest.MonkeyPatch) -> None:
    """Round and part of the training, then round and `loss`: other names are other batches for the same seed."""
    fed = small_federation(DRFA)
    keys: set[tuple[object, ...]] = set()
    training = Device.training
    monkeypatch.setattr(Device, "training", lambda k, w, plan, *key: keys.add(key) or training(k, w, plan, *key))
    fed.run(small_scenario(DRFA).algorithm)

    assert {(t, part) for t in range(3) for part in (0, "loss")} <= keys
    assert keys <= {(t, part) for t in range(3) for part in (0, 1, "loss")}
