"""Inputs scaled by what is found in the training samples, so that nothing of the test samples is used."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


def pixels(images: NDArray[np.uint8]) -> Tensor:
    """Images [n, channels, height, width] of bytes as float32 from 0 to 1."""
    return torch.from_numpy(images.astype(np.float32)).div_(255)


def standardise(train: Tensor, test: Tensor) -> None:
    """Shift and divide each channel of both sets, in place, so that it has mean 0 and deviation 1 over the training.

    Args:
        train: float32 [n, channels, ...], at least one sample; a channel that is constant is only shifted.
        test: float32 [m, channels, ...].
    """
    axes = (0, *range(2, train.ndim))
    deviation, mean = torch.std_mean(train, axes, correction=0, keepdim=True)
    deviation[deviation == 0] = 1
    for values in (train, test):
        values.sub_(mean).div_(deviation)
