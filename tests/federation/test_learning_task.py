"""The learning task: how samples lie in memory."""

from __future__ import annotations

import gc
import math
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from fednet_emu.federation.learning_task import LearningTask
from fednet_emu.learning.data.attacks import Attack
from fednet_emu.learning.data.datasets.base import Samples
from fednet_emu.learning.data.partitions.base import Held, Partitioned, hold_out
from fednet_emu.learning.models.flat import FlatModel

OWNERS = {"in order": [0, 0, 1, 1], "mixed": [1, 0, 1, 0], "one is nobody's": [0, 0, 1, -1]}


@pytest.mark.parametrize("owners", OWNERS.values(), ids=OWNERS)
def test_samples_are_copied_only_to_put_them_in_order(owners: list[int]) -> None:
    """Every device's slice holds its own samples; where all lie device by device already, they are used in place."""
    x, y = torch.arange(8.0).reshape(4, 2), torch.arange(4.0)
    split = Partitioned.from_owners(np.array(owners), 2)
    model = FlatModel(torch.nn.Linear(2, 1), "squared-error", (2,))

    task = LearningTask(model, Samples(x, y, x, y, None), (split, split), torch.device("cpu"), timing_only=False)

    for device in (0, 1):
        mine = [sample for sample, owner in enumerate(owners) if owner == device]
        assert task.data.y[task.slice_of(device)].tolist() == mine
        assert task.data.x[task.slice_of(device)].tolist() == x[mine].tolist()
    assert (task.data.x.data_ptr() == x.data_ptr()) == (owners == [0, 0, 1, 1])


@pytest.mark.parametrize("drawn", [True, False])
def test_samples_that_move_elsewhere_are_kept_by_nothing_else(drawn: bool) -> None:
    """Workers share the training samples by moving them; their former memory is free then, also without validation."""
    x, y = torch.ones(4, 2), torch.ones(4)
    samples, split = Samples(x, y, x.clone(), y.clone(), None), Partitioned.from_owners(np.array([0, 0, 1, 1]), 2)
    held = hold_out(samples, 0, 0, np.random.default_rng(0))[1:] if drawn else None
    model, former = FlatModel(torch.nn.Linear(2, 1), "squared-error", (2,)), x.untyped_storage().data_ptr()

    task = LearningTask(model, samples, (split, split), torch.device("cpu"), timing_only=False, held=held)
    others = [part for part in gc.get_objects() if type(part) is torch.Tensor and part is not x]

    assert task.data.x is x
    assert [part.shape for part in others if part.untyped_storage().data_ptr() == former] == []


def test_the_validation_error_is_the_share_that_a_classifier_gets_wrong() -> None:
    """Three of four held-out samples lie on the side of their class; a regression has no classes to get wrong."""
    x, y = torch.tensor([[1.0], [2.0], [-1.0], [-2.0]]), torch.tensor([0, 0, 1, 0])
    split = Partitioned.from_owners(np.array([0, 0, 0, 0]), 1)
    sides = torch.tensor([1.0, -1.0, 0.0, 0.0])  # class 0 to the right, class 1 to the left, no bias

    errors = []
    for model, targets in (
        (FlatModel(torch.nn.Linear(1, 2), "cross-entropy", (1,)), y),
        (FlatModel(torch.nn.Linear(1, 1), "squared-error", (1,)), y.float()),
    ):
        samples, held = Samples(x, targets, x, targets, None), (Held(x[:0], targets[:0]), Held(x, targets))
        task = LearningTask(model, samples, (split, split), torch.device("cpu"), timing_only=False, held=held)
        errors.append(task.validation_error(sides[: len(model.initial())]))

    assert errors[0] == 0.25
    assert math.isnan(errors[1])


class Loud(Attack):
    """Test inputs of other classes are shouted."""

    def poisoned(self, x, y, samples):
        """Nothing is poisoned here."""
        return x, y

    def trial(self, samples):
        """Test inputs of other classes, ten times as large."""
        return samples.test_x[samples.test_y != self.target] * 10


