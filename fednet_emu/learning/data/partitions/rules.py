"""Rules that distribute real samples among devices: evenly, by label, by size, or by owner."""

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
    """Samples drawn at random without replacement; device sizes differ by at most one sample."""

    per_device: PositiveInt | None = None
    """Number of training samples per device; further samples are not used. Null distributes all training samples."""

    def split(self, samples: Samples, n_devices: int, rng: np.random.Generator) -> tuple[Partitioned, Partitioned]:
        shares = self._shares(len(samples.train_y), n_devices), even_shares(len(samples.test_y), n_devices)
        train, test = (Partitioned.from_owners(rng.permutation(owners), n_devices) for owners in shares)
        require_samples(train, self.kind, f"use at most {len(samples.train_y)} devices")
        return train, test

    def _shares(self, n_samples: int, n_devices: int) -> IntArray:
        """Return the owner of each training sample, before the owners are shuffled."""
        wanted = n_samples if self.per_device is None else self.per_device * n_devices
        if wanted > n_samples:
            raise ScenarioError(
                f"partition.per_device: more than there is, got {self.per_device} for each of {n_devices} devices; "
                f"must be at most {n_samples // n_devices}"
            )
        return np.concatenate([even_shares(wanted, n_devices), np.full(n_samples - wanted, NOBODY)])


class Shards(Partition):
    """Samples sorted by label are cut into equal shards, and each device gets `shards_per_device` random shards.

    The test samples are sorted, cut and assigned in the same way. A device therefore has the same classes in both sets
    if the class frequencies of both sets are equal.
    """

    shards_per_device: PositiveInt = 2
    """Number of shards per device, which is about the number of classes per device."""

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
    """Of K classes, device d owns samples of class d mod K only; devices of one class share its samples equally.

    With fewer devices than classes, the samples of the last classes belong to no device.
    """

    def split(self, samples: Samples, n_devices: int, rng: np.random.Generator) -> tuple[Partitioned, Partitioned]:
        train_y, test_y, classes = labels_of(samples, self.kind)
        holders = [np.arange(label, n_devices, classes) for label in range(classes)]
        train, test = (dealt_by_class(labels, holders, n_devices, rng) for labels in (train_y, test_y))
        require_samples(train, self.kind, "use fewer devices, or data with more samples of each class")
        return train, test


class LabelsPerDevice(Partition):
    """Each device has `labels` different labels, and the devices with a label share its samples equally.

    As `#C=k` in NIID-Bench: of K labels, device d has label d mod K and further labels at random. With fewer devices
    than labels, the samples of a label without a device are not used.
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
    """The four cases of Wang et al., IEEE Journal on Selected Areas in Communications 37(6), 2019, without randomness.

    With n devices and C labels, case 1 gives sample i to device i mod n. Case 2 gives label l to device l mod n. Case 3
    gives all samples to every device. Case 4 gives sample i of the first half of the labels to device i mod m, with m =
    ceil(min(n, C) / 2), and label l of the second half to device m + l mod (min(n, C) - m). The label of a sample is
    its group if the data have groups (the digit, in data of even and odd digits), or else its class.
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
"""Maximum number of draws of the shares; after that, `min_samples` counts as unreachable."""

_MAX_NUMBERS = 20_000_000  # limit on drawn numbers: with very many devices, an error appears within seconds


