"""Changes to the samples that differ between devices: transformations by group, and noise on the inputs."""

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
"""Function that takes the samples `x` [n, ...] and `y` [n] of a device, and returns them transformed for its group."""


class Groups(Component):
    """Base class of rules that divide devices into groups and transform the samples of each group differently."""

    count: int = Field(gt=0)
    """Number of groups."""

    @abstractmethod
    def views(self, samples: Samples, rng: np.random.Generator) -> list[View]:
        """Return each group's transformation of samples like `samples`; raise a `ScenarioError` if there is none."""

    def members(self, n_devices: int) -> IntArray:
        return np.arange(n_devices) % self.count

    def seen(self, samples: Samples, splits: tuple[Partitioned, Partitioned], rng: np.random.Generator) -> Samples:
        """Return the samples, each transformed for the group of its owner. Samples without owner are unchanged."""
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
    """Each group sees the images rotated by another angle, as in rotated MNIST (Ghosh et al. 2020).

    Angles increase by 360 / count degrees from one group to the next.
    """

    count: Literal[1, 2, 4]
    """Number of groups: 1, 2 or 4, because only rotations by multiples of 90 degrees need no interpolation."""

    def views(self, samples: Samples, rng: np.random.Generator) -> list[View]:
        shape = samples.input_shape
        if len(shape) < 2 or shape[-1] != shape[-2]:
            raise ScenarioError(f"groups: rotated needs square images, got samples of shape {shape}; use another kind")
        return [_turned(group * 4 // self.count) for group in range(self.count)]


class LabelPermuted(Groups):
    """Each group sees the same inputs with another random permutation of the class labels.

    The labels of the first group are unchanged.
    """

    def views(self, samples: Samples, rng: np.random.Generator) -> list[View]:
        if samples.classes is None:
            remedy = "use tilted-targets" if samples.task == "regression" else "leave it out"
            raise ScenarioError(f"groups: label-permuted needs classes, got data for {samples.task}; {remedy}")
        drawn = [rng.permutation(samples.classes) for _ in range(1, self.count)]
        return [_renamed(np.arange(samples.classes)), *map(_renamed, drawn)]


class TiltedTargets(Groups):
    """Each group has another linear regression, whose coefficients differ between groups.

    The inner product of the inputs x and a vector theta_k is added to the targets of group k, with theta_0 = 0. All
    theta_k have the same distance from each other, in random directions.
    """

    distance: float = Field(gt=0)
    """Euclidean distance between the vectors theta_k of any two groups."""

    def views(self, samples: Samples, rng: np.random.Generator) -> list[View]:
        """Draw the vectors theta_k, which are the corners of a randomly oriented regular simplex."""
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
    """Gaussian noise on the inputs, whose variance increases linearly from the first to the last device.

    This is the feature skew x + Gau(sigma i / N) of NIID-Bench: device i = 1, ..., N has noise of the variance sigma i
    / N. The noise of every entry of an input is independent, and stays the same during a run. Training and test samples
    of a device have the same noise variance. Samples without owner have no noise.
    """

    variance: float = Field(gt=0)
    """Variance sigma of the last device's noise, in squared units of the inputs."""

    def variances(self, n_devices: int) -> list[float]:
        return [self.variance * (device + 1) / n_devices for device in range(n_devices)]

    def seen(self, samples: Samples, splits: tuple[Partitioned, Partitioned], streams: Streams) -> Samples:
        """Return the samples, with noise added to those that a device owns. Each device has its own random stream."""
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
