"""Claims about unlabelled sets with known class shares."""

import numpy as np
import pytest
import torch

from fednet_emu.learning.data.datasets import Samples
from fednet_emu.learning.data.partitions import SurrogateSets
from fednet_emu.learning.data.partitions.surrogate_sets import device_priors, set_priors

CASES = [(skew, overlap) for skew in ("iid", "non-iid") for overlap in ("public", "disjoint")]


def balanced(n_train: int = 36_000, classes: int = 10) -> Samples:
    """Equally frequent classes in random order, as many as FedUL's clients share."""
    y = torch.from_numpy(np.random.default_rng(0).permutation(np.arange(n_train) % classes))
    return Samples(torch.zeros(n_train, 1), y, torch.zeros(100, 1), torch.arange(100) % classes, classes)


def counts(skew: str, overlap: str, device: int = 0, **more: int) -> np.ndarray:
    """Samples of each set and class, [sets, classes], of one of five devices."""
    samples = balanced()
    train, _ = SurrogateSets(skew=skew, overlap=overlap, **more).split(samples, 5, np.random.default_rng(1))
    rows = slice(train.offsets[device], train.offsets[device + 1])
    table = np.zeros((10, 10), int)
    np.add.at(table, (train.sets[rows], samples.train_y.numpy()[train.order[rows]]), 1)
    return table


@pytest.mark.parametrize(("skew", "overlap"), CASES)
def test_no_sample_goes_to_two_devices(skew, overlap):
    """A sample may be in several sets of one device if sets overlap, and in one set at most if they are disjoint."""
    train, _ = SurrogateSets(skew=skew, overlap=overlap).split(balanced(), 5, np.random.default_rng(1))
    owners = np.repeat(np.arange(5), train.sizes())
    pairs = np.unique(np.stack([train.order, owners]), axis=1)

    assert len(np.unique(pairs[0])) == pairs.shape[1]
    assert (len(train.order) == pairs.shape[1]) == (overlap == "disjoint")
    assert len(train.sets) == len(train.order) == train.offsets[-1]


@pytest.mark.parametrize(("skew", "overlap"), CASES)
def test_no_sample_is_twice_in_one_set(skew, overlap):
    """Sets are drawn without replacement, also where they overlap."""
    train, _ = SurrogateSets(skew=skew, overlap=overlap).split(balanced(), 5, np.random.default_rng(1))

    assert len(np.unique(np.stack([train.order, train.sets]), axis=1).T) == len(train.order)


def test_iid_spreads_every_class_over_the_sets():
    """A device of 7,200 has sets of about 720, half of each its own class; disjoint sets use nearly every sample."""
    table = counts("iid", "disjoint")

    assert 7_200 * 0.97 < table.sum() <= 7_200
    assert (abs(table.sum(axis=1) - 720) < 60).all()
    assert np.diag(table).mean() / 720 == pytest.approx(0.51, abs=0.05)


def test_iid_devices_share_one_matrix():
    """The class shares of set m are the same at all devices, within the rounding and what a device has."""
    first, last = counts("iid", "public", 0), counts("iid", "public", 4)

    assert np.abs(first / first.sum(1, keepdims=True) - last / last.sum(1, keepdims=True)).max() < 0.02


def test_a_non_iid_device_has_two_classes_of_its_own():
    """Classes 2d and 2d + 1 are 95 % of what device d is dealt; its sets take no more of the others than there are."""
    table = counts("non-iid", "disjoint", device=2)
    rare = np.delete(table, [4, 5], axis=1).sum(axis=0)

    assert (rare <= 7_200 * 0.55 / 84).all()
    assert table[:, [4, 5]].sum() > 3 * rare.sum()
    assert device_priors(5, 10, np.random.default_rng(0))[2, [4, 5]] == pytest.approx([0.476, 0.476], abs=0.03)


def test_overlapping_sets_reuse_what_is_rare():
    """With 43 samples of a class, public sets want more than that together, and each takes up to all of them."""
    public, disjoint = (counts("non-iid", overlap, device=2) for overlap in ("public", "disjoint"))

    assert public[0, 0] > 30
    assert public[:, 0].sum() > 2 * disjoint[:, 0].sum()


def test_set_priors_are_those_of_the_generator():
    """Rows sum to one, and the dominant class has 1 of 10 parts of its set at the least, and 10 of 10.9 at the most."""
    theta = set_priors(2000, 10, np.random.default_rng(0))
    dominant = theta[np.arange(2000), np.arange(2000) % 10]

    assert theta.sum(axis=1) == pytest.approx(1.0)
    assert 1 / 10 <= dominant.min() < dominant.max() <= 10 / 10.9
    assert dominant.mean() == pytest.approx(0.51, abs=0.02)


def test_devices_may_be_dealt_less():
    """`samples_per_device` bounds what the sets are drawn from."""
    assert counts("iid", "disjoint", samples_per_device=1000).sum() == pytest.approx(1000, rel=0.1)
