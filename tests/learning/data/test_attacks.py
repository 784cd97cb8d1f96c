"""Claims about attacks: what malicious devices hold, what stays clean, and what counts as a success."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from fednet_emu.learning.data.attacks import Attack, Backdoor, LabelFlip, deal_poisoned
from fednet_emu.learning.data.datasets import Digits
from fednet_emu.learning.data.datasets.base import Samples
from fednet_emu.learning.data.partitions import OneClass
from fednet_emu.testing import run_small, small_scenario

RNG = np.random.default_rng
DIGITS = ("data=digits", "model=softmax", "devices.count=5", "partition=iid", "algorithm.cohort=5", "algorithm.lr=0.5",
          "algorithm.local_steps=5", "stop.rounds=25", "evaluation.every_rounds=25")  # fmt: skip


def dealt(attack: Attack, count: int = 12) -> tuple[Samples, Samples, list[np.ndarray], list[np.ndarray]]:
    """Clean and attacked digits, and the training and test rows of each of the devices."""
    clean = Digits().load(None, RNG(0))
    samples, splits = deal_poisoned(attack, clean, OneClass(), count, (RNG(1), RNG(2)))
    train, test = ([split.of(device) for device in range(count)] for split in splits)
    return clean, samples, train, test


def test_a_backdoor_stamps_malicious_samples_only() -> None:
    """The last of twelve devices holds copies of all classes with a bright corner and label 3; the rest is clean."""
    clean, samples, train, test = dealt(Backdoor(target=3, patch=2, data="copies"))
    bad = train[11]

    assert len(bad) == round(len(clean.train_y) / 11)
    assert len(test[11]) == 0
    assert set(samples.train_y[bad].tolist()) == {3}
    assert bool((samples.train_x[bad][:, :, -2:, -2:] == clean.train_x.max()).all())
    assert bool((samples.train_x[bad][:, :, :4, :4] != 0).any())
    for rows in train[:11]:
        assert torch.equal(samples.train_x[rows], clean.train_x[rows])
        assert torch.equal(samples.train_y[rows], clean.train_y[rows])
    assert sorted(np.concatenate(train[:11])) == list(range(len(clean.train_y)))


def test_a_backdoor_may_take_its_own_share() -> None:
    """Devices 0 and 4 keep their rows, which carry the trigger now; no row is added."""
    clean, samples, train, _ = dealt(Backdoor(malicious=(4, 0), target=9, patch=1, value=7.0), 10)

    assert len(samples.train_y) == len(clean.train_y)
    for device, rows in enumerate(train):
        stamped = samples.train_x[rows][:, 0, -1, -1] == 7.0
        assert bool(stamped.all()) if device in (0, 4) else not bool(stamped.any())


def test_a_trial_is_every_other_class_with_the_trigger() -> None:
    """Success is asked of stamped test samples that are not of the target class."""
    clean = Digits().load(None, RNG(0))
    trial = Backdoor(target=3, patch=4).trial(clean)

    assert len(trial) == int((clean.test_y != 3).sum())
    assert bool((trial[:, :, 4:, 4:] == 1.0).all())


@pytest.mark.parametrize(("shape", "place"), [((6,), (slice(-2, None),)), ((3, 6), (0, slice(-2, None)))])
def test_triggers_of_vectors_and_series(shape: tuple[int, ...], place: tuple[object, ...]) -> None:
    """The last entries of a vector, the end of the first channel of a series, and nothing else."""
    x, y = torch.zeros(4, *shape), torch.arange(4) % 2
    stamped = Backdoor(target=0, patch=2, value=1.0).trial(Samples(x, y, x, y, 2))

    assert all(bool((own[place] == 1).all()) for own in stamped)
    assert stamped.sum() == 2 * 2


def test_flipped_labels_leave_inputs_alone() -> None:
    """Sevens of the malicious device become ones; a trial is the test sevens as they are."""
    clean, samples, train, _ = dealt(LabelFlip(malicious=(7,), source=7, target=1), 10)

    assert torch.equal(samples.train_x, clean.train_x)
    assert set(samples.train_y[train[7]].tolist()) == {1}
    assert torch.equal(LabelFlip(source=7, target=1).trial(clean), clean.test_x[clean.test_y == 7])


def test_an_attack_succeeds_where_nobody_defends() -> None:
    """FedAvg with two of five devices backdoored calls most stamped digits zeros; without the attack hardly any.

    What it learns of clean digits stays good: that is what makes it a backdoor.
    """
    backdoor = "attack={kind: backdoor, malicious: 2, target: 0, patch: 3}"
    harmless = "attack={kind: backdoor, malicious: 0, target: 0, patch: 3}"
    attacked, clean = (run_small(*DIGITS, attack).ledger.evaluations for attack in (backdoor, harmless))

    assert attacked.column("attack_success")[-1] > 0.5
    assert clean.column("attack_success")[-1] < 0.1
    assert attacked.column("accuracy")[-1] > 0.8


def test_without_an_attack_there_is_no_success() -> None:
    """The column says that nothing was measured, and so does the largest training loss."""
    evaluations = run_small("stop.rounds=1").ledger.evaluations

    assert all(math.isnan(value) for value in evaluations.column("attack_success"))
    assert all(math.isnan(value) for value in evaluations.column("worst_train_loss"))


def test_the_largest_training_loss_is_that_of_the_worst_device() -> None:
    """It is the maximum over devices of the mean loss on their own samples."""
    fed = run_small("evaluation.train_loss=true", "stop.rounds=2")
    w = fed.graph.read(fed._observer.latest)
    losses = [float(fed.task.model.loss(w, fed.task.data.x[rows], fed.task.data.y[rows]))
              for rows in map(fed.task.slice_of, range(4))]  # fmt: skip

    assert fed.ledger.evaluations.column("worst_train_loss")[-1] == pytest.approx(max(losses), rel=1e-5)


@pytest.mark.parametrize("malicious", ["5", "[0, 7]", "[-1]"])
def test_somebody_must_be_honest(malicious: str) -> None:
    """All devices, or devices that are not there, are a contradiction that names the setting."""
    scenario = small_scenario(*DIGITS, f"attack={{kind: label-flip, malicious: {malicious}}}")
    [(path, what)] = scenario.contradictions()

    assert path == ("attack", "malicious")
    assert "must leave one of 5 alone" in what
