"""Topologies, given and drawn."""

from __future__ import annotations

import gzip
import os
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fednet_emu.devices.mobility.base import StillPaths
from fednet_emu.emulation.load import load_scenario
from fednet_emu.errors import DataError
from fednet_emu.files.recordings import read_texts
from fednet_emu.kernel.streams import Streams, mixes, uniforms
from fednet_emu.network.links.links import Asymmetry, OneWay, PairLinks
from fednet_emu.network.topology import Digraph, Graphs, Topology, TopologyInputs
from fednet_emu.network.topology.contacts import ContactTrace, read_contacts
from fednet_emu.network.topology.geometric import sinr_in_slots
from fednet_emu.radio.channel import Channel
from fednet_emu.testing import small_federation, small_scenario
from tests.quick import examples

DATA = Path(os.environ.get("FEDNET_DATA", Path(__file__).parents[4] / "shared" / "data"))


def channel(**changes: Any) -> Channel:
    base = load_scenario("quickstart", ["channel={include: ideal}"]).channel
    return base.model_copy(update=changes)


def graphs(
    edges: dict[str, Any],
    clusters: dict[str, Any],
    count: int = 70,
    *,
    seed: int = 0,
    xy_m: np.ndarray | None = None,
    asymmetry: Asymmetry | None = None,
    data_dir: Path | None = None,
) -> Graphs:
    streams = Streams(seed)
    xy_m = np.zeros((count, 2)) if xy_m is None else xy_m
    one_way = None if asymmetry is None else OneWay(asymmetry, count, streams)
    links = PairLinks(channel(), xy_m, streams, one_way)
    topology = Topology.model_validate({"edges": edges, "clusters": clusters})
    return Graphs(topology, TopologyInputs(count, streams, StillPaths(xy_m), lambda _at_s: links, data_dir))


def pairs(graph: Digraph) -> set[tuple[int, int]]:
    return set(zip(graph.sender.tolist(), graph.receiver.tolist(), strict=True))


REGULAR = {"kind": "random-regular", "degree": 6}
SEVEN = {"kind": "equal", "count": 7}


# ---- the graph -------------------------------------------------------------------------------------------------------


@given(st.integers(0, 2**32 - 1))
def test_edges_between_clusters_are_gone(seed: int) -> None:
    """Whatever the edges and clusters, isolated devices included."""
    rng = np.random.default_rng(seed)
    adjacency = (rng.random((9, 9)) < 0.3) & ~np.eye(9, dtype=bool)
    graph = Digraph.of(rng.integers(3, size=9), *np.nonzero(adjacency))

    assert (graph.cluster[graph.sender] == graph.cluster[graph.receiver]).all()


def test_devices_that_take_no_part_are_in_no_cluster() -> None:
    """Their edges are gone, the others keep their order, and clusters are numbered without a gap."""
    graph = Digraph.of(np.array([5, 2, 5, 2, 9]), np.array([0, 1, 2, 3]), np.array([2, 3, 0, 1]))
    left = graph.among(np.array([False, True, True, True, True]))

    assert graph.cluster.tolist() == [0, 1, 0, 1, 2]
    assert left.cluster.tolist() == [-1, 0, 1, 0, 2]
    assert [members.tolist() for members in left.members] == [[1, 3], [2], [4]]
    assert pairs(left) == {(1, 3), (3, 1)}
    assert left.sizes.tolist() == [2, 1, 1]


# ---- chance ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("degree", [1, 2, 6, 10])
def test_every_device_has_the_same_degrees(degree: int) -> None:
    """Without failures in- and out-degrees are the one asked for, itself included."""
    graph = graphs({**REGULAR, "degree": degree, "redraw": degree > 1}, SEVEN).at(0.0, 3)

    assert (graph.out_degree == degree).all()
    assert (graph.in_degree == degree).all()
    assert len(pairs(graph)) == 70 * (degree - 1)


def test_small_groups_are_complete() -> None:
    """A degree above the size of a group is cut to it; a lone device has no edges."""
    sets = {"kind": "sets", "sets": [[0, 1, 2], [5, 6, 7, 8, 9, 10, 11]]}
    graph = graphs(REGULAR, sets, count=13).at(0.0, 0)

    assert graph.out_degree.tolist() == [3, 3, 3, 1, 1] + [6] * 7 + [1]
    assert len(graph.sizes) == 2 + 3


