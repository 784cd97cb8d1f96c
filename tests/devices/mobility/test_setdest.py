"""Claims about movement files of ns-2."""

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


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "has no nodes"),
        ("$node_(0) set X_ 1", "node 0 has no place to start from"),
        ('$ns_ at 1.0 "$node_(3) setdest 1 1 1"', "node 3 has no place to start from"),
        ("$node_(0) set X_ 1e999\n$node_(0) set Y_ 1", ":1: 1e999 is not finite"),
        ("$node_(0) set X_ 1\n$node_(0) set Y_ 1-1", ":2: could not convert"),
    ],
)
def test_orders_that_cannot_be_followed_are_refused(tmp_path, text, problem):
    """The line is named."""
    path = tmp_path / "bad.tcl"
    path.write_text(text)
    with pytest.raises(DataError, match=problem):
        read_movements(path)


def test_more_devices_than_nodes_are_refused(tmp_path):
    """The sentence says how many there are."""
    path = tmp_path / "story.tcl"
    path.write_text(STORY)
    with pytest.raises(ScenarioError, match=r"count: .*story.tcl has no node 2, got 3 devices; give 2 or fewer"):
        paths(path, 3)
