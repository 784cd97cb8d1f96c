"""FedUL, and its theory."""

from __future__ import annotations

import math
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn.functional import cross_entropy

from fednet_emu.algorithms.unlabelled.fedul import (
    Best,
    SurrogateLoss,
    better,
    ce_on_probs,
    empirical_priors,
    pick,
    record,
    transition,
)
from fednet_emu.emulation.build import build
from fednet_emu.federation import Device
from fednet_emu.federation.federation import Federation
from fednet_emu.learning.data.datasets.base import Samples
from fednet_emu.learning.data.partitions import Partition
from fednet_emu.learning.data.partitions.base import Partitioned
from fednet_emu.testing import run_small, small_federation, small_scenario
from tests.quick import examples

SETTINGS = (
    "data={kind: synthetic, features: [1, 4, 4], classes: 3, n_samples: 480, n_test: 90}",
    "partition={kind: surrogate-sets, skew: non-iid, sets: 4}",
    "model={kind: digit-model, channels: [2, 2, 2], units: [4, 3]}",
    "server={samples: 60, validation_samples: 60, flop_per_s: 1e6}",
    "algorithm={kind: fedul, lr: 0.01, batch_size: 10}",
    "stop.rounds=3",
)


def trained(*changes: str) -> tuple[torch.Tensor, Federation]:
    """The model that a run returns, and the federation."""
    settings = (*SETTINGS, *changes)
    fed = small_federation(*settings)
    final = fed.run(small_scenario(*settings).algorithm)
    assert final is not None
    return fed.read(final), fed


def series(fed: Federation, name: str) -> list[float]:
    return fed.ledger.frame("fedul")[name].tolist()


@pytest.fixture(scope="module")
def plain() -> torch.Tensor:
    """The model of FedUL without help."""
    return trained()[0]


# ---- limits ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "change",
    [
        ("algorithm.supervision=M2", "algorithm.h=0"),
        ("algorithm.supervision=M1", "algorithm.server_epochs=0"),
        ("algorithm.supervision=M2", "algorithm.h=0", "algorithm.m2_mode=persistent"),
    ],
    ids=" ".join,
)
def test_an_idle_server_is_fedul_bit_for_bit(change: tuple[str, ...], plain: torch.Tensor) -> None:
    """M2 with h = 0 and M1 with no epochs return FedUL's very model."""
    assert torch.equal(trained(*change)[0], plain)


@pytest.mark.parametrize("method", ["M1", "M2"])
def test_a_working_server_is_not(method: str, plain: torch.Tensor) -> None:
    """With its defaults each method changes the model, also in its running statistics."""
    model, fed = trained(f"algorithm.supervision={method}")
    n = fed.task.model.n_trainable

    assert not torch.equal(model[:n], plain[:n])
    assert not torch.equal(model[n:], plain[n:])


def test_m2_with_h_one_is_the_servers_own_training() -> None:
    """With h = 1 the model is f', whichever way the clients' data go: another split of them changes nothing."""
    change = ("algorithm.supervision=M2", "algorithm.h=1", "stop.rounds=1")
    one, other = (trained(*change, f"partition.skew={skew}")[0] for skew in ("iid", "non-iid"))

    assert torch.allclose(one, other, rtol=1e-5, atol=1e-6)


def test_a_persistent_server_goes_on_from_its_own_weights() -> None:
    """The two readings of M2 agree in the first round and part in the second."""
    first, second = (
        [trained("algorithm.supervision=M2", f"algorithm.m2_mode={mode}", f"stop.rounds={n}",
                 "server.validation_samples=0")[0] for mode in ("fresh", "persistent")]
        for n in (1, 2)
    )  # fmt: skip

    assert torch.equal(*first)
    assert not torch.equal(*second)


class ClassSets(Partition):
    """Equal parts in which set m holds class m: the sets say what the labels say."""

    kind = "class-sets"

    def split(self, samples: Samples, n_devices: int, rng: np.random.Generator) -> tuple[Partitioned, Partitioned]:
        """Deal the samples of every class out in turn, so that all devices have the class shares of the test set."""
        by_class = np.argsort(samples.train_y.numpy(), kind="stable")
        owners = np.empty(len(by_class), np.int64)
        owners[by_class] = np.arange(len(by_class)) % n_devices
        split = Partitioned.from_owners(owners, n_devices)
        test = Partitioned.from_owners(np.zeros(len(samples.test_y), np.int64), n_devices)
        return Partitioned(split.order, split.offsets, samples.train_y.numpy()[split.order]), test


