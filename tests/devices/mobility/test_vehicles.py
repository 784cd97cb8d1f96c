"""Claims about vehicles from a traffic simulator."""

import gzip
import io
import re
import time
import tracemalloc
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fednet_emu as fe
from fednet_emu.devices.mobility import SumoMobility
from fednet_emu.devices.mobility.regions import DiscRegion
from fednet_emu.errors import DataError, ScenarioError
from fednet_emu.files.fcd import read_fcd
from fednet_emu.kernel.streams import Streams
from tests.quick import examples

GRID = Path(__file__).with_name("sumo_grid.fcd.xml")
REGION = DiscRegion(radius_m=1.0)


def paths(path, count=4, **fields):
    return SumoMobility(path=str(path), **fields).paths(np.zeros((count, 2)), REGION, Streams(4))


def written(path, rows):
    """A file of rows (time, vehicle, x, y) in the format that its name says."""
    times = sorted({row[0] for row in rows})
    if ".xml" in path.name:
        steps = (
            f'<timestep time="{at:.2f}">'
            + "".join(f'<vehicle id="{its[1]}" x="{its[2]}" y="{its[3]}"/>' for its in rows if its[0] == at)
            + "</timestep>"
            for at in times
        )
        text = f"<fcd-export>{''.join(steps)}</fcd-export>"
        path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
        return path
    table = pd.DataFrame(rows, columns=["timestep_time", "vehicle_id", "vehicle_x", "vehicle_y"])
    table = table.assign(vehicle_speed=1.0, person_id=None)
    if path.suffix == ".parquet":
        table.to_parquet(path)
    else:
        table.to_csv(path, sep=";", index=False)
    return path


def test_a_grid_of_real_sumo():
    """Four cars of SUMO 1.28: who is there when, as its own exporter for ns-2 says: v0 from 0 s to 44 s.

    Distances are those of the chords: 372.703 m for v1, 0.8 m less than its odometer.
    """
    cars = paths(GRID)
    assert cars.present_s == [((0, 44),), ((0, 34),), ((5, 36),), ((10, 40),)]
    at_s = np.arange(34)
    line_m = np.array([cars.positions_m(np.array([1]), float(second))[0] for second in at_s])
    assert np.hypot(*np.diff(line_m, axis=0).T).sum() == pytest.approx(372.703, abs=1e-3)
    assert cars.positions_m(np.arange(2), 0.0).tolist() == [[1.6, 8.3], [198.4, 191.7]]
    assert cars.positions_m(np.array([0]), 0.5)[0] == pytest.approx([1.6, (8.3 + 22.19) / 2])
    assert cars.speed_m_s == pytest.approx(10.85066, abs=1e-5)


def test_every_row_of_the_file_is_met():
    """A second reader, with ElementTree, finds each vehicle where it is at each time step, around another centre."""
    cars, seen = paths(GRID, centre_m=(100, 100)), dict.fromkeys(f"v{k}" for k in range(4))
    for step in ElementTree.parse(GRID).getroot():
        now_s = float(step.get("time"))
        there = {its.get("id"): its for its in step}
        for k, name in enumerate(seen):
            assert any(from_s <= now_s < to_s for from_s, to_s in cars.present_s[k]) == (name in there)
            if name in there:
                expected = [float(there[name].get(axis)) - 100 for axis in "xy"]
                assert cars.positions_m(np.array([k]), now_s)[0] == pytest.approx(expected)


@pytest.mark.parametrize("name", ["a.fcd.xml.gz", "a.csv", "a.parquet"])
def test_the_formats_hold_the_same(tmp_path, name):
    """Semicolons, Parquet and compressed XML give the recording of plain XML."""
    recording = read_fcd(GRID)
    names = ["v0", "v1", "v2", "v3"]
    rows = [(at, names[k], x, y) for k, (at, x, y) in zip(recording.vehicle, recording.rows.tolist(), strict=True)]
    again = read_fcd(written(tmp_path / name, rows))

    assert np.array_equal(again.vehicle, recording.vehicle)
    assert np.array_equal(again.rows, recording.rows)
    assert again.step_s == recording.step_s == 1.0


GAPS = [
    *((at, "a", 10.0 * at, 0.0) for at in (5, 6, 9, 10)),
    *((at, "b", 0.0, 1.0 * at) for at in (6, 7, 8)),
    *((at, "c", 7.0, 7.0) for at in (9, 10, 11)),
    *((at, "d", 0.0, 0.0) for at in (12, 13)),
]
GAPS = sorted(GAPS)


