"""Which windows of recorded signals are for testing, where a data set does not say, and the samples they make."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from fednet_emu.arrays import IntArray, Mask
from fednet_emu.learning.data.datasets.base import Samples


def last_of_each(kind: IntArray, order: IntArray, share: float) -> Mask:
    """Mask [n] of the last `share` of the samples of each kind, in this order; counts are rounded."""
    _, number, count = np.unique(kind, return_inverse=True, return_counts=True)
    sorted_rows = order[np.argsort(number[order], kind="stable")]
    place = np.empty(len(kind), np.int64)
    place[sorted_rows] = np.arange(len(kind)) - np.repeat(np.cumsum(count) - count, count)
    chosen: Mask = place >= (count - np.rint(share * count))[number]
    return chosen


def windows_of_people(x: NDArray[np.float32], y: IntArray, person: IntArray, test: Mask, classes: int) -> Samples:
    """Samples of windows x [n, channels, rows], with channels standardised over those that are not for testing."""
    mean, deviation = x[~test].mean((0, 2), keepdims=True), x[~test].std((0, 2), keepdims=True)
    values, labels = torch.from_numpy((x - mean) / deviation), torch.from_numpy(y)
    return Samples(
        train_x=values[~test],
        train_y=labels[~test],
        test_x=values[test],
        test_y=labels[test],
        classes=classes,
        train_group=person[~test],
        test_group=person[test],
    )