@pytest.mark.parametrize("model", ["softmax", "{kind: digit-model, channels: [6, 6, 6], units: [16, 16]}"])
def test_sets_that_are_classes_make_it_supervised_fedavg(model: str) -> None:
    """With M = K, Pi = I and pib = pi, FedUL with plain steps is FedAvg on the labels, to 1e-5."""
    common = (*SETTINGS, "server={samples: 0, validation_samples: 0}", f"model={model}")
    models = []
    for algorithm in ("{kind: fedul, lr: 0.1, batch_size: 40, optimizer: sgd}",
                      "{kind: fedavg, lr: 0.1, batch_size: 40, local_epochs: 1, cohort: 4}"):  # fmt: skip
        scenario = small_scenario(*common, f"algorithm={algorithm}").model_copy(update={"partition": ClassSets()})
        fed = build(scenario)
        final = fed.run(scenario.algorithm)
        assert final is not None
        models.append(fed.read(final))

    assert (models[0] - models[1]).norm() < 1e-5 * models[1].norm()
    assert (models[0] - fed.task.model.initial()).norm() > 1e-2 * models[1].norm()


# ---- the best model --------------------------------------------------------------------------------------------------


def test_the_best_model_on_validation_is_reported() -> None:
    """What is returned has the smallest validation error of all rounds, and is what the last evaluation has seen."""
    model, fed = trained("stop.rounds=8", "algorithm.lr=0.05")
    errors = series(fed, "validation_error")

    assert fed.task.validation_error(model) == min(errors) < max(errors)
    assert series(fed, "round") == [*range(1, 9)]
    assert series(fed, "best_validation_error") == np.minimum.accumulate(errors).tolist()
    assert fed.task.score(model, per_device=False).pooled.accuracy == fed.accuracy


def test_looking_at_validation_samples_costs_nothing() -> None:
    """Evaluation of three models is no event: more samples to look at, the same events."""
    one, other = (trained(f"server.validation_samples={n}", "partition.samples_per_device=80")[1] for n in (1, 60))

    ends = [fed.ledger.frame("transfers")["ended_s"].tolist() for fed in (one, other)]
    assert ends[0] == ends[1]


def test_the_sets_of_samples_are_disjoint() -> None:
    """Devices, server and validation share no sample: 480 in all, 60 and 60 held back."""
    fed = small_federation(*SETTINGS, "partition={kind: surrogate-sets, skew: iid, sets: 4, overlap: disjoint}")
    rows = fed.task.data.x.flatten(1)

    assert len(rows.unique(dim=0)) == len(rows) <= 480 - 60
    assert fed.server.n_samples == fed.task.n_validation == 60


def test_the_public_codes_loss_stays_above_its_floor() -> None:
    """In the mode ce_on_probs no loss falls below log(e + K - 1) - 1, or log(e + M - 1) - 1 for the surrogate one."""
    _, fed = trained("algorithm.loss_mode=ce_on_probs", "algorithm.supervision=M1", "stop.rounds=10")

    assert min(series(fed, "supervised_loss")) > np.log(np.e + 3 - 1) - 1
    assert min(series(fed, "surrogate_loss")) > np.log(np.e + 4 - 1) - 1


# ---- time and bits ---------------------------------------------------------------------------------------------------


def round_s(method: str, server_flop_per_s: float) -> float:
    changes = (f"algorithm.supervision={method}", f"server.flop_per_s={server_flop_per_s}", "stop.rounds=1")
    return run_small(*SETTINGS, *changes, timing_only=True).clock.now_s


@pytest.mark.parametrize("speed", [1e4, 1e6])
def test_m1_adds_the_servers_time_to_the_round(speed: float) -> None:
    """Fine-tuning on 60 samples comes after the clients: FedUL's round and flop / speed, one after the other."""
    flop = 60 * small_federation(*SETTINGS).task.model.flop_per_sample

    assert round_s("M1", speed) == pytest.approx(round_s("none", speed) + flop / speed, abs=2e-9)


def test_m2_works_beside_the_clients() -> None:
    """A fast server adds nothing to the round; a slow one is what the round waits for."""
    flop = 60 * small_federation(*SETTINGS).task.model.flop_per_sample

    assert round_s("M2", 1e6) == round_s("none", 1e6)
    assert round_s("M2", 1e4) == pytest.approx(flop / 1e4, abs=2e-9)


def test_only_the_model_travels() -> None:
    """Each round takes 32 (P + B) bit to every client and back; priors and surrogate labels stay at home."""
    fed = run_small(*SETTINGS, "network.downlink.mode=unicast", "algorithm.supervision=M1", timing_only=True)
    model_bit = 32 * (fed.task.model.n_trainable + 2 * (2 + 2 + 2 + 4 + 3))

    assert fed.task.model.size * 32 == model_bit
    assert fed.ledger.sent_bit == [3 * 4 * model_bit, 3 * 4 * model_bit, 0]


# ---- what it needs ---------------------------------------------------------------------------------------------------


