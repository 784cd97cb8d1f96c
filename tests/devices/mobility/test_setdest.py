"""Claims about movement files of ns-2."""

import gzip
import re
from pathlib import Path

import numpy as np
import pytest

from fednet_emu.devices.mobility import Ns2Mobility, SumoMobility
from fednet_emu.devices.mobility.regions import DiscRegion
from fednet_emu.devices.mobility.setdest import read_movements
from fednet_emu.errors import DataError, ScenarioError
from fednet_emu.kernel.streams import Streams

FOLDER = Path(__file__).parent
STORY = """
# a comment
$node_(0) set X_ 10.0
$node_(0) set Y_ 0.0
$node_(0) set Z_ 0.0
$node_(1) set X_ 0
$node_(1) set Y_ 5
$god_ set-dist 0 1 2
$ns_ at 2.0 "$node_(0) setdest 10.0 30.0 3.0"
$ns_ at 7.0 "$node_(0) setdest 25.0 15.0 5.0"
$ns_ at 20.0 "$node_(0) setdest 25.0 15.0 0.0"
$ns_ at 30.0 "$node_(0) setdest 25.0 16.0 0.5"
"""


def paths(path, count, **fields):
    """Paths of the nodes of a file."""
    return Ns2Mobility(path=str(path), **fields).paths(np.zeros((count, 2)), DiscRegion(radius_m=1.0), Streams(1))


def test_orders_are_followed_from_wherever_a_node_is(tmp_path):
    """Node 0 waits 2 s, turns on its way at 7 s where it has come to y = 15, arrives at 10 s, and waits again."""
    path = tmp_path / "story.tcl"
    path.write_text(STORY)
    nodes = paths(path, 2, centre_m=(1, 0))

    def at(time_s):
        return nodes.positions_m(np.array([0]), time_s)[0].tolist()

    assert [at(0), at(2), at(4)] == [[9, 0], [9, 0], [9, 6]]
    assert [at(7), at(8.5), at(10), at(29)] == [[9, 15], [16.5, 15], [24, 15], [24, 15]]
    assert [at(31), at(32), at(1000)] == [[24, 15.5], [24, 16], [24, 16]]
    assert nodes.positions_m(np.array([1]), 12.0).tolist() == [[-1, 5]]
    assert nodes.speed_m_s == pytest.approx((15 + 15 + 1) / (5 + 3 + 2))


def test_sumo_exports_the_same_drive():
    """SUMO's own exporter orders each car to where it is now, so that it runs up to a step behind its rows."""
    nodes = paths(FOLDER / "sumo_grid.ns2", 4)
    cars = SumoMobility(path=str(FOLDER / "sumo_grid.fcd.xml")).paths(
        np.zeros((4, 2)), DiscRegion(radius_m=1.0), Streams(1)
    )
    for device, (from_s, to_s) in enumerate(cars.present_s[k][0] for k in range(4)):
        for now_s in range(int(from_s) + 2, int(to_s)):
            behind = nodes.positions_m(np.array([device]), float(now_s))[0]
            rows = [cars.positions_m(np.array([device]), float(at))[0] for at in (now_s - 2, now_s - 1, now_s)]
            nearest = min(float(np.hypot(*(behind - row))) for row in rows)
            assert nearest < 14, (device, now_s)


START = "$node_(0) set X_ 10\n$node_(0) set Y_ 0\n"


