"""Edges of device-to-device graphs: the base class, and edges that do not depend on radio links."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import Field, field_validator
from typing_extensions import override

from fednet_emu.arrays import Array, IntArray
from fednet_emu.component.component import Component
from fednet_emu.devices.mobility.base import Paths
from fednet_emu.errors import ScenarioError
from fednet_emu.kernel.streams import Streams
from fednet_emu.network.links.links import PairLinks
from fednet_emu.network.topology.digraph import strong_components

Ends = tuple[IntArray, IntArray]
"""Device numbers of the senders [edges] and of the receivers [edges] of a graph's edges."""

MAX_REDRAWS = 200


@dataclass(frozen=True, slots=True)
class TopologyInputs:
    """Inputs from which edges and clusters are computed.

    Attributes:
        count: number of devices.
        streams: the random streams (generators) of the run.
        paths: positions of the devices over time.
        links_at: function that returns the links between devices at a time in s.
        data_dir: folder of recorded data; None for the default folder.
    """

    count: int
    streams: Streams
    paths: Paths
    links_at: Callable[[float], PairLinks]
    data_dir: Path | None = None


EdgeSource = Callable[[IntArray, float, tuple[int, ...]], Ends]
"""Type of a function that returns the edges of one graph, without edges from a device to itself.

The arguments of the function are the group of each device [devices], the simulated time in s, and the key of the random
draws, which starts with the round number. The result may contain edges between groups, which the caller drops.
"""


class Edges(Component):
    """Rule that determines the edges of a device-to-device graph."""

    @abstractmethod
    def source(self, inputs: TopologyInputs) -> EdgeSource:
        """Return the function that computes the edges of each graph in one run.

        Raises:
            DataError: recorded contacts cannot be read.
        """


class NoEdges(Edges):
    """No edges: a network without device-to-device links, for comparison."""

    kind = "none"

    def source(self, inputs: TopologyInputs) -> EdgeSource:
        return lambda group, at_s, name: (np.empty(0, np.int64), np.empty(0, np.int64))


class ListedEdges(Edges):
    """Given edges that do not change, for example a ring or a star."""

    kind = "list"

    pairs: tuple[tuple[int, int], ...]
    """The edges, each as a pair of device numbers."""

    directed: bool = False
    """If true, a pair is an edge from the first device to the second; if false, edges lead both ways."""

    @field_validator("pairs")
    @classmethod
    def _no_loops(cls, pairs: tuple[tuple[int, int], ...]) -> tuple[tuple[int, int], ...]:
        if loops := sorted({a for a, b in pairs if a == b}):
            raise ValueError(f"an edge joins two devices, got one of {loops} to itself; leave it out")
        return pairs

    @override
    def conflicts(self, scenario: Any) -> Iterator[tuple[str, str]]:
        count = scenario.devices.count
        if unknown := sorted({end for pair in self.pairs for end in pair if not 0 <= end < count}):
            yield "pairs", f"no such devices, got {unknown}; must be from 0 to {count - 1}"

    def source(self, inputs: TopologyInputs) -> EdgeSource:
        return fixed(self.pairs, directed=self.directed)


def fixed(pairs: Sequence[tuple[int, int]], *, directed: bool) -> EdgeSource:
    """Return a source of constant edges without duplicates; edges lead both ways if `directed` is False."""
    ends = np.array(pairs, np.int64).reshape(-1, 2)
    sender, receiver = np.unique(ends if directed else np.concatenate((ends, ends[:, ::-1])), axis=0).T
    return lambda group, at_s, name: (sender, receiver)


class RandomRegular(Edges):
    """Random regular directed graphs, redrawn for each group and each graph, with edges that fail independently.

    The devices of a group are arranged in a random order on a ring, and `degree` - 1 distinct random steps are drawn.
    Each device sends to the devices that are ahead of it by these steps (a circulant graph). Groups with fewer than
    `degree` devices are complete graphs. The literature on semi-decentralised learning describes this generator, which
    cannot produce all regular graphs.
    """

    degree: int = Field(ge=1)
    """Number of receivers of each device, including the device itself, before edges fail."""

    deletion: float = Field(0.0, ge=0, lt=1)
    """Probability that an edge fails."""

    redraw: bool = True
    """Whether the graph of a group is drawn again until the graph is strongly connected."""

    def source(self, inputs: TopologyInputs) -> EdgeSource:
        return partial(self._drawn, inputs.streams)

    def _drawn(self, streams: Streams, group: IntArray, at_s: float, name: tuple[int, ...]) -> Ends:
        """Draw one regular graph for each group; the random numbers of a group do not depend on later groups.

        Raises:
            ScenarioError: none of the graphs drawn for a group was strongly connected.
        """
        sizes = np.bincount(group)
        order = np.argsort(group, kind="stable")
        starts = np.cumsum(sizes) - sizes
        parts = []
        for size in np.unique(sizes[sizes > 1]).tolist():
            members = order[starts[sizes == size][:, None] + np.arange(size)]
            parts.append(self._of_size(streams, members, name))
        if not parts:
            return np.empty(0, np.int64), np.empty(0, np.int64)
        sender, receiver = (np.concatenate(side) for side in zip(*parts, strict=True))
        return sender, receiver

    def _of_size(self, streams: Streams, members: IntArray, name: tuple[int, ...]) -> Ends:
        size = members.shape[1]
        found: list[Ends] = []
        for attempt in range(MAX_REDRAWS):
            row, sender, receiver = self._attempt(streams, len(members), size, (size, attempt, *name))
            good = np.ones(len(members), np.bool_)
            if self.redraw:
                part = strong_components(members.size, row * size + sender, row * size + receiver).reshape(-1, size)
                good = np.all(part == part[:, :1], axis=1)
            kept = good[row]
            found.append((members[row[kept], sender[kept]], members[row[kept], receiver[kept]]))
            members = members[~good]
            if not len(members):
                senders, receivers = (np.concatenate(side) for side in zip(*found, strict=True))
                return senders, receivers
        raise ScenarioError(
            f"network.sidelink.topology.edges: no strongly connected digraph of {size} devices in {MAX_REDRAWS} draws, "
            f"got degree {self.degree} and deletion {self.deletion:g}; raise the degree, lower the deletion, "
            "or set redraw: false"
        )

    def _attempt(
        self, streams: Streams, groups: int, size: int, name: tuple[int, ...]
    ) -> tuple[IntArray, IntArray, IntArray]:
        """Draw edges of `groups` groups; return [edges] the group, and the sender and receiver within the group."""
        steps_each = min(self.degree, size) - 1

        def draws(what: str, *shape: int) -> Array:
            return streams("topology", what, *name).random((groups, *shape))

        label = np.argsort(draws("labels", size), axis=1)
        step = 1 + np.argsort(draws("steps", size - 1), axis=1)[:, :steps_each]
        there = draws("failures", size, steps_each) >= self.deletion
        row, place, which = np.nonzero(there)
        ahead = (place + step[row, which]) % size
        return row, label[row, place], label[row, ahead]
