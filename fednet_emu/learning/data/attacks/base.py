"""Base class of attacks: malicious devices that poison their training data."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Literal

import numpy as np
import torch
from pydantic import Field
from torch import Tensor
from typing_extensions import override

from fednet_emu.arrays import IntArray
from fednet_emu.component.component import Component
from fednet_emu.errors import ScenarioError
from fednet_emu.learning.data.datasets.base import Samples
from fednet_emu.learning.data.partitions.base import Partition, Partitioned


class Attack(Component):
    """Malicious devices follow the algorithm but train on poisoned data; evaluation measures the attack's success."""

    malicious: int | tuple[int, ...] = 1
    """Numbers of the malicious devices (from 0), or how many of the last devices are malicious."""
    target: int = Field(0, ge=0)
    """Class that the attackers want the model to predict."""
    data: Literal["own", "copies"] = "own"
    """Which samples malicious devices poison. own: their share of the partition; copies: the partition serves only the
    other devices, and each malicious device poisons random copies of training samples, as many as the others have on
    average."""

    @abstractmethod
    def poisoned(self, x: Tensor, y: Tensor, samples: Samples) -> tuple[Tensor, Tensor]:
        """New training inputs and labels in place of x [n, ...] and y [n] of a malicious device.

        Raises:
            ScenarioError: The attack does not support such samples.
        """

    @abstractmethod
    def trial(self, samples: Samples) -> Tensor:
        """Test inputs [n, ...] of other classes, which the model predicts as the target if the attack succeeds."""

    def devices(self, count: int) -> IntArray:
        """Numbers of the malicious devices among `count`."""
        listed = range(count - self.malicious, count) if isinstance(self.malicious, int) else sorted(self.malicious)
        return np.array(listed, dtype=np.int64)

    @override
    def conflicts(self, scenario: Any) -> Iterator[tuple[str, str]]:
        count = scenario.devices.count
        devices = self.devices(count)
        if len(devices) >= count or (len(devices) and not 0 <= devices.min() <= devices.max() < count):
            yield "malicious", f"not some of the devices, got {self.malicious}; must leave one of {count} alone"


def deal_poisoned(
    attack: Attack, samples: Samples, partition: Partition, count: int, rngs: tuple[np.random.Generator, ...]
) -> tuple[Samples, tuple[Partitioned, Partitioned]]:
    """Distribute the samples among devices, some of which are malicious.

    Args:
        attack: The attack.
        samples: Clean samples.
        partition: The rule that distributes them.
        count: Number of devices, malicious ones included.
        rngs: Random streams of the partition and of the attack.

    Returns:
        The samples with those of malicious devices changed or added, and the splits of training and test samples.

    Raises:
        ScenarioError: The samples are a regression, or the target is not one of their classes.
    """
    if samples.classes is None or attack.target >= samples.classes:
        found = "a regression" if samples.classes is None else f"{attack.target} of {samples.classes} classes"
        raise ScenarioError(f"attack.target: there is no such class, got {found}; use data with that class")
    bad = attack.devices(count)
    if attack.data == "own":
        train, test = partition.split(samples, count, rngs[0])
        rows = np.concatenate([bad[:0], *(train.of(int(device)) for device in bad)])
    else:
        good = np.setdiff1d(np.arange(count), bad)
        dealt = partition.split(samples, len(good), rngs[0])
        if dealt[0].sets is not None:
            raise ScenarioError(
                "attack.data: there is no set for copies, got copies and a partition with sets; use own"
            )
        train, test = (_spread(split, good, count) for split in dealt)
        each, n_train = round(train.sizes()[good].mean()), len(samples.train_y)
        samples = _extended(samples, rngs[1].choice(n_train, each * len(bad)))
        rows = np.arange(n_train, n_train + each * len(bad))
        train = _with(train, bad, rows.reshape(len(bad), each))
    x, y, index = samples.train_x.clone(), samples.train_y.clone(), torch.from_numpy(rows)
    x[index], y[index] = attack.poisoned(x[index], y[index], samples)
    return replace(samples, train_x=x, train_y=y), (train, test)


def _extended(samples: Samples, rows: IntArray) -> Samples:
    """The samples with copies of the training samples `rows` appended."""
    index = torch.from_numpy(rows)
    group = samples.train_group
    return replace(
        samples,
        train_x=torch.cat([samples.train_x, samples.train_x[index]]),
        train_y=torch.cat([samples.train_y, samples.train_y[index]]),
        train_group=None if group is None else np.concatenate([group, group[rows]]),
    )


def _spread(split: Partitioned, devices: IntArray, count: int) -> Partitioned:
    """A split among these devices, extended to all `count` devices; the others own nothing."""
    sizes = np.zeros(count, dtype=np.int64)
    sizes[devices] = split.sizes()
    return Partitioned(split.order, np.concatenate([[0], np.cumsum(sizes)]))


def _with(split: Partitioned, devices: IntArray, rows: IntArray) -> Partitioned:
    """The split in which these devices, which own nothing, own these rows [devices, each]."""
    owned = [split.of(device) for device in range(len(split.sizes()))]
    for device, own in zip(devices, rows, strict=True):
        owned[int(device)] = own
    sizes = [len(own) for own in owned]
    return Partitioned(np.concatenate(owned), np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64))
