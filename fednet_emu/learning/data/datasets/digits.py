"""Small handwritten digits that come with this package, as with scikit-learn: real images without any download."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from fednet_emu.learning.data.datasets.base import Dataset, Extent, Samples

FILE = Path(__file__).with_name("digits.npz")
"""Pixels [n, 8, 8] from 0 to 16, and labels: scikit-learn's `load_digits`, split by its `train_test_split` with a fifth
for testing, stratified, `random_state=0`. Importing scikit-learn for them would double the start-up of a short run."""


class Digits(Dataset):
    """Optical digits (Alpaydin and Kaynak, UCI 1998): 1,437 training and 360 test images, x [n, 1, 8, 8] in [0, 1].

    The split is always the same: stratified by class, a fifth for testing.
    """

    def extent(self, data_dir: Path | None) -> Extent:
        """Always the same images."""
        return Extent((1, 8, 8), 10, 1797)

    def load(self, data_dir: Path | None, rng: np.random.Generator) -> Samples:
        """Read the images; the data folder and the random stream are not used."""
        train_x, train_y, test_x, test_y = (torch.from_numpy(part.copy()) for part in _split())
        return Samples(train_x, train_y, test_x, test_y, classes=10)


@cache
def _split() -> tuple[NDArray[Any], ...]:
    """Images and labels for training, then for testing."""
    with np.load(FILE, allow_pickle=False) as digits:
        images = [(digits[part] / 16.0).astype(np.float32)[:, None] for part in ("train_x", "test_x")]
        labels = [digits[part].astype(np.int64) for part in ("train_y", "test_y")]
    return images[0], labels[0], images[1], labels[1]
