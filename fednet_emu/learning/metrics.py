"""Metrics besides loss and accuracy, which are computed from the model's outputs for a test set and the targets."""

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
"""Values [n, ...] that a metric computes for each of n samples."""


class Metric(Component):
    """Base class of the metrics by which a model is evaluated on a set of samples, besides loss and accuracy.

    The outputs of the model are computed for chunks of the samples. The method `kept` reduces the outputs of a chunk to
    the values that the metric needs, so that the outputs for all samples need not fit into memory.
    """

    suits: ClassVar[tuple[TaskName, ...]]
    """Kinds of learning problems for which the metric is defined."""

    @property
    def column(self) -> str:
        """Name of the metric's column in the records."""
        return str(self.kind).replace("-", "_")

    def unfit(self, samples: Samples) -> str | None:
        """Return the reason why the metric is undefined for these samples; None if it is defined."""
        if samples.task in self.suits:
            return None
        return f"{self.column} suits {' and '.join(self.suits)}, got data for {samples.task}; leave it out"

    def kept(self, outputs: Tensor, y: Tensor, losses: Tensor) -> Tensor:
        """Return the values [B, ...] of a chunk of B samples that the method `value` needs.

        The values are computed from the outputs [B, outputs], the targets `y` [B, ...] and the losses [B] of the chunk.
        """
        return outputs.reshape(y.shape)

    @abstractmethod
    def value(self, kept: Kept, y: Kept) -> float:
        """Return the metric over n samples, from their kept values and targets [n, ...]; nan if undefined."""


class Measured(NamedTuple):
    """The values that a metric has computed for each sample, and the targets of the samples, in host memory."""

    metric: Metric
    kept: Kept
    y: Kept

    def pooled(self) -> float:
        return float(self.metric.value(self.kept, self.y)) if len(self.y) else float("nan")

    def by_device(self, order: IntArray, offsets: IntArray) -> Array:
        """Return the metric [devices]; device d has the samples `order[offsets[d]:offsets[d + 1]]`."""
        own = np.split(order, offsets[1:-1])
        return np.array([Measured(self.metric, self.kept[rows], self.y[rows]).pooled() for rows in own], np.float64)


class TopK(Metric):
    """Top-k accuracy: the share of samples whose class is among the k classes with the highest outputs.

    For k = 5, the metric is reported as `top_5`.
    """

    k: int = Field(5, ge=2, le=10)
    """Number k of classes with the highest outputs. Must be less than the number of classes."""
    suits = ("classification",)

    @property
    def column(self) -> str:
        return f"top_{self.k}"

    def unfit(self, samples: Samples) -> str | None:
        """Return the reason why the metric cannot be used, such as a `k` with which it would always be 1."""
        if samples.classes is not None and self.k >= samples.classes:
            return f"every sample is right among all {samples.classes} classes, got k = {self.k}; give fewer"
        return super().unfit(samples)

    def kept(self, outputs: Tensor, y: Tensor, losses: Tensor) -> Tensor:
        return (outputs.topk(self.k, 1).indices == y[:, None]).any(1)

    def value(self, kept: Kept, y: Kept) -> float:
        return float(kept.mean())


class MacroF1(Metric):
    """Macro F1: the F1 score of each class or label, averaged over classes or labels.

    The F1 score is the harmonic mean of precision and recall. Classes and labels that neither occur nor are predicted
    are excluded from the average.
    """

    suits = ("classification", "multi-label")

    def kept(self, outputs: Tensor, y: Tensor, losses: Tensor) -> Tensor:
        return outputs.argmax(1) if y.ndim == 1 else outputs

    def value(self, kept: Kept, y: Kept) -> float:
        """Return the mean of 2 TP / (2 TP + FP + FN) over classes or labels; nan if none occurs or is predicted."""
        right, predicted, there = _counts(kept, y) if y.ndim == 1 else _counts_of_labels(kept, y)
        either = predicted + there
        return float((2 * right[either > 0] / either[either > 0]).mean()) if either.any() else math.nan


class BalancedAccuracy(Metric):
    """Balanced accuracy: the accuracy on the samples of each class, averaged over the classes that occur."""

    suits = ("classification",)

    def kept(self, outputs: Tensor, y: Tensor, losses: Tensor) -> Tensor:
        return outputs.argmax(1)

    def value(self, kept: Kept, y: Kept) -> float:
        right, _, there = _counts(kept, y)
        return float((right[there > 0] / there[there > 0]).mean())


