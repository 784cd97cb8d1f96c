"""The pathological split of McMahan et al., "Communication-efficient learning of deep networks", AISTATS 2017."""

from __future__ import annotations

import numpy as np
from pydantic import PositiveInt

from fednet_emu.arrays import IntArray
from fednet_emu.learning.data.datasets.base import Samples
from fednet_emu.learning.data.partitions.base import Partition, Partitioned, even_shares, labels_of, require_samples


class Shards(Partition):
    """The samples, sorted by label, are cut into equal shards, and each device gets `shards_per_device` at random.

    The test samples are sorted, cut and assigned in the same way, so a device has the same classes in both sets if the
    classes are equally frequent in them.
    """

    shards_per_device: PositiveInt = 2
    """Number of shards of each device, which is about its number of classes."""

    def split(self, samples: Samples, n_devices: int, rng: np.random.Generator) -> tuple[Partitioned, Partitioned]:
        """Draw the device of each shard, then cut both sets into shards."""
        train_y, test_y, _ = labels_of(samples, self.kind)
        holders = rng.permutation(np.repeat(np.arange(n_devices), self.shards_per_device))
        train, test = _deal(train_y, holders, n_devices), _deal(test_y, holders, n_devices)
        require_samples(train, self.kind, f"use at most {len(train_y)} shards in all, not {len(holders)}")
        return train, test


def _deal(labels: IntArray, holders: IntArray, n_devices: int) -> Partitioned:
    owners = np.empty(len(labels), np.int64)
    owners[np.argsort(labels, kind="stable")] = holders[even_shares(len(labels), len(holders))]
    return Partitioned.from_owners(owners, n_devices)
