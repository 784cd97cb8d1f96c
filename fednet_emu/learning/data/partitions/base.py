"""The base class of partitions, which distribute samples among devices, and the class of the resulting split."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
import torch
from torch import Tensor

from fednet_emu.arrays import IntArray
from fednet_emu.component.component import Component
from fednet_emu.errors import ScenarioError
from fednet_emu.learning.data.datasets.base import Samples, with_training_rows

NOBODY = -1
"""Owner index of a sample that belongs to no device."""


@dataclass(frozen=True, eq=False)
class Partitioned:
    """The samples that each device owns, stored as indices device by device (compressed row format).

    Attributes:
        order: int64 [n_owned] sample indices, device by device. They are ascending within a device if `sets` is None.
        sets: int64 [n_owned] index, within its device, of the set to which each entry of `order` belongs. A sample in
            several sets has one entry per set. None if the partition makes no sets.
    """

    order: IntArray
    offsets: IntArray  # int64 [n_devices + 1]; device d owns order[offsets[d]:offsets[d + 1]]
    sets: IntArray | None = None

    @classmethod
    def from_owners(cls, owners: IntArray, n_devices: int) -> Self:
        """Return the distribution in which device `owners[i]` owns sample i; a negative entry means no owner."""
        n, unowned = len(owners), np.count_nonzero(owners < 0)
        sizes = np.bincount(owners[owners >= 0] if unowned else owners, minlength=n_devices)
        places = np.sort(owners * n + np.arange(n))  # sorting the numbers takes a third of the time of a stable argsort
        return cls(order=places[unowned:] % max(n, 1), offsets=np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64))

    def of(self, device: int) -> IntArray:
        return self.order[self.offsets[device] : self.offsets[device + 1]]

    def sizes(self) -> IntArray:
        return np.diff(self.offsets)


class Partition(Component):
    """A rule that distributes samples among devices."""

    @abstractmethod
    def split(self, samples: Samples, n_devices: int, rng: np.random.Generator) -> tuple[Partitioned, Partitioned]:
        """Distribute the training and the test samples among devices, by the same rule and with the same random draws.

        A sample belongs to at most one device, unless the rule allows more. A device may have no test samples. The
        split depends only on the number, the labels and the groups of the samples.

        Raises:
            ScenarioError: The rule cannot be applied to these samples and this number of devices.
        """


def labels_of(samples: Samples, kind: str) -> tuple[IntArray, IntArray, int]:
    """Return the training labels, the test labels and the number of classes; refuse samples without classes."""
    if samples.classes is None:
        found = f"data for {samples.task} without classes"
        raise ScenarioError(f"partition: {kind} deals by class, got {found}; use iid or group")
    return samples.train_y.numpy(), samples.test_y.numpy(), samples.classes


def members_by_class(labels: IntArray, classes: int, rng: np.random.Generator) -> list[IntArray]:
    """Return the sample indices of each class, in random order."""
    shuffled = rng.permutation(len(labels))
    values = labels[shuffled]
    by_class = shuffled[np.argsort(values, kind="stable")]
    return np.split(by_class, np.cumsum(np.bincount(values, minlength=classes))[:-1])


def even_shares(n_items: int, n_parts: int) -> IntArray:
    """Return the part [n_items] of each item, ascending, for equal parts; the first may have one item more."""
    sizes = np.full(n_parts, n_items // n_parts)
    sizes[: n_items % n_parts] += 1
    return np.repeat(np.arange(n_parts), sizes)


def dealt_by_class(
    labels: IntArray, holders: Sequence[IntArray], n_devices: int, rng: np.random.Generator
) -> Partitioned:
    """Return the distribution in which the devices `holders[c]`, if any, share the samples of class c equally."""
    owners = np.full(len(labels), NOBODY, np.int64)
    for members, devices in zip(members_by_class(labels, len(holders), rng), holders, strict=True):
        if len(devices):
            owners[members] = devices[even_shares(len(members), len(devices))]
    return Partitioned.from_owners(owners, n_devices)


def require_samples(split: Partitioned, kind: str, remedy: str) -> None:
    """Raise a `ScenarioError` unless every device has training samples."""
    empty = np.flatnonzero(split.sizes() == 0)
    if len(empty):
        found = f"got {len(empty)} of {len(split.sizes())} devices without, the first is number {empty[0]}"
        raise ScenarioError(f"partition: {kind} must leave every device a training sample, {found}; {remedy}")


@dataclass(frozen=True, eq=False)
class Held:
    """Labelled samples x [n, ...] and y [n] that are held out for the server or for validation."""

    x: Tensor
    y: Tensor

    @classmethod
    def nothing(cls, samples: Samples) -> Held:
        """Return an empty set of samples, in copied tensors, because views would keep all samples in memory."""
        return cls(samples.train_x[:0].clone(), samples.train_y[:0].clone())


def hold_out(
    samples: Samples, n_server: int, n_validation: int, rng: np.random.Generator
) -> tuple[Samples, Held, Held]:
    """Hold out random training samples for the server and for validation.

    Return the remaining samples, the samples of the server, and the validation samples. Raise a `ScenarioError` if no
    sample remains.
    """
    n_all = len(samples.train_y)
    if n_server + n_validation >= n_all:
        raise ScenarioError(
            f"server: samples and validation_samples leave the devices none, got {n_server} and {n_validation}; "
            f"there are {n_all} training samples"
        )
    none = Held.nothing(samples)
    if n_server + n_validation == 0:
        return samples, none, none
    parts = np.split(rng.permutation(n_all), [n_server, n_server + n_validation])
    server, validation = (
        Held(samples.train_x[rows], samples.train_y[rows]) for rows in map(torch.from_numpy, map(np.sort, parts[:2]))
    )
    return with_training_rows(samples, np.sort(parts[2])), server, validation
