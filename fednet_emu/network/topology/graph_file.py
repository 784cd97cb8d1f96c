"""Edges from a graph file: GraphML, or a text with one edge per line."""

from __future__ import annotations

import io
from collections.abc import Iterable
from typing import NamedTuple

from fednet_emu.errors import DataError
from fednet_emu.files.data_folder import locate
from fednet_emu.files.recordings import read_bytes
from fednet_emu.network.topology.edges import Edges, EdgeSource, TopologyInputs, fixed


class GraphFile(Edges):
    """The edges of a graph in a file, which do not change.

    If the names of all nodes are integers, devices are assigned to the nodes in ascending order. Otherwise, devices are
    assigned to the nodes in the order of the file. Attributes of nodes and edges are not read.
    """

    kind = "file"

    path: str
    """Graph file, plain or .gz, in the data folder or in the current folder. A file whose name contains the suffix
    `.graphml` is in GraphML. Any other file has one edge per line: two nodes, separated by blanks, tabs or a comma.
    Further columns and text after `#` are ignored."""

    directed: bool | None = None
    """If true, an edge leads only from its first node to its second; if false, an edge leads both ways. null means the
    direction that a GraphML file states, and both ways for a list of edges."""

    def source(self, inputs: TopologyInputs) -> EdgeSource:
        path = locate(self.path, inputs.data_dir)
        content = read_bytes(path)
        is_graphml = ".graphml" in [suffix.lower() for suffix in path.suffixes]
        graph = read_graphml(str(path), content) if is_graphml else read_edges(str(path), content)
        if len(graph.nodes) != inputs.count:
            what = f"has {len(graph.nodes)} nodes for {inputs.count} devices"
            raise DataError(str(path), what, f"give devices.count: {len(graph.nodes)}")
        number = {name: place for place, name in enumerate(_ordered(graph.nodes))}
        loops = [a for a, b in graph.edges if a == b]
        if loops:
            raise DataError(str(path), f"an edge joins two nodes, got {loops[0]!r} to itself", "leave it out")
        ends = [(number[a], number[b]) for a, b in graph.edges]
        return fixed(ends, directed=graph.directed if self.directed is None else self.directed)


class NamedGraph(NamedTuple):
    """A graph from a file: names of nodes, and edges as pairs of these names, in the order of the file.

    `directed` is True if edges lead only from the first node to the second.
    """

    nodes: list[str]
    edges: list[tuple[str, str]]
    directed: bool


def read_graphml(where: str, content: bytes) -> NamedGraph:
    """Read a graph in GraphML.

    Raises:
        DataError: the content is not valid GraphML.
    """
    import networkx as nx

    try:
        graph = nx.read_graphml(io.BytesIO(content), node_type=str, force_multigraph=True)
    except (nx.NetworkXException, SyntaxError, ValueError, KeyError, TypeError) as error:
        raise DataError(where, f"is no GraphML ({error})", "write it with networkx, or as a list of edges") from error
    edges = [(str(a), str(b)) for a, b, _ in graph.edges]
    return NamedGraph([str(name) for name in graph.nodes], edges, graph.is_directed())


def read_edges(where: str, content: bytes) -> NamedGraph:
    """Read a graph from a text with one edge per line.

    Raises:
        DataError: the content is not UTF-8 text, or a line has only one name.
    """
    edges = []
    try:
        lines = content.decode("utf-8-sig").splitlines()
    except UnicodeDecodeError as error:
        raise DataError(where, f"is not text ({error})", "save it as UTF-8") from error
    for row, line in enumerate(lines, start=1):
        names = line.partition("#")[0].replace(",", " ").split()
        if len(names) == 1:
            raise DataError(f"{where}:{row}", f"expected two nodes, got {line.strip()!r}", "write `a b`")
        edges += [(names[0], names[1])] if names else []
    return NamedGraph(list(dict.fromkeys(name for pair in edges for name in pair)), edges, directed=False)


def _ordered(names: Iterable[str]) -> list[str]:
    found = list(names)
    return sorted(found, key=int) if all(name.isdecimal() for name in found) else found
