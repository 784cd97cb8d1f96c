"""The partition of FedUL (Lu et al., ICLR 2022), in which devices hold unlabelled sets with known class shares.

Source: https://openreview.net/forum?id=WHA8009laxu and the authors' public data generator. This module differs from the
generator in three points. If `skew` is `non-iid`, samples of a class are drawn at random, not in stored order. If a
class then has too few samples, the devices that own the class get fewer of them, so that every device has samples of
every class. Otherwise, the transition matrix of a device would have no inverse. If `skew` is `iid` and there are more
sets than classes, all samples are used.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from pydantic import Field, PositiveInt

from fednet_emu.arrays import Array, IntArray, Mask
from fednet_emu.errors import ScenarioError
from fednet_emu.learning.data.datasets.base import Samples
from fednet_emu.learning.data.partitions.base import (
    Partition,
    Partitioned,
    labels_of,
    members_by_class,
    require_samples,
)
from fednet_emu.learning.data.partitions.rules import Iid

DOMINANCE = 10.0
"""Factor by which the weight of a set's dominant class is multiplied, after all weights are drawn from U(0.1, 1)."""

OWN_CLASS = 80.0
"""Factor by which the weights of a device's own two classes are multiplied if `skew` is `non-iid`, after all weights
are drawn from U(0.45, 0.55)."""