class Perplexity(Metric):
    """Perplexity of a language model: the exponential of the mean loss in nats.

    A uniform choice among this number of tokens would have the same loss.
    """

    suits = ("classification", "next-token")

    def kept(self, outputs: Tensor, y: Tensor, losses: Tensor) -> Tensor:
        return losses

    def value(self, kept: Kept, y: Kept) -> float:
        """Return the perplexity; infinity if the exponential of the mean loss overflows."""
        with np.errstate(over="ignore"):
            return float(np.exp(kept.astype(np.float64).mean()))


def _counts(predicted: Kept, y: Kept) -> tuple[Kept, Kept, Kept]:
    """Return three counts for each class: correct predictions, predictions, and samples of the class."""
    n = int(max(predicted.max(), y.max())) + 1
    right, as_it, there = (np.bincount(labels, minlength=n) for labels in (y[predicted == y], predicted, y))
    return right, as_it, there


def _counts_of_labels(scores: Kept, y: Kept) -> tuple[Kept, Kept, Kept]:
    """Return the counts of `_counts` for each label, which is predicted where its score is positive."""
    said, applies = scores > 0, y > 0
    return (said & applies).sum(0), said.sum(0), applies.sum(0)


class MicroF1(Metric):
    """Micro F1: the F1 score 2 TP / (2 TP + FP + FN), counted over all pairs of a sample and a label."""

    suits = ("multi-label",)

    def value(self, kept: Kept, y: Kept) -> float:
        """Return the F1 score; nan if no label applies and none is predicted."""
        right, predicted, there = (counts.sum() for counts in _counts_of_labels(kept, y))
        return float(2 * right / (predicted + there)) if predicted + there else math.nan


class ExactMatch(Metric):
    """Exact match ratio: the share of samples for which all labels are predicted correctly."""

    suits = ("multi-label",)

    def value(self, kept: Kept, y: Kept) -> float:
        return float(((kept > 0) == (y > 0)).all(1).mean())


class AveragePrecision(Metric):
    """Average precision of each label, averaged over the labels that occur.

    The average precision is the area under the precision-recall curve.
    """

    suits = ("multi-label",)

    def value(self, kept: Kept, y: Kept) -> float:
        """Return the average precision; nan if no label occurs, or if an output is not finite."""
        from sklearn.metrics import average_precision_score

        occurs = (y > 0).any(0)
        if not occurs.any() or not np.isfinite(kept).all():
            return float("nan")
        return float(average_precision_score(y[:, occurs] > 0, kept[:, occurs], average="macro"))


class RocAuc(Metric):
    """Area under the receiver operating characteristic (ROC) curve.

    For a class, it is the probability that a sample of the class has a higher score for the class than a sample of
    another class. The metric is the unweighted mean over classes, each against all others (one-vs-rest, macro), or over
    labels. Classes or labels that none or all of the samples have are excluded.
    """

    suits = ("classification", "multi-label")

    def kept(self, outputs: Tensor, y: Tensor, losses: Tensor) -> Tensor:
        """Return the class probabilities [B, classes] in double precision, or the label scores [B, labels]."""
        return outputs.double().softmax(1) if y.ndim == 1 else outputs

    def value(self, kept: Kept, y: Kept) -> float:
        """Return the area under the ROC curve; nan if all samples have the same class, or if a score is not finite."""
        from sklearn.metrics import roc_auc_score

        applies = y > 0 if y.ndim > 1 else y[:, None] == np.arange(kept.shape[1])
        counts = applies.any(0) & ~applies.all(0)
        if not counts.any() or not np.isfinite(kept).all():
            return math.nan
        return float(np.mean([roc_auc_score(applies[:, c], kept[:, c]) for c in np.flatnonzero(counts)]))


class Mae(Metric):
    """The mean absolute error, in the unit of the targets."""

    suits = ("regression",)

    def value(self, kept: Kept, y: Kept) -> float:
        return float(np.abs(_errors(kept, y)).mean())


class Rmse(Metric):
    """Root mean squared error, in the unit of the targets."""

    suits = ("regression",)

    def value(self, kept: Kept, y: Kept) -> float:
        return float(np.sqrt(np.square(_errors(kept, y)).mean()))


class R2(Metric):
    """Coefficient of determination R^2, which is 1 - (mean squared error) / (variance of the target).

    If samples have several targets, the metric is the mean over the targets. A perfect prediction has the value 1, and
    the mean of the target as prediction has the value 0. The metric is undefined (nan) if a target is constant.
    """

    suits = ("regression",)

    def value(self, kept: Kept, y: Kept) -> float:
        """Return the mean R^2 over the targets; nan if a target has the same value in all samples."""
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