def test_a_cluster_is_drawn_until_it_is_strongly_connected() -> None:
    """With a third of the edges gone every cluster still is; without redrawing some are not."""
    failing = {**REGULAR, "degree": 4, "deletion": 0.35}
    wholes = [len(np.unique(graphs(failing, SEVEN).at(0.0, t).strong_components())) for t in range(10)]
    parts = [
        len(np.unique(graphs({**failing, "redraw": False}, SEVEN).at(0.0, t).strong_components())) for t in range(10)
    ]

    assert wholes == [7] * 10
    assert max(parts) > 7


def test_edges_fail_as_often_as_they_should() -> None:
    """10 % of 35,000 edges within 3 standard deviations."""
    drawn = graphs({**REGULAR, "deletion": 0.1, "redraw": False}, SEVEN)
    kept = sum(len(drawn.at(0.0, t).sender) for t in range(100))

    assert abs(kept - 31_500) < 3 * np.sqrt(35_000 * 0.09)


def test_a_draw_depends_on_its_name_and_the_seed_only() -> None:
    """The same round has the same edges in any order of questions; another round or seed has others."""
    law, one = graphs({**REGULAR, "deletion": 0.1}, SEVEN), graphs({**REGULAR, "deletion": 0.1}, SEVEN)
    first = law.at(0.0, 0)
    one.at(0.0, 5)

    assert pairs(one.at(9.0, 0)) == pairs(first)
    assert pairs(law.at(0.0, 1)) != pairs(first)
    assert pairs(graphs({**REGULAR, "deletion": 0.1}, SEVEN, seed=1).at(0.0, 0)) != pairs(first)


def test_more_clusters_change_nothing_in_those_before() -> None:
    """Three clusters of ten are the first three of seven."""
    few = graphs({**REGULAR, "redraw": False}, {"kind": "equal", "count": 3}, count=30).at(0.0, 2)
    many = graphs({**REGULAR, "redraw": False}, SEVEN).at(0.0, 2)

    assert pairs(few) == {edge for edge in pairs(many) if edge[0] < 30}


# ---- the radio -------------------------------------------------------------------------------------------------------

LINE_M = np.stack([np.arange(6) * 100.0, np.zeros(6)], axis=1)


def test_the_radio_reaches_as_far_as_its_threshold() -> None:
    """Free space: the SNR at 100 m is a threshold that neighbours reach and those at 200 m, 6 dB below, do not."""
    near = PairLinks(channel(), LINE_M, Streams(0)).snr(0, 1)
    law = {"kind": "geometric", "min_sinr_db": 10 * np.log10(near) - 1.0, "reach_m": 1000.0}
    graph = graphs(law, {"kind": "strongly-connected"}, 6, xy_m=LINE_M).at(0.0, 0)

    assert pairs(graph) == {(k, k + 1) for k in range(5)} | {(k + 1, k) for k in range(5)}
    assert graph.sizes.tolist() == [6]


def test_equal_radios_make_symmetric_graphs_and_unequal_ones_do_not() -> None:
    """Without asymmetry an edge comes with the one back; with unequal powers some have none."""
    xy_m = np.random.default_rng(0).uniform(0, 500, (40, 2))
    law = {"kind": "geometric", "min_sinr_db": 36.0, "reach_m": 1000.0}
    one = {"kind": "equal", "count": 1}
    even = pairs(graphs(law, one, 40, xy_m=xy_m).at(0.0, 0))
    uneven = pairs(graphs(law, one, 40, xy_m=xy_m, asymmetry=Asymmetry(tx_power_sigma_db=6.0)).at(0.0, 0))

    assert 40 < len(even) < 40 * 39
    assert {(i, j) for j, i in even} == even
    assert {(i, j) for j, i in uneven} != uneven


