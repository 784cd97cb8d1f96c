"""FCUBE, the synthetic data of NIID-Bench (Li, Diao, Chen, He, ICDE 2022, arXiv 2102.02079, section 4.2)."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from pydantic import PositiveInt
from torch import Tensor

from fednet_emu.arrays import IntArray
from fednet_emu.learning.data.datasets.base import Dataset, Extent, Samples

OWNERS = 4
"""Number of pairs of opposite octants, each of which is a natural group."""


class Fcube(Dataset):
    """Points in the cube [-1, 1]^3; the class is 0 where the first coordinate is positive, else 1.

    The planes through the origin cut the cube into eight octants. Two opposite ones are a group, which thus has both
    classes: `partition: group` with four devices gives each one of the four pairs, so that devices differ in their
    features, not in their labels. Each octant has equally many training samples, up to one; test samples are uniform.
    """

    n_samples: PositiveInt = 4000
    """Number of training samples."""
    n_test: PositiveInt = 1000
    """Number of test samples."""

    def extent(self, data_dir: Path | None) -> Extent:
        """The settings say it."""
        return Extent((3,), 2, self.n_samples + self.n_test)

    def load(self, data_dir: Path | None, rng: np.random.Generator) -> Samples:
        """Draw the training set, octant after octant, then the test set."""
        octant = np.arange(self.n_samples) % 8
        signs = 1 - 2 * (octant[:, None] >> np.arange(3) & 1)
        train_x = torch.from_numpy((rng.random((self.n_samples, 3)) * signs).astype(np.float32))
        test_x = torch.from_numpy(rng.uniform(-1, 1, (self.n_test, 3)).astype(np.float32))
        return Samples(train_x, _class(train_x), test_x, _class(test_x), 2, pair_of(train_x), pair_of(test_x))


def _class(x: Tensor) -> Tensor:
    return (x[:, 0] <= 0).long()


def pair_of(x: Tensor) -> IntArray:
    """The pair of opposite octants, 0 to 3, of each point x [n, 3]."""
    positive = x > 0
    differs = (positive[:, 1:] != positive[:, :1]).long()
    pairs: IntArray = (2 * differs[:, 0] + differs[:, 1]).numpy()
    return pairs
