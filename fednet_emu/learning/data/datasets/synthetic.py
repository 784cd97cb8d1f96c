"""Generated data sets: Gaussian classes, a linear regression with a known solution, and points in a cube."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field, NonNegativeFloat, PositiveInt
from torch import Tensor

from fednet_emu.arrays import Array, IntArray
from fednet_emu.learning.data.datasets.base import Dataset, Extent, Samples


class Synthetic(Dataset):
    """Generated samples of equally frequent classes, where each class has a Gaussian distribution.

    The standard deviation of every feature within a class is 1. The means of any two classes have the distance
    `separation`, in random directions. If there are more classes than features, they have this distance only on
    average. The minimum error for two classes is Phi(-separation / 2), where Phi is the standard normal distribution
    function.
    """

    n_samples: PositiveInt = 6000
    """Number of training samples."""
    n_test: PositiveInt = 1000
    """Number of test samples."""
    features: PositiveInt | Annotated[tuple[PositiveInt, ...], Field(min_length=1)] = 20
    """Number of features of a sample, for example 784, or its shape, for example [1, 28, 28]."""
    classes: int = Field(default=10, ge=2)
    """Number of classes."""
    separation: NonNegativeFloat = 4.0
    """Distance between the means of two classes, in standard deviations of a feature."""

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.features,) if isinstance(self.features, int) else self.features

    def extent(self, data_dir: Path | None) -> Extent:
        return Extent(self.shape, self.classes, self.n_samples + self.n_test + self.classes)

    def load(self, data_dir: Path | None, rng: np.random.Generator) -> Samples:
        shape = self.shape
        means = _directions(self.classes, math.prod(shape), rng) * np.float32(self.separation / math.sqrt(2))
        train_x, train_y = _draw(self.n_samples, means, shape, rng)
        test_x, test_y = _draw(self.n_test, means, shape, rng)
        return Samples(train_x=train_x, train_y=train_y, test_x=test_x, test_y=test_y, classes=self.classes)


def _directions(count: int, n_features: int, rng: np.random.Generator) -> NDArray[np.float32]:
    """Return random unit vectors [count, n_features], which are orthogonal if `count` is at most `n_features`."""
    vectors = rng.standard_normal((count, n_features))
    if count <= n_features:
        vectors = np.linalg.qr(vectors.T).Q.T
    units: Array = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    return units.astype(np.float32)


_ROWS = 1 << 14
"""Number of samples whose class means are in memory at a time."""


def _draw(count: int, means: NDArray[Any], shape: tuple[int, ...], rng: np.random.Generator) -> tuple[Tensor, Tensor]:
    classes, n_features = means.shape
    labels = rng.permutation(np.arange(count, dtype=np.int64) % classes)
    points = rng.standard_normal((count, n_features), dtype=np.float32)
    for first in range(0, count, _ROWS):
        points[first : first + _ROWS] += means[labels[first : first + _ROWS]]
    return torch.from_numpy(points.reshape(count, *shape)), torch.from_numpy(labels)


class SyntheticRegression(Dataset):
    """Generated linear regression: targets y = x w + b + noise, with standard normal inputs x, weights w and bias b.

    The noise is Gaussian. The `optimum` of the samples is the least-squares solution of the training set, which differs
    from the drawn w and b.
    """

    regression = True

    n_samples: PositiveInt = 1000
    """Number of training samples."""
    n_test: PositiveInt = 200
    """Number of test samples."""
    features: PositiveInt = 10
    """Number of features of a sample."""
    noise_std: NonNegativeFloat = 0.1
    """Standard deviation of the Gaussian noise added to the targets."""

    def _check(self) -> None:
        if self.n_samples <= self.features:
            needed = f"at least features + 1 = {self.features + 1} make the optimum unique"
            raise ValueError(f"n_samples is too small, got {self.n_samples}; {needed}")

    def extent(self, data_dir: Path | None) -> Extent:
        return Extent((self.features,), 1, self.n_samples + self.n_test)

    def load(self, data_dir: Path | None, rng: np.random.Generator) -> Samples:
        coefficients = rng.standard_normal(self.features + 1)
        train_x, train_y = self._draw(self.n_samples, coefficients, rng)
        test_x, test_y = self._draw(self.n_test, coefficients, rng)
        design = np.column_stack([train_x, np.ones(len(train_x))]).astype(np.float64)
        optimum = np.linalg.lstsq(design, train_y.astype(np.float64), rcond=None)[0]  # weights, then bias
        return Samples(
            train_x=torch.from_numpy(train_x),
            train_y=torch.from_numpy(train_y),
            test_x=torch.from_numpy(test_x),
            test_y=torch.from_numpy(test_y),
            classes=None,
            optimum=torch.from_numpy(optimum.astype(np.float32)),
        )

    def _draw(
        self, count: int, coefficients: Array, rng: np.random.Generator
    ) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        x = rng.standard_normal((count, self.features))
        y = x @ coefficients[:-1] + coefficients[-1] + self.noise_std * rng.standard_normal(count)
        return x.astype(np.float32), y.astype(np.float32)


class Fcube(Dataset):
    """Generated points in the cube [-1, 1]^3; the class is 0 if the first coordinate is positive, else 1.

    The coordinate planes cut the cube into eight octants. Two opposite octants form a group, which has samples of both
    classes. With four devices, `partition: group` gives each device one group, so that devices differ in their
    features, but not in their labels. All octants have the same number of training samples, up to one sample. Test
    samples are distributed uniformly over the cube.
    """

    n_samples: PositiveInt = 4000
    """Number of training samples."""
    n_test: PositiveInt = 1000
    """Number of test samples."""

    def extent(self, data_dir: Path | None) -> Extent:
        return Extent((3,), 2, self.n_samples + self.n_test)

    def load(self, data_dir: Path | None, rng: np.random.Generator) -> Samples:
        octant = np.arange(self.n_samples) % 8
        signs = 1 - 2 * (octant[:, None] >> np.arange(3) & 1)
        train_x = torch.from_numpy((rng.random((self.n_samples, 3)) * signs).astype(np.float32))
        test_x = torch.from_numpy(rng.uniform(-1, 1, (self.n_test, 3)).astype(np.float32))
        return Samples(train_x, _class(train_x), test_x, _class(test_x), 2, pair_of(train_x), pair_of(test_x))


def _class(x: Tensor) -> Tensor:
    return (x[:, 0] <= 0).long()


def pair_of(x: Tensor) -> IntArray:
    """Return, for each point `x` [n, 3], the index from 0 to 3 of the pair of opposite octants that contains it."""
    positive = x > 0
    differs = (positive[:, 1:] != positive[:, :1]).long()
    return np.asarray((2 * differs[:, 0] + differs[:, 1]).numpy())
