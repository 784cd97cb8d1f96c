"""What a partition is: a law that deals samples out to devices, and the split that comes of it."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Self

import numpy as np

from fednet_emu.arrays import IntArray
from fednet_emu.component import Component
from fednet_emu.errors import ScenarioError
from fednet_emu.learning.data.datasets.base import Samples

NOBODY = -1
"""Owner of a sample that no device holds."""


@dataclass(frozen=True, eq=False)
class Partitioned:
    """Which samples each device owns, in compressed rows.

    Attributes:
        order: int64 [n_owned] sample indices, device after device, ascending within a device unless there are sets.
        offsets: int64 [n_devices + 1]; device d owns order[offsets[d]:offsets[d + 1]].
        sets: int64 [n_owned] which set of its device each of these is in, where a partition makes sets; a sample that
            is in several of them is owned as often.
    """

    order: IntArray
    offsets: IntArray
    sets: IntArray | None = None

    @classmethod
    def from_owners(cls, owners: IntArray, n_devices: int) -> Self:
        """The split in which sample i belongs to device owners[i], or to nobody where that is negative."""
        unowned = np.count_nonzero(owners < 0)
        sizes = np.bincount(owners[owners >= 0], minlength=n_devices)
        return cls(
            order=np.argsort(owners, kind="stable")[unowned:],
            offsets=np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64),
        )

    def of(self, device: int) -> IntArray:
        """The sample indices of one device, as a view."""
        return self.order[self.offsets[device] : self.offsets[device + 1]]

    def sizes(self) -> IntArray:
        """How many samples each device owns, [n_devices]."""
        return np.diff(self.offsets)


class Partition(Component):
    """A law by which samples are dealt out to devices."""

    @abstractmethod
    def split(self, samples: Samples, n_devices: int, rng: np.random.Generator) -> tuple[Partitioned, Partitioned]:
        """Deal the training and the test samples out by the same law with the same draws.

        No sample goes to two devices. A device may own no test sample.

        Args:
            samples: Only labels, groups and lengths are looked at.
            n_devices: How many devices there are.
            rng: Random stream of the draws.

        Raises:
            ScenarioError: The law cannot be followed with these samples and so many devices.
        """


def labels_of(samples: Samples, kind: str) -> tuple[IntArray, IntArray, int]:
    """Training labels, test labels and the number of classes, for a law that needs them.

    Raises:
        ScenarioError: The samples are those of a regression.
    """
    if samples.classes is None:
        raise ScenarioError(f"partition: {kind} deals by class, got a regression without classes; use iid or group")
    return samples.train_y.numpy(), samples.test_y.numpy(), samples.classes


def members_by_class(labels: IntArray, classes: int, rng: np.random.Generator) -> list[IntArray]:
    """The sample indices of each class, in random order."""
    shuffled = rng.permutation(len(labels))
    values = labels[shuffled]
    by_class = shuffled[np.argsort(values, kind="stable")]
    return np.split(by_class, np.cumsum(np.bincount(values, minlength=classes))[:-1])


def even_shares(n_items: int, n_parts: int) -> IntArray:
    """Part of each item, ascending [n_items]; parts differ by at most one item, the first ones are the larger."""
    sizes = np.full(n_parts, n_items // n_parts)
    sizes[: n_items % n_parts] += 1
    return np.repeat(np.arange(n_parts), sizes)


def require_samples(split: Partitioned, kind: str, remedy: str) -> None:
    """See to it that every device can train.

    Raises:
        ScenarioError: A device owns no sample.
    """
    empty = np.flatnonzero(split.sizes() == 0)
    if len(empty):
        found = f"got {len(empty)} of {len(split.sizes())} devices without, the first is number {empty[0]}"
        raise ScenarioError(f"partition: {kind} must leave every device a training sample, {found}; {remedy}")