def test_gaps_are_absences_and_time_starts_with_the_file(tmp_path):
    """`a` is away from 7 s to 9 s of the file, which begins at 5 s; until it leaves it stays where it was last."""
    cars = paths(written(tmp_path / "a.xml", GAPS))

    assert cars.present_s == [((0, 2), (4, 6)), ((1, 4),), ((4, 7),), ((7, 9),)]
    assert cars.positions_m(np.array([0, 0, 0]), 1.5).tolist() == [[60, 0]] * 3
    assert cars.positions_m(np.array([0]), 3.9).tolist() == [[60, 0]]
    assert cars.positions_m(np.array([0]), 4.5).tolist() == [[95, 0]]
    assert cars.positions_m(np.array([3]), 0.0).tolist() == [[0, 0]]


def test_who_is_picked(tmp_path):
    """The first by appearance, the longest there, or drawn by the seed; a recording with too few is refused."""
    path = written(tmp_path / "a.xml", GAPS)
    assert paths(path, 2).present_s == [((0, 2), (4, 6)), ((1, 4),)]
    assert paths(path, 1, pick="longest").present_s == [((0, 2), (4, 6))]
    assert paths(path, 3, pick="longest").present_s[1:] == [((1, 4),), ((4, 7),)]
    drawn = {
        SumoMobility(path=str(path), pick="random").paths(np.zeros((1, 2)), REGION, Streams(seed)).present_s[0]
        for seed in range(40)
    }
    assert len(drawn) == 4
    with pytest.raises(ScenarioError, match=r"devices.count: .*a.xml has vehicles for 4, got 5; give 4 or fewer"):
        paths(path, 5)


def test_a_device_takes_the_next_vehicle(tmp_path):
    """With `reuse`: who has waited longest takes it; windows that touch are one, and nobody is in two at once."""
    path = written(tmp_path / "a.xml", GAPS)
    two = paths(path, 2, reuse=True)

    assert two.present_s == [((0, 2), (4, 6), (7, 9)), ((1, 7),)]
    assert two.positions_m(np.array([1]), 2.5).tolist() == [[0, 7.5]]
    assert two.positions_m(np.array([1]), 5.0).tolist() == [[7, 7]]
    with pytest.raises(ValueError, match="reuse takes vehicles as they appear, got pick: random"):
        SumoMobility(path="a.xml", reuse=True, pick="random")


@examples(60)
@given(st.data())
def test_devices_are_present_just_when_rows_say_so(tmp_path_factory, data):
    """For any traffic: a device is there for one step from each row of its vehicle on, and at no other time."""
    spans = data.draw(st.lists(st.sets(st.integers(0, 12), min_size=1, max_size=8), min_size=1, max_size=4))
    rows = sorted((at, f"v{k}", float(at), float(k)) for k, span in enumerate(spans) for at in span)
    cars = paths(written(tmp_path_factory.mktemp("t") / "a.csv", rows), len(spans))
    steps = sorted({row[0] for row in rows})
    step = min(np.diff(steps), default=1)
    first = steps[0]
    order = sorted(range(len(spans)), key=lambda k: (min(spans[k]), k))
    for device, k in enumerate(order):
        for half in range(2 * 14 + 2 * step):
            now_s = half / 2 - first
            there = any(at <= half / 2 < at + step for at in spans[k])
            between = any(at <= half / 2 < at + 1.5 * step for at in spans[k]) and any(
                at > half / 2 and at - max(b for b in spans[k] if b <= half / 2) <= 1.5 * step for at in spans[k]
            )
            found = any(from_s <= now_s < to_s for from_s, to_s in cars.present_s[device])
            assert found == (there or between)


STORY = """time;id;x;y;lane;edge
0.00;;;;;
1.00;p0;900;900;;e1
2.00;NA;1.5;2;e1_0;
2.00;p0;901;900;;e1
3.00;null;5;5;e2_0;
3.00;NA;2.5;2;e1_0;
3.00;k0;7;7;;e1
"""


def renamed(text, owner, time="timestep_time"):
    """The table with the column names of SUMO's option `--output.column-header`."""
    header, rows = text.split("\n", 1)
    names = [time if its == "time" else owner + its for its in header.split(";")]
    return ";".join(names) + "\n" + rows