def test_it_learns_the_digits_without_a_label() -> None:
    """On embedded digits, ten unlabelled sets at each of four devices: nine in ten test digits are recognised."""
    fed = run_small(
        *SETTINGS,
        "data=digits",
        "partition={kind: surrogate-sets, skew: iid, sets: 10}",
        "model={kind: mlp, hidden: [32]}",
        "server={validation_samples: 100}",
        "algorithm.lr=0.02",
        "stop.rounds=15",
        "evaluation.every_rounds=15",
    )

    assert fed.accuracy is not None
    assert fed.accuracy > 0.9


@pytest.mark.parametrize(("error", "picked"), [(0.1, 2.0), (0.2, 1.0), (0.3, 1.0), (float("nan"), 1.0)])
def test_the_smaller_error_is_picked(error: float, picked: float) -> None:
    """Against an error of 0.2 so far; the earlier model stays where both are equal, or where there is no error."""
    best, f = torch.tensor([1.0]), torch.tensor([2.0])

    assert pick(best, f, 0.2, error).tolist() == [picked]


class Bench:
    """Stands for a federation that computes at once: the models are their own validation errors."""

    timing_only = False

    def __init__(self) -> None:
        self.task = SimpleNamespace(n_validation=10, validation_error=lambda f: f)
        self.rows: list[tuple[str, dict[str, float]]] = []

    def record(self, name: str, **row: float) -> None:
        self.rows.append((name, row))

    def defer(self, function: Callable[..., Any], *args: Any, size: int = 1) -> Any:
        return function(*args)

    def read(self, value: Any) -> Any:
        return value


def test_the_best_model_is_kept_with_its_error() -> None:
    """Errors 0.3, 0.4, 0.2, 0.2: the first, the first, the third and the third, beside the latest."""
    best, bench, seen = Best(cast("Any", None)), cast("Any", Bench()), []
    for error in (0.3, 0.4, 0.2, 0.2):
        best = better(bench, best, cast("Any", error))
        seen.append(tuple(best))

    assert seen == [(0.3, 0.3, 0.3), (0.3, 0.3, 0.4), (0.2, 0.2, 0.2), (0.2, 0.2, 0.2)]


def test_a_row_has_the_round_its_losses_and_both_errors() -> None:
    """The mean of the surrogate losses, the supervised loss and the errors."""
    bench = Bench()
    best = Best(cast("Any", 0.2), cast("Any", 0.2), cast("Any", 0.4))
    record(cast("Any", bench), best, cast("Any", [1.0, 2.0]), cast("Any", SimpleNamespace(loss=0.7)))
    expected = {"surrogate_loss": 1.5, "supervised_loss": 0.7}

    assert bench.rows == [("fedul", {**expected, "validation_error": 0.4, "best_validation_error": 0.2})]


@pytest.mark.parametrize(("mode", "loss"), [("nll", None), ("ce_on_probs", ce_on_probs)])
def test_the_server_trains_with_the_loss_of_the_mode(mode: str, loss: object, monkeypatch: pytest.MonkeyPatch) -> None:
    """The negative log-likelihood is the model's own loss; the public code's second softmax is asked for by name."""
    settings = (*SETTINGS, f"algorithm.loss_mode={mode}", "algorithm.supervision=M1", "stop.rounds=1")
    fed, asked = small_federation(*settings), []
    training = Device.training

    def spy(device: Any, *args: Any, **terms: Any) -> Any:
        if device is fed.server:
            asked.append(terms["loss"])
        return training(device, *args, **terms)

    monkeypatch.setattr(Device, "training", spy)
    fed.run(small_scenario(*settings).algorithm)

    assert asked == [loss]


def world(seed, n_sets=5, n_classes=3, n_points=40):
    """Class-conditional densities on points, and a client's and the test set's priors: Pi, pib, pi, p(x | k)."""
    rng = np.random.default_rng(seed)
    priors, density = rng.dirichlet(np.ones(n_classes), n_sets), rng.dirichlet(np.ones(n_points), n_classes)
    return priors, rng.dirichlet(np.ones(n_sets)), rng.dirichlet(np.ones(n_classes)), density


def posteriors(priors, shares, pi, density):
    """By Bayes' rule: of the classes under the test prior, [points, K], and of the sets at the client, [points, M]."""
    joint_classes, joint_sets = pi[:, None] * density, shares[:, None] * (priors @ density)
    return (joint_classes / joint_classes.sum(0)).T, (joint_sets / joint_sets.sum(0)).T


def surrogate_posterior(a, eta):
    """The set probabilities Q(eta) [n, M] for class probabilities eta [n, K] and the transition matrix a [M, K]."""
    unnormalised = eta @ a.T
    return unnormalised / unnormalised.sum(axis=-1, keepdims=True)


