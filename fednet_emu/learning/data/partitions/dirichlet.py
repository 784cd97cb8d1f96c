"""Label skew by a Dirichlet distribution (Hsu, Qi, Brown 2019, arXiv 1909.06335; Yurochkin et al., ICML 2019)."""

from __future__ import annotations

import numpy as np
from pydantic import Field, NonNegativeInt

from fednet_emu.arrays import Array, IntArray
from fednet_emu.errors import ScenarioError
from fednet_emu.learning.data.datasets.base import Samples
from fednet_emu.learning.data.partitions.base import Partition, Partitioned, labels_of, members_by_class

MAX_DRAWS = 1000
"""Largest number of draws of the shares before `min_samples` counts as unreachable."""

_MAX_NUMBERS = 20_000_000  # fewer draws with very many devices, so that an error appears within seconds


class Dirichlet(Partition):
    """Each class is shared among the devices in proportions p ~ Dir(alpha, ..., alpha), drawn per class.

    A small `alpha` leaves each device few classes and makes sizes unequal; a large one approaches iid. The shares are
    redrawn until every device owns `min_samples` training samples; 0 lets devices go without any. The test samples of
    a class are shared in the same proportions.
    """

    alpha: float = Field(gt=0)
    """Concentration of the Dirichlet distribution (alpha); the smaller it is, the fewer classes a device has."""
    min_samples: NonNegativeInt = 1
    """Smallest number of training samples of a device; shares are drawn again until every device has that many."""

    def split(self, samples: Samples, n_devices: int, rng: np.random.Generator) -> tuple[Partitioned, Partitioned]:
        """Draw the proportions, then cut each shuffled class by them."""
        train_y, test_y, classes = labels_of(samples, self.kind)
        shares = self._draw_shares(np.bincount(train_y, minlength=classes), n_devices, rng)
        return _deal(train_y, shares, rng), _deal(test_y, shares, rng)

    def _draw_shares(self, class_sizes: IntArray, n_devices: int, rng: np.random.Generator) -> Array:
        """Share of each class that each device gets, [classes, n_devices]."""
        total = int(class_sizes.sum())
        if n_devices * self.min_samples > total:
            wanted = f"must be at most {total // n_devices} with {n_devices} devices and {total} samples"
            raise ScenarioError(f"partition.min_samples: {wanted}, got {self.min_samples}; lower it")
        smallest = 0
        n_draws = max(1, min(MAX_DRAWS, _MAX_NUMBERS // (len(class_sizes) * n_devices)))
        for _ in range(n_draws):
            shares = rng.dirichlet(np.full(n_devices, self.alpha), size=len(class_sizes))
            sizes = _counts(shares, class_sizes).sum(axis=0)
            smallest = max(smallest, int(sizes.min()))
            if smallest >= self.min_samples:
                return shares
        found = f"every device must own {self.min_samples} samples, got {smallest} at best in {n_draws} draws"
        situation = f"with {n_devices} devices, {total} samples and alpha={self.alpha:g}"
        remedy = "lower min_samples (0 allows devices without samples), raise alpha or use fewer devices"
        raise ScenarioError(f"partition.min_samples: {found} {situation}; {remedy}")


def _counts(shares: Array, class_sizes: IntArray) -> IntArray:
    """Samples of each class for each device, [classes, n_devices]: within one of share x size, rows sum to the size."""
    cuts = np.rint(np.cumsum(shares, axis=1) * class_sizes[:, None]).astype(np.int64)
    cuts[:, -1] = class_sizes
    return np.diff(np.minimum(cuts, class_sizes[:, None]), axis=1, prepend=0)


def _deal(labels: IntArray, shares: Array, rng: np.random.Generator) -> Partitioned:
    classes, n_devices = shares.shape
    counts = _counts(shares, np.bincount(labels, minlength=classes))
    owners = np.empty(len(labels), np.int64)
    for members, per_device in zip(members_by_class(labels, classes, rng), counts, strict=True):
        owners[members] = np.repeat(np.arange(n_devices), per_device)
    return Partitioned.from_owners(owners, n_devices)
