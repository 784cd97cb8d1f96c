"""Partitions that distribute samples among devices evenly, by label, in unequal amounts, or by owner."""

from __future__ import annotations

from typing import Literal

import numpy as np
from pydantic import Field, NonNegativeInt, PositiveInt

from fednet_emu.arrays import Array, IntArray
from fednet_emu.errors import ScenarioError
from fednet_emu.learning.data.datasets.base import Samples
from fednet_emu.learning.data.partitions.base import (
    NOBODY,
    Partition,
    Partitioned,
    dealt_by_class,
    even_shares,
    labels_of,
    members_by_class,
    require_samples,
)


class Iid(Partition):
    """Every device gets a random part of the samples, and all parts have the same size, up to one sample."""

    per_device: PositiveInt | None = None
    """Number of training samples per device. The remaining samples are not used. Null distributes all of them."""

    def split(self, samples: Samples, n_devices: int, rng: np.random.Generator) -> tuple[Partitioned, Partitioned]:
        shares = self._shares(len(samples.train_y), n_devices), even_shares(len(samples.test_y), n_devices)
        train, test = (Partitioned.from_owners(rng.permutation(owners), n_devices) for owners in shares)
        require_samples(train, self.kind, f"use at most {len(samples.train_y)} devices")
        return train, test

    def _shares(self, n_samples: int, n_devices: int) -> IntArray:
        """Return the owner of each training sample, before the owners are permuted at random."""
        wanted = n_samples if self.per_device is None else self.per_device * n_devices
        if wanted > n_samples:
            raise ScenarioError(
                f"partition.per_device: more than there is, got {self.per_device} for each of {n_devices} devices; "
                f"must be at most {n_samples // n_devices}"
            )
        return np.concatenate([even_shares(wanted, n_devices), np.full(n_samples - wanted, NOBODY)])


class Shards(Partition):
    """Samples are sorted by label and cut into equal shards, and each device gets some random shards.

    The test samples are sorted, cut and assigned in the same way. If classes have the same frequencies in the training
    and the test set, a device therefore has the same classes in both.
    """

    shards_per_device: PositiveInt = 2
    """Number of shards per device. It is about the number of classes per device."""

    def split(self, samples: Samples, n_devices: int, rng: np.random.Generator) -> tuple[Partitioned, Partitioned]:
        train_y, test_y, _ = labels_of(samples, self.kind)
        holders = rng.permutation(np.repeat(np.arange(n_devices), self.shards_per_device))
        train, test = _dealt_shards(train_y, holders, n_devices), _dealt_shards(test_y, holders, n_devices)
        require_samples(train, self.kind, f"use at most {len(train_y)} shards in all, not {len(holders)}")
        return train, test


def _dealt_shards(labels: IntArray, holders: IntArray, n_devices: int) -> Partitioned:
    owners = np.empty(len(labels), np.int64)
    owners[np.argsort(labels, kind="stable")] = holders[even_shares(len(labels), len(holders))]
    return Partitioned.from_owners(owners, n_devices)


class OneClass(Partition):
    """Each device owns samples of a single class; the devices of a class share its samples equally.

    The class of device d is d mod K, where K is the number of classes. If there are fewer devices than classes, the
    samples of the last classes belong to no device.
    """

    def split(self, samples: Samples, n_devices: int, rng: np.random.Generator) -> tuple[Partitioned, Partitioned]:
        train_y, test_y, classes = labels_of(samples, self.kind)
        holders = [np.arange(label, n_devices, classes) for label in range(classes)]
        train, test = (dealt_by_class(labels, holders, n_devices, rng) for labels in (train_y, test_y))
        require_samples(train, self.kind, "use fewer devices, or data with more samples of each class")
        return train, test


class LabelsPerDevice(Partition):
    """Each device has the same number of different labels; the devices with a label share its samples equally.

    This is the partition `#C=k` of NIID-Bench. If the data have K labels, device d has the label d mod K, and its
    further labels are random. If there are fewer devices than labels, the samples of labels that no device has are not
    used.
    """

    labels: PositiveInt = 2
    """Number k of labels per device."""

    def split(self, samples: Samples, n_devices: int, rng: np.random.Generator) -> tuple[Partitioned, Partitioned]:
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


