"""Claims about the partitions of NIID-Bench: a number of labels per device, and unequal numbers of samples."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fednet_emu.learning.data.datasets.base import Samples
from fednet_emu.learning.data.partitions import LabelsPerDevice, Partition, QuantitySkew
from fednet_emu.learning.data.partitions.base import Partitioned
from tests.quick import examples


def balanced(per_class: int, classes: int = 10) -> Samples:
    """As many samples of every class, a fifth of them for testing too."""
    train, test = (torch.arange(count * classes) % classes for count in (per_class, per_class // 5))
    return Samples(torch.zeros(len(train), 1), train, torch.zeros(len(test), 1), test, classes)


def split(partition: Partition, samples: Samples, n_devices: int, seed: int = 0) -> tuple[Partitioned, Partitioned]:
    """Training and test split under a seed."""
    return partition.split(samples, n_devices, np.random.default_rng(seed))


def counts(split: Partitioned, labels: torch.Tensor, classes: int = 10) -> np.ndarray:
    """Samples of each class at each device, [n_devices, classes]."""
    devices = range(len(split.sizes()))
    return np.array([np.bincount(labels.numpy()[split.of(device)], minlength=classes) for device in devices])


@given(st.integers(1, 10), st.integers(1, 40), st.integers(0, 5))
@examples(60)
def test_every_device_has_that_many_labels(k: int, n_devices: int, seed: int) -> None:
    """One of them its own, the same in both sets; what has an owner is shared as equally as can be."""
    samples = balanced(200)
    train, test = split(LabelsPerDevice(labels=k), samples, n_devices, seed)
    has = counts(train, samples.train_y)

    assert ((has > 0).sum(axis=1) == k).all()
    assert all(has[device, device % 10] for device in range(n_devices))
    assert not (counts(test, samples.test_y)[has == 0]).any()
    for label in range(10):
        shares = has[has[:, label] > 0, label]
        assert shares.sum() in (0, 200)
        assert shares.size == 0 or shares.max() - shares.min() <= 1


def test_further_labels_are_drawn_evenly() -> None:
    """Of 3,000 devices with three labels each label is a ninth of the others' further ones, within five deviations."""
    samples = balanced(6000)
    has = counts(split(LabelsPerDevice(labels=3), samples, 3000)[0], samples.train_y) > 0
    further = has[np.arange(3000) % 10 != 0][:, 0].mean()

    assert further == pytest.approx(2 / 9, abs=5 * np.sqrt(2 / 9 * 7 / 9 / 2700))


@given(st.floats(0.3, 50.0), st.integers(1, 20), st.integers(0, 5))
@examples(60)
def test_all_samples_are_dealt_by_the_drawn_shares(beta: float, n_devices: int, seed: int) -> None:
    """Every sample has one owner, nobody has none, and test samples are shared in the same proportions."""
    samples = balanced(500)
    train, test = split(QuantitySkew(beta=beta), samples, n_devices, seed)

    assert sorted(train.order) == list(range(5000))
    assert sorted(test.order) == list(range(1000))
    assert train.sizes().min() >= 1
    assert np.abs(train.sizes() / 5000 - test.sizes() / 1000).max() <= 0.5 / 1000 * 2 + 0.5 / 5000 * 2


def test_sizes_are_those_of_a_dirichlet_distribution() -> None:
    """Mean 1/n and variance (1/n)(1 - 1/n)/(n beta + 1) of the shares of ten devices, over 2,000 draws."""
    samples, n, beta = balanced(500), 10, 2.0
    shares = np.array([split(QuantitySkew(beta=beta), samples, n, seed)[0].sizes() for seed in range(2000)]) / 5000

    assert shares.mean(axis=0) == pytest.approx(np.full(n, 0.1), abs=5 * shares.std() / np.sqrt(2000))
    assert shares.var() == pytest.approx(0.1 * 0.9 / (n * beta + 1), rel=0.05)


def test_labels_are_mixed_alike_everywhere() -> None:
    """A device with a thousand samples has about a tenth of each label."""
    samples = balanced(1000)
    has = counts(split(QuantitySkew(beta=5.0), samples, 5)[0], samples.train_y)
    large = has[has.sum(axis=1) > 1000]

    assert len(large)
    assert np.abs(large / large.sum(axis=1, keepdims=True) - 0.1).max() < 5 * np.sqrt(0.09 / 1000)
