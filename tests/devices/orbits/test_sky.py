"""Claims about satellites: where they stand, and when they pass, against SGP4 with precise frames and closed forms."""

import gzip
import json
import math
from datetime import datetime
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from pydantic import ValidationError

from fednet_emu.devices.mobility.satellites import Tle, Walker
from fednet_emu.devices.orbits import GRAVITY_M3_S2, TURN_RAD_S, PassTable, SatelliteView, Site, stations_m
from fednet_emu.errors import DataError, ScenarioError
from fednet_emu.files.tle import read_elements
from fednet_emu.network.delay import RangeDelay
from fednet_emu.radio.propagation.path_loss import free_space_loss_db

HERE = Path(__file__).parent
ISS = json.loads((HERE / "iss.json").read_text())
CIRCULAR = pd.read_csv(HERE / "circular.csv").to_dict("records")
START = "2014-01-23T00:00:00Z"
ON_THE_SPHERE = Site(lat_deg=0, lon_deg=0, height_m=-7137)
"""A place on the equator that is 6371 km from the centre of the Earth."""


def seconds(utc):
    return (datetime.fromisoformat(utc) - datetime.fromisoformat(START)).total_seconds()


def elements(folder, lines=ISS["tle"]):
    path = folder / "iss.tle"
    path.write_text("ISS\n" + "\n".join(lines) + "\n")
    return str(path)


def messages(form, changes=({},)):
    """OMM of the space station, a satellite for each change of its fields, as CelesTrak writes it in this form."""
    from sgp4.api import Satrec
    from sgp4.exporter import export_omm

    fields = export_omm(Satrec.twoline2rv(*ISS["tle"]), "ISS (ZARYA)")
    rows = [fields | its for its in changes]
    if form == "json":
        return json.dumps(rows)
    if form == "csv":
        return pd.DataFrame(rows).to_csv(index=False, lineterminator="\r\n")
    segments = "".join(
        "<segment><metadata>{}</metadata><data><meanElements>{}</meanElements><tleParameters>{}</tleParameters></data>"
        "</segment>".format(*("".join(f"<{k}>{v}</{k}>" for k, v in part) for part in (own[:6], own[6:13], own[13:])))
        for own in ([*its.items()] for its in rows)
    )
    return f'<?xml version="1.0" encoding="UTF-8"?><ndm><omm id="CCSDS_OMM_VERS"><body>{segments}</body></omm></ndm>'


def summed(line):
    return line[:68] + str(sum(int(sign) if sign.isdecimal() else sign == "-" for sign in line[:68]) % 10)


def orbits(law, count=1):
    return law.paths(np.zeros((count, 2)), None, None)


def passes(sky, mask_deg, until_s, satellite=0):
    """The passes that begin before a time, in s."""
    table, now_ns, found = PassTable(sky, mask_deg), 0, []
    while (its := table.next(satellite, now_ns)) is not None and its[0] < until_s * 1e9:
        found.append((its[0] / 1e9, its[1] / 1e9))
        now_ns = its[1]
    return found


def test_the_space_station_over_bluffton(tmp_path):
    """Elevation, azimuth and range every three hours: those of precise frames (skyfield) to 0.0042 degrees and 43 m."""
    pytest.importorskip("sgp4")
    sky = SatelliteView(orbits(Tle(elements=elements(tmp_path), epoch=START)), [Site(**ISS["station"])])
    for point in ISS["points"]:
        east, north, up = sky.positions_m(np.array([0]), seconds(point["utc"]))[0]
        range_m = math.hypot(east, north, up)
        assert range_m == pytest.approx(1e3 * point["range_km"], abs=43)
        assert math.degrees(math.asin(up / range_m)) == pytest.approx(point["elevation_deg"], abs=0.0042)
        assert math.degrees(math.atan2(east, north)) % 360 == pytest.approx(point["azimuth_deg"], abs=0.01)
        assert RangeDelay().delay_ns(lambda r=range_m: r) == pytest.approx(1e6 * point["delay_ms"], abs=150)
        loss_db = free_space_loss_db(np.float64(range_m), 12e9)
        assert float(loss_db) == pytest.approx(point["fspl_db_12ghz"], abs=0.007)


@pytest.mark.parametrize("mask_deg", [0, 10, 30])
def test_passes_of_the_space_station(tmp_path, mask_deg):
    """The passes of a day above each mask, all of them, and their edges to 0.15 s."""
    pytest.importorskip("sgp4")
    sky = SatelliteView(orbits(Tle(elements=elements(tmp_path), epoch=START)), [Site(**ISS["station"])])
    due = [its for its in ISS["windows"] if its["min_elevation_deg"] == mask_deg]
    found = passes(sky, mask_deg, 86_400)
    assert len(found) == len(due) == {0: 7, 10: 6, 30: 2}[mask_deg]
    for (rise_s, set_s), its in zip(found, due, strict=True):
        assert rise_s == pytest.approx(seconds(its["rise_utc"]), abs=0.15)
        assert set_s == pytest.approx(seconds(its["set_utc"]), abs=0.15)


