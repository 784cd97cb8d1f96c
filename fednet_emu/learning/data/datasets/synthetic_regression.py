"""A linear regression with a known exact solution, for convergence tests."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar, Self

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import NonNegativeFloat, PositiveInt, model_validator
from torch import Tensor

from fednet_emu.arrays import Array
from fednet_emu.learning.data.datasets.base import Dataset, Extent, Samples


class SyntheticRegression(Dataset):
    """Targets y = x w + b + noise with standard normal x, w and b, and Gaussian noise of deviation `noise_std`.

    The optimum that comes with the samples is the least squares solution of the training set, not the w and b drawn.
    """

    regression: ClassVar[bool] = True

    n_samples: PositiveInt = 1000
    """Number of training samples."""
    n_test: PositiveInt = 200
    """Number of test samples."""
    features: PositiveInt = 10
    """Number of features of a sample."""
    noise_std: NonNegativeFloat = 0.1
    """Standard deviation of the Gaussian noise added to the targets."""

    @model_validator(mode="after")
    def _solution_is_unique(self) -> Self:
        if self.n_samples <= self.features:
            needed = f"at least features + 1 = {self.features + 1} make the optimum unique"
            raise ValueError(f"n_samples is too small, got {self.n_samples}; {needed}")
        return self

    def extent(self, data_dir: Path | None) -> Extent:
        """The settings say it."""
        return Extent((self.features,), 1, self.n_samples + self.n_test)

    def load(self, data_dir: Path | None, rng: np.random.Generator) -> Samples:
        """Draw the coefficients, the training set and the test set, in this order, and compute the optimum."""
        coefficients = rng.standard_normal(self.features + 1)
        train_x, train_y = self._draw(self.n_samples, coefficients, rng)
        test_x, test_y = self._draw(self.n_test, coefficients, rng)
        return Samples(
            train_x=torch.from_numpy(train_x),
            train_y=torch.from_numpy(train_y),
            test_x=torch.from_numpy(test_x),
            test_y=torch.from_numpy(test_y),
            classes=None,
            optimum=_least_squares(train_x, train_y),
        )

    def _draw(
        self, count: int, coefficients: Array, rng: np.random.Generator
    ) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        x = rng.standard_normal((count, self.features))
        y = x @ coefficients[:-1] + coefficients[-1] + self.noise_std * rng.standard_normal(count)
        return x.astype(np.float32), y.astype(np.float32)


def _least_squares(x: NDArray[np.float32], y: NDArray[np.float32]) -> Tensor:
    """Weights then bias, float32 [features + 1], solved in float64 on the float32 training samples."""
    design = np.column_stack([x, np.ones(len(x))]).astype(np.float64)
    solution = np.linalg.lstsq(design, y.astype(np.float64), rcond=None)[0]
    return torch.from_numpy(solution.astype(np.float32))
