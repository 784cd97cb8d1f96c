"""Noise of the inputs that grows from device to device (Li, Diao, Chen, He: NIID-Bench, ICDE 2022, arXiv 2102.02079).

Differences from the authors' code, which differs from their paper: the noise of device i = 1 ... N has the variance
sigma i / N, as in the paper, where the code has the standard deviation sigma (i - 1) / (N - 1); and it is drawn once,
as a sensor's recording has it, where the code draws it anew whenever a sample is used.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from fednet_emu.component.component import Component
from fednet_emu.errors import ScenarioError
from fednet_emu.kernel.streams import Streams
from fednet_emu.learning.data.datasets.base import Samples
from fednet_emu.learning.data.partitions.base import Partitioned


class FeatureNoise(Component):
    """Feature skew: device i of N, counted from 1, sees its inputs with Gaussian noise of variance `variance` i / N.

    NIID-Bench's x + Gau(sigma i / N). The noise of each number of a sample is independent, and is the same whenever the
    sample is used. Training and test samples of a device are noisy alike; samples that no device has are not.
    """

    variance: float = Field(gt=0)
    """Variance of the noise of the last device (sigma), in units of the inputs squared."""

    def variances(self, n_devices: int) -> list[float]:
        """The variance of the noise of each device [n_devices]."""
        return [self.variance * (device + 1) / n_devices for device in range(n_devices)]

    def seen(self, samples: Samples, splits: tuple[Partitioned, Partitioned], streams: Streams) -> Samples:
        """The samples as their owners see them.

        Args:
            samples: training and test samples.
            splits: who owns which of the training and of the test samples.
            streams: the randomness of the run; each device's noise has a stream of its own.

        Raises:
            ScenarioError: the inputs are no real numbers, but names of words for example.
        """
        if not samples.train_x.is_floating_point():
            found = f"only real numbers can be noisy, got inputs of {samples.train_x.dtype}"
            raise ScenarioError(f"feature_noise: {found}; leave it out, or use other data")
        train, test = splits
        train_x = self._noisy(samples.train_x, train, "train", streams)
        test_x = self._noisy(samples.test_x, test, "test", streams)
        return replace(samples, train_x=train_x, test_x=test_x, optimum=None)

    def _noisy(self, x: Tensor, split: Partitioned, which: str, streams: Streams) -> Tensor:
        x = x.clone()
        for device, variance in enumerate(self.variances(len(split.offsets) - 1)):
            rows = torch.from_numpy(np.unique(split.of(device)))  # a sample in several sets has noise once
            x[rows] += math.sqrt(variance) * _normal((len(rows), *x.shape[1:]), device, which, streams).to(x)
        return x


def _normal(shape: Sequence[int], device: int, which: str, streams: Streams) -> Tensor:
    return torch.from_numpy(streams("feature noise", device, which).standard_normal(shape, dtype="float32"))
