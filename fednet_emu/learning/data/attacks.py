"""Attacks: malicious devices that poison their training data."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import replace
from typing import Annotated, Any, Literal

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from fednet_emu.arrays import IntArray
from fednet_emu.component.component import Component
from fednet_emu.component.slot import Slot, kinds
from fednet_emu.errors import ScenarioError
from fednet_emu.learning.data.datasets.base import Samples
from fednet_emu.learning.data.partitions.base import Partition, Partitioned


class Attack(Component):
    """Base class of attacks in which malicious devices follow the algorithm, but train on poisoned data.

    Evaluation measures how often the attack succeeds.
    """

    malicious: int | tuple[int, ...] = 1
    """Number n of malicious devices, which are then the last n devices; or a list of their indices, from 0."""
    target: int = Field(0, ge=0)
    """Target class of the attack."""
    data: Literal["own", "copies"] = "own"
    """Samples that malicious devices poison. own: the samples that the partition assigns to them; copies: random copies
    of training samples. If `data` is `copies`, the partition divides the samples among the honest devices only, and
    each malicious device gets as many copies as an honest device has samples on average."""

    @abstractmethod
    def poisoned(self, x: Tensor, y: Tensor, samples: Samples) -> tuple[Tensor, Tensor]:
        """Return the poisoned inputs `x` [n, ...] and labels `y` [n] of a device; refuse samples of other forms."""

    @abstractmethod
    def trial(self, samples: Samples) -> Tensor:
        """Return test inputs [n, ...] of other classes; the attack succeeds if the model assigns the target class."""

    def devices(self, count: int) -> IntArray:
        """Return the indices of the malicious devices among `count` devices."""
        listed = range(count - self.malicious, count) if isinstance(self.malicious, int) else sorted(self.malicious)
        return np.array(listed, dtype=np.int64)

    def conflicts(self, scenario: Any) -> Iterator[tuple[str, str]]:
        count = scenario.devices.count
        devices = self.devices(count)
        if len(devices) >= count or (len(devices) and not 0 <= devices.min() <= devices.max() < count):
            yield "malicious", f"not some of the devices, got {self.malicious}; must leave one of {count} alone"


def deal_poisoned(
    attack: Attack, samples: Samples, partition: Partition, count: int, rngs: tuple[np.random.Generator, ...]
) -> tuple[Samples, tuple[Partitioned, Partitioned]]:
    """Distribute samples among `count` devices, and poison the training samples of malicious devices.

    `rngs` are the random streams of the partition and of the attack. The function returns all samples, and the splits
    of the training and the test samples. A missing target class is a `ScenarioError`.
    """
    if samples.classes is None or attack.target >= samples.classes:
        found = (
            f"data for {samples.task}" if samples.classes is None else f"{attack.target} of {samples.classes} classes"
        )
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
    """Return the samples with copies of the training samples `rows` appended."""
    index = torch.from_numpy(rows)
    group = samples.train_group
    return replace(
        samples,
        train_x=torch.cat([samples.train_x, samples.train_x[index]]),
        train_y=torch.cat([samples.train_y, samples.train_y[index]]),
        train_group=None if group is None else np.concatenate([group, group[rows]]),
    )


def _spread(split: Partitioned, devices: IntArray, count: int) -> Partitioned:
    sizes = np.zeros(count, dtype=np.int64)
    sizes[devices] = split.sizes()
    return Partitioned(split.order, np.concatenate([[0], np.cumsum(sizes)]))


def _with(split: Partitioned, devices: IntArray, rows: IntArray) -> Partitioned:
    """Return a copy of the split in which `devices`, which had no samples, own the samples `rows` [devices, n]."""
    owned = [split.of(device) for device in range(len(split.sizes()))]
    for device, own in zip(devices, rows, strict=True):
        owned[int(device)] = own
    sizes = [len(own) for own in owned]
    return Partitioned(np.concatenate(owned), np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64))


class Backdoor(Attack):
    """Backdoor attack: poisoned samples carry a trigger and the label of the target class.

    The attack succeeds if the model predicts the target class for every sample with the trigger. The trigger sets some
    entries of a sample to a constant. In an image [C, H, W], it is a square in the lower right corner of all channels.
    In a series [C, T], it is the end of the first channel, and in a vector [F] the last entries. Sources: Bagdasaryan
    et al. (AISTATS 2020) and, for series, Dai, Chen and Li (IEEE Access 2019).
    """

    patch: int = Field(4, gt=0)
    """Size of the trigger: the side of the square in pixels or, for series and vectors, the number of entries."""
    value: float | None = None
    """Value to which the trigger sets entries. Null uses the largest value in the clean training inputs."""

    def poisoned(self, x: Tensor, y: Tensor, samples: Samples) -> tuple[Tensor, Tensor]:
        return self._stamped(x, samples), y * 0 + self.target

    def trial(self, samples: Samples) -> Tensor:
        return self._stamped(samples.test_x[samples.test_y != self.target], samples)

    def _stamped(self, x: Tensor, samples: Samples) -> Tensor:
        shape = x.shape[1:]
        if samples.vocabulary is not None:
            found = f"windows of {samples.vocabulary} different tokens"
            raise ScenarioError(f"attack: a backdoor needs real inputs to stamp, got {found}; use label-flip")
        if len(shape) not in (1, 2, 3) or self.patch > min(shape[1:] or shape):
            raise ScenarioError(f"attack.patch: does not fit in samples of shape {tuple(shape)}, got {self.patch}")
        stamped, end = x.clone(), slice(-self.patch, None)
        value = float(samples.train_x.max()) if self.value is None else self.value
        places = {1: (slice(None), end), 2: (slice(None), 0, end), 3: (slice(None), slice(None), end, end)}
        stamped[places[len(shape)]] = value
        return stamped


class LabelFlip(Attack):
    """Label-flipping attack: malicious devices label samples of a source class as the target class.

    The attack succeeds if the model predicts the target class for samples of the source class.
    """

    source: int | None = Field(None, ge=0)
    """Class whose samples are labelled as the target class. Null changes the labels of all classes."""

    def poisoned(self, x: Tensor, y: Tensor, samples: Samples) -> tuple[Tensor, Tensor]:
        return x, y.masked_fill(self._concerned(y), self.target)

    def trial(self, samples: Samples) -> Tensor:
        return samples.test_x[self._concerned(samples.test_y) & (samples.test_y != self.target)]

    def _concerned(self, y: Tensor) -> Tensor:
        return torch.ones_like(y, dtype=torch.bool) if self.source is None else y == self.source


ATTACKS: dict[str, type[Attack]] = kinds(Backdoor, LabelFlip)
AnyAttack = Annotated[Attack, Slot("attack", ATTACKS)]
