"""Devices with unequally many samples (Li, Diao, Chen, He: "Federated Learning on Non-IID Data Silos", ICDE 2022)."""

from __future__ import annotations

import numpy as np
from pydantic import Field, NonNegativeInt

from fednet_emu.arrays import Array
from fednet_emu.errors import ScenarioError
from fednet_emu.learning.data.datasets.base import Samples
from fednet_emu.learning.data.partitions.base import Partition, Partitioned

MOST_DRAWS = 1000
"""Largest number of draws of the shares before `min_samples` counts as unreachable."""


class QuantitySkew(Partition):
    """Samples are dealt at random; the shares of the devices are one draw of Dir(beta, ..., beta).

    NIID-Bench's `q ~ Dir(beta)`: labels are mixed alike everywhere, only the numbers of samples differ. Shares are
    drawn again until every device owns `min_samples` training samples. Test samples are shared likewise.
    """

    beta: float = Field(0.5, gt=0)
    """Concentration of the Dirichlet distribution (beta); the smaller it is, the more sizes differ."""
    min_samples: NonNegativeInt = 1
    """Smallest number of training samples of a device; 0 allows devices without any."""

    def split(self, samples: Samples, n_devices: int, rng: np.random.Generator) -> tuple[Partitioned, Partitioned]:
        """Draw the shares, then deal shuffled samples by them."""
        total = len(samples.train_y)
        for _ in range(MOST_DRAWS):
            shares = rng.dirichlet(np.full(n_devices, self.beta))
            train = _deal(total, shares, rng)
            if train.sizes().min() >= self.min_samples:
                return train, _deal(len(samples.test_y), shares, rng)
        situation = f"with {n_devices} devices, {total} samples and beta={self.beta:g}"
        raise ScenarioError(
            f"partition.min_samples: not reached in {MOST_DRAWS} draws {situation}, got {self.min_samples}; "
            "lower it, raise beta, or use fewer devices"
        )


def _deal(total: int, shares: Array, rng: np.random.Generator) -> Partitioned:
    """The split of samples in random order, cut by shares [n_devices] of their number."""
    cuts = np.rint(np.cumsum(shares) * total).astype(np.int64)
    cuts[-1] = total
    sizes = np.diff(np.minimum(cuts, total), prepend=0)
    owners = np.empty(total, np.int64)
    owners[rng.permutation(total)] = np.repeat(np.arange(len(shares)), sizes)
    return Partitioned.from_owners(owners, len(shares))
