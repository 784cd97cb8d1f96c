"""Stop rules: when a run ends, and in which state it leaves the books."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from fednet_emu.errors import ScenarioError
from fednet_emu.federation.stop import Stop
from fednet_emu.records.laws.verify import verify
from fednet_emu.testing import run_small, small_federation, small_scenario

CLASSES = ("data={kind: synthetic, n_samples: 200, n_test: 200, features: 9, classes: 2}", "model=softmax")


def test_rounds_end_the_run() -> None:
    """The run ends with the last of the rounds."""
    fed = run_small("stop.rounds=2")

    assert fed.round == 2
    assert fed.clock.now_s == pytest.approx(2 * 2.32e-3, abs=1e-12)


def test_simulated_time_ends_the_run_in_mid_round() -> None:
    """The run ends at exactly that instant, and everything under way is on the books as cut off by the end."""
    fed = run_small("stop={simulated_s: 3.5e-3}")
    frames = fed.ledger.frames()
    cut = frames["transfers"].query("lost == 'end'")

    assert fed.clock.now_s == 3.5e-3
    assert fed.round == 1
    assert cut[["sender", "air_bit"]].values.tolist() == [[0, pytest.approx(140.0)], [1, 0], [2, 0], [3, 0]]
    assert not any(verify(fed.ledger, frozenset({"uplink", "downlink"})).values())


def test_simulated_time_cuts_computations() -> None:
    """A computation that is under way at the end is recorded with the part that was done."""
    fed = run_small("stop={simulated_s: 0.5e-3}")
    computes = fed.ledger.frames()["computes"]

    assert set(computes["stopped"]) == {"end"}
    assert computes["flop"].tolist() == pytest.approx([180.0] * 4)


def test_a_round_that_ends_at_the_very_limit_counts() -> None:
    """The instant of the limit belongs to the run."""
    assert run_small("stop={simulated_s: 2.32e-3}").round == 1


def test_bits_end_the_run_at_the_end_of_a_round() -> None:
    """A round sends 5 x 320 bit; the run ends with the first round that reaches the limit."""
    assert [run_small(f"stop={{bits: {bits}}}").round for bits in (1, 1600, 1601, 3200)] == [1, 1, 2, 2]


def test_energy_ends_the_run_at_the_end_of_a_round() -> None:
    """The limit is reached with the last round and not before."""
    per_round_j = run_small("stop.rounds=1").ledger.energy_j

    fed = run_small(f"stop={{energy_j: {2.5 * per_round_j}}}")

    assert fed.round == 3


def test_accuracy_ends_the_run() -> None:
    """The last evaluation is the first that reaches the target."""
    fed = run_small(*CLASSES, "stop={accuracy: 0.9, rounds: 100}")
    accuracies = fed.ledger.evaluations.column("accuracy")

    assert fed.round < 100
    assert accuracies[-1] >= 0.9
    assert max(accuracies[:-1]) < 0.9


@pytest.mark.parametrize("other", ["", "rounds: 9, "])
@pytest.mark.parametrize(("key", "value"), [("accuracy", "0.9"), ("milestones", "[{rounds: 1, accuracy: 1}]")])
def test_an_accuracy_cannot_end_a_regression(other: str, key: str, value: str) -> None:
    """No accuracy is ever measured, so that it would be ignored, or the run would never end: it is refused."""
    if not other and key == "milestones":
        other = "bits: 9, "
    with pytest.raises(ScenarioError, match=f"stop.{key}: a regression has no accuracy, got one; leave it out"):
        small_federation(f"stop={{{other}{key}: {value}}}")


def test_an_accuracy_alone_cannot_end_a_timing_only_run() -> None:
    """Such a run would never end; with another limit it does."""
    with pytest.raises(ScenarioError) as caught:
        small_federation(*CLASSES, "stop={accuracy: 0.9}", timing_only=True)

    what = "cannot end a timing-only run, got no other limit; give rounds or simulated_s"
    assert str(caught.value) == f"stop.accuracy: {what}"
    assert run_small(*CLASSES, "stop={accuracy: 0.9, rounds: 2}", timing_only=True).round == 2


def test_some_limit_is_required() -> None:
    """A run that nothing ends is refused, with the settings that would end it."""
    with pytest.raises(ValidationError, match="give one of rounds, simulated_s, bits, energy_j, accuracy"):
        Stop()


LEARNING = (*CLASSES, "stop.rounds=6", "algorithm.lr=0.01")


def test_a_run_that_misses_a_milestone_ends_there() -> None:
    """It ends at the end of the first round after the milestone at which it has less, as an uninterrupted run tells."""
    whole = run_small(*LEARNING)
    evaluations = whole.ledger.frames()["evaluations"]
    accuracies, times_s = evaluations["accuracy"].tolist(), evaluations["simulated_s"].tolist()
    assert len(accuracies) == 7
    assert max(accuracies) < 1

    for after in (1, 3, 6):
        for milestone in (f"rounds: {after}", f"simulated_s: {times_s[after]}"):
            fed = run_small(*LEARNING, f"stop.milestones=[{{{milestone}, accuracy: 1}}]")
            assert fed.round == after
            assert list(fed.ledger.evaluations.column("accuracy")) == accuracies[: after + 1]


def test_a_milestone_that_is_met_changes_nothing() -> None:
    """An accuracy that a run has is enough, the same number too; before its time a milestone counts for nothing."""
    whole = run_small(*LEARNING)
    least = float(min(whole.ledger.evaluations.column("accuracy")[1:]))

    assert run_small(*LEARNING, f"stop.milestones=[{{rounds: 1, accuracy: {least!r}}}]").round == 6
    assert run_small(*LEARNING, "stop.milestones=[{bits: 1e12, accuracy: 1}, {energy_j: 1e6, accuracy: 1}]").round == 6
    assert run_small(*LEARNING, "stop.milestones=[{bits: 1, accuracy: 1}]").round == 1
    assert run_small(*LEARNING, "stop.milestones=[{energy_j: 1e-30, accuracy: 1}]").round == 1


def test_a_milestone_counts_for_nothing_where_no_accuracy_is_measured() -> None:
    """A timing-only run has none."""
    assert run_small(*LEARNING, "stop.milestones=[{rounds: 1, accuracy: 1}]", timing_only=True).round == 6


@pytest.mark.parametrize(
    ("text", "got"), [("accuracy: 1", "none"), ("rounds: 1, bits: 2, accuracy: 1", "rounds: 1 and bits: 2")]
)
def test_a_milestone_names_one_cost(text: str, got: str) -> None:
    """With none or two it is refused."""
    what = f"exactly one of rounds, simulated_s, bits and energy_j is needed, got {got}"
    with pytest.raises(ScenarioError, match=what):
        run_small(f"stop.milestones=[{{{text}}}]")


# ---- patience --------------------------------------------------------------------------------------------------------

WAITING = (*CLASSES, "stop.rounds=60", "server.validation_samples=50", "algorithm.lr=0.3")


def test_a_run_ends_when_its_validation_loss_has_not_fallen_for_so_long() -> None:
    """At the first row at which the least loss is three evaluations old, as the uninterrupted run tells."""
    whole = run_small(*WAITING, "algorithm.lr=20", "stop.patience={evaluations: 60}")
    losses = whole.ledger.frames()["validation"]["loss"].tolist()
    best = [losses.index(min(losses[: n + 1])) for n in range(len(losses))]
    ends = next(n for n in range(len(losses)) if n - best[n] >= 3)

    fed = run_small(*WAITING, "algorithm.lr=20", "stop.patience={evaluations: 3}")

    assert fed.round == ends < 60
    assert fed.ledger.frames()["validation"]["without_gain"].tolist()[-1] == 3
    assert whole.task.n_validation == 50
    assert len(whole.task.data.y) == 150


def test_the_test_set_decides_nothing() -> None:
    """The accuracies are those of the models on the validation samples, and the run ends two after its best one."""
    fed = small_federation(*WAITING, "stop.patience={metric: accuracy, evaluations: 2, least_gain: 0.02}")
    seen = []
    fed.observers.append(lambda its: seen.append(1 - its.task.validation_error(its.read(its.latest))))
    fed.run(small_scenario(*WAITING).algorithm)
    found = fed.ledger.frames()["validation"]["accuracy"].tolist()

    assert found[1:] == pytest.approx(seen)
    best, without = found[0], 0
    for value in found[1:]:
        best, without = (value, 0) if value > best + 0.02 else (best, without + 1)
    assert without == 2


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (("stop.patience={}",), "stop.patience: needs samples on which nothing is trained or tested, got server.valid"),
        (
            ("stop.patience={}", "server.validation_samples=9", "evaluation.every_rounds=null"),
            "counts evaluations at the ends of rounds, got evaluation.every_rounds: null; give 1",
        ),
        (("server.validation_samples=9",), "chooses no model by its validation error"),
    ],
)
def test_patience_without_what_it_counts_is_refused(settings: tuple[str, ...], words: str) -> None:
    """With the remedy; validation samples that nobody uses stay refused."""
    scenario = small_scenario(*CLASSES, *settings)

    assert any(words in f"{'.'.join(key)}: {what}" for key, what in scenario.contradictions())


def test_a_regression_has_no_accuracy_to_wait_for() -> None:
    """Its loss can be waited for."""
    with pytest.raises(ScenarioError, match=r"stop.patience.metric: a regression has no accuracy"):
        small_federation("stop.patience={metric: accuracy}", "server.validation_samples=9")
    assert run_small("stop.patience={evaluations: 1}", "server.validation_samples=9", "algorithm.lr=0").round == 1


def test_models_of_devices_count_by_their_mean() -> None:
    """Where each device trains alone."""
    fed = run_small(*WAITING, "stop.rounds=2", "stop.patience={}", "algorithm={kind: local, cohort: 4, lr: 0.1}")
    models = [fed.read(model) for model in fed.latest]  # type: ignore[union-attr]
    mean = sum(1 - fed.task.validation_error(model) for model in models) / 4

    assert fed.ledger.frames()["validation"]["accuracy"].tolist()[-1] == pytest.approx(mean)
