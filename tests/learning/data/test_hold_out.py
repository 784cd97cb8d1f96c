"""Claims about the training samples that no device gets."""

import numpy as np
import torch

from fednet_emu.learning.data.datasets import Digits
from fednet_emu.learning.data.datasets.base import Samples
from fednet_emu.learning.data.partitions.base import hold_out
from fednet_emu.testing import small_federation


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


def test_a_limit_keeps_so_many_random_samples_with_their_labels_and_groups():
    """20 of 60, in their order, the same with the same seed and others with another; test samples stay."""
    samples, data = numbered(60), Digits(limit=20)
    kept, again, other = (data.limited(samples, np.random.default_rng(seed)) for seed in (0, 0, 1))
    numbers = kept.train_x[:, 0].long()

    assert len(numbers) == 20
    assert numbers.tolist() == sorted(set(numbers.tolist())) == again.train_x[:, 0].tolist()
    assert numbers.tolist() != other.train_x[:, 0].tolist()
    assert torch.equal(kept.train_y, numbers % 3)
    assert np.array_equal(kept.train_group, numbers)
    assert kept.test_x is samples.test_x
    assert Digits(limit=60).limited(samples, np.random.default_rng(0)) is samples


def test_the_limit_comes_before_the_server_and_the_devices():
    """Of 80 samples 50 are used: 10 are the server's validation samples, and the devices share 40."""
    waits = ("server.validation_samples=10", "stop.patience={}", "data.limit=50")
    task = small_federation(*waits).task

    assert task.n_validation == 10
    assert task.n_samples.tolist() == [10] * 4
