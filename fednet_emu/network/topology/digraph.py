"""Device-to-device transmissions as a directed graph of devices, which is divided into clusters."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from fednet_emu.arrays import IntArray, Mask


@dataclass(frozen=True, eq=False)
class Digraph:
    """A directed graph of devices without edges between clusters.

    Every device also has a self-loop, because a device always has its own payload. Self-loops count in every degree,
    but are not in `sender` and `receiver`.

    Attributes:
        cluster: [devices] index of each device's cluster, counted from 0; -1 for a device that does not participate.
        sender: [edges] device that sends over each edge; edges are sorted by sender, then receiver.
        receiver: [edges] device that receives over each edge.
    """

    cluster: IntArray
    sender: IntArray
    receiver: IntArray

    @classmethod
    def of(cls, cluster: IntArray, sender: IntArray, receiver: IntArray) -> Digraph:
        """Create a graph from edges in any order, without the edges between clusters.

        Clusters are renumbered in the order of their first devices.
        """
        known, first, label = np.unique(cluster, return_index=True, return_inverse=True)
        rank = np.empty(len(first), np.int64)
        rank[np.argsort(np.where(known < 0, -1, first))] = np.arange(len(first)) - bool(known.min(initial=0) < 0)
        inside = (cluster[sender] == cluster[receiver]) & (cluster[sender] >= 0)
        sender, receiver = sender[inside], receiver[inside]
        order = np.lexsort((receiver, sender))
        return cls(rank[label], sender[order], receiver[order])

    @property
    def n_devices(self) -> int:
        return len(self.cluster)

    @cached_property
    def sizes(self) -> IntArray:
        return np.bincount(self.cluster[self.cluster >= 0])

    @cached_property
    def members(self) -> list[IntArray]:
        order = np.argsort(self.cluster, kind="stable")
        return np.split(order[len(order) - self.sizes.sum() :], np.cumsum(self.sizes)[:-1])

    @cached_property
    def out_degree(self) -> IntArray:
        """Number of receivers of each device [devices], including the device itself."""
        return 1 + np.bincount(self.sender, minlength=self.n_devices)

    @cached_property
    def in_degree(self) -> IntArray:
        """Number of senders to each device [devices], including the device itself."""
        return 1 + np.bincount(self.receiver, minlength=self.n_devices)

    @cached_property
    def _starts(self) -> list[int]:
        return [0, *np.cumsum(self.out_degree - 1).tolist()]

    def receivers(self, device: int) -> list[int]:
        """Return the device numbers of the receivers of a device, without the device itself."""
        receivers: list[int] = self.receiver[self._starts[device] : self._starts[device + 1]].tolist()
        return receivers

    def among(self, there: Mask) -> Digraph:
        """Return the graph of the devices in the mask `there` [devices]; all other devices are excluded."""
        return Digraph.of(np.where(there, self.cluster, -1), self.sender, self.receiver)

    def kept(self, edges: Mask) -> Digraph:
        """Return a graph with the same clusters and only the edges in the mask `edges` [edges]."""
        return Digraph(self.cluster, self.sender[edges], self.receiver[edges])

    def mutual(self) -> Digraph:
        """Return a graph with the same clusters and only those edges whose reverse edge also exists."""
        there, back = self.sender * self.n_devices + self.receiver, self.receiver * self.n_devices + self.sender
        return self.kept(np.isin(there, back))

    def strong_components(self) -> IntArray:
        return strong_components(self.n_devices, self.sender, self.receiver)


def strong_components(count: int, sender: IntArray, receiver: IntArray) -> IntArray:
    """Return the index [count] of the strongly connected component of each of `count` nodes.

    Components have indices from 0 in no particular order.
    """
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    matrix = coo_array((np.ones(len(sender), np.int8), (sender, receiver)), shape=(count, count))
    labels: IntArray = connected_components(matrix.tocsr(), connection="strong")[1].astype(np.int64)
    return labels