class Dirichlet(Partition):
    """Each class is shared among the devices in proportions p ~ Dir(alpha, ..., alpha), drawn per class.

    A small `alpha` leaves each device few classes and makes device sizes unequal; a large `alpha` approaches iid. The
    proportions are redrawn until every device owns `min_samples` training samples. The test samples of a class are
    shared in the same proportions.
    """

    alpha: float = Field(gt=0)
    """Concentration alpha of the Dirichlet distribution; a smaller value means fewer classes per device."""
    min_samples: NonNegativeInt = 1
    """Minimum number of training samples per device; 0 allows devices without samples."""
    self_balancing: bool = False
    """Whether a device that already has an even share of all samples, 1 / (number of devices), gets no samples of
    further classes, as in the code of NIID-Bench with a `min_samples` of 10. Device sizes then differ less."""

    def split(self, samples: Samples, n_devices: int, rng: np.random.Generator) -> tuple[Partitioned, Partitioned]:
        train_y, test_y, classes = labels_of(samples, self.kind)
        shares = self._draw_shares(np.bincount(train_y, minlength=classes), n_devices, rng)
        return _dealt_by_shares(train_y, shares, rng), _dealt_by_shares(test_y, shares, rng)

    def _draw_shares(self, class_sizes: IntArray, n_devices: int, rng: np.random.Generator) -> Array:
        """Return the share [classes, n_devices] of each class that each device gets."""
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
    """Set a class share [classes, n_devices] to 0 for devices that already have an even share of all samples.

    The remaining devices share the class in proportion to their previous shares.
    """
    has = np.zeros(shares.shape[1], np.int64)
    for label, size in enumerate(class_sizes):
        open_to = has * len(has) < class_sizes.sum()
        given = shares[label] * open_to
        shares[label] = given / given.sum() if given.any() else open_to / open_to.sum()
        has += _counts(shares[[label]], size[None])[0]


def _counts(shares: Array, class_sizes: IntArray) -> IntArray:
    """Return the sample counts [classes, n_devices]: share x class size, rounded; rows sum to the class size."""
    cuts = np.rint(np.cumsum(shares, axis=1) * class_sizes[:, None]).astype(np.int64)
    cuts[:, -1] = class_sizes
    return np.diff(np.minimum(cuts, class_sizes[:, None]), axis=1, prepend=0)


def _dealt_by_shares(labels: IntArray, shares: Array, rng: np.random.Generator) -> Partitioned:
    classes, n_devices = shares.shape
    counts = _counts(shares, np.bincount(labels, minlength=classes))
    owners = np.empty(len(labels), np.int64)
    for members, per_device in zip(members_by_class(labels, classes, rng), counts, strict=True):
        owners[members] = np.repeat(np.arange(n_devices), per_device)
    return Partitioned.from_owners(owners, n_devices)


class QuantitySkew(Partition):
    """Samples are distributed at random, with device sizes in proportions from one draw of Dir(beta, ..., beta).

    As `q ~ Dir(beta)` in NIID-Bench: all devices have the same distribution of labels, and different numbers of
    samples. The proportions are redrawn until every device owns `min_samples` training samples, and are also used for
    test samples.
    """

    beta: float = Field(0.5, gt=0)
    """Concentration beta of the Dirichlet distribution; a smaller value makes device sizes less equal."""
    min_samples: NonNegativeInt = 1
    """Minimum number of training samples per device; 0 allows devices without training samples."""

    def split(self, samples: Samples, n_devices: int, rng: np.random.Generator) -> tuple[Partitioned, Partitioned]:
        total = len(samples.train_y)
        for _ in range(MAX_DRAWS):
            shares = rng.dirichlet(np.full(n_devices, self.beta))
            train = _dealt_at_random(total, shares, rng)
            if train.sizes().min() >= self.min_samples:
                return train, _dealt_at_random(len(samples.test_y), shares, rng)
        situation = f"with {n_devices} devices, {total} samples and beta={self.beta:g}"
        raise ScenarioError(
            f"partition.min_samples: not reached in {MAX_DRAWS} draws {situation}, got {self.min_samples}; "
            "lower it, raise beta, or use fewer devices"
        )


def _dealt_at_random(total: int, shares: Array, rng: np.random.Generator) -> Partitioned:
    """Return a random split of `total` samples, in which device d owns the share `shares[d]` of the samples."""
    cuts = np.rint(np.cumsum(shares) * total).astype(np.int64)
    cuts[-1] = total
    sizes = np.diff(np.minimum(cuts, total), prepend=0)
    owners = np.empty(total, np.int64)
    owners[rng.permutation(total)] = np.repeat(np.arange(len(shares)), sizes)
    return Partitioned.from_owners(owners, len(shares))


class Group(Partition):
    """Each device gets whole groups of samples, as the data set defines them.

    With as many devices as groups, device d owns the d-th group in ascending order. With fewer devices, the groups are
    distributed at random, and the group counts of devices differ by at most one. Test samples belong to the device of
    their group. Test samples without a group, or of a group that has no training samples, belong to no device.
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