def test_an_attack_succeeds_where_its_inputs_count_as_the_target() -> None:
    """Two of three inputs of other classes lie on the side of the target; without an attack there is no share."""
    x, y = torch.tensor([[1.0], [2.0], [-1.0], [-2.0]]), torch.tensor([1, 1, 1, 0])
    split = Partitioned.from_owners(np.array([0, 0, 0, 0]), 1)
    model, sides = FlatModel(torch.nn.Linear(1, 2), "cross-entropy", (1,)), torch.tensor([1.0, -1.0, 0.0, 0.0])
    samples = Samples(x, y, x, y, 2)

    shares = []
    for attack in (Loud(target=0), None):
        task = LearningTask(model, samples, (split, split), torch.device("cpu"), timing_only=False, attack=attack)
        shares.append(task.score(sides, per_device=False).attack_success)

    assert shares[0] == pytest.approx(2 / 3)
    assert math.isnan(shares[1])


def test_the_worst_training_loss_is_that_of_the_device_it_fits_least() -> None:
    """The model 0 has on targets (0, 1) and (2, 4) mean squares of 1/2 and 10; without asking it is not a number."""
    x, y = torch.ones(4, 1), torch.tensor([0.0, 1.0, 2.0, 4.0])
    split = Partitioned.from_owners(np.array([0, 0, 1, 1]), 2)
    model = FlatModel(torch.nn.Linear(1, 1), "squared-error", (1,))
    task = LearningTask(model, Samples(x, y, x, y, None), (split, split), torch.device("cpu"), timing_only=False)
    nothing = torch.zeros(2)

    own = [task.train_loss(nothing, device) for device in (0, 1)]

    assert own[1] == 20 * own[0]
    assert task.score(nothing, per_device=False, train_loss=True).worst_train_loss == own[1] > 0
    assert math.isnan(task.score(nothing, per_device=False).worst_train_loss)


def test_a_run_without_training_keeps_targets_but_no_inputs() -> None:
    """Of 4 samples the rows are counted, with 0 scalars each."""
    x, y = torch.ones(4, 3), torch.arange(4.0)
    split = Partitioned.from_owners(np.array([0, 0, 1, 1]), 2)
    model = FlatModel(torch.nn.Linear(3, 1), "squared-error", (3,))

    task = LearningTask(model, Samples(x, y, x, y, None), (split, split), torch.device("cpu"), timing_only=True)

    assert (task.data.x.shape, task.data.y.tolist()) == ((4, 0), [0, 1, 2, 3])


def test_everything_of_the_task_lies_where_it_is_trained() -> None:
    """Training data, sets and test samples move to the device asked for; torch's "meta" device needs no hardware."""
    x, y = torch.ones(4, 3), torch.tensor([0, 1, 0, 1])
    split = replace(Partitioned.from_owners(np.array([0, 0, 1, 1]), 2), sets=np.array([0, 1, 0, 1]))
    model = FlatModel(torch.nn.Linear(3, 2), "cross-entropy", (3,))

    task = LearningTask(model, Samples(x, y, x, y, 2), (split, split), torch.device("meta"), timing_only=False)

    placed = [task.data.x, task.data.y, task.sets, task._test_x, task._test_y, task._test_order]
    assert [tensor.device.type for tensor in placed] == ["meta"] * 6


def test_the_target_of_an_attack_lies_where_its_inputs_do(monkeypatch: pytest.MonkeyPatch) -> None:
    """Inputs of the attack and the class that they should count as are compared on one device."""
    x, y = torch.ones(4, 3), torch.tensor([0, 1, 0, 1])
    split = Partitioned.from_owners(np.array([0, 0, 1, 1]), 2)
    model, samples = FlatModel(torch.nn.Linear(3, 2), "cross-entropy", (3,)), Samples(x, y, x, y, 2)
    task = LearningTask(model, samples, (split, split), torch.device("meta"), timing_only=False, attack=Loud(target=0))
    asked = []

    def scored(_model: FlatModel, _vector: torch.Tensor, inputs: torch.Tensor, targets: torch.Tensor) -> Any:
        asked.append([(part.device.type, len(part)) for part in (inputs, targets)])
        return SimpleNamespace(pooled=lambda: SimpleNamespace(accuracy=0.5))

    monkeypatch.setattr("fednet_emu.federation.learning_task.score_samples", scored)

    assert task._attack_success(torch.zeros(8)) == 0.5
    assert asked == [[("meta", 2), ("meta", 2)]]
