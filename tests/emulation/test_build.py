"""Claims about building an emulation."""

import math

import numpy as np

from fednet_emu.emulation.build import build
from fednet_emu.emulation.load import load_scenario
from fednet_emu.emulation.outlook import Outlook, unreachable
from fednet_emu.testing import small_scenario


def test_the_data_folder_may_be_a_string(tmp_path):
    """As it may be a path: whoever calls from a notebook should not have to know."""
    x, y = np.zeros((40, 3), np.float32), np.arange(40) % 2
    np.savez(tmp_path / "own.npz", train_x=x, train_y=y, test_x=x, test_y=y)
    scenario = load_scenario("quickstart", ["data={kind: npz, path: own.npz}", "partition=iid"])

    assert build(scenario, data_dir=str(tmp_path)).task.data.x.shape == (40, 3)


def test_out_of_reach_is_judged_by_the_part_of_the_band_that_a_device_may_use():
    """At -20 dB over 20 MHz a device reaches -7.5 dB on a block of 180 kHz, 111 times less; a base station does not."""
    power_dbm = -20 - 174 + 10 * math.log10(20e6) + 40 * math.log10(100)
    terminal = f"{{tx_power_dbm: {power_dbm}, noise_figure_db: 0, height_m: 0}}"
    law = "{kind: log-distance, exponent: 4, reference_loss_db: 0}"
    channel = f"{{carrier_hz: 2e9, bandwidth_hz: 20e6, path_loss: {law}, device: {terminal}, base_station: {terminal}}}"
    place = "devices.placement={kind: list, xy_m: [[100, 0]]}"

    def told(*changes):
        weak = small_scenario("devices.count=1", "algorithm.cohort=1", place, f"channel={channel}", *changes)
        return [what for _, what in unreachable(Outlook(weak))]

    assert [what.split(",")[0] for what in told()] == ["nobody can reach it on the downlink"]
    assert len(told("channel.narrowing=off")) == 2
    assert len(told("network.uplink.access=shared")) == 2
    (up, _) = told("channel.narrowest_hz=2e6")
    assert "uplink, the best mean SNR is -20.0 dB, got a rate that needs -17.5 dB" in up
