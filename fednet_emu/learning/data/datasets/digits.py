"""The small handwritten digits that come with scikit-learn: real images without any download."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from fednet_emu.learning.data.datasets.base import Dataset, Extent, Samples

TEST_SHARE = 0.2
"""Share of the images that is held out for testing."""


class Digits(Dataset):
    """Optical digits (Alpaydin and Kaynak, UCI 1998): 1,437 training and 360 test images, x [n, 1, 8, 8] in [0, 1].

    The split is always the same: stratified by class, a fifth for testing.
    """

    kind: Literal["digits"] = "digits"

    def extent(self, data_dir: Path | None) -> Extent:
        """Always the same images."""
        return Extent((1, 8, 8), 10, 1797)

    def load(self, data_dir: Path | None, rng: np.random.Generator) -> Samples:
        """Read the images out of scikit-learn; the data folder and the random stream are not used."""
        train_x, train_y, test_x, test_y = (torch.from_numpy(part.copy()) for part in _split())
        return Samples(train_x, train_y, test_x, test_y, classes=10)


@cache
def _split() -> tuple[NDArray[Any], ...]:
    """Images and labels for training, then for testing; kept, since scikit-learn parses them from text."""
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    pixels, labels = load_digits(return_X_y=True)
    images = (pixels / 16.0).astype(np.float32).reshape(-1, 1, 8, 8)
    labels = labels.astype(np.int64)
    train, test = train_test_split(np.arange(len(labels)), test_size=TEST_SHARE, stratify=labels, random_state=0)
    return images[train], labels[train], images[test], labels[test]
