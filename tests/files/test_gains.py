"""Recorded gains and the FLASH traces."""

import gzip
import json
import os
from pathlib import Path

import numpy as np
import pytest

from fednet_emu.errors import DataError
from fednet_emu.files.flash import FEMNIST_BATCH_S, batch_times_s, benchmark_scores, link_speeds, user_scores
from fednet_emu.files.gains import read_gains
from fednet_emu.network.traces import FlashTraces

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


DATA = Path(os.environ.get("FEDNET_DATA", Path(__file__).parents[3] / "shared" / "data"))
FLASH = DATA / "device_flash"
SCORES = {"Google Pixel 4": 33289.0, "Xiaomi Redmi Note 7 Pro": 6702.0, "Google Nexus S": 383.0}

needs_flash = pytest.mark.skipif(not FLASH.is_dir(), reason="device_flash is not in the data folder")


def write(folder, name, value):
    path = folder / name
    path.parent.mkdir(exist_ok=True)
    text = json.dumps(value).encode()
    path.write_bytes(gzip.compress(text) if name.endswith(".gz") else text)


def test_link_speeds_are_kilobytes_and_come_out_as_bits(tmp_path):
    """A speed of 1000 is 1000 x 1024 byte/s = 8.192 Mbit/s, and FLASH's 1 MiB takes 1.024 s over it."""
    write(tmp_path, "speed_distri.json", {"u1": {"down_u": 1000, "down_sigma": 10, "up_u": 500, "up_sigma": 1}})
    speeds = link_speeds(tmp_path)

    assert speeds.users == ("u1",)
    assert speeds.down_mean_bps.tolist() == [8.192e6]
    assert speeds.down_sigma_bps.tolist() == [81_920]
    assert speeds.up_mean_bps.tolist() == [4.096e6]
    assert speeds.up_sigma_bps.tolist() == [8_192]
    assert 8 * 2**20 / speeds.down_mean_bps[0] == pytest.approx(2**20 / 1024 / 1000)


def test_a_users_link_is_constant_at_its_mean_speed(tmp_path):
    """Down 1000 and up 500 are 8.192 and 4.096 Mbit/s for ever, under the user's name and for the direction asked."""
    laws = {"u1": {"down_u": 1000, "down_sigma": 10, "up_u": 500, "up_sigma": 1}}
    write(tmp_path, "speed_distri.json", laws | {"u2": {"down_u": 1, "down_sigma": 0, "up_u": 2, "up_sigma": 0}})
    down = FlashTraces(path=str(tmp_path), direction="down").load()
    up = FlashTraces(path=str(tmp_path), direction="up").load()

    assert list(down) == list(up) == ["u1", "u2"]
    assert [down["u1"].rate_at_bps(t) for t in (0.0, 0.7, 1e6)] == [8.192e6] * 3
    assert up["u1"].needed_ns(40_960_000, 123_400_000_000) == 10_000_000_000
    assert (down["u2"].mean_bps, up["u2"].mean_bps) == (8192, 16384)


def test_models_of_users_have_the_score_of_their_phone(tmp_path):
    """Unknown phones, and phones that the benchmark does not list, are left out; files may be zipped."""
    write(tmp_path, "benchmark2score.json.gz", {"Fast": 2000, "Slow": 300})
    write(tmp_path, "real2benchmark.json", {"F-1": "Fast", "S-1": "Slow", "S-2": "Slow", "X": "unknown", "Y": "Else"})

    assert benchmark_scores(tmp_path) == {"Fast": 2000, "Slow": 300}
    assert user_scores(tmp_path) == {"F-1": 2000, "S-1": 300, "S-2": 300}


def test_batch_times_are_those_of_the_nearest_measured_phone_or_between():
    """FLASH's rule takes one of three times; the other is a power law between them and flat outside."""
    scores = np.array([100, 383, 3600, 6702, np.sqrt(6702 * 33289), 33289, 80_000])

    nearest = batch_times_s(scores, SCORES)
    assert nearest.tolist() == [1.642, 1.642, 0.588, 0.588, 0.588, 0.179, 0.179]

    between = batch_times_s(scores, SCORES, "interpolated")
    assert between[[0, 1, 3, 5, 6]] == pytest.approx(np.array([1.642, 1.642, 0.588, 0.179, 0.179]))
    assert between[4] == pytest.approx(np.sqrt(0.588 * 0.179))


def test_missing_and_damaged_files_of_flash_are_named(tmp_path):
    """A missing file and a file that is no JSON are named; the compressed file stands for a missing plain one."""
    with pytest.raises(DataError, match=r"benchmark2score\.json: cannot be read"):
        benchmark_scores(tmp_path)
    (tmp_path / "benchmark2score.json.gz").write_bytes(gzip.compress(b"{"))
    with pytest.raises(DataError, match="is not JSON"):
        benchmark_scores(tmp_path)


@needs_flash
def test_flash_has_the_manifests_numbers():
    """19 users of median 4318 and 3286 KB/s, and scores of 307 phones from 212 to 76206."""
    speeds = link_speeds(FLASH)
    assert len(speeds.users) == 19
    laws = (speeds.down_mean_bps, speeds.down_sigma_bps, speeds.up_mean_bps, speeds.up_sigma_bps)
    for bps, median in zip(laws, (4318, 1820, 3286, 1097), strict=True):
        assert np.median(bps) / 8192 == pytest.approx(median, abs=0.51)

    links = FlashTraces(path=str(FLASH), direction="up").load()
    assert len(links) == 19
    assert np.median([link.mean_bps for link in links.values()]) == pytest.approx(3286 * 8192, rel=1e-3)

    scores = benchmark_scores(FLASH)
    assert (len(scores), min(scores.values()), max(scores.values())) == (307, 212, 76206)
    assert {phone: scores[phone] for phone in FEMNIST_BATCH_S} == SCORES
    assert 100 < len(user_scores(FLASH)) <= 162
