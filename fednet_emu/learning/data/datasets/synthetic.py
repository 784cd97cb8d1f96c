"""Gaussian classes: a classification problem of any size and any difficulty."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field, NonNegativeFloat, PositiveInt
from torch import Tensor

from fednet_emu.arrays import Array
from fednet_emu.learning.data.datasets.base import Dataset, Extent, Samples


class Synthetic(Dataset):
    """Samples of equally frequent classes, each a Gaussian with standard deviation 1 in every feature.

    The means of any two classes lie `separation` apart, in random directions; with more classes than features this
    holds only on average. The smallest possible error for two classes is Phi(-separation / 2), with the normal
    distribution function Phi. `features` is the
    shape of a sample, for example 784 or [1, 28, 28].
    """

    n_samples: PositiveInt = 6000
    """Number of training samples."""
    n_test: PositiveInt = 1000
    """Number of test samples."""
    features: PositiveInt | Annotated[tuple[PositiveInt, ...], Field(min_length=1)] = 20
    """Shape of a sample, for example [1, 28, 28], or its length."""
    classes: int = Field(default=10, ge=2)
    """Number of classes."""
    separation: NonNegativeFloat = 4.0
    """Distance between the means of two classes, in standard deviations of a feature."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of a sample."""
        return (self.features,) if isinstance(self.features, int) else self.features

    def extent(self, data_dir: Path | None) -> Extent:
        """The settings say it; the class means count as samples."""
        return Extent(self.shape, self.classes, self.n_samples + self.n_test + self.classes)

    def load(self, data_dir: Path | None, rng: np.random.Generator) -> Samples:
        """Draw the class means, the training set and the test set, in this order."""
        shape = self.shape
        means = _directions(self.classes, math.prod(shape), rng) * np.float32(self.separation / math.sqrt(2))
        train_x, train_y = _draw(self.n_samples, means, shape, rng)
        test_x, test_y = _draw(self.n_test, means, shape, rng)
        return Samples(train_x=train_x, train_y=train_y, test_x=test_x, test_y=test_y, classes=self.classes)


def _directions(count: int, n_features: int, rng: np.random.Generator) -> NDArray[np.float32]:
    """Random unit vectors [count, n_features], orthogonal where there is room."""
    vectors = rng.standard_normal((count, n_features))
    if count <= n_features:
        vectors = np.linalg.qr(vectors.T).Q.T
    units: Array = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    return units.astype(np.float32)


def _draw(count: int, means: NDArray[Any], shape: tuple[int, ...], rng: np.random.Generator) -> tuple[Tensor, Tensor]:
    classes, n_features = means.shape
    labels = rng.permutation(np.arange(count, dtype=np.int64) % classes)
    points = rng.standard_normal((count, n_features), dtype=np.float32)
    for label in range(classes):
        points[labels == label] += means[label]
    return torch.from_numpy(points.reshape(count, *shape)), torch.from_numpy(labels)
