"""Claims about recorded GPS tracks: the forms of files, and where devices then are."""

import gzip
import zipfile

import numpy as np
import pytest

from fednet_emu.devices.mobility import GpsMobility
from fednet_emu.devices.mobility.regions import DiscRegion
from fednet_emu.devices.orbits import Site, in_axes
from fednet_emu.errors import DataError, ScenarioError
from fednet_emu.files.gps import read_tracks
from fednet_emu.kernel.streams import Streams

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
    """Paths from the beginnings of the tracks."""
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


def test_a_centre_that_is_no_place_is_refused(tmp_path):
    """Of latitude and longitude exchanged."""
    (tmp_path / "a.csv").write_text("time,lat,lon\n0,39.9,116.3\n")
    with pytest.raises(ScenarioError, match=r"centre_deg: must be latitude and longitude, got 116\.3, 39\.9"):
        paths(tmp_path / "a.csv", centre_deg=(116.3, 39.9))
