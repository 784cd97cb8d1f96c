"""Claims about noise of the inputs that grows from device to device."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fednet_emu.kernel.streams import Streams
from fednet_emu.learning.data.datasets.base import Samples
from fednet_emu.learning.data.partitions.base import NOBODY, Partitioned
from fednet_emu.learning.data.views import FeatureNoise
from fednet_emu.testing import run_small, small_federation
from tests.quick import examples


def noise(variance: float, n_devices: int, per_device: int, features: int, seed: int = 0) -> list[list[torch.Tensor]]:
    """What is added to the samples of each device, in training and in testing; half as many for testing."""
    counts = per_device, max(1, per_device // 2)
    owners = [np.random.default_rng(1).permutation(np.arange(count * n_devices) % n_devices) for count in counts]
    x = [torch.linspace(-1, 1, len(own) * features).reshape(len(own), features) for own in owners]
    y = [torch.zeros(len(own), dtype=torch.long) for own in owners]
    train, test = (Partitioned.from_owners(own, n_devices) for own in owners)
    found = FeatureNoise(variance=variance).seen(Samples(x[0], y[0], x[1], y[1], 2), (train, test), Streams(seed))
    pairs = ((found.train_x - x[0], train), (found.test_x - x[1], test))
    return [[added[torch.from_numpy(split.of(device))] for device in range(n_devices)] for added, split in pairs]


@given(st.floats(0.01, 100.0), st.integers(1, 12), st.integers(0, 5))
@examples(30)
def test_the_variance_is_sigma_i_over_n(variance: float, n_devices: int, seed: int) -> None:
    """Mean and variance of 40,000 (20,000) numbers within six standard errors, for every device and both sets."""
    for which in noise(variance, n_devices, 400, 100, seed):
        for i, own in enumerate(which, 1):
            expected, count = variance * i / n_devices, own.numel()
            assert float(own.double().mean()) == pytest.approx(0.0, abs=6 * np.sqrt(expected / count))
            assert float(own.double().var()) == pytest.approx(expected, rel=6 * np.sqrt(2 / count))


def test_the_noise_of_two_devices_or_numbers_is_independent() -> None:
    """Correlations over devices, sets, samples and features stay within five standard errors of zero."""
    (a, b), (c, _) = noise(1.0, 2, 200, 100)
    pairs = [(a, b), (a[:100], c), (a[:100], a[100:]), (a[:, :50], a[:, 50:])]
    for x, y in pairs:
        r = np.corrcoef(x.ravel().numpy(), y.ravel().numpy())[0, 1]
        assert abs(r) < 5 / np.sqrt(x.numel())


def test_the_noise_is_a_devices_own() -> None:
    """Another number of devices scales the first one's noise and changes nothing else; another seed changes it."""
    few, many = noise(1.0, 2, 10, 3)[0][0], noise(1.0, 8, 10, 3)[0][0]

    torch.testing.assert_close(few / np.sqrt(1 / 2), many / np.sqrt(1 / 8), rtol=0, atol=1e-5)
    assert not torch.allclose(few, noise(1.0, 2, 10, 3, seed=1)[0][0])


def test_samples_in_two_sets_are_noisy_once_and_those_of_nobody_never() -> None:
    """A sample that a device holds twice has the variance of one that it holds once."""
    order, offsets = np.repeat(np.arange(2000), 2), np.array([0, 4000])
    train = Partitioned(order, offsets, np.tile([0, 1], 2000))
    x = torch.zeros(3000, 10)
    nobody = Partitioned.from_owners(np.full(3000, NOBODY), 1)
    samples = Samples(x, x[:, 0].long(), x, x[:, 0].long(), 2)
    found = FeatureNoise(variance=4.0).seen(samples, (train, nobody), Streams(0))

    assert float(found.train_x[:2000].var()) == pytest.approx(4.0, rel=6 * np.sqrt(2 / 20_000))
    assert not found.train_x[2000:].any()
    assert not found.test_x.any()
    assert not samples.train_x.any()


def test_a_scenario_has_noise() -> None:
    """The key `feature_noise` changes inputs alone: not the targets, not who has what, and no event."""
    plain, noisy = small_federation(), small_federation("feature_noise.variance=0.5")
    events = [run_small(*each).ledger.event_digest() for each in ((), ("feature_noise.variance=0.5",))]

    assert torch.equal(noisy.task.data.y, plain.task.data.y)
    assert not torch.equal(noisy.task.data.x, plain.task.data.x)
    assert events[0] == events[1]
