"""Metrics of an evaluation in addition to loss and accuracy, as functions of outputs and targets of a test set."""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import Annotated, Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor

from fednet_emu.arrays import Array, IntArray
from fednet_emu.component.component import Component
from fednet_emu.component.slot import Slot, kinds
from fednet_emu.learning.data.datasets.base import Samples, TaskName

Kept = NDArray[Any]
"""Values [n, ...] that a metric keeps of each sample."""


class Metric(Component):
    """A score of a model on a set of samples, in addition to loss and accuracy.

    Outputs are computed in chunks, and `kept` reduces each chunk to the values that the score needs, so that the
    outputs of all samples need not fit into memory.
    """

    suits: ClassVar[tuple[TaskName, ...]]
    """Kinds of learning problems for which the metric is defined."""

    @property
    def column(self) -> str:
        """Name of the column in the records."""
        return str(self.kind).replace("-", "_")

    def unfit(self, samples: Samples) -> str | None:
        """Return the reason why the metric is undefined for these samples; None if it is defined."""
        if samples.task in self.suits:
            return None
        return f"{self.column} suits {' and '.join(self.suits)}, got data for {samples.task}; leave it out"

    def kept(self, outputs: Tensor, y: Tensor, losses: Tensor) -> Tensor:
        """Values [B, ...] of a chunk that `value` needs, from outputs [B, outputs], targets and losses [B]."""
        return outputs.reshape(y.shape)

    @abstractmethod
    def value(self, kept: Kept, y: Kept) -> float:
        """The score of at least one sample, from kept values [n, ...] and targets [n, ...]; nan if undefined."""


class Measured(NamedTuple):
    """The values that a metric has kept, and the targets, on the host."""

    metric: Metric
    kept: Kept
    y: Kept

    def pooled(self) -> float:
        return float(self.metric.value(self.kept, self.y)) if len(self.y) else float("nan")

    def by_device(self, order: IntArray, offsets: IntArray) -> Array:
        """The scores [devices] of devices whose samples are order[offsets[d]] to order[offsets[d + 1] - 1]."""
        own = np.split(order, offsets[1:-1])
        return np.array([Measured(self.metric, self.kept[rows], self.y[rows]).pooled() for rows in own], np.float64)


class TopK(Metric):
    """The share of samples whose class is among the k with the highest scores; its column is `top_5` for k = 5."""

    k: int = Field(5, ge=2, le=10)
    """Number of classes with the highest scores, less than the number of classes."""
    suits: ClassVar[tuple[TaskName, ...]] = ("classification",)

    @property
    def column(self) -> str:
        return f"top_{self.k}"

    def unfit(self, samples: Samples) -> str | None:
        """Also refuse a k of at least the number of classes, for which every sample counts."""
        if samples.classes is not None and self.k >= samples.classes:
            return f"every sample is right among all {samples.classes} classes, got k = {self.k}; give fewer"
        return super().unfit(samples)

    def kept(self, outputs: Tensor, y: Tensor, losses: Tensor) -> Tensor:
        return (outputs.topk(self.k, 1).indices == y[:, None]).any(1)

    def value(self, kept: Kept, y: Kept) -> float:
        return float(kept.mean())


class MacroF1(Metric):
    """The F1 score of each class or label, harmonic mean of precision and recall, averaged over classes or labels.

    Classes and labels that neither occur nor are predicted do not count.
    """

    suits: ClassVar[tuple[TaskName, ...]] = ("classification", "multi-label")

    def kept(self, outputs: Tensor, y: Tensor, losses: Tensor) -> Tensor:
        return outputs.argmax(1) if y.ndim == 1 else outputs

    def value(self, kept: Kept, y: Kept) -> float:
        """The mean of 2 TP / (2 TP + FP + FN); nan if no label applies or is predicted."""
        if y.ndim > 1:
            from sklearn.metrics import f1_score

            said, applies = kept > 0, y > 0
            either = said.any(0) | applies.any(0)
            return float(f1_score(applies[:, either], said[:, either], average="macro")) if either.any() else math.nan
        right, predicted, there = _counts(kept, y)
        either = predicted + there > 0
        return float((2 * right[either] / (predicted + there)[either]).mean())