@pytest.mark.parametrize(
    "text",
    [
        STORY,
        renamed(STORY, "person_"),
        renamed(STORY, "vehicle_"),
        renamed(STORY, "timestep_person_"),
        renamed(STORY, "timestep_container_"),
        STORY.replace(";", ","),
        STORY.replace(";", "\t"),
        STORY.replace(";", "|"),
        "\ufeff" + STORY.replace("\n", "\r\n"),
        "\n".join(line.rpartition(";")[0] for line in STORY.splitlines()),
        "\n".join(";".join(np.delete(line.split(";"), 4)) for line in STORY.splitlines()),
        "\n".join(re.sub(r"^(\d)\.00", r"00:00:0\1", line) for line in STORY.splitlines()),
        "\n".join(re.sub(r"^(\d)\.00", r"1:02:03:0\1.50", line) for line in STORY.splitlines()),
        re.sub(r"(?m)^(\d)\.00", r"720\1", STORY),
    ],
)
@pytest.mark.parametrize("ending", ["csv", "csv.gz", "parquet"])
def test_persons_and_empty_steps_of_sumo_are_no_vehicles(tmp_path, text, ending):
    """In every column layout of SUMO 1.28: `NA` is there from 2 s, `null` from 3 s of the file, no person is a device.

    Layouts: plain, tag and full names of whoever came first, separators, `-H` times, without the column edge or lane.
    """
    path = tmp_path / f"a.{ending}"
    if ending == "parquet":
        between = re.search(r"[^\w\ufeff]", text)[0]
        table = pd.read_csv(io.StringIO(text.removeprefix("\ufeff")), sep=between, dtype=str, keep_default_na=False)
        for name in table.columns[2:4]:
            table[name] = pd.to_numeric(table[name])
        table.replace("", None).to_parquet(path)
    else:
        path.write_bytes(gzip.compress(text.encode()) if ending == "csv.gz" else text.encode())
    cars = paths(path, 2)

    assert cars.present_s == [((2, 4),), ((3, 4),)]
    assert cars.positions_m(np.arange(2), 2.5).tolist() == [[2, 2], [5, 5]]


def test_steps_without_vehicles_count_in_xml(tmp_path):
    """Time 0 is the first step of the file, in seconds or as clock times; gzip is known without .gz."""
    text = '<fcd-export><timestep time="{}"/><timestep time="{}"><vehicle id="a" x="1" y="2"/></timestep></fcd-export>'
    for times in (("5.00", "7.00"), ("00:00:05", "00:00:07")):
        for name, encoded in (("a.xml", str.encode), ("b.xml", lambda its: gzip.compress(its.encode()))):
            path = tmp_path / name
            path.write_bytes(encoded(text.format(*times)))
            assert paths(path, 1).present_s == [((2, 4),)]


def test_a_small_network_is_no_longitude(tmp_path):
    """Cars at six decimals within 90 m are metres, and so are parked ones where another place is beyond degrees."""
    drive = [(at, "a", 10.123456 + 5.000001 * at, 20.654321) for at in range(4)]
    assert paths(written(tmp_path / "a.parquet", drive), 1).positions_m(np.array([0]), 1.0)[0, 0] == pytest.approx(
        15.123457
    )
    parked = [(at, name, x, 40.123456) for at in range(3) for name, x in (("a", 500.123456), ("b", 20.123456))]
    assert len(paths(written(tmp_path / "b.csv", parked), 2).present_s) == 2
    degrees = [(at, "a", 8.541234 + 2e-4 * at, 47.373456) for at in range(4)]
    with pytest.raises(DataError, match=r"looks like longitude and latitude, got 8.541234, 47.373456"):
        paths(written(tmp_path / "c.csv", degrees), 1)


HEADER = "timestep_time;vehicle_id;vehicle_x;vehicle_y\n"


