"""Claims about tables of gains: what is read from an .npz file and from a folder of DeepMIMO, and what is refused."""

import json
import os
from pathlib import Path

import numpy as np
import pytest

from fednet_emu.files.gains import read_gains

REFLECTOR = json.loads(Path(__file__).with_name("reflector.json").read_text())


def table(path, **changes):
    """A file of 2 x 3 places and two stations, whose gains count up, in no order of places."""
    xyz_m = np.array([[x, y, 1.5] for x in (10.0, 0.0) for y in (5.0, 0.0, 2.0)])
    arrays = {
        "gain_db": -100 - np.arange(12.0).reshape(6, 2),
        "xyz_m": xyz_m,
        "stations_m": np.array([[0.0, 0.0, 10.0], [5.0, 5.0, 10.0]]),
        "carrier_hz": np.array(3.5e9),
    }
    arrays |= changes
    np.savez(path, **{name: its for name, its in arrays.items() if its is not None})
    return path


def deepmimo(folder, **changes):
    """The reflector scene as DeepMIMO wrote it, its three receivers with a second line of three beside them."""
    folder.mkdir()
    for key in ("power", "inter", "rx_pos", "tx_pos"):
        array = np.array(REFLECTOR["arrays"][key], np.float32)
        if key != "tx_pos":
            array = np.concatenate([array, array])
        if key == "rx_pos":
            array[3:, 1] = 1.0
        np.savez(folder / f"{key}_t000_tx000_r001.npz", **{key: changes.get(key, array)})
    return folder


def test_rows_are_put_on_their_grid(tmp_path):
    """Each gain is at the crossing of its x and y, whatever the order of rows."""
    gains = read_gains(table(tmp_path / "a.npz"))
    assert gains.x_m.tolist() == [0, 10]
    assert gains.y_m.tolist() == [0, 2, 5]
    assert gains.gain_db[0].tolist() == [[-108, -110, -106], [-102, -104, -100]]
    assert gains.gain_db[1, 1, 2] == -101
    assert not gains.los.any()
    assert (gains.height_m, gains.carrier_hz) == (1.5, 3.5e9)


def test_a_changed_file_is_read_anew(tmp_path):
    """It is read once, until it changes."""
    path = table(tmp_path / "a.npz")
    first = read_gains(path)
    assert read_gains(path) is first
    table(path, gain_db=np.full((6, 2), -1.0), los=np.ones((6, 2), np.bool_))
    assert read_gains(path).gain_db.max() == -1
    assert read_gains(path).los.all()


def test_the_time_of_a_change_counts(tmp_path):
    """A file of the same size that was written later is read again."""
    path = table(tmp_path / "a.npz")
    before, size_byte = read_gains(path), path.stat().st_size
    table(path, gain_db=np.full((6, 2), -1.0))
    os.utime(path, ns=(0, path.stat().st_mtime_ns + 10**9))
    assert path.stat().st_size == size_byte
    assert read_gains(path).gain_db.max() == -1 > before.gain_db.max()


def test_a_folder_of_deepmimo(tmp_path):
    """The power sum over the paths of the reflector scene; the third receiver has one path, which is direct."""
    gains = read_gains(deepmimo(tmp_path / "scene"))
    power = np.array(REFLECTOR["arrays"]["power"], np.float64)
    expected = 10 * np.log10(np.nansum(10 ** (power / 10), axis=1))
    assert gains.gain_db[0, :, 0] == pytest.approx(expected, abs=1e-4)
    assert expected[2] == pytest.approx(REFLECTOR["friis_db"][2], abs=1e-4)
    assert gains.los.all()
    assert gains.stations_m.tolist() == [[-5, 0, 5]]
    direct_db, length_m = gains.direct_db
    assert direct_db[:3] == pytest.approx(REFLECTOR["friis_db"], abs=1e-4)
    assert length_m[:3] == pytest.approx([10, 11, 25])


def test_the_largest_set_of_receivers_counts(tmp_path):
    """A second set of only two receivers, in a file that comes first or last, changes nothing."""
    whole = read_gains(deepmimo(tmp_path / "scene"))
    for name in ("r000", "r002"):
        folder = deepmimo(tmp_path / name)
        for key in ("power", "inter", "rx_pos", "tx_pos"):
            array = np.array(REFLECTOR["arrays"][key], np.float32)
            np.savez(folder / f"{key}_t000_tx000_{name}.npz", **{key: array if key == "tx_pos" else array[:2]})
        assert np.array_equal(read_gains(folder).gain_db, whole.gain_db)


def test_places_without_a_path_have_no_link(tmp_path):
    """NaN means no path there; of all of them, that nothing arrives."""
    power = np.full((6, 2), np.nan, np.float32)
    power[0, 0] = -60.0
    inter = np.where(np.isnan(power), np.nan, 1.0).astype(np.float32)
    gains = read_gains(deepmimo(tmp_path / "scene", power=power, inter=inter))
    assert gains.gain_db[0, 0, 0] == pytest.approx(-60)
    assert np.isneginf(gains.gain_db[0]).sum() == 5
    assert not gains.los.any()
