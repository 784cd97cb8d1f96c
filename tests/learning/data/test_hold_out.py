"""Claims about the training samples that no device gets."""

import numpy as np
import pytest
import torch

from fednet_emu.errors import ScenarioError
from fednet_emu.learning.data.datasets.base import Samples
from fednet_emu.learning.data.partitions.base import hold_out


def numbered(n_train: int) -> Samples:
    """Samples whose input and group are their number."""
    x = torch.arange(n_train)[:, None].float()
    return Samples(x, torch.arange(n_train) % 3, x[:4], torch.zeros(4, dtype=torch.int64), 3, np.arange(n_train))


def test_the_three_parts_are_disjoint_and_complete():
    """36, 12 and 12 of 60 samples: every one is in exactly one part, with its own label and group."""
    left, server, validation = hold_out(numbered(60), 12, 12, np.random.default_rng(0))
    parts = (left.train_x[:, 0].long(), server.x[:, 0].long(), validation.x[:, 0].long())

    assert [len(part) for part in parts] == [36, 12, 12]
    assert sorted(torch.cat(parts).tolist()) == list(range(60))
    for part, labels in zip(parts, (left.train_y, server.y, validation.y), strict=True):
        assert torch.equal(labels, part % 3)
    assert np.array_equal(left.train_group, parts[0])


def test_nothing_held_out_changes_nothing():
    """The samples themselves come back, and the generator is not touched."""
    samples, rng = numbered(5), np.random.default_rng(0)
    left, server, validation = hold_out(samples, 0, 0, rng)

    assert left is samples
    assert len(server.y) == len(validation.y) == 0
    assert rng.random() == np.random.default_rng(0).random()


def test_devices_must_be_left_something():
    """Holding everything out is an error with both numbers and the total."""
    with pytest.raises(ScenarioError, match="got 3 and 2; there are 5 training samples"):
        hold_out(numbered(5), 3, 2, np.random.default_rng(0))