def test_the_factors_of_a_direction_are_power_noise_and_obstacle() -> None:
    """SNR over that of equal radios: the sender's power over the receiver's noise, or 20 dB less where obstructed."""
    law = Asymmetry(tx_power_sigma_db=3.0, noise_figure_sigma_db=2.0, obstacle_probability=0.3)
    one_way = OneWay(law, 6, Streams(4))
    plain, own = PairLinks(channel(), LINE_M, Streams(4)), PairLinks(channel(), LINE_M, Streams(4), one_way)
    ratio = np.array([[own.snr(j, i) / plain.snr(j, i) if i != j else 1.0 for i in range(6)] for j in range(6)])
    open_ratio = one_way.tx[:, None] * one_way.rx[None, :]
    hit = ratio / open_ratio < 0.1

    off = ~np.eye(6, dtype=bool)
    assert (np.where(hit, ratio * 100, ratio) / open_ratio)[off] == pytest.approx(np.ones(30))
    assert 0 < hit[off].sum() < 30
    assert own.snrs(np.array([0]), np.array([3])) == pytest.approx([own.snr(0, 3)])
    assert own.power_w(2) == pytest.approx(channel().device.tx_power_w * one_way.tx[2])


def test_in_slots_the_others_of_a_slot_are_noise() -> None:
    """Receiver 9 hears 8 and 3 in slot 0 and 5 in slot 1: 8 / (1 + 3), 3 / (1 + 8), and 5 alone."""
    sinr = sinr_in_slots(np.array([8.0, 3.0, 5.0]), np.array([9, 9, 9]), np.array([0, 0, 1]))

    assert sinr == pytest.approx([2.0, 1 / 3, 5.0])


def test_nobody_hears_its_own_slot() -> None:
    """Half duplex: with two slots there is no edge inside either, whatever the threshold."""
    law = {"kind": "geometric", "min_sinr_db": -200.0, "reach_m": 1000.0, "slots": 2}
    graph = graphs(law, {"kind": "equal", "count": 1}, 6, xy_m=LINE_M).at(0.0, 0)
    slot = Streams(0)("topology", "turns", 0).integers(2, size=6)

    assert pairs(graph) == {(j, i) for j in range(6) for i in range(6) if slot[i] != slot[j]}
    assert pairs(graph)


# ---- graphs in files -------------------------------------------------------------------------------------------------


def of_file(path: Path, count: int, **changes: Any) -> set[tuple[int, int]]:
    """The edges that a file gives, as (sender, receiver)."""
    law = {"kind": "file", "path": str(path), **changes}
    return pairs(graphs(law, {"kind": "equal", "count": 1}, count).at(0.0, 0))


@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("ending", [".graphml", ".graphml.gz", ".edges", ".txt.gz"])
def test_a_graph_that_networkx_writes_is_read_as_it_is(tmp_path: Path, ending: str, directed: bool) -> None:
    """Device k is node k, also where the file begins with another node; isolated nodes are kept by GraphML."""
    graph = nx.gnp_random_graph(12, 0.4, seed=3, directed=directed)
    shuffled = type(graph)()
    shuffled.add_nodes_from([7, *graph])
    shuffled.add_edges_from(graph.edges, weight=0.5)
    write = nx.write_graphml if "graphml" in ending else nx.write_edgelist
    write(shuffled, tmp_path / f"graph{ending}")

    found = of_file(tmp_path / f"graph{ending}", 12, **({"directed": True} if directed else {}))

    assert found == set(graph.edges if directed else graph.to_directed().edges)


def test_graphml_says_whether_its_edges_have_a_direction(tmp_path: Path) -> None:
    """A directed path 0 -> 1 -> 2 of named nodes; the setting wins over the file."""
    nx.write_graphml(nx.DiGraph([("c", "b"), ("b", "a")]), tmp_path / "path.graphml")

    assert of_file(tmp_path / "path.graphml", 3) == {(0, 1), (1, 2)}
    assert of_file(tmp_path / "path.graphml", 3, directed=False) == {(0, 1), (1, 0), (1, 2), (2, 1)}


