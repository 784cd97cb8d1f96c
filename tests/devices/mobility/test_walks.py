"""Recorded ways: walks, GPS and setdest."""

import gzip
import io
import lzma
import os
import re
import zipfile
from pathlib import Path

import numpy as np
import pytest

from fednet_emu.devices.mobility import GpsMobility, Ns2Mobility, SumoMobility, TraceMobility
from fednet_emu.devices.mobility.regions import DiscRegion
from fednet_emu.devices.mobility.setdest import read_movements
from fednet_emu.devices.mobility.walks import load_walks
from fednet_emu.devices.orbits import Site, in_axes
from fednet_emu.errors import DataError, ScenarioError
from fednet_emu.files.gps import read_tracks
from fednet_emu.kernel.streams import Streams

DATA = Path(os.environ.get("FEDNET_DATA", Path(__file__).parents[4] / "shared" / "data"))
KAIST = DATA / "mobility_kaist" / "kaist_92walks_30s_f32.npz.xz"
REGION = DiscRegion(radius_m=1.0)
EAST = np.array([[100.0, 0.0, 0.0], [110.0, 10.0, 0.0], [130.0, 10.0, 40.0]])
NORTH = np.array([[0.0, 5.0, 5.0], [10.0, 5.0, 6.0]])

needs_kaist = pytest.mark.skipif(not KAIST.is_file(), reason="the KAIST walks are not in the data folder")


def npz(path, **walks):
    stream = io.BytesIO()
    np.savez(stream, **walks)
    path.write_bytes(lzma.compress(stream.getvalue()) if path.suffix == ".xz" else stream.getvalue())
    return path


def walk(path, placed=((0.0, 0.0),) * 3, **fields):
    """Paths of three devices on the walks of a file, from their beginning unless said otherwise."""
    law = TraceMobility(path=str(path), **{"start": "beginning", **fields})
    return law.paths(np.array(placed), REGION, Streams(4))


def at(paths, time_s, device=0):
    return paths.positions_m(np.array([device]), time_s)[0].tolist()


@pytest.mark.parametrize("name", ["walks.npz", "walks.npz.xz"])
def test_walks_are_straight_between_rows_and_walked_back_at_the_end(tmp_path, name):
    """Times count from the first row; 30 s of walk are followed by the same 30 s backwards, for ever."""
    paths = walk(npz(tmp_path / name, east=EAST))

    assert at(paths, 0) == [0, 0]
    assert at(paths, 5) == [5, 0]
    assert at(paths, 20) == [10, 20]
    assert at(paths, 30) == [10, 40]
    assert at(paths, 40) == [10, 20]
    assert at(paths, 55) == [5, 0]
    assert at(paths, 60 * 1000 + 20) == pytest.approx([10, 20])


def test_devices_take_walks_in_turn(tmp_path):
    """Device k has walk k modulo their number, whether asked alone or together."""
    paths = walk(npz(tmp_path / "walks.npz", east=EAST, north=NORTH))

    assert paths.positions_m(np.arange(3), 5.0).tolist() == [[5, 0], [5, 5.5], [5, 0]]
    assert at(paths, 5.0, device=1) == [5, 5.5]


def test_random_walks_and_starts_are_keyed_by_device(tmp_path):
    """Devices differ, spread over both walks, and are the same when more devices join."""
    path = npz(tmp_path / "walks.npz", east=EAST, north=NORTH)
    few, many = (
        walk(path, np.zeros((count, 2)), assignment="random", start="random").positions_m(np.arange(count), 3.0)
        for count in (20, 200)
    )

    assert np.array_equal(few, many[:20])
    assert 60 < np.sum(many[:, 0] == 5) < 140
    assert len(np.unique(many.round(6), axis=0)) > 150


