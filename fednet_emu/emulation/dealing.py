"""The data split: load a scenario's data, split it among the devices, and let each see its own in its own way."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from fednet_emu.analysis.data_split import DataSplit, Part
from fednet_emu.arrays import IntArray
from fednet_emu.kernel.streams import Streams
from fednet_emu.learning.data.attacks.base import deal_poisoned
from fednet_emu.learning.data.datasets.base import Samples
from fednet_emu.learning.data.hold_out import Held, hold_out
from fednet_emu.learning.data.partitions.base import Partitioned
from fednet_emu.scenario.model import Scenario


class Dealt(NamedTuple):
    """The data of a federation.

    Attributes:
        samples: training and test samples, as their owners see them.
        splits: who owns which of the training and of the test samples.
        held: the server's own samples, and those for validation.
        groups: the true group [devices] of each device; None unless groups see the data differently.
    """

    samples: Samples
    splits: tuple[Partitioned, Partitioned]
    held: tuple[Held, Held]
    groups: IntArray | None

    def counts(self) -> DataSplit:
        """How many samples each device has of which labels or targets, as devices see them."""
        labels = self.samples.train_y.cpu().numpy(), self.samples.test_y.cpu().numpy()
        return DataSplit(
            *(
                Part.of(y, its.order, its.offsets, self.samples.classes)
                for y, its in zip(labels, self.splits, strict=True)
            )
        )


def deal(scenario: Scenario, streams: Streams, data_dir: Path | None) -> Dealt:
    """Load the data, take the server's part, split the rest, and apply the attack, the groups' views and the noise.

    Args:
        scenario: a scenario whose algorithm does not bring its own data.
        streams: the randomness of the run.
        data_dir: the folder with data sets; None takes it from the environment variable FEDNET_DATA.

    Raises:
        ScenarioError: parts of the scenario are incompatible, or the algorithm brings its own data.
        DataError: the data cannot be read.
    """
    (data, partition, _), server = scenario.learning(), scenario.server
    everything = data.load(data_dir, streams("data"))
    samples, *held = hold_out(everything, server.samples, server.validation_samples, streams("hold out"))
    count, attack, rng = scenario.devices.count, scenario.attack, streams("partition")
    if attack is None:
        splits = partition.split(samples, count, rng)
    else:
        samples, splits = deal_poisoned(attack, samples, partition, count, (rng, streams("attack")))
    groups = None
    if scenario.groups is not None:
        samples, groups = scenario.groups.seen(samples, splits, streams("groups")), scenario.groups.members(count)
    if scenario.feature_noise is not None:
        samples = scenario.feature_noise.seen(samples, splits, streams)
    return Dealt(samples, splits, (held[0], held[1]), groups)