class BalancedAccuracy(Metric):
    """The share of samples of each class that are classified right, averaged over the classes that occur."""

    suits: ClassVar[tuple[TaskName, ...]] = ("classification",)

    def kept(self, outputs: Tensor, y: Tensor, losses: Tensor) -> Tensor:
        return outputs.argmax(1)

    def value(self, kept: Kept, y: Kept) -> float:
        right, _, there = _counts(kept, y)
        return float((right[there > 0] / there[there > 0]).mean())


class Perplexity(Metric):
    """The exponential of the mean loss (nats), the number of equally likely tokens with the same loss."""

    suits: ClassVar[tuple[TaskName, ...]] = ("classification", "next-token")

    def kept(self, outputs: Tensor, y: Tensor, losses: Tensor) -> Tensor:
        return losses

    def value(self, kept: Kept, y: Kept) -> float:
        """Infinity where the loss is too large for its exponential."""
        with np.errstate(over="ignore"):
            return float(np.exp(kept.astype(np.float64).mean()))


def _counts(predicted: Kept, y: Kept) -> tuple[Kept, Kept, Kept]:
    """Per class, the numbers of samples that are predicted right, predicted as this class, and present."""
    n = int(max(predicted.max(), y.max())) + 1
    right, as_it, there = (np.bincount(labels, minlength=n) for labels in (y[predicted == y], predicted, y))
    return right, as_it, there


class MicroF1(Metric):
    """The F1 score of all labels of all samples together: 2 TP / (2 TP + FP + FN)."""

    suits: ClassVar[tuple[TaskName, ...]] = ("multi-label",)

    def value(self, kept: Kept, y: Kept) -> float:
        """Undefined (nan) where no label applies and none is predicted."""
        said, applies = kept > 0, y > 0
        either = said.sum() + applies.sum()
        return float(2 * (said & applies).sum() / either) if either else float("nan")


class ExactMatch(Metric):
    """The share of samples with all labels right."""

    suits: ClassVar[tuple[TaskName, ...]] = ("multi-label",)

    def value(self, kept: Kept, y: Kept) -> float:
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


class RocAuc(Metric):
    """The area under the ROC curve: how often a sample of a class has a higher score for it than another sample.

    With several classes it is the unweighted mean over classes, each against the rest (one-vs-rest, macro); with
    labels, the unweighted mean over labels. Classes and labels that no sample has, or all samples have, do not count.
    """

    suits: ClassVar[tuple[TaskName, ...]] = ("classification", "multi-label")

    def kept(self, outputs: Tensor, y: Tensor, losses: Tensor) -> Tensor:
        """The probabilities of classes [B, classes], in double precision, or the scores of labels [B, labels]."""
        return outputs.double().softmax(1) if y.ndim == 1 else outputs

    def value(self, kept: Kept, y: Kept) -> float:
        """Undefined (nan) where all samples are of one class, or a score is not a number."""
        from sklearn.metrics import roc_auc_score

        applies = y > 0 if y.ndim > 1 else y[:, None] == np.arange(kept.shape[1])
        counts = applies.any(0) & ~applies.all(0)
        if not counts.any() or not np.isfinite(kept).all():
            return math.nan
        return float(np.mean([roc_auc_score(applies[:, c], kept[:, c]) for c in np.flatnonzero(counts)]))


class Mae(Metric):
    """The mean absolute error, in the unit of the targets."""

    suits: ClassVar[tuple[TaskName, ...]] = ("regression",)

    def value(self, kept: Kept, y: Kept) -> float:
        return float(np.abs(_errors(kept, y)).mean())


class Rmse(Metric):
    """The root of the mean squared error, in the unit of the targets."""

    suits: ClassVar[tuple[TaskName, ...]] = ("regression",)

    def value(self, kept: Kept, y: Kept) -> float:
        return float(np.sqrt(np.square(_errors(kept, y)).mean()))


class R2(Metric):
    """The coefficient of determination, 1 - squared error / variance, averaged over the targets of a sample.

    1 is perfect, and 0 is as good as the mean of the targets. It is undefined (nan) if a target is constant.
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


METRICS: dict[str, type[Metric]] = kinds(
    AveragePrecision, BalancedAccuracy, ExactMatch, MacroF1, Mae, MicroF1, Perplexity, R2, Rmse, RocAuc, TopK
)
AnyMetric = Annotated[Metric, Slot("metric", METRICS)]