def test_coordinates_are_recorded_ones_less_the_centre_or_start_at_the_placement(tmp_path):
    """`centre_m` moves the base station; with origin: placement only the shape of the walk counts."""
    path = npz(tmp_path / "walks.npz", east=EAST)
    placed = ((7.0, 8.0), (0.0, 1.0), (0.0, 0.0))

    assert at(walk(path, placed, centre_m=(1, 2)), 20.0) == [9, 18]

    moved = walk(path, placed, origin="placement", start="random")
    assert moved.positions_m(np.arange(3), 0.0) == pytest.approx(np.array(placed), abs=1e-12)
    assert not np.all(moved.positions_m(np.arange(3), 9.0) == np.array(placed), axis=1).any()


def test_the_typical_speed_is_all_distance_over_all_time(tmp_path):
    """50 m in 30 s and 1 m in 10 s are 51 m in 40 s."""
    assert walk(npz(tmp_path / "walks.npz", east=EAST, north=NORTH)).speed_m_s == pytest.approx(51 / 40)


def test_files_that_hold_no_walks_are_refused(tmp_path):
    """Each message names the file, the walk and what is wrong."""
    text = tmp_path / "text.npz"
    text.write_text("no archive")

    for path, problem in [
        (tmp_path / "absent.npz", "cannot be read"),
        (text, "cannot be read as an .npz file"),
        (npz(tmp_path / "none.npz"), "holds no walks"),
        (npz(tmp_path / "shape.npz", a=EAST, b=EAST[:, :2]), r"b is float64 of shape \(3, 2\)"),
        (npz(tmp_path / "short.npz", a=EAST[:1]), r"a is float64 of shape \(1, 3\)"),
        (npz(tmp_path / "words.npz", a=EAST.astype(str)), "a is <U"),
        (npz(tmp_path / "back.npz", a=EAST[::-1]), "a has values .* times that do not increase"),
        (npz(tmp_path / "nan.npz", a=EAST * np.nan), "a has values that are not finite"),
    ]:
        with pytest.raises(DataError, match=f"{path.name}: {problem}"):
            load_walks(path)


@needs_kaist
def test_the_kaist_walks_have_the_published_shape():
    """92 walks, 135,055 rows, 506 to 2800 of them per walk, 30 s apart; a student covers 0.57 m/s on average."""
    walks = load_walks(KAIST)
    lengths = [len(rows) for rows in walks]

    assert (len(walks), sum(lengths), min(lengths), max(lengths)) == (92, 135_055, 506, 2800)
    assert {step for rows in walks for step in np.diff(rows[:, 0]).tolist()} == {30.0}

    paths = TraceMobility(start="beginning").paths(np.zeros((93, 2)), REGION, Streams(1), DATA)
    assert paths.speed_m_s == pytest.approx(0.5746, abs=1e-4)
    assert paths.positions_m(np.array([92]), 45.0)[0] == pytest.approx((walks[0][1, 1:] + walks[0][2, 1:]) / 2)


GPX = """<?xml version="1.0"?><gpx xmlns="http://www.topografix.com/GPX/1/1"><trk><trkseg>
<trkpt lat="39.9" lon="116.3"><ele>5</ele><time>2008-10-23T02:53:04Z</time></trkpt>
<trkpt lat="39.91" lon="116.32"><time>2008-10-23T02:54:04Z</time></trkpt></trkseg></trk></gpx>"""
PLT = """Geolife trajectory
WGS 84
Altitude is in Feet
Reserved 3
0,2,255,My Track,0,0,2,8421376
0
39.9,116.3,0,492,39744.1201851852,2008-10-23,02:53:04
39.91,116.32,0,-777,39744.1202083333,2008-10-23,02:54:04
"""


def paths(path, count=1, **fields):
    law = GpsMobility(path=str(path), **{"start": "beginning"} | fields)
    return law.paths(np.zeros((count, 2)), DiscRegion(radius_m=1.0), Streams(1))


