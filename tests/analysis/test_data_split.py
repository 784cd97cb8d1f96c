"""Claims about who has what: counts of labels, and quantiles of targets."""

import numpy as np
import pytest

from fednet_emu.analysis.data_split import Part

ORDER, OFFSETS = np.array([4, 0, 1, 5, 2]), np.array([0, 2, 2, 5])
"""Three devices: samples 4 and 0, none, samples 1, 5 and 2; sample 3 is nobody's."""


def test_labels_are_counted_at_their_owners() -> None:
    """Sample by sample, also a label that nobody has."""
    part = Part.of(np.array([2, 0, 0, 1, 2, 0]), ORDER, OFFSETS, classes=4)

    assert part.sizes.tolist() == [2, 0, 3]
    assert part.counts.tolist() == [[0, 0, 3], [0, 0, 0], [2, 0, 0], [0, 0, 0]]
    assert part.shares.T.tolist() == [[0, 0, 1, 0], [0, 0, 0, 0], [1, 0, 0, 0]]
    assert part.order().tolist() == [2, 0, 1]
    assert part.frame("train").values.tolist() == [["train", 0, 2, 2], ["train", 2, 0, 3]]


def test_a_sample_in_two_sets_counts_twice() -> None:
    """As its device trains on it."""
    part = Part.of(np.array([1, 0]), np.array([0, 0, 1]), np.array([0, 3]), classes=2)
    assert part.counts.tolist() == [[1], [2]]


def test_targets_have_quantiles() -> None:
    """Linear between neighbours; a device without samples has none, and comes last."""
    y = np.array([10.0, 0.0, 2.0, 99.0, 20.0, 1.0])
    part = Part.of(y, ORDER, OFFSETS, classes=None)

    assert part.targets[:, 0] == pytest.approx([10.5, 12.5, 15.0, 17.5, 19.5])
    assert part.targets[:, 2] == pytest.approx([0.1, 0.5, 1.0, 1.5, 1.9])
    assert np.isnan(part.targets[:, 1]).all()
    assert part.order().tolist() == [2, 0, 1]
    assert list(part.frame("test")) == ["part", "device", "samples", "q05", "q25", "q50", "q75", "q95"]


def test_samples_with_several_targets_have_sizes_alone() -> None:
    """Sequences of tokens, for example; the largest first."""
    part = Part.of(np.zeros((6, 3), np.int64), ORDER, OFFSETS, classes=7)

    assert part.counts is part.targets is None
    assert part.order().tolist() == [2, 0, 1]
    assert part.frame("train").values.tolist() == [["train", 0, 2], ["train", 1, 0], ["train", 2, 3]]


def test_alike_devices_are_side_by_side() -> None:
    """By the most frequent label, the purest first."""
    counts = np.array([[1, 5, 0, 9, 2], [3, 5, 0, 0, 8]])
    assert Part(counts.sum(axis=0), counts).order().tolist() == [3, 1, 4, 0, 2]
