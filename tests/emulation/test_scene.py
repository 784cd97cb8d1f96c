"""Claims about where devices are and what their links carry, as a run records it."""

from pathlib import Path

import numpy as np
import pytest

import fednet_emu as fe
from fednet_emu.analysis.scene import Scene
from fednet_emu.devices.availability import Presence
from fednet_emu.emulation.build import build, build_network, paths_of
from fednet_emu.emulation.load import load_scenario
from fednet_emu.emulation.outlook import links_at_start
from fednet_emu.emulation.record import scene
from fednet_emu.kernel.clock import Clock
from fednet_emu.kernel.streams import Streams
from fednet_emu.records.ledger import Ledger

OVER_TIME = ("x_m", "y_m", "cell", "snr_db", "uplink_bps", "downlink_bps")

MOBILE = [
    "devices.count=12",
    "devices.mobility={kind: random-direction, min_speed_m_s: 1, max_speed_m_s: 2, mean_leg_s: 10}",
]


def look(scenario, until_s):
    """The scene of a scenario whose network is built, but does not run."""
    streams, devices = Streams(scenario.seed), scenario.devices
    presence = Presence(devices.availability, streams.key("availability"), devices.count)
    paths = paths_of(scenario, streams, None)
    return scene(scenario, build_network(scenario, Clock(), Ledger(), streams, presence, paths), until_s)


def test_a_run_records_its_scene(tmp_path):
    """In memory and in a folder, it is what the network says without running, at the same instants."""
    walk = {"kind": "random-direction", "min_speed_m_s": 1, "max_speed_m_s": 2, "mean_leg_s": 10}
    changes = {"stop.rounds": 2, "network.cells": {"kind": "hexagonal", "rings": 1, "inter_site_distance_m": 200},
               "devices.mobility": walk,
               "channel.device.idle_w": 0.01}  # fmt: skip
    run = fe.run("quickstart", settings=changes, timing_only=True, out=tmp_path / "run")
    beside = fe.run("quickstart", settings=changes, timing_only=True)
    meant = look(run.scenario, run.simulated_s)

    for seen in (Scene.of(run), Scene.of(beside)):
        assert seen.x_m.shape == (41, 20)
        for name in ("times_s", *OVER_TIME, "stations_m", "speed_flop_per_s", "idle_w"):
            np.testing.assert_array_equal(getattr(seen, name), getattr(meant, name), err_msg=name)
    table = run.table("scene")
    assert table["device"].tolist() == [-1] * 7 + [*range(20)] * 41
    assert table["cell"][:7].tolist() == [*range(7)]


def test_a_still_network_is_seen_once():
    """Positions, speeds and rates are those of the emulation itself."""
    scenario = load_scenario("quickstart")
    seen, fed = look(scenario, 100.0), build(scenario, timing_only=True)

    assert seen.times_s.tolist() == [0.0]
    np.testing.assert_array_equal(np.stack([seen.x_m[0], seen.y_m[0]], axis=1), fed.network.positions_m())
    for link in ("uplink", "downlink"):
        alone = getattr(fed.network, f"expected_{link}_bps")
        assert getattr(seen, f"{link}_bps")[0].tolist() == pytest.approx([alone(i) for i in range(fed.n_devices)])
    assert seen.stations_m.tolist() == [[0.0, 0.0]]
    assert set(seen.cell[0].tolist()) == {0}


def test_who_receives_has_a_rate():
    """In fading a link carries something now and then, although not at its mean SNR; other rates are as they were."""
    weak = {"channel.base_station.tx_power_dbm": 20, "channel.device.tx_power_dbm": 10, "stop.rounds": 20}
    run = fe.run("quickstart", settings=weak | {"channel.bandwidth_hz": 20e6}, timing_only=True)
    heard = run.table("receptions").query("lost == ''")["receiver"].unique()
    seen = Scene.of(run)
    narrowed = build(run.scenario, timing_only=True).network

    assert len(heard) > 10
    assert (seen.downlink_bps[0][heard] > 0).all()
    at_mean = np.array([narrowed.expected_downlink_bps(k) for k in heard])
    assert seen.downlink_bps[0][heard][at_mean > 0].tolist() == at_mean[at_mean > 0].tolist()


def test_moving_devices_are_where_the_run_has_them():
    """They move from the first instant to the last, no faster than the scenario allows."""
    seen = look(load_scenario("quickstart", MOBILE), 60.0)
    moved_m = np.hypot(np.diff(seen.x_m, axis=0), np.diff(seen.y_m, axis=0))

    assert seen.times_s[[0, -1]].tolist() == [0.0, 60.0]
    assert moved_m.max() <= 2.0 * seen.times_s[1] + 1e-9
    assert (moved_m.sum(axis=0) > 30.0).all()
    assert (seen.snr_db[0] != seen.snr_db[-1]).all()


def test_devices_are_in_the_cells_that_serve_them():
    """With several stations the cell is that of the strongest, as in the run."""
    scenario = load_scenario("cyclic_interference")

    links, _ = links_at_start(scenario)
    serving = [-1 - links.station_of(device) for device in range(scenario.devices.count)]
    assert look(scenario, 10.0).cell[0].tolist() == serving


def test_a_run_records_the_cells_that_the_scene_shows():
    """The cell of each uplink is the one in which the scene has its sender."""
    changes = ["network.cells={kind: hexagonal, rings: 1, inter_site_distance_m: 200}", "stop.rounds=2"]
    run = fe.run("quickstart", settings=changes, timing_only=True)
    sent = run.transfers[run.transfers["kind"] == "uplink"]

    assert (Scene.of(run).cell[0][sent["sender"]] == sent["cell"]).all()


def test_the_scene_says_who_is_there():
    """Vehicles that have left, or not come yet, are not there; a page shows nobody else on its map."""
    grid = str(Path(__file__).parents[1] / "devices/mobility/sumo_grid.fcd.xml")
    changes = {
        "devices.count": 4,
        "devices.mobility": {"kind": "sumo", "path": grid},
        "devices.availability": "from-mobility",
        "algorithm.cohort": 1,
        "stop": {"simulated_s": 40.0},
    }
    run = fe.run("quickstart", settings=changes, timing_only=True)
    seen = Scene.of(run)

    windows = [(0, 44), (0, 34), (5, 36), (10, 40)]
    expected = [[from_s <= at_s < to_s for from_s, to_s in windows] for at_s in seen.times_s]
    assert seen.times_s.tolist() == [*range(41)]
    assert seen.there.tolist() == expected