@pytest.mark.parametrize(
    "text",
    [
        "time,id,lat,lon\n0,a,39.9,116.3\n60,a,39.91,116.32\n",
        "\ufeffid;lon;lat;time\r\na;116.3;39.9;2008-10-23 02:53:04\r\na;116.32;39.91;2008-10-23 02:54:04\r\n",
        "time,lat,lon,speed\n2008-10-23T10:53:04+08:00,39.9,116.3,1\n2008-10-23T02:54:04Z,39.91,116.32,1\n",
        "1,2008-10-23 02:53:04,116.3,39.9\n1,2008-10-23 02:53:04,99,9\n1,2008-10-23 02:54:04,116.32,39.91\n",
        PLT,
        PLT.replace("\n", "\r\n"),
        GPX,
    ],
)
@pytest.mark.parametrize("packed", [False, True])
def test_one_track_in_every_form(tmp_path, text, packed):
    """CSV, T-Drive, GeoLife and GPX: from the place of the base station to one 1.1 km north and 1.7 km east in 60 s.

    The distances are those of the ellipsoid, by the earth-fixed coordinates of both places.
    """
    path = tmp_path / "track"
    path.write_bytes(gzip.compress(text.encode()) if packed else text.encode())
    here, there = Site(lat_deg=39.9, lon_deg=116.3), Site(lat_deg=39.91, lon_deg=116.32)
    due_m = in_axes(there.place_m - here.place_m, here.axes)[:2]
    at_m = paths(path, centre_deg=(39.9, 116.3)).positions_m

    assert at_m(np.array([0]), 0.0)[0] == pytest.approx([0, 0], abs=1e-6)
    assert at_m(np.array([0]), 60.0)[0] == pytest.approx(due_m, abs=1.0)
    assert at_m(np.array([0]), 30.0)[0] == pytest.approx(due_m / 2, abs=1.0)
    assert 1_700 < due_m[0] < 1_715
    assert 1_105 < due_m[1] < 1_115


def test_owners_and_files_are_devices(tmp_path):
    """Rows of two ids take turns; a folder or archive has a walk for each id of each file; the median is the origin."""
    text = "time,id,lat,lon\n0,a,10,20\n0,b,10.2,20\n9,a,10.1,20\n9,b,10.2,20.3\n5,c,10.1,20.1\n"
    (tmp_path / "rows.csv").write_text(text)
    tracks = read_tracks(tmp_path / "rows.csv")
    assert [rows.tolist() for rows in tracks.values()] == [
        [[0, 10, 20], [9, 10.1, 20]],
        [[0, 10.2, 20], [9, 10.2, 20.3]],
        [[5, 10.1, 20.1], [6, 10.1, 20.1]],
    ]
    with zipfile.ZipFile(tmp_path / "all.zip", "w") as archive:
        for user in ("000", "001"):
            archive.writestr(f"Data/{user}/Trajectory/1.plt", PLT)
        archive.writestr("Data/000/labels.txt", "no fixes")
    assert len(read_tracks(tmp_path / "all.zip", "*.plt")) == 2
    three = paths(tmp_path / "rows.csv", 3)
    assert three.positions_m(np.arange(3), 0.0)[:, 0] == pytest.approx([-5_482, -5_482, 5_482], rel=1e-3)
    across = "time,lat,lon\n0,0,179.9\n9,0,-179.9\n"
    (tmp_path / "date_line.csv").write_text(across)
    assert abs(paths(tmp_path / "date_line.csv", centre_deg=(0, 180)).positions_m(np.array([0]), 4.5)[0, 0]) < 1


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("time,id,lat,lon\n0,a,91,0\n", ":2: lat is not within -90 and 90, got '91'"),
        ("time,id,lat,lon\n0,a,1,181\n", ":2: lon is not within -180 and 180, got '181'"),
        ("time,id,lat,lon\n0,a,1,1\nnoon,a,1,1\n", ":3: time is no number, got 'noon'"),
        ("time,id,lat,lon\n5,a,1,1\n0,b,1,1\n4,a,1,1\n", ":4: time of a goes back by 1 s, got '4'"),
        ("time,id,lat,lon\n1700000000000,a,1,1\n", ":2: time is not within"),
        ("id,lat,lon\na,1,1\n", ": lacks the column time, got id, lat, lon"),
        ("1,2008-02-02 15:36:08,116.5\n", ":1: has 3 fields instead of 4"),
        ("1,2008-02-30 15:36:08,116.5,39.9\n", ":1: time is no number"),
        (PLT.replace("39.91,", "39.91 "), ":8: has 6 fields instead of 7"),
        ("<gpx><trk>", ": cannot be read as GPX"),
        ("<gpx/>", ": has no fixes"),
        (GPX.replace("<time>2008-10-23T02:54:04Z</time>", ""), ": point:2: time is no number, got ''"),
        ("", ": has no fixes"),
    ],
)
def test_fixes_that_make_no_sense_are_refused(tmp_path, text, problem):
    """With the line, the value, and what would be right."""
    (tmp_path / "bad").write_text(text)
    with pytest.raises(DataError, match=f"bad{problem}"):
        read_tracks(tmp_path / "bad")


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


