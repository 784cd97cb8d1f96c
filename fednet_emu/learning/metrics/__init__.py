"""Metrics: what an evaluation measures beside loss and accuracy, one kind per class."""

from typing import Annotated

from fednet_emu.component.slot import Slot
from fednet_emu.learning.metrics.base import Measured, Metric
from fednet_emu.learning.metrics.classification import BalancedAccuracy, MacroF1, Perplexity, TopK
from fednet_emu.learning.metrics.multi_label import AveragePrecision, ExactMatch, MicroF1
from fednet_emu.learning.metrics.regression import R2, Mae, Rmse

METRICS: dict[str, type[Metric]] = {
    "average-precision": AveragePrecision,
    "balanced-accuracy": BalancedAccuracy,
    "exact-match": ExactMatch,
    "macro-f1": MacroF1,
    "mae": Mae,
    "micro-f1": MicroF1,
    "perplexity": Perplexity,
    "r2": R2,
    "rmse": Rmse,
    "top-k": TopK,
}
"""Every kind of metric that is built in."""

AnyMetric = Annotated[Metric, Slot("metric", METRICS)]
"""Type of a field that holds one metric."""

__all__ = [
    "METRICS",
    "R2",
    "AnyMetric",
    "AveragePrecision",
    "BalancedAccuracy",
    "ExactMatch",
    "MacroF1",
    "Mae",
    "Measured",
    "Metric",
    "MicroF1",
    "Perplexity",
    "Rmse",
    "TopK",
]