@pytest.mark.parametrize("text", ["0 1\n1 2", "\ufeff0,1,0.5\r\n1,2\r\n", "# a b\n\n0\t1 {'w': 3}\n2 1 # back\n1 0"])
def test_lists_of_edges_in_the_forms_that_people_have(tmp_path: Path, text: str) -> None:
    """Blanks, tabs, commas, comments, attributes, a byte order mark, and lines of Windows."""
    (tmp_path / "graph.csv").write_text(text, encoding="utf-8", newline="")

    assert of_file(tmp_path / "graph.csv", 3) == {(0, 1), (1, 0), (1, 2), (2, 1)}


@pytest.mark.parametrize(
    ("name", "text", "told"),
    [
        ("a.txt", "0 1\n2\n", r"a\.txt:2: expected two nodes, got '2'"),
        ("a.txt", "0 1\n1 1\n1 2", "got '1' to itself"),
        ("a.txt", "0 1", "has 2 nodes for 3 devices; give devices.count: 2"),
        ("a.txt", "", "has 0 nodes for 3 devices"),
        ("a.graphml", "0 1\n1 2", "is no GraphML"),
        ("a.graphml", "<graphml><graph/></graphml>", "has 0 nodes for 3 devices"),
        ("a.graphml", "<html/>", "is no GraphML"),
        ("b.txt", None, "not found"),
    ],
)
def test_a_file_that_is_no_graph_of_the_devices_is_refused(tmp_path: Path, name: str, text: str, told: str) -> None:
    """Each with the place and what is wrong; nothing is dropped without a word."""
    if text is not None:
        (tmp_path / name).write_text(text)

    with pytest.raises(DataError, match=told):
        of_file(tmp_path / name, 3)


# ---- recorded contacts -----------------------------------------------------------------------------------------------

TRACE = "0 CONN 0 1 up\n5 CONN 1 0 up\n10 CONN 0 1 down\n10\tCONN\t2\t0\tup\n20 CONN 1 0 down\n30 CONN 2 0 down\n"


def contacts(tmp_path: Path, **changes: Any) -> Graphs:
    (tmp_path / "trace.tsv.gz").write_bytes(gzip.compress(TRACE.encode()))
    law = {"kind": "contacts", "path": "trace.tsv.gz", **changes}
    return graphs(law, {"kind": "equal", "count": 1}, 3, data_dir=tmp_path)


def test_a_directed_contact_is_an_edge_to_the_one_who_heard(tmp_path: Path) -> None:
    """`0 1 up`: 0 has heard 1."""
    assert pairs(contacts(tmp_path, directed=True).at(2.0, 0)) == {(1, 0)}
    assert pairs(contacts(tmp_path, directed=True).at(7.0, 0)) == {(1, 0), (0, 1)}


def test_rounds_may_be_farther_apart_in_the_trace_than_in_time(tmp_path: Path) -> None:
    """With 10 s a round, from 2 s on, round 1 is at 12 s; a memory of 5 s keeps the contact that ended at 10 s."""
    trace = contacts(tmp_path, step_s=10.0, start_s=2.0, directed=True, memory_s=5.0)

    assert pairs(trace.at(0.0, 1)) == {(1, 0), (0, 1), (0, 2)}
    assert pairs(trace.at(0.0, 0)) == {(1, 0)}


@pytest.mark.parametrize(
    "text",
    [
        "2 CONN 0 1 up\n9 CONN 0 1 down\n",
        "\ufeff2 CONN 0 1 up\r\n9 CONN 0 1 down\r\n",
        "# made by a converter\n\n  2\tCONN\t0\t1\tUP\n\n9 CONN 0 1 Down",
        "2 CONN 0 1 up\n9 CONN 1 0 down\n",
        "2.0 CONN p0 n1 up\n9.0 CONN p0 n1 down\n",
        "1 C M1 0 1 500k\n2 CONN 0 1 up\n3 S M1 0 1\n4 DE M1 0 1\n5 DR M1 0\n9 CONN 0 1 down\n",
        "2 CONN 0 1 up\n3 CONN 0 1 up\n4 CONN 1 0 up\n9 CONN 0 1 down\n9 CONN 0 1 down\n",
        "1 CONN 0 1 down\n2 CONN 0 1 up\n9 CONN 0 1 down\n",
        "2 CONN 0 1 up bluetooth\n9 CONN 0 1 down bluetooth\n",
        "2 CONN 0 1 up\n9 R * 0\n",
    ],
)
@pytest.mark.parametrize("packed", [False, True])
def test_events_of_the_one_are_read_as_it_reads_them(tmp_path: Path, text: str, packed: bool) -> None:
    """Nodes 0 and 1 meet from 2 s to 9 s, in every spelling that the ONE's StandardEventsReader takes."""
    path = tmp_path / "trace"
    path.write_bytes(gzip.compress(text.encode()) if packed else text.encode())
    ((_, content),) = read_texts(path)
    trace = read_contacts("trace", content)

    assert [its.tolist() for its in (trace.first, trace.second, trace.up_s, trace.down_s)] == [[0], [1], [2], [9]]


