"""Device-to-device topologies: directed graphs that consist of clusters and may change from round to round."""

from typing import Annotated

from fednet_emu.component.component import Component
from fednet_emu.component.slot import Slot, kinds
from fednet_emu.network.topology.clusters import AnyClusters, EqualClusters
from fednet_emu.network.topology.contacts import Contacts
from fednet_emu.network.topology.digraph import Digraph
from fednet_emu.network.topology.edges import Edges, ListedEdges, NoEdges, RandomRegular, TopologyInputs
from fednet_emu.network.topology.geometric import Geometric
from fednet_emu.network.topology.graph_file import GraphFile
from fednet_emu.network.topology.satellites import SatelliteEdges

EDGES: dict[str, type[Edges]] = kinds(
    NoEdges, ListedEdges, RandomRegular, Geometric, Contacts, GraphFile, SatelliteEdges
)

AnyEdges = Annotated[Edges, Slot("edges", EDGES)]


class Topology(Component):
    """A device-to-device topology: the edges between devices, and the clusters of devices."""

    edges: AnyEdges
    clusters: AnyClusters = EqualClusters(count=1)


class Graphs:
    """The directed graphs of one run; each graph is computed when it is needed.

    Raises:
        DataError: recorded contacts cannot be read.
    """

    def __init__(self, topology: Topology, inputs: TopologyInputs) -> None:
        self._topology, self._inputs = topology, inputs
        self._edges = topology.edges.source(inputs)

    def at(self, at_s: float, *name: int) -> Digraph:
        """Return the directed graph at the simulated time `at_s` in s.

        `name` is the key of the graph's random draws, and starts with the round number.

        Raises:
            ScenarioError: the clusters cannot be formed, or no random graph was strongly connected.
        """
        clusters = self._topology.clusters
        group = clusters.group(self._inputs, at_s)
        sender, receiver = self._edges(group, at_s, name)
        graph = Digraph.of(group, sender, receiver)
        if clusters.split:
            return Digraph.of(graph.strong_components(), graph.sender, graph.receiver)
        return graph