def setdest_paths(path, count, **fields):
    return Ns2Mobility(path=str(path), **fields).paths(np.zeros((count, 2)), DiscRegion(radius_m=1.0), Streams(1))


def test_orders_are_followed_from_wherever_a_node_is(tmp_path):
    """Node 0 waits 2 s, turns on its way at 7 s where it has come to y = 15, arrives at 10 s, and waits again."""
    path = tmp_path / "story.tcl"
    path.write_text(STORY)
    nodes = setdest_paths(path, 2, centre_m=(1, 0))

    def at(time_s):
        return nodes.positions_m(np.array([0]), time_s)[0].tolist()

    assert [at(0), at(2), at(4)] == [[9, 0], [9, 0], [9, 6]]
    assert [at(7), at(8.5), at(10), at(29)] == [[9, 15], [16.5, 15], [24, 15], [24, 15]]
    assert [at(31), at(32), at(1000)] == [[24, 15.5], [24, 16], [24, 16]]
    assert nodes.positions_m(np.array([1]), 12.0).tolist() == [[-1, 5]]
    assert nodes.speed_m_s == pytest.approx((15 + 15 + 1) / (5 + 3 + 2))


def test_sumo_exports_the_same_drive():
    """SUMO's own exporter orders each car to where it is now, so that it runs up to a step behind its rows."""
    nodes = setdest_paths(FOLDER / "sumo_grid.ns2", 4)
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
    at_m = setdest_paths(path, 1).positions_m

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
    jumper = setdest_paths(path, 1)
    at_m = jumper.positions_m
    assert jumper.speed_m_s == pytest.approx((20 + 4) / (20 + 2))
    assert [at_m(np.array([0]), at_s)[0].tolist() for at_s in (19.0, 20.0, 29.0, 31.0, 40.0)] == [
        [19, 0], [20, 5], [20, 5], [20, 7], [20, 9],
    ]  # fmt: skip


def test_a_climb_takes_time(tmp_path):
    """3 m along and 4 m up at 1 m/s take 5 s."""
    path = tmp_path / "climb.tcl"
    path.write_text("$node_(0) set X_ 0\n$node_(0) set Y_ 0\n" + '$ns_ at 0 "$node_(0) setdest3d 3 0 4 1"')
    at_m = setdest_paths(path, 1).positions_m
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
    assert setdest_paths(path, 2).positions_m(np.array([1]), 7.123456)[0, 0] == pytest.approx(30 * 7.123456, abs=1e-4)
    path.write_text(nodes + slow.format(0, 1.2e-7) + slow.format(1, 1.2e-7) + slow.format(2, 30.0))
    with pytest.raises(ScenarioError, match=r"mobility: 3 recorded ways are too long, got 1.67e\+10 s in all; give"):
        setdest_paths(path, 3)


def test_a_file_that_is_no_text_is_named_once(tmp_path):
    """The message begins with the path and the problem, without the name of the only file in front again."""
    path = tmp_path / "m.tcl"
    path.write_bytes(b"\xff\xfe\x00")

    with pytest.raises(DataError, match=rf"^{re.escape(str(path))}: is not text"):
        read_movements(path)
