"""Clusters of devices: given sets, devices around a cluster head, or devices that can reach each other."""

from __future__ import annotations

from abc import abstractmethod
from typing import Annotated, Literal

import numpy as np
from pydantic import Field, field_validator

from fednet_emu.arrays import IntArray
from fednet_emu.component.component import Component
from fednet_emu.component.slot import Slot, kinds
from fednet_emu.errors import ScenarioError
from fednet_emu.network.topology.edges import TopologyInputs


class Clusters(Component):
    """Rule that assigns devices to groups before edges are computed.

    A group becomes several clusters if it is not strongly connected and `split` is true.
    """

    split: bool = False
    """Whether a cluster that is not strongly connected is split into its strongly connected components."""

    @abstractmethod
    def group(self, inputs: TopologyInputs, at_s: float) -> IntArray:
        """Return the index of the group of each device [devices] at the time `at_s` in s."""


class EqualClusters(Clusters):
    """Clusters of consecutive devices with equal sizes, except that the first clusters may have one more device."""

    kind = "equal"

    count: int = Field(gt=0)
    """Number of clusters."""

    def group(self, inputs: TopologyInputs, at_s: float) -> IntArray:
        if self.count > inputs.count:
            raise ScenarioError(
                f"network.sidelink.topology.clusters.count: more clusters than devices, got {self.count}; "
                f"must be at most devices.count, {inputs.count}"
            )
        sizes = np.full(self.count, inputs.count // self.count)
        sizes[: inputs.count % self.count] += 1
        return np.repeat(np.arange(self.count), sizes)


class ListedClusters(Clusters):
    """Clusters that are listed as sets of devices; a device that is in no set forms a cluster of its own."""

    kind = "sets"

    sets: tuple[tuple[int, ...], ...]
    """Indices of the devices in each cluster."""

    @field_validator("sets")
    @classmethod
    def _apart(cls, sets: tuple[tuple[int, ...], ...]) -> tuple[tuple[int, ...], ...]:
        devices = [device for devices in sets for device in devices]
        if twice := sorted({device for device in devices if devices.count(device) > 1}):
            raise ValueError(f"a device may be in one cluster only, got {twice} twice; leave them out of the others")
        return sets

    def group(self, inputs: TopologyInputs, at_s: float) -> IntArray:
        group = len(self.sets) + np.arange(inputs.count)
        for number, devices in enumerate(self.sets):
            if unknown := [device for device in devices if not 0 <= device < inputs.count]:
                raise ScenarioError(
                    f"network.sidelink.topology.clusters.sets: no such devices, got {unknown}; "
                    f"must be from 0 to {inputs.count - 1}"
                )
            group[list(devices)] = number
        return np.unique(group, return_inverse=True)[1].astype(np.int64)


class StrongClusters(Clusters):
    """Clusters are the strongly connected components of the graph: sets of devices that can reach each other."""

    kind = "strongly-connected"
    split: Literal[True] = True
    """Always true, because the clusters are the strongly connected components."""

    def group(self, inputs: TopologyInputs, at_s: float) -> IntArray:
        return np.zeros(inputs.count, np.int64)


class HeadClusters(Clusters):
    """Each device belongs to the cluster head nearest to its present position; heads are drawn once per run."""

    kind = "heads"

    count: int = Field(gt=0)
    """Number of cluster heads."""

    def group(self, inputs: TopologyInputs, at_s: float) -> IntArray:
        """Return the nearest cluster head of each device; of equally near heads, the one with the lowest number."""
        heads = np.sort(inputs.streams("topology", "heads").permutation(inputs.count)[: self.count])
        xy_m = inputs.paths.positions_m(np.arange(inputs.count), at_s)
        distance_m = np.linalg.norm(xy_m[:, None] - xy_m[heads][None], axis=2)
        return np.asarray(distance_m.argmin(axis=1), np.int64)


CLUSTERS: dict[str, type[Clusters]] = kinds(EqualClusters, ListedClusters, StrongClusters, HeadClusters)

AnyClusters = Annotated[Clusters, Slot("clusters", CLUSTERS)]
