"""Unlabelled sets with known class shares, as devices have them in FedUL (Lu et al., ICLR 2022).

Source of the laws: https://openreview.net/forum?id=WHA8009laxu and the authors' public data generator. Differences from
it: a device's samples are drawn at random from each class also under non-iid, where the generator takes them in their
order; and under iid with more sets than classes all samples are used, where the generator leaves some out.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from pydantic import Field, PositiveInt

from fednet_emu.arrays import Array, IntArray
from fednet_emu.learning.data.datasets.base import Samples
from fednet_emu.learning.data.partitions.base import (
    Partition,
    Partitioned,
    labels_of,
    members_by_class,
    require_samples,
)
from fednet_emu.learning.data.partitions.iid import Iid

DOMINANCE = 10.0
"""Factor of the weight of a set's dominant class, drawn from U(0.1, 1) like all others."""

OWN_CLASS = 80.0
"""Factor of the weights of a device's own two classes under non-iid, drawn from U(0.45, 0.55) like all others."""


class SurrogateSets(Partition):
    """Every device holds `sets` sets of samples that differ in their class shares; set m is rich in class m mod K.

    First the training samples are dealt out. With `skew: iid` every device gets an equal random part; with `non-iid`
    about 47.6 % of device d's samples are of each of the classes 2d and 2d + 1 (mod K) and 0.6 % of each other class.
    Then each device draws its sets out of its own samples. Under iid all devices follow one matrix, whose columns sum
    to one, so that every class is spread over the sets; under non-iid each device draws its own, and takes what it has
    where that is less.

    A sample may be in several sets of its device with `overlap: public`, as in the authors' code, which draws every set
    from all of the device's samples; with `disjoint` it is in one at most, and a class that is short is shared out in
    proportion. Samples drawn for no set are not used. The test samples are dealt out iid.
    """

    kind: Literal["surrogate-sets"] = "surrogate-sets"
    skew: Literal["iid", "non-iid"]
    """How samples are dealt out before the sets are drawn."""
    sets: int = Field(10, ge=2)
    """Sets per device."""
    overlap: Literal["public", "disjoint"] = "public"
    """Whether a sample may be in several sets of its device."""
    samples_per_device: PositiveInt | None = None
    """Samples dealt to each device, of which its sets are drawn; null deals out all."""

    def split(self, samples: Samples, n_devices: int, rng: np.random.Generator) -> tuple[Partitioned, Partitioned]:
        """Deal the classes out, then draw every device's sets."""
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
        """The samples of each class that each device has to draw from, [devices][classes]."""
        if self.skew == "iid":
            everything = rng.permutation(np.concatenate(by_class))[: n_devices * size]
            class_of = np.repeat(np.arange(len(by_class)), [len(members) for members in by_class])
            class_of = class_of[np.argsort(np.concatenate(by_class))]
            return [
                [part[class_of[part] == label] for label in range(len(by_class))]
                for part in np.split(everything, n_devices)
            ]
        wanted = np.floor(size * device_priors(n_devices, len(by_class), rng)).astype(np.int64)
        ends = np.cumsum(wanted, axis=0)
        return [
            [members[end - n : end] for members, n, end in zip(by_class, *rows, strict=True)]
            for rows in zip(wanted, ends, strict=True)
        ]

    def _draw_sets(self, pool: list[IntArray], wanted: Array, rng: np.random.Generator) -> list[IntArray]:
        """The samples of each set, given how many of each class it wants, [sets, classes]; counts are rounded down."""
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
    """Class shares [sets, classes] of sets: weights U(0.1, 1), ten times that for class m mod K, rows sum to one."""
    weights = rng.uniform(0.1, 1.0, (n_sets, classes))
    weights[np.arange(n_sets), np.arange(n_sets) % classes] *= DOMINANCE
    shares: Array = weights / weights.sum(axis=1, keepdims=True)
    return shares


def device_priors(n_devices: int, classes: int, rng: np.random.Generator) -> Array:
    """Class shares [devices, classes] under non-iid: two own classes each, rows sum to one."""
    weights = rng.uniform(0.45, 0.55, (n_devices, classes))
    for device, row in enumerate(weights):
        row[[2 * device % classes, (2 * device + 1) % classes]] *= OWN_CLASS
    shares: Array = weights / weights.sum(axis=1, keepdims=True)
    return shares
