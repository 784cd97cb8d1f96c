"""Where devices and stations are during a run, and what links carry: the table `scene`."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from fednet_emu.analysis.scene import Scene
from fednet_emu.emulation.hardware import hardware, speeds
from fednet_emu.files.data_folder import data_folder
from fednet_emu.kernel.streams import Streams
from fednet_emu.network.network import Network
from fednet_emu.scenario.model import Scenario
from fednet_emu.units import linear_to_db

MOST_TIMES = 41
MOST_PLACES = 200_000
"""Most instants, and most places of devices in all of them together."""


def scene(scenario: Scenario, network: Network, until_s: float, data_dir: Path | str | None = None) -> Scene:
    """Look at the network of a scenario from its begin until a time, whatever its clock says.

    Args:
        scenario: the scenario.
        network: its network.
        until_s: the last instant in simulated seconds.
        data_dir: the folder with recorded speeds; None takes it from the environment variable FEDNET_DATA.

    Raises:
        DataError: recorded speeds cannot be read.
    """
    streams, devices = Streams(scenario.seed), scenario.devices.count
    changes = network.moving or network.uplink.rates is not None or network.downlink.rates is not None
    count = max(2, min(MOST_TIMES, MOST_PLACES // devices)) if changes and until_s > 0 else 1
    times_s = np.linspace(0.0, until_s, count) if count > 1 else np.zeros(1)
    xy_m, cell, snr, up_bps, down_bps = map(np.stack, zip(*map(network.picture, times_s.tolist()), strict=True))
    snr_db = np.reshape(linear_to_db(snr.ravel()), snr.shape)
    hard = hardware(scenario, streams)
    speed, idle_w = speeds(scenario, hard.which, streams, data_folder(data_dir)), hard.powers.idle_w.all
    stations_m = scenario.network.cells.positions_m()
    return Scene(times_s, xy_m[..., 0], xy_m[..., 1], cell, snr_db, up_bps, down_bps, stations_m, speed, idle_w)
