"""Metrics: what an evaluation measures beside loss and accuracy, one kind per class."""

from typing import Annotated

from fednet_emu.component.slot import Slot, kinds
from fednet_emu.learning.metrics.base import Metric
from fednet_emu.learning.metrics.classification import BalancedAccuracy, MacroF1, Perplexity, TopK
from fednet_emu.learning.metrics.multi_label import AveragePrecision, ExactMatch, MicroF1
from fednet_emu.learning.metrics.regression import R2, Mae, Rmse

METRICS: dict[str, type[Metric]] = kinds(
    AveragePrecision, BalancedAccuracy, ExactMatch, MacroF1, Mae, MicroF1, Perplexity, R2, Rmse, TopK
)
"""Every kind of metric that is built in."""

AnyMetric = Annotated[Metric, Slot("metric", METRICS)]
"""Type of a field that holds one metric."""
