"""Claims about edges that are given."""

from __future__ import annotations

import pytest

from fednet_emu.network.topology import Digraph, Topology
from fednet_emu.testing import small_federation, small_scenario

ONE = "clusters: {kind: equal, count: 1}"


def sidelink(edges: str) -> str:
    """The setting of a sidelink with these edges in one cluster."""
    return f"network.sidelink={{channel: {{include: ideal}}, topology: {{edges: {{kind: list, {edges}}}, {ONE}}}}}"


def pairs(graph: Digraph) -> set[tuple[int, int]]:
    """The edges as (sender, receiver)."""
    return set(zip(graph.sender.tolist(), graph.receiver.tolist(), strict=True))


def test_given_edges_stay_as_they_are() -> None:
    """Both ways, or from the first to the second only; an edge that is given twice is one."""
    both = small_federation(sidelink("pairs: [[0, 1], [1, 2], [1, 0]]"))
    one_way = small_federation(sidelink("pairs: [[0, 1], [1, 2], [1, 0]], directed: true")).digraph(0)

    assert pairs(both.digraph(0)) == pairs(both.digraph(5)) == {(0, 1), (1, 0), (1, 2), (2, 1)}
    assert len(both.digraph(0).sender) == 4
    assert pairs(one_way) == {(0, 1), (1, 0), (1, 2)}
    assert pairs(one_way.mutual()) == {(0, 1), (1, 0)}
    assert pairs(small_federation(sidelink("pairs: []")).digraph(0)) == set()


def test_given_edges_join_two_devices_that_exist() -> None:
    """A loop and a number without a device are refused."""
    with pytest.raises(ValueError, match=r"an edge joins two devices, got one of \[1\] to itself; leave it out"):
        Topology.model_validate(
            {"edges": {"kind": "list", "pairs": [[0, 2], [1, 1]]}, "clusters": "strongly-connected"}
        )
    unknown = small_scenario(sidelink("pairs: [[0, 4], [-1, 2]]"), "algorithm={kind: sgp, lr: 0.1}").contradictions()
    place = ("network", "sidelink", "topology", "edges", "pairs")

    assert dict(unknown)[place] == "no such devices, got [-1, 4]; must be from 0 to 3"
