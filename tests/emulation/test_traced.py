"""Claims about runs on traced streets: a table of Friis is free space, and what does not fit is refused."""

import numpy as np
import pytest

import fednet_emu as fe
from fednet_emu.errors import DataError, ScenarioError
from fednet_emu.radio.propagation.link import Hop
from fednet_emu.radio.propagation.path_loss import FreeSpace

LINES_M = np.arange(-100.0, 101.0, 50.0)
PLACES_M = np.array([[x, y, 1.5] for x in LINES_M for y in LINES_M])
STATIONS_M = np.array([[-30.0, 15.0, 10.0], [70.0, -15.0, 10.0]])
PLAIN = {
    "devices.count": len(PLACES_M),
    "devices.placement": {"kind": "list", "xy_m": PLACES_M[:, :2].tolist()},
    "network.cells": {"kind": "list", "xy_m": STATIONS_M[:, :2].tolist()},
    "channel": {"carrier_hz": 3.5e9, "bandwidth_hz": 1e6, "path_loss": {"kind": "free-space"}},
    "stop": {"rounds": 3},
}


def friis(path, **changes):
    """A table of free space."""
    gain_db = np.stack(
        [-FreeSpace().loss_db(Hop.between(PLACES_M, station_m), 3.5e9) for station_m in STATIONS_M], axis=1
    )
    arrays = {"gain_db": gain_db, "los": np.ones(gain_db.shape, np.bool_), "xyz_m": PLACES_M, "stations_m": STATIONS_M}
    np.savez(path, **(arrays | {"carrier_hz": 3.5e9} | changes))
    return str(path)


def played(path_loss, **changes):
    """A timing-only run with this path loss."""
    return fe.run("quickstart", settings={**PLAIN, "channel.path_loss": path_loss, **changes}, timing_only=True)


@pytest.mark.parametrize("between", ["nearest", "bilinear"])
def test_a_table_of_friis_is_free_space(tmp_path, between):
    """Digest for digest, for devices on the grid, in two cells; and the map of the page has the gains."""
    path = friis(tmp_path / "street.npz")
    traced = played({"kind": "table", "path": path, "between": between})
    assert traced.summary["event_digest"] == played({"kind": "free-space"}).summary["event_digest"]
    ground = traced.table("ground")
    assert len(ground) == len(PLACES_M)
    assert ground["gain_db"].max() == pytest.approx(np.load(path)["gain_db"].max())
    assert '"ground"' in traced.report(tmp_path / "page.html").read_text()


WALK = {
    "devices.count": 1, "devices.placement": {"kind": "list", "xy_m": [[0, 0]]}, "algorithm.cohort": 1,
}  # fmt: skip


def walked(tmp_path, rows, **changes):
    """A run of one device that walks through rows of time, x and y, in a table of which one column is dark."""
    np.savez(tmp_path / "walk.npz", one=np.array(rows, np.float64))
    walk = {"kind": "trace", "path": str(tmp_path / "walk.npz"), "start": "beginning"}
    path = friis(tmp_path / "street.npz")
    path_loss = {"kind": "table", "path": path, "between": "bilinear", **changes}
    return played(path_loss, **WALK, **{"devices.mobility": walk, "stop": {"simulated_s": 100}})


def test_a_device_moves_through_the_street(tmp_path):
    """Half way between two places it has the mean of their gains in dB, and at its end is served by the other cell."""
    run = walked(tmp_path, [(0, -75, 0), (100, 75, 0)])
    scene = run.table("scene")
    scene = scene[scene["device"] == 0].set_index("simulated_s")
    gain_db = np.load(tmp_path / "street.npz")["gain_db"].reshape(5, 5, 2)
    noise_dbm = -174 + 60 + 5
    assert scene.loc[0.0, "snr_db"] == pytest.approx(23 + gain_db[:2, 2, 0].mean() - noise_dbm, abs=1e-9)
    assert (scene["cell"].iloc[0], scene["cell"].iloc[-1]) == (0, 1)


def test_beyond_the_grid(tmp_path):
    """The run ends with the place, or the device is out of reach there."""
    way = [(0, 0, 0), (50, 0, 150), (100, 0, 150)]
    with pytest.raises(
        ScenarioError, match=r"a device is beyond the grid, got 0, 1\d\d.* m; must be x from -100 to 100"
    ):
        walked(tmp_path, way)
    run = walked(tmp_path, way, outside="no-link")
    assert np.isneginf(run.table("scene").query("device == 0")["snr_db"].iloc[-1])


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"channel.carrier_hz": 2e9}, "is of another carrier, got 3.5e[+]09 Hz for 2e[+]09 Hz"),
        ({"channel.device.height_m": 2.0}, "is of another height, got 1.5 m for 2 m"),
        ({"channel.base_station.height_m": 25.0}, "station 0 is at -30, 15, 10 m, got -30, 15, 25 m"),
        ({"network.cells.xy_m": [[-30, 15], [71, -15]]}, "station 1 is at 70, -15, 10 m, got 71, -15, 10 m"),
        ({"network.cells": {"kind": "single"}, "network.cells.xy_m": None}, "has 2 stations, got network.cells of 1"),
    ],
)
def test_tables_of_another_street_are_refused(tmp_path, changes, what):
    """With both numbers."""
    path = friis(tmp_path / "street.npz")
    if "network.cells.xy_m" in changes and changes["network.cells.xy_m"] is None:
        changes = {"network.cells": {"kind": "list", "xy_m": [[-30, 15]]}}
    with pytest.raises(DataError, match=what):
        played({"kind": "table", "path": path}, **changes)


def test_multipath_is_not_counted_twice(tmp_path):
    """Fading and shadowing are in the gains; a table has no links between devices."""
    path_loss = {"kind": "table", "path": friis(tmp_path / "street.npz")}
    with pytest.raises(
        ScenarioError, match=r"path_loss: traced gains have it .*got table with channel\.fading: rayleigh"
    ):
        played(path_loss, **{"channel.fading": {"kind": "rayleigh", "coherence_s": 0.1}})
    with pytest.raises(ScenarioError, match=r"channel\.shadowing: log-normal"):
        played(path_loss, **{"channel.shadowing": {"kind": "log-normal", "sigma_db": 3}})


def test_powers_are_no_gains(tmp_path):
    """Direct paths of DeepMIMO that are 30 dB off free space are received powers, or of another carrier."""
    folder = tmp_path / "scene"
    folder.mkdir()
    length_m = np.linalg.norm(PLACES_M - STATIONS_M[0], axis=1)
    direct_db = -20 * np.log10(4 * np.pi * length_m * 3.5e9 / 299_792_458.0)
    for key, array in {
        "power": direct_db[:, None] + 30, "inter": np.zeros((25, 1)), "rx_pos": PLACES_M, "tx_pos": STATIONS_M[:1],
    }.items():  # fmt: skip
        np.savez(folder / f"{key}_t000_tx000_r001.npz", **{key: array.astype(np.float32)})
    changes = {"network.cells": {"kind": "list", "xy_m": [[-30, 15]]}}
    with pytest.raises(DataError, match=r"direct paths are 30.0 dB from free space at 3.5e\+09 Hz"):
        played({"kind": "table", "path": str(folder)}, **changes)
    np.savez(folder / "power_t000_tx000_r001.npz", power=direct_db[:, None].astype(np.float32))
    assert played({"kind": "table", "path": str(folder)}, **changes).summary["rounds"] == 3