@pytest.mark.parametrize(
    ("name", "text", "problem"),
    [
        ("a.xml", GRID.read_text()[:5000], r"cannot be read \(unclosed token|cannot be read \(no element found"),
        ("a.xml", "<fcd-export/>", "has no vehicle"),
        ("a.xml", '<f><timestep time="0"><vehicle id="a" x="1"/></timestep></f>', "line 1: a vehicle has no y"),
        (
            "a.xml",
            '<f><timestep time="0"><vehicle id="a" x="1" y="far"/></timestep></f>',
            "line 1: a vehicle is no number",
        ),
        (
            "a.xml",
            '<f><timestep time="0"><vehicle id="a" x="1" y="nan"/></timestep></f>',
            "line 1: a vehicle is no number",
        ),
        (
            "a.xml",
            '<f><timestep time="0"><vehicle id="a" x="8.541234" y="47.37"/></timestep></f>',
            "looks like longitude and latitude, got 8.541234, 47.370000",
        ),
        ("a.csv", HEADER + "1;a;0;0\n0;a;1;1\n", "time goes back, got 0 s after 1"),
        ("a.csv", HEADER + "1;a;0;0\n1;a;1;1\n", "a vehicle twice in one time step"),
        (
            "a.csv",
            "timestep_time,vehicle_id\n1,a\n",
            "lacks the column vehicle_x, vehicle_y, got timestep_time, vehicle_id",
        ),
        ("a.csv", "", "lacks the column timestep_time, vehicle_id"),
        ("a.csv", HEADER + "1;a;0;0\n2;a;x;0\n", "line 3: vehicle_x is no number, got 'x'"),
        ("a.csv", HEADER + "1;a;0,5;0\n", "line 2: vehicle_x is no number, got '0,5'"),
        ("a.csv", HEADER + "1;a;;0\n", "line 2: vehicle_x is no number, got ''"),
        ("a.csv", HEADER + "1;a;0;inf\n", "line 2: vehicle_y is no number, got 'inf'"),
        ("a.csv", HEADER + "1;a;0;0\n2;a;0\n", "line 3 has 3 fields for 4 columns"),
        ("a.csv", HEADER + "1;a;0;0\n\n2;a;0;0\n", "line 3 has 0 fields for 4 columns"),
        ("a.csv", HEADER + "noon;a;0;0\n", "line 2: timestep_time is no number, got 'noon'"),
        ("a.csv", HEADER + "1e300;a;0;0\n", "line 2: timestep_time is not within"),
        ("a.csv", "time;id;x;x;y\n1;a;0;0;0\n", "has the column x twice"),
        ("a.csv", "time;person_id;person_x;person_y\n1;a;0;0\n", "vehicles cannot be distinguished from persons"),
        ("a.csv", "time;id;x;y;lane;edge\n1;a;0;0;;e\n", "vehicles cannot be distinguished from persons"),
        ("a.parquet", "no table", "cannot be read"),
        ("a.txt", "", "is in no known format"),
        ("a.xml.gz", "no archive", "cannot be read"),
    ],
)
def test_files_that_cannot_be_used_are_refused(tmp_path, name, text, problem):
    """The sentence names the file, what is wrong, and how to write one."""
    path = tmp_path / name
    path.write_text(text)
    with pytest.raises(DataError, match=f"{name}: .*(?:{problem})"):
        read_fcd(path)


def test_a_scenario_of_vehicles():
    """Devices are there while their vehicles are: no transfer of a run is on the air beside them."""
    run = fe.run(
        "quickstart",
        settings={
            "devices.count": 4,
            "algorithm.cohort": 2,
            "devices.mobility": {"kind": "sumo", "path": str(GRID), "centre_m": [100, 100]},
            "devices.availability": "from-mobility",
            "stop": {"rounds": 100, "simulated_s": 40},
        },
        timing_only=True,
    )
    rows = run.transfers[run.transfers["started_s"].notna() & (run.transfers["direction"] == "uplink")]
    windows = paths(GRID).present_s
    assert len(rows) > 5
    for row in rows.itertuples():
        ((from_s, to_s),) = windows[int(row.sender)]
        assert from_s <= row.started_s <= row.ended_s <= to_s
    with pytest.raises(ScenarioError, match=r"devices\.availability: no device leaves by static mobility"):
        fe.run("quickstart", settings={"devices.availability": "from-mobility"}, timing_only=True)


@pytest.mark.slow
def test_a_million_rows_are_read_in_bounded_time(tmp_path):
    """In less than ten times what a bare pass over the lines takes in plain Python; 250 bytes a row at most."""
    path = tmp_path / "long.xml"
    with path.open("w") as file:
        file.write("<fcd-export>\n")
        for at in range(1000):
            file.write(f'<timestep time="{at:.2f}">\n')
            file.writelines(f'<vehicle id="v{k}" x="{k}.25" y="{at}.50" angle="0.00"/>\n' for k in range(1000))
            file.write("</timestep>\n")
        file.write("</fcd-export>\n")
    started = time.process_time()
    with path.open() as file:
        assert sum(float(line.split('"')[3]) >= 0 for line in file if line.startswith("<vehicle")) == 10**6
    plain_s, started = time.process_time() - started, time.process_time()
    recording = read_fcd(path)

    assert len(recording.rows) == 10**6
    assert time.process_time() - started < 10 * plain_s

    path.write_text(path.read_text() + "\n")  # a changed file, which is read anew
    tracemalloc.start()
    read_fcd(path)
    max_byte = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert max_byte < 250 * 10**6
