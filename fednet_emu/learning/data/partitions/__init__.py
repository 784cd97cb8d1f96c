"""Partitions: rules that distribute samples among devices."""

from typing import Annotated

from fednet_emu.component.slot import Slot, kinds
from fednet_emu.learning.data.partitions.base import Partition
from fednet_emu.learning.data.partitions.rules import (
    Dirichlet,
    Group,
    Iid,
    LabelsPerDevice,
    OneClass,
    QuantitySkew,
    Shards,
    WangCases,
)
from fednet_emu.learning.data.partitions.surrogate_sets import SurrogateSets

PARTITIONS: dict[str, type[Partition]] = kinds(
    Dirichlet, Group, Iid, LabelsPerDevice, OneClass, QuantitySkew, Shards, SurrogateSets, WangCases
)
AnyPartition = Annotated[Partition, Slot("partition", PARTITIONS)]
