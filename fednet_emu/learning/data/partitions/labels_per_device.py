"""A fixed number of labels per device (Li, Diao, Chen, He: "Federated Learning on Non-IID Data Silos", ICDE 2022)."""

from __future__ import annotations

import numpy as np
from pydantic import PositiveInt

from fednet_emu.errors import ScenarioError
from fednet_emu.learning.data.datasets.base import Samples
from fednet_emu.learning.data.partitions.base import (
    Partition,
    Partitioned,
    dealt_by_class,
    labels_of,
    require_samples,
)


class LabelsPerDevice(Partition):
    """Each device has `labels` different labels; the samples of a label are shared equally among its devices.

    NIID-Bench's `#C=k`: device d has label d mod K, of K, and further ones at random. The samples of a label that no
    device has, which is possible with fewer devices than labels, belong to nobody.
    """

    labels: PositiveInt = 2
    """Number of labels of each device (k)."""

    def split(self, samples: Samples, n_devices: int, rng: np.random.Generator) -> tuple[Partitioned, Partitioned]:
        """Draw the labels of each device, then share the samples of each label."""
        train_y, test_y, classes = labels_of(samples, self.kind)
        if self.labels > classes:
            raise ScenarioError(f"partition.labels: more than there are, got {self.labels}; at most {classes}")
        has = np.zeros((n_devices, classes), np.bool_)
        for device in range(n_devices):
            own = device % classes
            others = np.delete(np.arange(classes), own)
            has[device, [own, *rng.choice(others, self.labels - 1, replace=False)]] = True
        holders = [np.flatnonzero(has[:, label]) for label in range(classes)]
        train, test = (dealt_by_class(labels, holders, n_devices, rng) for labels in (train_y, test_y))
        require_samples(train, self.kind, "use fewer devices, or data with more samples of each label")
        return train, test