def equator(height_km):
    """The law of a satellite that circles above the equator, eastward, overhead of the place at time 0."""
    return Walker(planes=1, inclination_deg=0, height_m=1e3 * height_km)


@pytest.mark.parametrize("row", [its for its in CIRCULAR if its["height_km"] < 2000 and its["elevation_deg"] < 90])
def test_circles_in_closed_form(row):
    """Slant range, delay, loss and length of a pass at a mask; the Earth turns below, which lengthens passes."""
    law, place = equator(row["height_km"]), ON_THE_SPHERE
    sky = SatelliteView(orbits(law), [place])
    motion = 2 * math.pi / row["period_s"]
    assert sky.speed_m_s == pytest.approx(motion * (6.371e6 + law.height_m), rel=1e-6)
    turns = motion / (motion - TURN_RAD_S)
    half_s = turns * row["overhead_pass_s_without_rotation"] / 2
    (begin_s, set_s), (rise_s, later_s) = passes(sky, row["elevation_deg"], 2 * row["period_s"] * turns)[:2]
    assert begin_s == 0
    assert set_s == pytest.approx(half_s, abs=2e-3)
    assert (rise_s + later_s) / 2 == pytest.approx(turns * row["period_s"], abs=2e-3)
    assert later_s - rise_s == pytest.approx(2 * half_s, abs=4e-3)
    range_m = math.hypot(*sky.positions_m(np.array([0]), set_s)[0])
    assert range_m == pytest.approx(1e3 * row["slant_range_km"], abs=20)
    assert RangeDelay().delay_ns(lambda: range_m) == pytest.approx(1e6 * row["delay_ms"], abs=100)
    assert float(free_space_loss_db(np.float64(range_m), 2e9)) == pytest.approx(row["fspl_db_2ghz"], abs=0.007)


def test_a_stationary_satellite_never_sets():
    """At 35,786 km it stays overhead, but for the drift of the rounded height; one on the other side never comes."""
    height_m = (GRAVITY_M3_S2 / TURN_RAD_S**2) ** (1 / 3) - 6.371e6
    law = Walker(planes=1, inclination_deg=0, height_m=height_m)
    table = PassTable(SatelliteView(orbits(law, count=2), [ON_THE_SPHERE]), 10)
    rise_ns, set_ns = table.next(0, 10**12)
    assert rise_ns == 0
    assert set_ns > 9 * 86_400 * 10**9
    assert table.next(1, 0) is None


def test_a_constellation_is_even():
    """6:3/1-like planes: equal angles within a plane, and the next plane ahead by F / T of a turn, as Walker has it."""
    law = Walker(planes=3, phasing=1, inclination_deg=60, height_m=8e5)
    places = orbits(law, count=12).places_m(np.arange(12), np.zeros(1))[:, 0]
    radius_m = np.linalg.norm(places, axis=1)
    assert radius_m == pytest.approx(np.full(12, 7.171e6))
    gaps = [math.degrees(math.acos(places[k] @ places[k + 1] / radius_m[0] ** 2)) for k in (0, 1, 2, 4, 8)]
    assert gaps == pytest.approx([90] * 5)
    node, along, tilt = math.radians(120), math.radians(30), math.radians(60)  # satellite 0 of plane 1
    expected = [
        math.cos(node) * math.cos(along) - math.sin(node) * math.sin(along) * math.cos(tilt),
        math.sin(node) * math.cos(along) + math.cos(node) * math.sin(along) * math.cos(tilt),
        math.sin(along) * math.sin(tilt),
    ]
    assert places[4] / radius_m[4] == pytest.approx(expected)
    star = Walker(planes=3, inclination_deg=90, height_m=8e5, pattern="star")
    nodes = orbits(star, count=3).places_m(np.arange(3), np.zeros(1))[:, 0] / 7.171e6
    assert np.degrees(np.arctan2(nodes[:, 1], nodes[:, 0])) == pytest.approx([0, 60, 120])


