"""Transmissions from device to device: a directed graph that consists of clusters."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from fednet_emu.arrays import IntArray, Mask

if TYPE_CHECKING:
    import networkx as nx
    from scipy.sparse import coo_array


@dataclass(frozen=True, eq=False)
class Digraph:
    """A directed graph of devices without edges between clusters.

    Every device also has an edge to itself, which is not listed among the edges but counts in every degree, because a
    device has its own payload.

    Attributes:
        cluster: [devices] the number of each device's cluster, from 0 without a gap; -1 for one that takes no part.
        sender: [edges] where each edge starts; edges are in order of sender, then receiver.
        receiver: [edges] where it ends.
    """

    cluster: IntArray
    sender: IntArray
    receiver: IntArray

    @classmethod
    def of(cls, cluster: IntArray, sender: IntArray, receiver: IntArray) -> Digraph:
        """A graph of these edges in any order, without edges between clusters; clusters are renumbered.

        Clusters keep the order of their first devices.
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
        """Number of devices."""
        return len(self.cluster)

    @cached_property
    def sizes(self) -> IntArray:
        """Number of devices of each cluster [clusters]."""
        return np.bincount(self.cluster[self.cluster >= 0])

    @cached_property
    def members(self) -> list[IntArray]:
        """The devices of each cluster, in order of their numbers."""
        order = np.argsort(self.cluster, kind="stable")
        return np.split(order[len(order) - self.sizes.sum() :], np.cumsum(self.sizes)[:-1])

    @cached_property
    def out_degree(self) -> IntArray:
        """Number of receivers of each device, including itself [devices]."""
        return 1 + np.bincount(self.sender, minlength=self.n_devices)

    @cached_property
    def in_degree(self) -> IntArray:
        """Number of senders to each device, including itself [devices]."""
        return 1 + np.bincount(self.receiver, minlength=self.n_devices)

    @cached_property
    def _starts(self) -> list[int]:
        return [0, *np.cumsum(self.out_degree - 1).tolist()]

    def receivers(self, device: int) -> list[int]:
        """The out-neighbours of a device, without itself."""
        receivers: list[int] = self.receiver[self._starts[device] : self._starts[device + 1]].tolist()
        return receivers

    def among(self, there: Mask) -> Digraph:
        """The graph of those devices [devices] only; the others take no part."""
        return Digraph.of(np.where(there, self.cluster, -1), self.sender, self.receiver)

    def kept(self, edges: Mask) -> Digraph:
        """The same clusters with some of the edges only, for example those over which something arrived."""
        return Digraph(self.cluster, self.sender[edges], self.receiver[edges])

    def mutual(self) -> Digraph:
        """The same clusters with only those edges whose opposite is there, too."""
        there, back = self.sender * self.n_devices + self.receiver, self.receiver * self.n_devices + self.sender
        return self.kept(np.isin(there, back))

    @cached_property
    def mixing(self) -> coo_array:
        """The equal-neighbour matrix A [devices, devices]: A[i, j] = 1 / out-degree of j where j sends to i, or is i.

        Every column sums to 1.
        """
        from scipy.sparse import coo_array

        loops = np.arange(self.n_devices)
        column = np.concatenate((self.sender, loops))
        row = np.concatenate((self.receiver, loops))
        return coo_array((1.0 / self.out_degree[column], (row, column)), shape=(self.n_devices, self.n_devices))

    def strong_components(self) -> IntArray:
        """The strongly connected component of each device [devices], numbered from 0 in no particular order."""
        return strong_components(self.n_devices, self.sender, self.receiver)

    def networkx(self) -> nx.DiGraph[int]:
        """The same graph for networkx, without loops; nodes have the attribute `cluster`."""
        import networkx as nx

        graph: nx.DiGraph[int] = nx.DiGraph()
        graph.add_nodes_from((device, {"cluster": label}) for device, label in enumerate(self.cluster.tolist()))
        graph.add_edges_from(zip(self.sender.tolist(), self.receiver.tolist(), strict=True))
        return graph


def strong_components(count: int, sender: IntArray, receiver: IntArray) -> IntArray:
    """The strongly connected component of each of `count` nodes, numbered from 0 in no particular order."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    matrix = coo_array((np.ones(len(sender), np.int8), (sender, receiver)), shape=(count, count))
    labels: IntArray = connected_components(matrix.tocsr(), connection="strong")[1].astype(np.int64)
    return labels
