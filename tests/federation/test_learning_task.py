"""The learning task: how samples lie in memory."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from fednet_emu.federation.learning_task import LearningTask
from fednet_emu.learning.data.attacks.base import Attack
from fednet_emu.learning.data.datasets.base import Samples
from fednet_emu.learning.data.hold_out import Held
from fednet_emu.learning.data.partitions.base import Partitioned
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
