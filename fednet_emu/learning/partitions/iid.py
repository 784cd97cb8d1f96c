"""The partition without any bias: equal shares of a shuffled data set."""

from __future__ import annotations

from typing import Literal

import numpy as np

from fednet_emu.learning.datasets.base import Samples
from fednet_emu.learning.partitions.base import Partition, Split, even_shares, require_samples


class Iid(Partition):
    """Every device owns equally many samples (within one), drawn at random without replacement."""

    kind: Literal["iid"] = "iid"

    def split(self, samples: Samples, n_devices: int, rng: np.random.Generator) -> tuple[Split, Split]:
        """Shuffle, then cut into equal shares."""
        train, test = (
            Split.from_owners(rng.permutation(even_shares(len(labels), n_devices)), n_devices)
            for labels in (samples.train_y, samples.test_y)
        )
        require_samples(train, self.kind, f"use at most {len(samples.train_y)} devices")
        return train, test
