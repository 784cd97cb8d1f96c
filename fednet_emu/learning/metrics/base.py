"""Base class of metrics: functions of the outputs of a model and the targets of all samples of a test set."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from fednet_emu.arrays import Array, IntArray
from fednet_emu.component.component import Component
from fednet_emu.learning.data.datasets.base import Samples, TaskName

Kept = NDArray[Any]
"""What a metric keeps of each sample, [n, ...]."""


class Metric(Component):
    """A score of a model on a set of samples, beside its loss and its accuracy.

    Outputs come in chunks, of which `kept` keeps what matters, so that those of a large vocabulary need not fit into
    memory for all samples at once.
    """

    suits: ClassVar[tuple[TaskName, ...]]
    """What must be learnt for the metric to make sense."""

    @property
    def column(self) -> str:
        """Its name in the records."""
        return str(self.kind).replace("-", "_")

    def unfit(self, samples: Samples) -> str | None:
        """Return why it cannot measure a model of these samples; None if it can."""
        if samples.task in self.suits:
            return None
        return f"{self.column} suits {' and '.join(self.suits)}, got a {samples.task}; leave it out"

    def kept(self, outputs: Tensor, y: Tensor, losses: Tensor) -> Tensor:
        """What `value` needs of each sample of a chunk [B, ...], from outputs [B, outputs], targets and losses [B]."""
        return outputs.reshape(y.shape)

    @abstractmethod
    def value(self, kept: Kept, y: Kept) -> float:
        """The score of at least one sample, from what was kept [n, ...] and the targets [n, ...]; nan if undefined."""


class Measured(NamedTuple):
    """What a metric has kept of samples and their targets, on the host."""

    metric: Metric
    kept: Kept
    y: Kept

    def pooled(self) -> float:
        """The score over all samples; nan without samples."""
        return float(self.metric.value(self.kept, self.y)) if len(self.y) else float("nan")

    def by_device(self, order: IntArray, offsets: IntArray) -> Array:
        """The scores [devices] of devices whose samples are order[offsets[d]] to order[offsets[d + 1] - 1]."""
        own = np.split(order, offsets[1:-1])
        return np.array([Measured(self.metric, self.kept[rows], self.y[rows]).pooled() for rows in own], np.float64)
