"""The strongest label skew: one class per device, as in agnostic federated learning (Mohri et al., ICML 2019)."""

from __future__ import annotations

from typing import Literal

import numpy as np

from fednet_emu.arrays import IntArray
from fednet_emu.learning.data.datasets.base import Samples
from fednet_emu.learning.data.partitions.base import (
    NOBODY,
    Partition,
    Partitioned,
    even_shares,
    labels_of,
    members_by_class,
    require_samples,
)


class OneClass(Partition):
    """Device d owns samples of class d mod K only, of K classes; devices of one class share it equally, at random.

    With fewer devices than classes the samples of the last classes belong to no device.
    """

    kind: Literal["one-class"] = "one-class"

    def split(self, samples: Samples, n_devices: int, rng: np.random.Generator) -> tuple[Partitioned, Partitioned]:
        """Shuffle each class and cut it into equal shares."""
        train_y, test_y, classes = labels_of(samples, self.kind)
        train, test = (_deal(labels, classes, n_devices, rng) for labels in (train_y, test_y))
        require_samples(train, self.kind, "use fewer devices, or data with more samples of each class")
        return train, test


def _deal(labels: IntArray, classes: int, n_devices: int, rng: np.random.Generator) -> Partitioned:
    owners = np.full(len(labels), NOBODY, np.int64)
    for label, members in enumerate(members_by_class(labels, classes, rng)):
        devices = np.arange(label, n_devices, classes)
        if len(devices):
            owners[members] = devices[even_shares(len(members), len(devices))]
    return Partitioned.from_owners(owners, n_devices)
