"""Claims about groups of devices that see the data differently."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from pydantic import ValidationError

from fednet_emu.learning.data.datasets.base import Samples
from fednet_emu.learning.data.partitions.base import NOBODY, Partitioned
from fednet_emu.learning.data.views import Groups, LabelPermuted, Rotated, TiltedTargets
from fednet_emu.testing import small_federation

OWNERS = np.array([0, 1, 2, 3, NOBODY, 0, 1, 2])
SPLITS = Partitioned.from_owners(OWNERS, 4), Partitioned.from_owners(OWNERS[::-1].copy(), 4)


def images() -> Samples:
    """Eight images for training and eight for testing, all pixels different, in five classes."""
    x = torch.arange(8 * 9.0).reshape(8, 1, 3, 3)
    y = torch.arange(8) % 5
    return Samples(x, y, -x, y.clone(), classes=5)


def regression() -> Samples:
    """Eight samples of four features."""
    x = torch.arange(32.0).reshape(8, 4).sin()
    return Samples(x, x.sum(1), x + 1, x.sum(1), classes=None)


def seen(groups: Groups, samples: Samples, seed: int = 0) -> Samples:
    """The samples as their owners see them."""
    return groups.seen(samples, SPLITS, np.random.default_rng(seed))


def test_images_are_turned_with_their_owner() -> None:
    """Of four groups, device d sees d quarter turns, in training and in testing; unowned images stay."""
    before, after = images(), seen(Rotated(count=4), images())

    for turned, own, owners in ((after.train_x, before.train_x, OWNERS), (after.test_x, before.test_x, OWNERS[::-1])):
        for image, original, owner in zip(turned, own, owners, strict=True):
            assert torch.equal(image, torch.rot90(original, max(owner, 0), (1, 2)))
    assert torch.equal(after.train_y, before.train_y)


def test_two_groups_turn_by_half() -> None:
    """With two groups, the odd devices see their images upside down."""
    before, after = images(), seen(Rotated(count=2), images())

    assert torch.equal(after.train_x[0], before.train_x[0])
    assert torch.equal(after.train_x[1], before.train_x[1].flip(1, 2))


def test_labels_are_permuted_alike_in_training_and_testing() -> None:
    """A group renames the classes by one permutation; group 0 keeps them; another seed draws another one."""
    before, after = images(), seen(LabelPermuted(count=2), images())
    odd = OWNERS % 2 == 1

    names = dict(zip(before.train_y[OWNERS == 1].tolist(), after.train_y[OWNERS == 1].tolist(), strict=True))
    mask = torch.from_numpy((OWNERS[::-1] == 1).copy())
    tested = dict(zip(before.test_y[mask].tolist(), after.test_y[mask].tolist(), strict=True))

    assert torch.equal(after.train_y[~odd], before.train_y[~odd])
    assert all(names.get(old, new) == new for old, new in tested.items())
    assert len({tuple(seen(LabelPermuted(count=2), images(), seed).train_y.tolist()) for seed in range(5)}) > 1


def test_tilted_targets_are_equally_far_apart() -> None:
    """The coefficients that explain what was added to the targets are at the distance asked for, pair by pair."""
    before, after = regression(), seen(TiltedTargets(count=3, distance=2.0), regression())
    views = TiltedTargets(count=3, distance=2.0).views(before, np.random.default_rng(0))
    tilts = torch.stack([view(torch.eye(4), torch.zeros(4))[1] for view in views])

    assert tilts[0].tolist() == [0, 0, 0, 0]
    assert torch.pdist(tilts).tolist() == pytest.approx([2.0, 2.0, 2.0], rel=1e-5)
    torch.testing.assert_close(after.train_y[2] - before.train_y[2], before.train_x[2] @ tilts[2])
    assert torch.equal(after.train_x, before.train_x)


def test_three_turns_are_refused() -> None:
    """Pixels stay pixels under quarter turns only."""
    with pytest.raises(ValidationError):
        Rotated(count=3)  # type: ignore[arg-type]


def test_a_scenario_has_groups() -> None:
    """The key `groups` tells every device's group, and leaves the channels and the split of the data as they are."""
    plain = small_federation()
    grouped = small_federation("groups={kind: tilted-targets, count: 2, distance: 1.0}")

    assert grouped.task.groups is not None
    assert grouped.task.groups.tolist() == [0, 1, 0, 1]
    assert plain.task.groups is None
    assert torch.equal(grouped.task.data.x, plain.task.data.x)
    assert torch.equal(grouped.task.data.y[:20], plain.task.data.y[:20])
    assert not torch.equal(grouped.task.data.y[20:40], plain.task.data.y[20:40])
