"""Five components in one module; importing it counts itself, so that a test sees when it happens."""

import numpy as np
import torch
from pydantic import Field
from torch import nn

import fednet_emu as fe
from fednet_emu.learning.data.datasets import Dataset
from fednet_emu.learning.data.partitions import Partition
from fednet_emu.learning.data.partitions.base import Partitioned
from fednet_emu.learning.models import Model
from fednet_emu.network.access.orthogonal import Ofdma
from fednet_emu.radio.propagation.base import PathLoss, Propagation


class Blobs(Dataset):
    """Two clouds of points."""

    kind = "blobs"
    distance: float = Field(3.0, gt=0)
    """Between the two centres."""

    def load(self, data_dir, rng):
        """Draw 120 points for training and 40 for testing."""
        y = rng.integers(2, size=160)
        x = rng.normal(size=(160, 2)) + self.distance * y[:, None]
        x, y = torch.tensor(x, dtype=torch.float32), torch.tensor(y)
        return fe.Samples(x[:120], y[:120], x[120:], y[120:], classes=2)


class RoundRobin(Partition):
    """Sample i goes to device i modulo the number of devices."""

    kind = "round-robin"

    def split(self, samples, n_devices, rng):
        owners = (np.arange(len(y)) % n_devices for y in (samples.train_y, samples.test_y))
        train, test = (Partitioned.from_owners(own, n_devices) for own in owners)
        return train, test


class Tiny(Model):
    """One layer; it has no field `kind`, which only its entry point gives."""

    bias: bool = True

    def build(self, input_shape, outputs):
        return nn.Linear(*input_shape, outputs, bias=self.bias)


class Constant(PathLoss):
    """The same loss at every distance."""

    kind = "constant"
    mean_loss_db: float = Field(gt=0, le=200)

    def propagate(self, hop, carrier_hz, draws):
        return Propagation.of(np.full(hop.distance_3d_m.shape, self.mean_loss_db), los=True)


class Pairs(Ofdma):
    """As ofdma, but never more than two at once."""

    kind = "pairs"

    @property
    def capacity(self):
        return 2