def test_interfaces_and_directions_are_apart() -> None:
    """Bluetooth goes down while Wi-Fi stays up; with `directed` each direction has its own contact."""
    text = "0 CONN 0 1 up bt\n1 CONN 0 1 up wifi\n5 CONN 0 1 down bt\n8 CONN 1 0 down wifi\n"
    assert sorted(zip(*[its.tolist() for its in vars_of(read_contacts("t", text))], strict=True)) == [
        (0, 1, 0, 5),
        (0, 1, 1, 8),
    ]
    both = "0 CONN 0 1 up\n1 CONN 1 0 up\n5 CONN 0 1 down\n8 CONN 1 0 down\n"
    assert sorted(zip(*[its.tolist() for its in vars_of(read_contacts("t", both, directed=True))], strict=True)) == [
        (0, 1, 0, 5),
        (1, 0, 1, 8),
    ]


def vars_of(trace: ContactTrace) -> tuple[Any, ...]:
    return trace.first, trace.second, trace.up_s, trace.down_s


@examples(30)
@given(st.sets(st.tuples(st.integers(0, 9), st.sampled_from([(0, 1), (0, 2), (1, 2), (1, 3)])), min_size=1))
def test_three_formats_hold_the_same_contacts(tmp_path_factory: pytest.TempPathFactory, met: set[Any]) -> None:
    """A random trace on a grid of 20 s, written in each format, gives one digraph at every time; ends are open.

    Snapshots have nodes 100, 101, ... and Unix time; their first line is at time 20 s of the trace.
    """
    met |= {(0, (0, 1)), (0, (2, 3)), (9, (0, 1))}
    one = [(20 * slot, 1, f"{20 * slot} CONN {a} {b} up") for slot, (a, b) in met]
    one += [(20 * slot + 20, 0, f"{20 * slot + 20} CONN {a} {b} down") for slot, (a, b) in met]
    texts = {
        "one": "\n".join(line for *_, line in sorted(one)),
        "intervals": "\n".join(f"{a + 1} {b + 1} {20 * slot} {20 * slot + 20} 1 0" for slot, (a, b) in met),
        "snapshots": "\n".join(
            f"{1e9 + 20 * slot + 20:.0f}\t{a + 100}\t{b + 100}\tx\ty" for slot, (a, b) in sorted(met)
        ),
    }
    folder = tmp_path_factory.mktemp("contacts")
    found = []
    for form, text in texts.items():
        (folder / form).write_text(text)
        law = {"kind": "contacts", "path": form, "format": form}
        found.append(graphs(law, {"kind": "equal", "count": 1}, 4, data_dir=folder))
    for at_s in np.arange(0, 400, 5.0):  # after 200 s all formats begin again
        expected = {its for slot, (a, b) in met if slot == at_s % 200 // 20 for its in ((a, b), (b, a))}
        assert [pairs(graph.at(float(at_s), 0)) for graph in found] == [expected] * 3


@pytest.mark.parametrize(
    ("form", "text", "problem"),
    [
        ("intervals", "1 2 0 5\n0 1 0 5", ":2: first is not within 1 and"),
        ("intervals", "1 2 5 0", ":1: ends before it begins"),
        ("intervals", "1 2 5", ":1: has 3 fields instead of 4"),
        ("intervals", "# a b\n2 2 0 5", ":2: is a contact of a node with itself"),
        ("intervals", "1 2 0 nan", ":1: end is no number"),
        ("snapshots", "20 1 2\n0 1 2", ":2: time goes back to 0"),
        ("snapshots", "nan 1 2", ":1: time is no number"),
        ("snapshots", "20 1", ":1: has 2 fields instead of 3"),
        ("snapshots", "20 1 1", ":1: is a contact of a node with itself"),
        ("snapshots", "20 -1 1", ":1: first is not within 0 and"),
    ],
)
def test_lines_of_other_formats_are_named(tmp_path: Path, form: str, text: str, problem: str) -> None:
    """Nodes from 0, a node with itself, times that go back or are no numbers, and missing columns."""
    (tmp_path / "trace").write_text(text)
    with pytest.raises(DataError, match=f"trace{problem}.*; write lines of"):
        graphs({"kind": "contacts", "path": "trace", "format": form}, {"kind": "equal", "count": 1}, data_dir=tmp_path)


def test_a_folder_of_traces_is_refused(tmp_path: Path) -> None:
    """It takes one file, and the message says so."""
    for name in "ab":
        (tmp_path / name).write_text("0 CONN 0 1 up\n")
    with pytest.raises(DataError, match="holds 2 files, got a folder or archive; name one of them"):
        graphs({"kind": "contacts", "path": "."}, {"kind": "strongly-connected"}, 2, data_dir=tmp_path)


@pytest.mark.skipif(not (DATA / "contacts_haggle").is_dir(), reason="no contacts_haggle: set FEDNET_DATA")
def test_the_students_of_cambridge() -> None:
    """36 nodes and 10,641 contacts over 987,529 s, as its description says; both ways as one there are 8,779."""
    path = DATA / "contacts_haggle" / "haggle-one-cambridge-city-students.tsv.gz"
    text = gzip.decompress(path.read_bytes()).decode()
    trace = read_contacts("students", text, directed=True)

    assert len(trace.first) == 10_641
    assert len(read_contacts("students", text).first) == 8_779
    assert max(trace.first.max(), trace.second.max()) == 35
    assert trace.period_s == 987_529


# ---- clusters --------------------------------------------------------------------------------------------------------


def test_a_set_may_fall_apart_into_what_is_strongly_connected() -> None:
    """A failing cluster is split into its strongly connected components, and no edge joins two of them."""
    failing = {**REGULAR, "degree": 2, "deletion": 0.5, "redraw": False}
    graph = graphs(failing, {**SEVEN, "split": True}).at(0.0, 0)

    assert len(graph.sizes) > 7
    assert len(np.unique(graph.strong_components())) == len(graph.sizes)


def test_devices_gather_around_the_nearest_head() -> None:
    """Each device's cluster is that of the head that is nearest, by hand."""
    xy_m = np.random.default_rng(2).uniform(0, 100, (30, 2))
    graph = graphs({"kind": "none"}, {"kind": "heads", "count": 4}, 30, xy_m=xy_m).at(0.0, 0)
    heads = np.sort(Streams(0)("topology", "heads").permutation(30)[:4])
    nearest = heads[((xy_m[:, None] - xy_m[heads]) ** 2).sum(axis=2).argmin(axis=1)]

    assert (graph.cluster == graph.cluster[nearest]).all()
    assert len(graph.sizes) == 4


def test_obstacles_are_drawn_from_their_own_stream() -> None:
    """Each ordered pair has the uniform draw of its key: below the probability the direction loses 20 dB."""
    one_way = OneWay(Asymmetry(obstacle_probability=0.4), 5, Streams(4))
    sender, receiver = np.divmod(np.arange(25), 5)
    draws = uniforms(mixes(Streams(4).key("asymmetry", "obstacle"), sender), receiver)

    assert one_way.factors(sender, receiver) == pytest.approx(np.where(draws < 0.4, 0.01, 1.0))


ONE = "clusters: {kind: equal, count: 1}"


def sidelink(edges: str) -> str:
    """The setting of a sidelink with these edges in one cluster."""
    return f"network.sidelink={{channel: {{include: ideal}}, topology: {{edges: {{kind: list, {edges}}}, {ONE}}}}}"


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
