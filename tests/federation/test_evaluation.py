"""Evaluation: when it happens, what it measures, and that it only observes."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from fednet_emu.algorithms.base import Algorithm
from fednet_emu.errors import Deadlock, ScenarioError
from fednet_emu.federation.federation import Federation
from fednet_emu.federation.learning_task import LearningTask
from fednet_emu.kernel.clock import Process
from fednet_emu.kernel.streams import Streams
from fednet_emu.learning.data.partitions.base import Partitioned
from fednet_emu.testing import run_small, small_federation, small_scenario

CLASSES = (
    "data={kind: synthetic, n_samples: 200, n_test: 203, features: 9, classes: 3, separation: 2}",
    "partition={kind: dirichlet, alpha: 0.5}",
    "model=softmax",
)


def test_the_initial_and_the_last_model_are_evaluated_in_any_case() -> None:
    """With one evaluation every 2 rounds, a run of 5 rounds has rounds 0, 2, 4 and 5, each at its own end."""
    fed = run_small("evaluation.every_rounds=2", "stop.rounds=5")
    evaluations = fed.ledger.frames()["evaluations"]

    assert evaluations["round"].tolist() == [0, 2, 4, 5]
    assert evaluations["simulated_s"].tolist() == pytest.approx([0, 4.64e-3, 9.28e-3, 11.6e-3], abs=1e-12)
    assert evaluations["uplink_bit"].tolist() == [0, 2 * 1280, 4 * 1280, 5 * 1280]


def test_no_round_is_evaluated_twice() -> None:
    """A run that ends with an evaluated round adds nothing."""
    assert run_small("stop.rounds=2").ledger.evaluations.column("round").tolist() == [0, 1, 2]


@pytest.mark.parametrize(
    "settings",
    [
        ("evaluation.every_rounds=5",),
        ("evaluation.per_device=true",),
        ("evaluation={every_rounds: null, every_s: 0.001, per_device: true}",),
    ],
)
def test_evaluation_only_observes(settings: tuple[str, ...]) -> None:
    """However often and whatever is evaluated, events, final model, bits, energy and time are the same."""
    varied = (*CLASSES, "algorithm.cohort=2", "devices.straggler={kind: pareto, alpha: 2}", "stop.rounds=6")
    often, seldom = run_small(*varied), run_small(*varied, *settings)

    assert often.ledger.event_digest() == seldom.ledger.event_digest()
    assert often.ledger.evaluations.column("loss")[-1] == seldom.ledger.evaluations.column("loss")[-1]
    assert often.ledger.energy_j == seldom.ledger.energy_j


def test_metrics_are_those_of_a_second_implementation() -> None:
    """Pooled loss and accuracy, worst device and spread, recomputed in numpy from the model's numbers."""
    scenario = small_scenario(*CLASSES, "evaluation.per_device=true", "stop.rounds=3")
    fed = small_federation(*CLASSES, "evaluation.per_device=true", "stop.rounds=3")
    final = fed.run(scenario.algorithm)
    assert final is not None
    streams = Streams(scenario.seed)
    samples = scenario.data.load(None, streams("data"))
    _, test = scenario.partition.split(samples, 4, streams("partition"))

    weight, bias = np.split(fed.read(final).double().numpy(), [27])
    scores = samples.test_x.double().numpy() @ weight.reshape(3, 9).T + bias
    labels = samples.test_y.numpy()
    losses = np.log(np.exp(scores).sum(1)) - scores[np.arange(len(labels)), labels]
    hits = scores.argmax(1) == labels
    by_device = [hits[test.of(device)].mean() for device in range(4) if len(test.of(device))]
    last = fed.ledger.frames()["evaluations"].iloc[-1]

    assert last["loss"] == pytest.approx(losses.mean(), rel=1e-5)
    assert last["accuracy"] == pytest.approx(hits.mean())
    assert last["worst_accuracy"] == pytest.approx(min(by_device))
    assert last["std_accuracy"] == pytest.approx(np.std(by_device))
    assert fed.accuracy == last["accuracy"]


def test_a_regression_has_a_loss_and_no_accuracy() -> None:
    """What does not apply is not a number, also per device."""
    fed = run_small("evaluation.per_device=true")
    last = fed.ledger.frames()["evaluations"].iloc[-1]

    assert last["loss"] > 0
    assert all(math.isnan(last[name]) for name in ("accuracy", "worst_accuracy", "std_accuracy"))
    assert fed.accuracy is None


def test_test_samples_that_nobody_owns_leave_the_spread_open() -> None:
    """Without test samples on devices there is a pooled accuracy and no worst device; own models have no score."""
    scenario, fed = small_scenario(*CLASSES), small_federation(*CLASSES)
    samples = scenario.data.load(None, Streams(0)("data"))
    train, _ = scenario.partition.split(samples, 4, Streams(0)("partition"))
    nobody = Partitioned.from_owners(np.full(len(samples.test_y), -1), 4)
    task = LearningTask(fed.task.model, samples, (train, nobody), torch.device("cpu"), timing_only=False)

    scores = task.score(fed.task.model.initial(), per_device=True)

    assert 0 <= scores.pooled.accuracy <= 1
    assert len(scores.accuracies) == 0
    with pytest.raises(ScenarioError, match=r"^partition: no device has one of the .* test samples, .*; give .*group"):
        task.score_own([fed.task.model.initial()] * 4, per_device=True)


