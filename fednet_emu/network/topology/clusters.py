"""Which devices form a cluster: sets that are given, those around a head, or those that can reach each other."""

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
    """How devices are grouped before edges are known, and whether edges then part a group."""

    split: bool = False
    """Whether a cluster that is not strongly connected falls apart into its strongly connected components."""

    @abstractmethod
    def group(self, inputs: TopologyInputs, at_s: float) -> IntArray:
        """The group of each device [devices]."""


class EqualClusters(Clusters):
    """Devices in order of their numbers, in clusters of equal size; the first ones may have one more."""

    kind = "equal"

    count: int = Field(gt=0)
    """Number of clusters."""

    def group(self, inputs: TopologyInputs, at_s: float) -> IntArray:
        """Clusters of consecutive devices; with a remainder of r, the first r clusters have one more device.

        Raises:
            ScenarioError: there are more clusters than devices.
        """
        if self.count > inputs.count:
            raise ScenarioError(
                f"network.sidelink.topology.clusters.count: more clusters than devices, got {self.count}; "
                f"must be at most devices.count, {inputs.count}"
            )
        sizes = np.full(self.count, inputs.count // self.count)
        sizes[: inputs.count % self.count] += 1
        return np.repeat(np.arange(self.count), sizes)


class ListedClusters(Clusters):
    """Given sets of devices; a device in none of them is a cluster of one."""

    kind = "sets"

    sets: tuple[tuple[int, ...], ...]
    """The devices of each cluster."""

    @field_validator("sets")
    @classmethod
    def _apart(cls, sets: tuple[tuple[int, ...], ...]) -> tuple[tuple[int, ...], ...]:
        devices = [device for devices in sets for device in devices]
        if twice := sorted({device for device in devices if devices.count(device) > 1}):
            raise ValueError(f"a device may be in one cluster only, got {twice} twice; leave them out of the others")
        return sets

    def group(self, inputs: TopologyInputs, at_s: float) -> IntArray:
        """The sets as given.

        Raises:
            ScenarioError: a set names a device that does not exist.
        """
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
    """Clusters are the strongly connected components of the graph: devices that can reach each other over edges."""

    kind = "strongly-connected"
    split: Literal[True] = True
    """Clusters are the strongly connected components themselves, so this is always true."""

    def group(self, inputs: TopologyInputs, at_s: float) -> IntArray:
        """All in one, until edges are known."""
        return np.zeros(inputs.count, np.int64)


class HeadClusters(Clusters):
    """Devices around cluster heads, each with the head that is nearest now; heads are drawn once for a run."""

    kind = "heads"

    count: int = Field(gt=0)
    """Number of heads."""

    def group(self, inputs: TopologyInputs, at_s: float) -> IntArray:
        """The nearest head of each device, the first one of equals."""
        heads = np.sort(inputs.streams("topology", "heads").permutation(inputs.count)[: self.count])
        xy_m = inputs.paths.positions_m(np.arange(inputs.count), at_s)
        distance_m = np.linalg.norm(xy_m[:, None] - xy_m[heads][None], axis=2)
        return np.asarray(distance_m.argmin(axis=1), np.int64)


CLUSTERS: dict[str, type[Clusters]] = kinds(EqualClusters, ListedClusters, StrongClusters, HeadClusters)

AnyClusters = Annotated[Clusters, Slot("clusters", CLUSTERS)]
