"""Metrics of classifiers, models that predict the next token included."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from pydantic import Field
from torch import Tensor

from fednet_emu.learning.data.datasets.base import Samples, TaskName
from fednet_emu.learning.metrics.base import Kept, Metric


class TopK(Metric):
    """The share of samples whose class is among the k with the highest scores; its column is `top_5` for k = 5."""

    k: int = Field(5, ge=2, le=10)
    """Number of classes among which the right one may be; less than there are."""
    suits: ClassVar[tuple[TaskName, ...]] = ("classification",)

    @property
    def column(self) -> str:
        """Its name in the records."""
        return f"top_{self.k}"

    def unfit(self, samples: Samples) -> str | None:
        """Among as many as there are, every class is."""
        if samples.classes is not None and self.k >= samples.classes:
            return f"every sample is right among all {samples.classes} classes, got k = {self.k}; give fewer"
        return super().unfit(samples)

    def kept(self, outputs: Tensor, y: Tensor, losses: Tensor) -> Tensor:
        """Whether the class is among them [B]."""
        return (outputs.topk(self.k, 1).indices == y[:, None]).any(1)

    def value(self, kept: Kept, y: Kept) -> float:
        """The share of samples."""
        return float(kept.mean())


class MacroF1(Metric):
    """The F1 score of each class, harmonic mean of precision and recall, averaged over classes.

    Classes that neither occur nor are predicted do not count.
    """

    suits: ClassVar[tuple[TaskName, ...]] = ("classification",)

    def kept(self, outputs: Tensor, y: Tensor, losses: Tensor) -> Tensor:
        """The predicted class [B]."""
        return outputs.argmax(1)

    def value(self, kept: Kept, y: Kept) -> float:
        """The mean of 2 TP / (2 TP + FP + FN)."""
        right, predicted, there = _counts(kept, y)
        either = predicted + there > 0
        return float((2 * right[either] / (predicted + there)[either]).mean())


class BalancedAccuracy(Metric):
    """The share of samples of each class that are classified right, averaged over the classes that occur."""

    suits: ClassVar[tuple[TaskName, ...]] = ("classification",)

    def kept(self, outputs: Tensor, y: Tensor, losses: Tensor) -> Tensor:
        """The predicted class [B]."""
        return outputs.argmax(1)

    def value(self, kept: Kept, y: Kept) -> float:
        """The mean recall."""
        right, _, there = _counts(kept, y)
        return float((right[there > 0] / there[there > 0]).mean())


class Perplexity(Metric):
    """The exponential of the mean loss (nats): between how many equally likely tokens the model hesitates."""

    suits: ClassVar[tuple[TaskName, ...]] = ("classification",)

    def kept(self, outputs: Tensor, y: Tensor, losses: Tensor) -> Tensor:
        """The losses [B]."""
        return losses

    def value(self, kept: Kept, y: Kept) -> float:
        """Infinity where the loss is too large for its exponential."""
        with np.errstate(over="ignore"):
            return float(np.exp(kept.astype(np.float64).mean()))


def _counts(predicted: Kept, y: Kept) -> tuple[Kept, Kept, Kept]:
    """How many samples of each class were predicted right, how many were predicted as it, and how many there are."""
    n = int(max(predicted.max(), y.max())) + 1
    right, as_it, there = (np.bincount(labels, minlength=n) for labels in (y[predicted == y], predicted, y))
    return right, as_it, there
