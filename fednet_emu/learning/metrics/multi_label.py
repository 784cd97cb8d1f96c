"""Metrics of models that say of each label whether it applies; a score above 0 says yes."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from fednet_emu.learning.data.datasets.base import TaskName
from fednet_emu.learning.metrics.base import Kept, Metric


class MicroF1(Metric):
    """The F1 score of all labels of all samples together: 2 TP / (2 TP + FP + FN)."""

    suits: ClassVar[tuple[TaskName, ...]] = ("multi-label",)

    def value(self, kept: Kept, y: Kept) -> float:
        """Undefined (nan) where no label applies and none is predicted."""
        said, applies = kept > 0, y > 0
        either = said.sum() + applies.sum()
        return float(2 * (said & applies).sum() / either) if either else float("nan")


class ExactMatch(Metric):
    """The share of samples of which all labels are right."""

    suits: ClassVar[tuple[TaskName, ...]] = ("multi-label",)

    def value(self, kept: Kept, y: Kept) -> float:
        """The share of samples."""
        return float(((kept > 0) == (y > 0)).all(1).mean())


class AveragePrecision(Metric):
    """The average precision (area under precision over recall) of each label, averaged over the labels that occur."""

    suits: ClassVar[tuple[TaskName, ...]] = ("multi-label",)

    def value(self, kept: Kept, y: Kept) -> float:
        """Undefined (nan) where no label applies to any sample, or a score is not a number."""
        from sklearn.metrics import average_precision_score

        occurs = (y > 0).any(0)
        if not occurs.any() or not np.isfinite(kept).all():
            return float("nan")
        return float(average_precision_score(y[:, occurs] > 0, kept[:, occurs], average="macro"))