class WangCases(Partition):
    """The four partitions of Wang et al. (IEEE JSAC 37(6), 2019), called cases 1 to 4, which are not random.

    There are n devices and C labels. Case 1 assigns sample i to device i mod n. Case 2 assigns all samples of label l
    to device l mod n. Case 3 assigns all samples to every device. Case 4 uses m = ceil(min(n, C) / 2) devices for the
    first half of the labels, and assigns sample i of these to device i mod m. It assigns all samples of a label l in
    the second half to device m + l mod (min(n, C) - m). If the data have groups, such as the digits in data of even and
    odd digits, the label of a sample is its group. Otherwise, it is its class.
    """

    case: Literal[1, 2, 3, 4] = 1
    """Number of the case, as in the paper."""

    def split(self, samples: Samples, n_devices: int, rng: np.random.Generator) -> tuple[Partitioned, Partitioned]:
        if samples.train_group is not None and samples.test_group is not None:
            train_l, test_l = samples.train_group, samples.test_group
        else:
            train_l, test_l, _ = labels_of(samples, self.kind)
        lowest, count = int(train_l.min()), int(train_l.max() - train_l.min()) + 1
        if n_devices > count and self.case in (2, 4):
            what = f"has at most one device for each of {count} labels, got {n_devices} devices"
            raise ScenarioError(f"partition: wang-cases {what}; use fewer, or another partition")
        train, test = (self._split(its - lowest, count, n_devices) for its in (train_l, test_l))
        require_samples(train, self.kind, "use fewer devices")
        return train, test

    def _split(self, labels: IntArray, count: int, n: int) -> Partitioned:
        i, half = np.arange(len(labels)), -(-min(n, count) // 2)
        if self.case == 3:
            return Partitioned(np.tile(i, n), np.arange(n + 1) * len(labels))
        if self.case == 1:
            owners = i % n
        elif self.case == 2:
            owners = labels % n
        else:
            second = labels % max(1, min(n, count) - half) + half
            owners = np.where(labels < (count - 1) / 2, i % half, np.minimum(second, n - 1))
        return Partitioned.from_owners(owners, n)


MAX_DRAWS = 1000
"""Maximum number of times that the shares are drawn. If `min_samples` is then not reached, an error is raised."""

_MAX_NUMBERS = 20_000_000  # limit on drawn numbers: with very many devices, an error appears within seconds


class Dirichlet(Partition):
    """The samples of each class are divided among the devices in random proportions from a Dirichlet distribution.

    The proportions p ~ Dir(alpha, ..., alpha) are drawn separately for each class. With a small `alpha`, a device has
    few classes, and devices have unequal numbers of samples. With a large `alpha`, the partition approaches the iid
    one. Proportions are drawn again until every device owns at least `min_samples` training samples. The test samples
    of a class are divided in the same proportions.
    """

    alpha: float = Field(gt=0)
    """Concentration alpha of the Dirichlet distribution. With a smaller value, a device has fewer classes."""
    min_samples: NonNegativeInt = 1
    """Minimum number of training samples per device. 0 allows devices without training samples."""
    self_balancing: bool = False
    """Whether a device gets no samples of further classes once it owns 1 / (number of devices) of all samples. Devices
    then differ less in their number of samples. The code of NIID-Bench does this, with a `min_samples` of 10."""

    def split(self, samples: Samples, n_devices: int, rng: np.random.Generator) -> tuple[Partitioned, Partitioned]:
        train_y, test_y, classes = labels_of(samples, self.kind)
        shares = self._draw_shares(np.bincount(train_y, minlength=classes), n_devices, rng)
        return _dealt_by_shares(train_y, shares, rng), _dealt_by_shares(test_y, shares, rng)

    def _draw_shares(self, class_sizes: IntArray, n_devices: int, rng: np.random.Generator) -> Array:
        """Draw the share of each class that each device gets, as an array [classes, n_devices]."""
        total = int(class_sizes.sum())
        if n_devices * self.min_samples > total:
            wanted = f"must be at most {total // n_devices} with {n_devices} devices and {total} samples"
            raise ScenarioError(f"partition.min_samples: {wanted}, got {self.min_samples}; lower it")
        smallest = 0
        n_draws = max(1, min(MAX_DRAWS, _MAX_NUMBERS // (len(class_sizes) * n_devices)))
        for _ in range(n_draws):
            shares = rng.dirichlet(np.full(n_devices, self.alpha), size=len(class_sizes))
            if self.self_balancing:
                _withhold(shares, class_sizes)
            sizes = _counts(shares, class_sizes).sum(axis=0)
            smallest = max(smallest, int(sizes.min()))
            if smallest >= self.min_samples:
                return shares
        found = f"every device must own {self.min_samples} samples, got {smallest} at best in {n_draws} draws"
        situation = f"with {n_devices} devices, {total} samples and alpha={self.alpha:g}"
        remedy = "lower min_samples (0 allows devices without samples), raise alpha or use fewer devices"
        raise ScenarioError(f"partition.min_samples: {found} {situation}; {remedy}")


def _withhold(shares: Array, class_sizes: IntArray) -> None:
    """Give no samples of further classes to devices that already have an even share of all samples.

    The class shares `shares` [classes, n_devices] are changed in place. The remaining devices divide a class in
    proportion to their previous shares.
    """
    has = np.zeros(shares.shape[1], np.int64)
    for label, size in enumerate(class_sizes):
        open_to = has * len(has) < class_sizes.sum()
        given = shares[label] * open_to
        shares[label] = given / given.sum() if given.any() else open_to / open_to.sum()
        has += _counts(shares[[label]], size[None])[0]


def _counts(shares: Array, class_sizes: IntArray) -> IntArray:
    """Return sample counts [classes, n_devices] from class shares, rounded so that rows sum to the class sizes."""
    cuts = np.rint(np.cumsum(shares, axis=1) * class_sizes[:, None]).astype(np.int64)
    cuts[:, -1] = class_sizes
    return np.diff(np.minimum(cuts, class_sizes[:, None]), axis=1, prepend=0)


def _dealt_by_shares(labels: IntArray, shares: Array, rng: np.random.Generator) -> Partitioned:
    """Return a random distribution in which device d owns the share `shares[c, d]` of the samples of class c."""
    classes, n_devices = shares.shape
    counts = _counts(shares, np.bincount(labels, minlength=classes))
    owners = np.empty(len(labels), np.int64)
    for members, per_device in zip(members_by_class(labels, classes, rng), counts, strict=True):
        owners[members] = np.repeat(np.arange(n_devices), per_device)
    return Partitioned.from_owners(owners, n_devices)


class QuantitySkew(Partition):
    """Devices get random samples, in unequal numbers that are drawn from a Dirichlet distribution.

    This is the partition `q ~ Dir(beta)` of NIID-Bench, where q are the devices' shares of all samples. All devices
    have the same distribution of labels. The shares are drawn again until every device owns at least `min_samples`
    training samples. The test samples are divided by the same shares.
    """

    beta: float = Field(0.5, gt=0)
    """Concentration beta of the Dirichlet distribution. With a smaller value, the numbers of samples are less equal."""
    min_samples: NonNegativeInt = 1
    """Minimum number of training samples per device. 0 allows devices without training samples."""

    def split(self, samples: Samples, n_devices: int, rng: np.random.Generator) -> tuple[Partitioned, Partitioned]:
        total = len(samples.train_y)
        train_y, test_y = (np.zeros(len(y), np.int64) for y in (samples.train_y, samples.test_y))  # as of one class
        for _ in range(MAX_DRAWS):
            shares = rng.dirichlet(np.full(n_devices, self.beta), size=1)
            train = _dealt_by_shares(train_y, shares, rng)
            if train.sizes().min() >= self.min_samples:
                return train, _dealt_by_shares(test_y, shares, rng)
        situation = f"with {n_devices} devices, {total} samples and beta={self.beta:g}"
        raise ScenarioError(
            f"partition.min_samples: not reached in {MAX_DRAWS} draws {situation}, got {self.min_samples}; "
            "lower it, raise beta, or use fewer devices"
        )


class Group(Partition):
    """Each device gets whole groups of samples, where the data set defines the groups, such as writers or subjects.

    If there are as many devices as groups, device d owns the d-th group in ascending order. If there are fewer devices,
    groups are distributed at random, and all devices get the same number of groups, up to one. A test sample belongs to
    the device that owns its group. Test samples without a group, or of a group without training samples, belong to no
    device.
    """

    def split(self, samples: Samples, n_devices: int, rng: np.random.Generator) -> tuple[Partitioned, Partitioned]:
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
        owners = np.full(len(samples.test_y), NOBODY, np.int64)
        if samples.test_group is not None:
            nearest = np.minimum(np.searchsorted(groups, samples.test_group), len(groups) - 1)
            owners = np.where(groups[nearest] == samples.test_group, holders[nearest], NOBODY)
        train = Partitioned.from_owners(holders[group_of_sample], n_devices)
        return train, Partitioned.from_owners(owners, n_devices)
