"""Views of samples by devices: transformations per group, and noise that increases from device to device."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import replace
from typing import Annotated, Literal

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from fednet_emu.arrays import IntArray
from fednet_emu.component.component import Component
from fednet_emu.component.slot import Slot, kinds
from fednet_emu.errors import ScenarioError
from fednet_emu.kernel.streams import Streams
from fednet_emu.learning.data.datasets.base import Samples
from fednet_emu.learning.data.partitions.base import Partitioned

View = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]
"""Function that transforms the samples `x` [n, ...] and `y` [n] for one group of devices."""


class Groups(Component):
    """A rule that transforms samples differently for each group of devices."""

    count: int = Field(gt=0)
    """Number of groups."""

    @abstractmethod
    def views(self, samples: Samples, rng: np.random.Generator) -> list[View]:
        """Return one transformation per group, for samples like `samples`.

        Raises:
            ScenarioError: the rule cannot transform such samples.
        """

    def members(self, n_devices: int) -> IntArray:
        return np.arange(n_devices) % self.count

    def seen(self, samples: Samples, splits: tuple[Partitioned, Partitioned], rng: np.random.Generator) -> Samples:
        """Return the samples, transformed for the groups of their owners. Samples without owners are unchanged."""
        views, (train, test) = self.views(samples, rng), splits
        train_x, train_y = self._seen(samples.train_x, samples.train_y, train, views)
        test_x, test_y = self._seen(samples.test_x, samples.test_y, test, views)
        return replace(samples, train_x=train_x, train_y=train_y, test_x=test_x, test_y=test_y, optimum=None)

    def _seen(self, x: Tensor, y: Tensor, split: Partitioned, views: list[View]) -> tuple[Tensor, Tensor]:
        x, y = x.clone(), y.clone()
        for device, group in enumerate(self.members(len(split.offsets) - 1)):
            rows = torch.from_numpy(split.of(device))
            x[rows], y[rows] = views[group](x[rows], y[rows])
        return x, y


class Rotated(Groups):
    """Images rotated by 360 / count degrees from one group to the next, as in rotated MNIST (Ghosh et al. 2020)."""

    count: Literal[1, 2, 4]
    """Number of groups: 1, 2 or 4, because only rotations by multiples of 90 degrees map pixels to pixels."""

    def views(self, samples: Samples, rng: np.random.Generator) -> list[View]:
        shape = samples.input_shape
        if len(shape) < 2 or shape[-1] != shape[-2]:
            raise ScenarioError(f"groups: rotated needs square images, got samples of shape {shape}; use another kind")
        return [_turned(group * 4 // self.count) for group in range(self.count)]


class LabelPermuted(Groups):
    """The same inputs with permuted labels: each group except the first has its own permutation of the classes."""

    def views(self, samples: Samples, rng: np.random.Generator) -> list[View]:
        if samples.classes is None:
            remedy = "use tilted-targets" if samples.task == "regression" else "leave it out"
            raise ScenarioError(f"groups: label-permuted needs classes, got data for {samples.task}; {remedy}")
        drawn = [rng.permutation(samples.classes) for _ in range(1, self.count)]
        return [_renamed(np.arange(samples.classes)), *map(_renamed, drawn)]


class TiltedTargets(Groups):
    """Regressions whose coefficients differ: group k adds x . theta_k to the targets, with theta_0 = 0.

    The theta_k have equal distances from each other, in random directions.
    """

    distance: float = Field(gt=0)
    """Euclidean distance between the coefficients theta_k of any two groups."""

    def views(self, samples: Samples, rng: np.random.Generator) -> list[View]:
        """Draw theta_k, the corners of a regular simplex: orthonormal directions minus the first one, scaled."""
        features = int(np.prod(samples.input_shape))
        if samples.classes is not None:
            raise ScenarioError(
                f"groups: tilted-targets needs a regression, got {samples.classes} classes; use label-permuted"
            )
        if samples.vocabulary is not None or samples.train_y.ndim > 1:
            what = "tokens" if samples.vocabulary is not None else f"targets of shape {tuple(samples.train_y.shape)}"
            raise ScenarioError(
                f"groups: tilted-targets needs numbers and one target of each, got {what}; leave it out"
            )
        if self.count > features:
            raise ScenarioError(
                f"groups.count: too many directions, got {self.count} groups; must be at most {features}, the features"
            )
        directions, _ = np.linalg.qr(rng.standard_normal((features, self.count)))
        tilts = (directions - directions[:, :1]).T * self.distance / np.sqrt(2)
        return [_tilted(torch.from_numpy(tilt.astype(np.float32))) for tilt in tilts]


def _turned(quarters: int) -> View:
    return lambda x, y: (torch.rot90(x, quarters, (-2, -1)), y)


def _renamed(names: IntArray) -> View:
    table = torch.from_numpy(names)
    return lambda x, y: (x, table[y])


def _tilted(tilt: Tensor) -> View:
    return lambda x, y: (x, y + x.flatten(1) @ tilt)


GROUPS: dict[str, type[Groups]] = kinds(LabelPermuted, Rotated, TiltedTargets)
AnyGroups = Annotated[Groups, Slot("groups", GROUPS)]


class FeatureNoise(Component):
    """Feature skew: the inputs of device i of N (from 1) have Gaussian noise with the variance `variance` i / N.

    As in NIID-Bench, x + Gau(sigma i / N). The noise is independent for each feature value, and constant during a run.
    Training and test samples of a device have the same noise variance; samples without an owner have no noise.
    """

    variance: float = Field(gt=0)
    """Variance of the noise of the last device (sigma), in units of the inputs squared."""

    def variances(self, n_devices: int) -> list[float]:
        return [self.variance * (device + 1) / n_devices for device in range(n_devices)]

    def seen(self, samples: Samples, splits: tuple[Partitioned, Partitioned], streams: Streams) -> Samples:
        """Return the samples with the noise of the devices that own them. Each device has its own random stream."""
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
            rows = torch.from_numpy(np.unique(split.of(device)))  # a sample in several sets gets noise once
            rng = streams("feature noise", device, which)
            drawn = rng.standard_normal((len(rows), *x.shape[1:]), dtype="float32")
            x[rows] += math.sqrt(variance) * torch.from_numpy(drawn).to(x)
        return x
