"""Where everybody is during a run, and what their links carry: a scenario's network, looked at without running it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fednet_emu.arrays import Array, IntArray
from fednet_emu.devices.availability import Presence
from fednet_emu.emulation.build import build_network
from fednet_emu.emulation.hardware import hardware, speeds
from fednet_emu.files.data_folder import data_folder
from fednet_emu.kernel.clock import Clock
from fednet_emu.kernel.streams import Streams
from fednet_emu.records.ledger import Ledger
from fednet_emu.scenario.model import Scenario
from fednet_emu.units import linear_to_db

MOST_TIMES = 121
MOST_PLACES = 200_000
"""Most instants, and most places of devices in all of them together."""


@dataclass(frozen=True)
class Scene:
    """Devices and stations over time; T instants, N devices, S stations.

    Attributes:
        times_s: the instants in simulated seconds, [T]; a single one if nothing changes.
        x_m: coordinates of the devices, [T, N].
        y_m: the same, [T, N].
        cell: the number of the station that serves each device, [T, N].
        snr_db: mean SNR of each device's uplink alone in the whole band, in dB, [T, N].
        uplink_bps: rate of each uplink alone in the band, as recorded or at its mean SNR, [T, N].
        downlink_bps: the same for downlinks, [T, N].
        stations_m: coordinates of the stations, [S, 2].
        speed_flop_per_s: computing speed of each device, [N].
    """

    times_s: Array
    x_m: Array
    y_m: Array
    cell: IntArray
    snr_db: Array
    uplink_bps: Array
    downlink_bps: Array
    stations_m: Array
    speed_flop_per_s: Array
    idle_w: Array


def scene(scenario: Scenario, until_s: float, data_dir: Path | str | None = None) -> Scene:
    """Look at the network of a scenario from its begin until a time.

    Args:
        scenario: the scenario.
        until_s: the last instant in simulated seconds.
        data_dir: the folder with recorded walks and rates; None takes it from the environment variable FEDNET_DATA.

    Raises:
        ScenarioError: parts of the scenario are incompatible.
        DataError: recorded walks or rates cannot be read.
    """
    folder, streams, devices = data_folder(data_dir), Streams(scenario.seed), scenario.devices
    presence = Presence(devices.availability, streams.key("availability"), devices.count)
    network = build_network(scenario, Clock(), Ledger(), streams, presence, folder)
    changes = network.moving or network.uplink.rates is not None or network.downlink.rates is not None
    count = max(2, min(MOST_TIMES, MOST_PLACES // devices.count)) if changes and until_s > 0 else 1
    times_s = np.linspace(0.0, until_s, count) if count > 1 else np.zeros(1)
    xy_m, cell, snr, up_bps, down_bps = map(np.stack, zip(*map(network.picture, times_s.tolist()), strict=True))
    snr_db = np.reshape(linear_to_db(snr.ravel()), snr.shape)
    hard = hardware(scenario, streams)
    speed, idle_w = speeds(scenario, hard.which, streams, folder), hard.powers.idle_w.all
    stations_m = scenario.network.cells.positions_m()
    return Scene(times_s, xy_m[..., 0], xy_m[..., 1], cell, snr_db, up_bps, down_bps, stations_m, speed, idle_w)