def test_passes_are_those_of_a_fine_walk():
    """Second by second over nine hours, two stations: the same satellites are up, in short passes, too."""
    sites = [Site(lat_deg=50, lon_deg=8.6), Site(lat_deg=-33, lon_deg=150, height_m=600)]
    sky = SatelliteView(orbits(Walker(planes=3, phasing=2, inclination_deg=70, height_m=6e5), count=6), sites)
    walk_s = np.arange(0.5, 32_400.0)
    up = sky.sine_of_elevation(np.arange(6), walk_s) > math.sin(math.radians(35))
    assert 0.005 < up.mean() < 0.2
    for k in range(6):
        told = np.zeros(len(walk_s), np.bool_)
        for rise_s, set_s in passes(sky, 35, 32_400, k):
            told |= (walk_s >= rise_s) & (walk_s < set_s)
        missed = up[k] != told
        assert missed.sum() <= 9, "but for a pass of less than ten seconds"


def test_two_stations_are_seen_from_the_first():
    """The second one is below the horizon of the first by the curvature of the Earth, as far as the chord says."""
    near, far = Site(lat_deg=0, lon_deg=0), Site(lat_deg=0, lon_deg=90)
    first_m, second_m = stations_m([near, far])
    assert first_m == pytest.approx([0, 0, 0])
    assert second_m == pytest.approx([6378137, 0, -6378137])
    pole = Site(lat_deg=90, lon_deg=0).place_m
    assert pole == pytest.approx([0, 0, 6356752.314], abs=1e-3)


@pytest.mark.parametrize(
    "lines",
    [
        ISS["tle"],
        ["\ufeffISS", *ISS["tle"]],
        [*(f"  {line}  " for line in ISS["tle"])],
        [*(f"\t{line}\r" for line in ISS["tle"])],
        ["0 ISS (ZARYA)", ISS["tle"][0], ISS["tle"][1], ""],
    ],
)
def test_spellings_of_two_lines(tmp_path, lines):
    """Names, blanks and tabs around lines, byte order mark, line ends: three times the same satellite, and gzip."""
    pytest.importorskip("sgp4")
    path = tmp_path / "three"
    for encoded in (str.encode, lambda its: gzip.compress(its.encode())):
        path.write_bytes(encoded("\n".join(lines * 3) + "\n"))
        assert [its.content for its in read_elements(path)] == [(ISS["tle"][0], ISS["tle"][1])] * 3


@pytest.mark.parametrize("form", ["csv", "json", "xml"])
def test_omm_of_the_space_station_is_where_its_two_lines_are(tmp_path, form):
    """In each form, also with the nine-digit numbers that two lines cannot hold: within 1 m over a day."""
    pytest.importorskip("sgp4")
    path = tmp_path / "elements"
    path.write_text(messages(form, [{"NORAD_CAT_ID": 270000001}, {"EPOCH": "2014-01-20T22:23:04.000416Z"}]))
    times_s = np.arange(0.0, 86_400.0, 3_600.0)
    found = orbits(Tle(elements=str(path), epoch=START), count=2).places_m(np.arange(2), times_s)
    due = orbits(Tle(elements=elements(tmp_path), epoch=START)).places_m(np.array([0]), times_s)

    assert np.abs(found - due).max() < 1.0


@pytest.mark.parametrize("form", ["csv", "json", "xml"])
@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"EPOCH": "yesterday"}, "EPOCH is no time such as 2026-03-01T12:00:00.000000, got 'yesterday'"),
        ({"ECCENTRICITY": 1.0}, "ECCENTRICITY is not within 0 and 1, got '1.0'"),
        ({"INCLINATION": -1.5}, "INCLINATION is not within 0 and 180, got '-1.5'"),
        ({"MEAN_MOTION": "0,5"}, "MEAN_MOTION is no number, got '0,5'"),
        ({"MEAN_MOTION": "inf"}, "MEAN_MOTION is no number, got 'inf'"),
        ({"BSTAR": ""}, "BSTAR is no number, got ''"),
        ({"EPHEMERIS_TYPE": 4}, "EPHEMERIS_TYPE is not 0, the only one that SGP4 takes, got '4'"),
    ],
)
def test_malformed_omm_is_refused(tmp_path, form, changes, what):
    """With the line or satellite, the field and its value."""
    pytest.importorskip("sgp4")
    path = tmp_path / "elements"
    path.write_text(messages(form, [{}, changes]))
    where = "elements:3: " if form == "csv" else "elements: satellite 2: "
    with pytest.raises(DataError, match=f"{where}{what}; give OMM"):
        read_elements(path)


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("[{}]", "satellite 1: lacks EPOCH, MEAN_MOTION"),
        ("[3]", "must list satellites, got '3'"),
        ("[]", "has no elements"),
        ("[", "cannot be read"),
        ("<ndm><omm>", "cannot be read"),
        ("<ndm/>", "has no elements"),
        ("EPOCH,MEAN_MOTION\n", "lacks the column ECCENTRICITY"),
        ("No GP data found", "has no elements; .* or OMM"),
    ],
)
def test_what_is_no_omm_is_refused(tmp_path, text, what):
    """Of JSON, XML, CSV and what a catalogue answers to a wrong question."""
    (tmp_path / "elements").write_text(text)
    with pytest.raises(DataError, match=what):
        read_elements(tmp_path / "elements")


