"""The natural split: the samples of one writer, subject or site stay together."""

from __future__ import annotations

import numpy as np

from fednet_emu.arrays import IntArray
from fednet_emu.errors import ScenarioError
from fednet_emu.learning.data.datasets.base import Samples
from fednet_emu.learning.data.partitions.base import NOBODY, Partition, Partitioned, even_shares


class Group(Partition):
    """Each device gets whole groups of samples, as defined by the dataset.

    With as many devices as groups, device d owns the d-th group in ascending order; with fewer, the groups are
    distributed at random, and their numbers per device differ by at most one. Test samples follow their group; test
    samples of groups that are not in the training set, or of datasets without test groups, belong to no device.
    """

    def split(self, samples: Samples, n_devices: int, rng: np.random.Generator) -> tuple[Partitioned, Partitioned]:
        """Draw the device of each group, then assign training and test samples by group."""
        if samples.train_group is None:
            remedy = "use data with a train_group, or another partition such as iid"
            raise ScenarioError(
                f"partition: group needs to know whose each sample is, got data without groups; {remedy}"
            )
        groups, group_of_sample = np.unique(samples.train_group, return_inverse=True)
        if n_devices > len(groups):
            found = f"group leaves devices without samples, got {n_devices} devices for {len(groups)} groups"
            raise ScenarioError(f"partition: {found}; use at most {len(groups)} devices")
        holders = even_shares(len(groups), n_devices)
        if n_devices < len(groups):
            holders = rng.permutation(holders)
        train = Partitioned.from_owners(holders[group_of_sample], n_devices)
        return train, Partitioned.from_owners(_test_owners(samples, groups, holders), n_devices)


def _test_owners(samples: Samples, groups: IntArray, holders: IntArray) -> IntArray:
    if samples.test_group is None:
        return np.full(len(samples.test_y), NOBODY, np.int64)
    nearest = np.minimum(np.searchsorted(groups, samples.test_group), len(groups) - 1)
    return np.where(groups[nearest] == samples.test_group, holders[nearest], NOBODY)