@examples(50)
@given(seed=st.integers(0, 10_000))
def test_theorem_1(seed):
    """Q of the true class posterior is the true posterior of the sets, to 1e-12, for any priors."""
    priors, shares, pi, density = world(seed)
    eta, true = posteriors(priors, shares, pi, density)

    assert np.abs(surrogate_posterior(transition(priors, shares, pi), eta) - true).max() < 1e-12


@pytest.mark.parametrize("mode", ["nll", "ce_on_probs"])
def test_an_empty_set_has_a_gradient(mode):
    """A device without samples of one of its sets trains on the others: gradients are numbers, in either loss."""
    priors, shares = np.array([[0.5, 0.5, 0.0], [0.0, 0.5, 0.5], [0.0, 0.0, 0.0]]), np.array([0.6, 0.4, 0.0])
    loss = SurrogateLoss.of(transition(priors, shares, np.full(3, 1 / 3)), mode, torch.zeros(1))
    z = torch.randn(4, 3, generator=torch.Generator().manual_seed(0), requires_grad=True)
    loss(z, torch.tensor([0, 1, 1, 0])).sum().backward()

    assert torch.isfinite(z.grad).all()
    assert z.grad.abs().max() > 0


def test_empirical_priors_count():
    """Five samples in two sets: shares of classes within each set, and of the sets; both sum to one."""
    priors, shares = empirical_priors(np.array([0, 0, 1, 1, 1]), np.array([2, 0, 1, 1, 0]), 3, 3)

    assert priors.tolist() == [[0.5, 0, 0.5], [1 / 3, 2 / 3, 0], [0, 0, 0]]
    assert shares.tolist() == [0.4, 0.6, 0]


def scores(seed=0, n=30, classes=3):
    return torch.from_numpy(np.random.default_rng(seed).normal(size=(n, classes)) * 3)


def test_nll_is_the_logarithm_of_q():
    """The loss is -log Q_y(softmax z), the formula of the paper evaluated with NumPy."""
    priors, shares, pi, _ = world(2)
    a, z = transition(priors, shares, pi), scores()
    y = torch.arange(30) % 5
    q = surrogate_posterior(a, z.softmax(1).numpy())

    losses = SurrogateLoss.of(a, "nll", z)(z, y)

    assert losses.numpy() == pytest.approx(-np.log(q[np.arange(30), y.numpy()]), rel=1e-12)


def test_ce_on_probs_applies_the_softmax_twice():
    """The mode of the public code is the cross-entropy of Q taken for scores."""
    priors, shares, pi, _ = world(2)
    a, z = transition(priors, shares, pi), scores()
    y = torch.arange(30) % 5
    q = torch.from_numpy(surrogate_posterior(a, z.softmax(1).numpy()))

    assert torch.allclose(SurrogateLoss.of(a, "ce_on_probs", z)(z, y), cross_entropy(q, y, reduction="none"))


def test_the_identity_is_the_cross_entropy():
    """With sets that are the classes, Pi = I and pib = pi, the loss and its gradient are those of labels."""
    pi = np.array([0.2, 0.3, 0.5])
    loss = SurrogateLoss.of(transition(np.eye(3), pi, pi), "nll", scores())
    y, gradients = torch.arange(30) % 3, []
    for function in (loss, lambda z, y: cross_entropy(z, y, reduction="none")):
        z = scores().requires_grad_()
        function(z, y).sum().backward()
        gradients.append(z.grad)

    assert torch.allclose(loss(scores(), y), cross_entropy(scores(), y, reduction="none"), rtol=1e-12)
    assert torch.allclose(*gradients, rtol=1e-12, atol=1e-15)


def test_absent_classes_and_certain_scores_stay_finite():
    """A class that no set has, sets of a single class, and scores of +-1000 leave loss and gradient finite."""
    priors = np.array([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.5, 0.5, 0.0]])
    loss = SurrogateLoss.of(transition(priors, np.full(3, 1 / 3), np.full(3, 1 / 3)), "nll", torch.zeros(1))
    z = torch.tensor([[1000.0, -1000.0, 0.0], [-1000.0, 1000.0, 1000.0]], requires_grad=True)
    losses = loss(z, torch.tensor([1, 2]))
    losses.sum().backward()

    assert torch.isfinite(losses).all()
    assert torch.isfinite(z.grad).all()


def test_the_floor_of_the_public_codes_supervised_loss():
    """A network that is certain and right still has the loss log(e + 9) - 1 = 1.46115 for ten classes."""
    z = 1e4 * torch.eye(10, dtype=torch.float64)
    floor = math.log(math.e + 9) - 1

    assert floor == pytest.approx(1.46115, abs=5e-6)
    assert ce_on_probs(z, torch.arange(10)).tolist() == pytest.approx([floor] * 10)
    assert (
        ce_on_probs(torch.randn(1000, 10, dtype=torch.float64) * 50, torch.arange(1000) % 10) >= floor - 1e-12
    ).all()
