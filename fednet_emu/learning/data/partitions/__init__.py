"""Partitions: which samples each device owns, one rule per file."""

from typing import Annotated

from fednet_emu.component.slot import Slot, kinds
from fednet_emu.learning.data.partitions.base import Partition
from fednet_emu.learning.data.partitions.dirichlet import Dirichlet
from fednet_emu.learning.data.partitions.group import Group
from fednet_emu.learning.data.partitions.iid import Iid
from fednet_emu.learning.data.partitions.labels_per_device import LabelsPerDevice
from fednet_emu.learning.data.partitions.one_class import OneClass
from fednet_emu.learning.data.partitions.quantity_skew import QuantitySkew
from fednet_emu.learning.data.partitions.shards import Shards
from fednet_emu.learning.data.partitions.surrogate_sets import SurrogateSets

PARTITIONS: dict[str, type[Partition]] = kinds(
    Dirichlet, Group, Iid, LabelsPerDevice, OneClass, QuantitySkew, Shards, SurrogateSets
)
"""Every kind of partition that is built in."""

AnyPartition = Annotated[Partition, Slot("partition", PARTITIONS)]
"""Type of a field that holds one partition."""