def test_a_run_begins_at_the_latest_elements(tmp_path):
    """Of satellites with elements two days apart, without an epoch: time 0 is that of the newer ones."""
    pytest.importorskip("sgp4")
    path = tmp_path / "elements"
    path.write_text(messages("json", [{}, {"EPOCH": "2014-01-22T22:23:04.000416"}, {"EPOCH": "2014-01-21T00:00:00"}]))
    found, due = (
        orbits(Tle(elements=str(path), epoch=epoch), count=3).places_m(np.arange(3), np.zeros(1))
        for epoch in (None, "2014-01-22T22:23:04.000416")
    )
    assert np.abs(found - due).max() < 1.0


class OnceInElevenDays:
    """A sky whose only satellite is overhead for ten minutes, eleven days after time 0."""

    count, rise_s = 1, 11 * 86_400.0

    def sine_of_elevation(self, satellites, time_s):
        """1 while it is overhead, -1 else."""
        return np.where((time_s >= self.rise_s) & (time_s < self.rise_s + 600), 1.0, -1.0) + np.zeros((1, 1))


def test_ten_days_are_counted_from_now():
    """A pass on day 11 is none for who asks at time 0, and the next one for who asks on day 2."""
    table = PassTable(OnceInElevenDays(), 10)
    assert table.next(0, 0) is None
    rise_ns, set_ns = table.next(0, 2 * 86_400 * 10**9)
    assert rise_ns == pytest.approx(11 * 86_400e9, abs=1e4)
    assert set_ns - rise_ns == pytest.approx(600e9, abs=1e4)


def test_overhead_is_the_height_above_the_ground():
    """A satellite 550 km up is 550 km above a station on the sphere, not 6,921 km."""
    sky = SatelliteView(orbits(equator(550)), [ON_THE_SPHERE])
    assert sky.overhead_m() == pytest.approx(np.array([[0, 0, 550e3]]), abs=1e-3)


@pytest.mark.parametrize(
    ("lines", "what"),
    [
        (ISS["tle"][:1], "ends in the middle of a pair"),
        (["no elements"], "has no elements"),
        ([ISS["tle"][0], "2 lines"], "has 7 characters"),
        ([ISS["tle"][0][:-1] + "3", ISS["tle"][1]], "wrong checksum, got 3 for 2"),
        ([ISS["tle"][0], summed(ISS["tle"][1].replace("25544", "25545"))], "is of satellite 25545 after one of 25544"),
        (
            [summed(ISS["tle"][0].replace("98067A", "98067B").replace(".93268519", ".9326x519")), ISS["tle"][1]],
            "no numbers",
        ),
        ([ISS["tle"][1], ISS["tle"][0]], "breaks a pair of lines"),
        ([ISS["tle"][0], "a name", ISS["tle"][1]], "breaks a pair of lines"),
    ],
)
def test_malformed_elements_are_refused(tmp_path, lines, what):
    """With the line."""
    pytest.importorskip("sgp4")
    with pytest.raises(DataError, match=what):
        orbits(Tle(elements=elements(tmp_path, lines)))


def test_elements_of_another_time_are_refused(tmp_path):
    """14 days are allowed; `stale: allow` allows more. Without an epoch the run begins at that of the elements."""
    pytest.importorskip("sgp4")
    file = elements(tmp_path)
    orbits(Tle(elements=file))
    orbits(Tle(elements=file, epoch="2014-02-03T22:00:00"))
    with pytest.raises(DataError, match=r"iss.tle:2: is of another time, 15.0 days from the epoch of the run"):
        orbits(Tle(elements=file, epoch="2014-02-04T22:00:00"))
    orbits(Tle(elements=file, epoch="2014-02-04T22:00:00", stale="allow"))
    with pytest.raises(ScenarioError, match="has 1 satellites, got 2"):
        orbits(Tle(elements=file), count=2)
    with pytest.raises(ValidationError, match="is no time, got 'noon'"):
        Tle(elements=file, epoch="noon")


def test_a_satellite_that_falls_is_told(tmp_path):
    """SGP4 gives up on an orbit below the ground: with the line, the time and its reason."""
    pytest.importorskip("sgp4")
    low = summed(ISS["tle"][1].replace("15.49815350", "17.79815350"))
    fallen = orbits(Tle(elements=elements(tmp_path, [ISS["tle"][0], low])))
    with pytest.raises(DataError, match=r"iss.tle:2: cannot be followed to \d"):
        fallen.places_m(np.array([0]), np.arange(0.0, 10 * 86_400.0, 3600.0))
