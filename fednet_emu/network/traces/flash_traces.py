"""Links as fast as those of FLASH's users: one constant rate each."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import numpy as np

from fednet_emu.errors import DataError
from fednet_emu.files.data_folder import locate
from fednet_emu.files.flash import link_speeds
from fednet_emu.network.traces.base import RateTraces
from fednet_emu.network.traces.series import RateSeries


class FlashTraces(RateTraces):
    """The mean Wi-Fi speed of each of FLASH's 19 users, one trace per user, constant over time.

    From Yang et al., "Characterizing impacts of heterogeneity in federated learning upon large-scale smartphone data",
    WWW 2021. Uplink and downlink have the users in the same order, so a device's two speeds are those of one user.
    Ignored here: the spread of a user's speed, for which FLASH draws anew for each transfer (`link_speeds` has it).
    """

    kind = "flash"
    path: str = "device_flash"
    """Folder of FLASH's files, in the data folder or in full."""
    direction: Literal["up", "down"]
    """Which of a user's speeds: `up` for an uplink, `down` for a downlink."""

    def load(self, data_dir: Path | None = None) -> dict[str, RateSeries]:
        """One trace per user, in the order of the file.

        Raises:
            DataError: The file is missing, not in FLASH's form, or a speed is not above 0.
        """
        folder = locate(self.path, data_dir)
        speeds = link_speeds(folder)
        mean_bps = speeds.up_mean_bps if self.direction == "up" else speeds.down_mean_bps
        wrong = np.flatnonzero(~(np.isfinite(mean_bps) & (mean_bps > 0)))
        if len(wrong):
            problem = f"user {speeds.users[wrong[0]]} has its {self.direction} speed at {mean_bps[wrong[0]]:g} bit/s"
            raise DataError(str(folder / "speed_distri.json"), problem, "speeds are finite and above 0")
        edges_s = np.array([0.0, 1.0])
        return {user: RateSeries(edges_s, mean_bps[k : k + 1]) for k, user in enumerate(speeds.users)}