class SurrogateSets(Partition):
    """Every device holds several sets of samples, and each set is dominated by another class.

    Of K classes, class m mod K dominates set m.

    First, the training samples are distributed among devices. If `skew` is `iid`, every device gets an equal random
    share. If `skew` is `non-iid`, device d owns the classes 2d and 2d + 1 (mod K). If K = 10, each of its own classes
    makes up about 47.6 % of its samples, and each other class 0.6 %; counts are rounded down. If a class has too few
    samples, the devices that do not own it still get their 0.6 %. The devices that own it share the remaining samples
    in proportion. An error is raised if the class has too few samples even for the 0.6 %.

    Second, each device draws its sets from its own samples. If `skew` is `iid`, all devices use the same matrix of
    class shares, whose columns sum to one, so that every class is spread over the sets. If `skew` is `non-iid`, each
    device draws its own matrix. If the device has too few samples of a class, it uses fewer samples.

    If `overlap` is `public`, every set is drawn from all samples of the device, as in the authors' code, so that a
    sample may be in several sets. If it is `disjoint`, a sample is in at most one set. If a class then has too few
    samples, the sets share them in proportion. Samples that are in no set are not used. Test samples are distributed
    iid.
    """

    skew: Literal["iid", "non-iid"]
    """Distribution of samples among devices before the sets are drawn. iid: equal random parts; non-iid: mostly samples
    of two classes per device."""
    sets: int = Field(10, ge=2)
    """Number of sets per device."""
    overlap: Literal["public", "disjoint"] = "public"
    """Whether the sets of a device overlap. public: a sample may be in several sets; disjoint: it is in at most one."""
    samples_per_device: PositiveInt | None = None
    """Number of samples per device, from which the sets are drawn. Null distributes all samples. If `skew` is
    `non-iid`, a device gets fewer samples when its two main classes have too few."""

    def split(self, samples: Samples, n_devices: int, rng: np.random.Generator) -> tuple[Partitioned, Partitioned]:
        labels, _, classes = labels_of(samples, self.kind)
        size = min(len(labels) // n_devices, self.samples_per_device or len(labels))
        pools = self._pools(members_by_class(labels, classes, rng), n_devices, size, rng)
        common = np.sum([set_priors(self.sets, classes, rng) for _ in range(n_devices)], axis=0)
        order, sets = [], []
        for pool in pools:
            if self.skew == "iid":
                wanted = common / common.sum(axis=0) * (size / classes)
            else:
                wanted = set_priors(self.sets, classes, rng) * (size // self.sets)
            chosen = self._draw_sets(pool, wanted, rng)
            order += chosen
            sets += [np.repeat(np.arange(self.sets), [len(members) for members in chosen])]
        train = Partitioned(np.concatenate(order), np.cumsum([0, *map(len, sets)]), np.concatenate(sets))
        require_samples(train, self.kind, "use fewer devices, or data with more samples")
        return train, Iid().split(samples, n_devices, rng)[1]

    def _pools(
        self, by_class: list[IntArray], n_devices: int, size: int, rng: np.random.Generator
    ) -> list[list[IntArray]]:
        """Return the samples from which each device draws its sets, by class, as lists [devices][classes]."""
        if self.skew == "iid":
            everything = rng.permutation(np.concatenate(by_class))[: n_devices * size]
            class_of = np.repeat(np.arange(len(by_class)), [len(members) for members in by_class])
            class_of = class_of[np.argsort(np.concatenate(by_class))]
            return [
                [part[class_of[part] == label] for label in range(len(by_class))]
                for part in np.split(everything, n_devices)
            ]
        wanted = np.floor(size * device_priors(n_devices, len(by_class), rng)).astype(np.int64)
        dealt = deal(wanted, own_classes(n_devices, len(by_class)), np.array([len(members) for members in by_class]))
        ends = np.cumsum(dealt, axis=0)
        return [
            [members[end - n : end] for members, n, end in zip(by_class, *rows, strict=True)]
            for rows in zip(dealt, ends, strict=True)
        ]

    def _draw_sets(self, pool: list[IntArray], wanted: Array, rng: np.random.Generator) -> list[IntArray]:
        """Draw the samples of each set. `wanted` [sets, classes] are the numbers of samples, which are rounded down."""
        available = np.array([len(members) for members in pool])
        if self.overlap == "public":
            counts = wanted.astype(np.int64)
            return [
                np.concatenate([rng.permutation(members)[:n] for members, n in zip(pool, row, strict=True)])
                for row in counts
            ]
        scale = np.minimum(1.0, available / np.maximum(wanted.sum(axis=0), 1e-12))
        counts = (wanted * scale + 1e-9).astype(np.int64)
        parts = [np.split(members, np.cumsum(column)) for members, column in zip(pool, counts.T, strict=True)]
        return [np.concatenate([of_class[place] for of_class in parts]) for place in range(len(counts))]


def set_priors(n_sets: int, classes: int, rng: np.random.Generator) -> Array:
    """Draw the class shares of a device's sets, as an array [sets, classes].

    The shares are weights from U(0.1, 1), with `DOMINANCE` times more for class m mod K in set m, normalised.
    """
    weights = rng.uniform(0.1, 1.0, (n_sets, classes))
    weights[np.arange(n_sets), np.arange(n_sets) % classes] *= DOMINANCE
    return np.asarray(weights / weights.sum(axis=1, keepdims=True))


def device_priors(n_devices: int, classes: int, rng: np.random.Generator) -> Array:
    """Draw the class shares of devices if `skew` is `non-iid`, as an array [devices, classes] whose rows sum to one."""
    weights = rng.uniform(0.45, 0.55, (n_devices, classes))
    weights[own_classes(n_devices, classes)] *= OWN_CLASS
    return np.asarray(weights / weights.sum(axis=1, keepdims=True))


def own_classes(n_devices: int, classes: int) -> Mask:
    """Return the mask [devices, classes] of the main classes: 2d and 2d + 1 (mod K) of device d, for K classes."""
    device, label = np.arange(n_devices)[:, None], np.arange(classes)
    return np.asarray((label == 2 * device % classes) | (label == (2 * device + 1) % classes))


def deal(wanted: IntArray, own: Mask, available: IntArray) -> IntArray:
    """Return the number of samples of each class that each device gets, as an array [devices, classes].

    A device gets the numbers `wanted` [devices, classes], unless one of its own classes has too few samples. The mask
    `own` [devices, classes] states which classes a device owns. The owners of a class with too few samples share the
    samples that the other devices leave, in proportion to the wanted numbers (largest remainder method).
    """
    dealt = wanted.copy()
    least = np.where(own, np.ceil(wanted / OWN_CLASS).astype(np.int64), wanted).sum(axis=0)
    for label in np.flatnonzero(available < wanted.sum(axis=0)):
        if available[label] < least[label]:
            raise ScenarioError(
                f"partition: surrogate-sets must give each of {len(wanted)} devices its small share of every class, "
                f"got {available[label]} samples of class {label}; needs at least {least[label]}, a smaller "
                "samples_per_device, or skew: iid"
            )
        owners = own[:, label]
        parts, left = wanted[owners, label], available[label] - wanted[~owners, label].sum()
        counts, rests = np.divmod(parts * left, parts.sum())
        counts[np.argsort(-rests, kind="stable")[: left - counts.sum()]] += 1
        dealt[owners, label] = counts
    return dealt
