"""Claims about recorded walks."""

import io
import lzma
import os
from pathlib import Path

import numpy as np
import pytest

from fednet_emu.devices.mobility import TraceMobility
from fednet_emu.devices.mobility.regions import DiscRegion
from fednet_emu.devices.mobility.walks import load_walks
from fednet_emu.errors import DataError
from fednet_emu.kernel.streams import Streams

DATA = Path(os.environ.get("FEDNET_DATA", Path(__file__).parents[4] / "shared" / "data"))
KAIST = DATA / "mobility_kaist" / "kaist_92walks_30s_f32.npz.xz"
REGION = DiscRegion(radius_m=1.0)
EAST = np.array([[100.0, 0.0, 0.0], [110.0, 10.0, 0.0], [130.0, 10.0, 40.0]])
NORTH = np.array([[0.0, 5.0, 5.0], [10.0, 5.0, 6.0]])

needs_kaist = pytest.mark.skipif(not KAIST.is_file(), reason="the KAIST walks are not in the data folder")


def npz(path, **walks):
    """An .npz or .npz.xz file of these arrays."""
    stream = io.BytesIO()
    np.savez(stream, **walks)
    path.write_bytes(lzma.compress(stream.getvalue()) if path.suffix == ".xz" else stream.getvalue())
    return path


def walk(path, placed=((0.0, 0.0),) * 3, **fields):
    """Paths of three devices on the walks of a file, from their beginning unless said otherwise."""
    law = TraceMobility(path=str(path), **{"start": "beginning", **fields})
    return law.paths(np.array(placed), REGION, Streams(4))


def at(paths, time_s, device=0):
    """One device's position."""
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


def test_a_missing_file_says_where_to_put_it(tmp_path):
    """The message names the path in the data folder and the variable."""
    with pytest.raises(DataError, match=r"mobility_kaist.*: not found; give it in full.*FEDNET_DATA"):
        TraceMobility().paths(np.zeros((1, 2)), REGION, Streams(1), tmp_path)


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
