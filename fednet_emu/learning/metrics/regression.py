"""Metrics of regressions; where there are several targets, all numbers count alike."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from fednet_emu.learning.data.datasets.base import TaskName
from fednet_emu.learning.metrics.base import Kept, Metric


class Mae(Metric):
    """The mean absolute error, in the unit of the targets."""

    suits: ClassVar[tuple[TaskName, ...]] = ("regression",)

    def value(self, kept: Kept, y: Kept) -> float:
        """The mean of |output - target|."""
        return float(np.abs(_errors(kept, y)).mean())


class Rmse(Metric):
    """The root of the mean squared error, in the unit of the targets."""

    suits: ClassVar[tuple[TaskName, ...]] = ("regression",)

    def value(self, kept: Kept, y: Kept) -> float:
        """The root of the mean of (output - target)^2."""
        return float(np.sqrt(np.square(_errors(kept, y)).mean()))


class R2(Metric):
    """The coefficient of determination, 1 - squared error / variance, averaged over the targets of a sample.

    1 is perfect, 0 as good as the mean of the targets, and it is undefined where a target never varies.
    """

    suits: ClassVar[tuple[TaskName, ...]] = ("regression",)

    def value(self, kept: Kept, y: Kept) -> float:
        """The mean over targets; nan if one has the same value in all samples."""
        targets = y.astype(np.float64).reshape(len(y), -1)
        spread = np.square(targets - targets.mean(0)).sum(0)
        errors = np.square(_errors(kept, y).reshape(targets.shape)).sum(0)
        return float((1 - errors / spread).mean()) if spread.all() else float("nan")


def _errors(outputs: Kept, targets: Kept) -> Kept:
    return outputs.astype(np.float64) - targets.astype(np.float64)