def test_devices_have_a_table_of_their_own() -> None:
    """Evaluated per device, the mean over devices weighted by test samples is the pooled accuracy."""
    frames = run_small(*CLASSES, "evaluation.per_device=true", "stop.rounds=2").ledger.frames()
    own = frames["device_evaluations"]
    weighted = (own["accuracy"] * own["samples"]).groupby(own["round"]).sum() / own["samples"].groupby(
        own["round"]
    ).sum()

    assert weighted.to_numpy() == pytest.approx(frames["evaluations"]["accuracy"].to_numpy())


def test_a_timing_only_run_evaluates_nothing() -> None:
    """Without training there is nothing to measure."""
    assert len(run_small(timing_only=True).ledger.evaluations) == 0


EVERY_MS = "evaluation={every_rounds: null, every_s: 0.001, per_device: true}"


def test_evaluation_every_so_many_seconds() -> None:
    """Rounds end at 2.32, 4.64 and 6.96 ms: each millisecond has the model that was the global one then."""
    timed, by_round = run_small(EVERY_MS), run_small("evaluation.per_device=true")
    rows, rounds = timed.ledger.frames()["evaluations"], by_round.ledger.frames()["evaluations"].set_index("round")

    assert rows["simulated_s"].tolist() == pytest.approx([0, 1e-3, 2e-3, 3e-3, 4e-3, 5e-3, 6e-3, 6.96e-3], abs=1e-12)
    assert rows["round"].tolist() == [0, 0, 0, 1, 1, 2, 2, 3]
    assert rows["loss"].tolist() == rounds.loc[rows["round"], "loss"].tolist()
    assert rows["uplink_bit"].tolist() == [0, 0, 3 * 320, 1280, 1280 + 2 * 320, 2560, 2560 + 320, 3840]
    assert timed.ledger.frames()["device_evaluations"]["round"].tolist() == [t for t in range(4) for _ in range(4)]


def test_what_ends_at_an_instant_is_in_its_evaluation() -> None:
    """A round that ends at the very instant is evaluated with its own model, once, whatever else is evaluated."""
    for more in ("", ", every_rounds: null"):
        fed = run_small(f"evaluation={{every_s: 0.00232{more}}}")
        assert fed.ledger.evaluations.column("round").tolist() == [0, 1, 2, 3]


def test_timed_evaluation_does_not_lengthen_a_run() -> None:
    """It ends when it would have, at its last round or at its limit, with nothing evaluated later."""
    for limit in ("stop={rounds: 3}", "stop={simulated_s: 0.005}"):
        timed, plain = run_small(EVERY_MS, limit), run_small(limit)
        assert timed.clock.now == plain.clock.now
        assert timed.round == plain.round
        assert timed.ledger.evaluations.column("simulated_ns").max() <= timed.clock.now


def test_timed_evaluation_ignores_runs_without_training() -> None:
    """There is nothing to measure, and the events are the same."""
    timed = run_small(EVERY_MS, timing_only=True)

    assert len(timed.ledger.evaluations) == 0
    assert timed.ledger.event_digest() == run_small().ledger.event_digest()


class Forgetful(Algorithm):
    """A server that waits for what nobody will send."""

    def run(self, fed: Federation) -> Process:
        """Send one model, then wait."""
        w = fed.initial_model()
        yield fed.uplink(fed.device(0), w)
        yield fed.inbox().collect(1)


@pytest.mark.parametrize("stop", ["stop={rounds: 3}", "stop={rounds: 3, simulated_s: 10}"])
def test_timed_evaluation_does_not_hide_a_deadlock(stop: str) -> None:
    """Timers of the observer are no reason to think that anything will still happen."""
    fed = small_federation(EVERY_MS, stop)
    with pytest.raises(Deadlock, match="waits for"):
        fed.run(Forgetful())


class OwnModels(Algorithm):
    """Device d's own model is d times the vector of ones."""

    def run(self, fed: Federation) -> Process:
        """One round that takes no time."""
        fed.initial_model()
        own = [fed.graph.constant(float(d) * torch.ones(fed.task.model.size)) for d in range(fed.n_devices)]
        fed.end_of_round(own, invited=0, arrived=1)
        yield fed.clock.sleep(0)


def test_own_models_are_scored_on_the_samples_of_their_devices() -> None:
    """Each device's loss is that of its own model on its own test samples; the pooled one weighs all samples alike."""
    fed = small_federation("evaluation.per_device=true", "stop.rounds=1")
    fed.run(OwnModels())
    frames, scenario = fed.ledger.frames(), small_scenario()
    streams = Streams(scenario.seed)
    samples = scenario.data.load(None, streams("data"))
    _, test = scenario.partition.split(samples, 4, streams("partition"))

    def errors(device: int) -> np.ndarray:
        own = test.of(device)
        return ((device * (samples.test_x[own].sum(1) + 1) - samples.test_y[own]) ** 2).double().numpy()

    last = frames["device_evaluations"].query("round == 1")
    assert last["loss"].tolist() == pytest.approx([errors(d).mean() for d in range(4)], rel=1e-5)
    assert last["samples"].sum() == 40
    pooled = np.concatenate([errors(d) for d in range(4)]).mean()
    assert frames["evaluations"].iloc[-1]["loss"] == pytest.approx(pooled, rel=1e-5)


def test_the_largest_training_loss_of_own_models_is_measured_too() -> None:
    """It is the maximum over devices of the mean loss of a device's own model on its own training samples."""
    fed = small_federation("evaluation.train_loss=true", "stop.rounds=1")
    fed.run(OwnModels())
    data = fed.task.data
    losses = [
        float(((d * (data.x[rows].sum(1) + 1) - data.y[rows]) ** 2).mean())
        for d, rows in enumerate(map(fed.task.slice_of, range(4)))
    ]

    assert fed.ledger.evaluations.column("worst_train_loss")[-1] == pytest.approx(max(losses), rel=1e-5)
