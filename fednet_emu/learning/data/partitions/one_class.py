"""The strongest label skew: one class per device, as in agnostic federated learning (Mohri et al., ICML 2019)."""

from __future__ import annotations

import numpy as np

from fednet_emu.learning.data.datasets.base import Samples
from fednet_emu.learning.data.partitions.base import (
    Partition,
    Partitioned,
    dealt_by_class,
    labels_of,
    require_samples,
)


class OneClass(Partition):
    """Device d owns samples of class d mod K only, of K classes; devices of one class share it equally, at random.

    With fewer devices than classes the samples of the last classes belong to no device.
    """

    def split(self, samples: Samples, n_devices: int, rng: np.random.Generator) -> tuple[Partitioned, Partitioned]:
        """Shuffle each class and cut it into equal shares."""
        train_y, test_y, classes = labels_of(samples, self.kind)
        holders = [np.arange(label, n_devices, classes) for label in range(classes)]
        train, test = (dealt_by_class(labels, holders, n_devices, rng) for labels in (train_y, test_y))
        require_samples(train, self.kind, "use fewer devices, or data with more samples of each class")
        return train, test