@pytest.mark.parametrize(
    "text",
    [
        START + '$ns_ at 2.0 "$node_(0) setdest 10.0 30.0 3.0"',
        START.replace("\n", "\r\n") + '$ns at 2 "$node_(0) setdest 10 3e1 3."\r\n',
        "\ufeff" + START + '$ns_ at 2.0 " $node_(0)  setdest 10.0 30.0 3.0 " ;# a comment',
        START + "$ns_ at 2.0 {$node_(0) setdest 10.0 30.0 3.0}",
        START + '\t$ns_\tat 2.0\t"$node_(0)\tsetdest 10.0 30.0 3.0";',
        '$ns_ at 2.0 "$node_(0) setdest 10.0 30.0 3.0"\n' + START,
        "$node_(0) set X_ 10; $node_(0) set Y_ 0; $node_(0) set Z_ 7\n"
        '$ns_ at 2.0 "$node_(0) setdest3d 10.0 30.0 7.0 3.0"',
        START + "$node_(0) random-motion 0\n# $node_(0) walks\nset opt(nn) 1\n$god_ set-dist 0 1 2\n"
        '$ns_ at 2.0 "$node_(0) setdest 10.0 30.0 3.0"\n$ns_ at 90.0 "$node_(0) reset";\n$ns_ at 3 "$god_ set"',
        "$node_(0) set X_ 99\n"
        + START
        + '$ns_ at 2.0 "$node_(0) setdest 0 0 9"\n$ns_ at 2 "$node_(0) setdest 10 30 3"',
        START + '$ns_ at 2.0 "$node_(0) setdest 99 0 9"\n$ns_ at 2 "$node_(0) setdest 10 30 3"',
    ],
)
@pytest.mark.parametrize("name", ["a.tcl", "a.ns_movements.gz"])
def test_spellings_of_one_way(tmp_path, name, text):
    """From (10, 0) the node leaves at 2 s and is at (10, 30) at 12 s; of two orders of one instant the later counts."""
    path = tmp_path / name
    path.write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
    at_m = paths(path, 1).positions_m

    assert [at_m(np.array([0]), at_s)[0].tolist() for at_s in (0.0, 2.0, 7.0, 12.0, 99.0)] == [
        [10, 0], [10, 0], [10, 15], [10, 30], [10, 30],
    ]  # fmt: skip


def test_a_jump_is_at_once_and_ends_the_way(tmp_path):
    """On its way to (100, 0) at 1 m/s it is put to y = 5 at 20 s, where x is 20: there it waits."""
    path = tmp_path / "jump.tcl"
    path.write_text(
        "$node_(0) set X_ 0\n$node_(0) set Y_ 0\n"
        '$ns_ at 0 "$node_(0) setdest 100 0 1"\n$ns_ at 20 "$node_(0) set Y_ 5"\n$ns_ at 30 "$node_(0) setdest 20 9 2"'
    )
    jumper = paths(path, 1)
    at_m = jumper.positions_m
    assert jumper.speed_m_s == pytest.approx((20 + 4) / (20 + 2))
    assert [at_m(np.array([0]), at_s)[0].tolist() for at_s in (19.0, 20.0, 29.0, 31.0, 40.0)] == [
        [19, 0], [20, 5], [20, 5], [20, 7], [20, 9],
    ]  # fmt: skip


