"""The iid partition: equal shares of a shuffled dataset."""

from __future__ import annotations

import numpy as np
from pydantic import PositiveInt

from fednet_emu.arrays import IntArray
from fednet_emu.errors import ScenarioError
from fednet_emu.learning.data.datasets.base import Samples
from fednet_emu.learning.data.partitions.base import NOBODY, Partition, Partitioned, even_shares, require_samples


class Iid(Partition):
    """Samples drawn at random without replacement; numbers of samples per device differ by at most one."""

    per_device: PositiveInt | None = None
    """Number of training samples of each device; the remaining ones are not used. Null distributes all samples."""

    def split(self, samples: Samples, n_devices: int, rng: np.random.Generator) -> tuple[Partitioned, Partitioned]:
        """Shuffle, then cut into equal shares."""
        shares = self._shares(len(samples.train_y), n_devices), even_shares(len(samples.test_y), n_devices)
        train, test = (Partitioned.from_owners(rng.permutation(owners), n_devices) for owners in shares)
        require_samples(train, self.kind, f"use at most {len(samples.train_y)} devices")
        return train, test

    def _shares(self, n_samples: int, n_devices: int) -> IntArray:
        """The owner of each training sample before they are shuffled."""
        wanted = n_samples if self.per_device is None else self.per_device * n_devices
        if wanted > n_samples:
            raise ScenarioError(
                f"partition.per_device: more than there is, got {self.per_device} for each of {n_devices} devices; "
                f"must be at most {n_samples // n_devices}"
            )
        return np.concatenate([even_shares(wanted, n_devices), np.full(n_samples - wanted, NOBODY)])