def test_a_climb_takes_time(tmp_path):
    """3 m along and 4 m up at 1 m/s take 5 s."""
    path = tmp_path / "climb.tcl"
    path.write_text("$node_(0) set X_ 0\n$node_(0) set Y_ 0\n" + '$ns_ at 0 "$node_(0) setdest3d 3 0 4 1"')
    at_m = paths(path, 1).positions_m
    assert [at_m(np.array([0]), at_s)[0, 0] for at_s in (2.5, 5.0)] == pytest.approx([1.5, 3.0])


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ('$ns_ at 1.0 "$node_(0) setdest 1 1"', "is no order that can be followed"),
        ('$ns_ at 1.0 "$node_(0) setdest 1 1 1 1"', "is no order that can be followed"),
        ('$ns_ at 1.0 "$node_(0) setdest 1 1 1', "is no order that can be followed"),
        ('$ns_ at 1.0 "$node_(0) setdest 1 1 1; $node_(1) setdest 1 1 1"', "is no order that can be followed"),
        ('$ns_ at 1.0 "$node_($i) setdest 1 1 1"', "is no order that can be followed"),
        ('$ns_ at 1.0 "$node_(0) start"', "is no order that can be followed"),
        ('$ns_ at 1.0 "$mn(0) setdest 1 1 1"', "is no order that can be followed"),
        ("$node_(0) random-motion 1", "is no order that can be followed"),
        ("$node_(0) set W_ 1", "is no order that can be followed"),
        ("$node_(0) set X_", "is no order that can be followed"),
        ("$node_(0) set X_ 1 2", "is no order that can be followed"),
        ("$node_(0) set X_ 12,75", "a coordinate 12,75 is no number"),
        ("$node_(0) set X_ 1e999", "a coordinate 1e999 is not finite"),
        ("$node_(0) set X_ 1-1", "a coordinate 1-1 is no number"),
        ("$node_(0) set X_ 1_0", "a coordinate 1_0 is no number"),
        ("$node_(0) set X_ 1e10", "a coordinate 1e10 is not within"),
        ('$ns_ at inf "$node_(0) setdest 1 1 1"', "the time inf is no number"),
        ('$ns_ at -1 "$node_(0) setdest 1 1 1"', "the time -1 is not within 0 and"),
        ('$ns_ at 1e16 "$node_(0) setdest 1 1 1"', "the time 1e16 is not within 0 and"),
        ('$ns_ at 1 "$node_(0) setdest 1 inf 1"', "a coordinate inf is no number"),
        ('$ns_ at 1 "$node_(0) setdest 1 1 -1"', "the speed -1 is not within 0 and"),
        ('$ns_ at 1 "$node_(0) setdest 1 1 nan"', "the speed nan is no number"),
        ('$ns_ at 1 "$node_(0) setdest 1 1 1e-15"', r"arrives after 9.06e\+15 s"),
    ],
)
def test_a_line_that_names_a_node_is_understood_or_refused(tmp_path, line, problem):
    """With the line, the value, and what would be right."""
    path = tmp_path / "bad.tcl"
    path.write_text(f"{START}{line}\n")
    with pytest.raises(DataError, match=rf"bad\.tcl:3: {problem}.*, got .*; "):
        read_movements(path)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "has no nodes"),
        ("$node_(0) set X_ 1", "node 0 has no place to start from"),
        ('$ns_ at 1.0 "$node_(3) setdest 1 1 1"', "node 3 has no place to start from"),
    ],
)
def test_a_file_without_places_is_refused(tmp_path, text, problem):
    """The node is named."""
    path = tmp_path / "bad.tcl"
    path.write_text(text)
    with pytest.raises(DataError, match=problem):
        read_movements(path)


def test_ways_of_any_length_are_exact_or_refused(tmp_path):
    """Nodes share a time axis: 1e9 s beside a short way leave that exact to a tenth of a millimetre; 2e10 s do not."""
    path = tmp_path / "long.tcl"
    nodes = "".join(f"$node_({k}) set X_ 0\n$node_({k}) set Y_ 0\n" for k in (0, 1, 2))
    slow = '$ns_ at 0 "$node_({}) setdest 1000 0 {}"\n'
    path.write_text(nodes + slow.format(0, 1e-6) + slow.format(1, 30.0))
    assert paths(path, 2).positions_m(np.array([1]), 7.123456)[0, 0] == pytest.approx(30 * 7.123456, abs=1e-4)
    path.write_text(nodes + slow.format(0, 1.2e-7) + slow.format(1, 1.2e-7) + slow.format(2, 30.0))
    with pytest.raises(ScenarioError, match=r"mobility: 3 recorded ways are too long, got 1.67e\+10 s in all; give"):
        paths(path, 3)


def test_more_devices_than_nodes_are_refused(tmp_path):
    """The sentence says how many there are."""
    path = tmp_path / "story.tcl"
    path.write_text(STORY)
    with pytest.raises(ScenarioError, match=r"count: .*story.tcl has no node 2, got 3 devices; give 2 or fewer"):
        paths(path, 3)


def test_a_file_that_is_no_text_is_named_once(tmp_path):
    """The message begins with the path and the problem, without the name of the only file in front again."""
    path = tmp_path / "m.tcl"
    path.write_bytes(b"\xff\xfe\x00")

    with pytest.raises(DataError, match=rf"^{re.escape(str(path))}: is not text"):
        read_movements(path)
