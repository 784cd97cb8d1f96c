"""Recorded GPS tracks: devices replay where receivers were."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from pydantic import Field

from fednet_emu.arrays import Array
from fednet_emu.devices.mobility.walks import TraceMobility
from fednet_emu.devices.orbits.earth import metres_per_degree
from fednet_emu.errors import ScenarioError
from fednet_emu.files.data_folder import locate
from fednet_emu.files.gps import read_tracks


class GpsMobility(TraceMobility):
    """Tracks of GPS receivers: CSV files with the columns time, id, lat and lon, GPX, GeoLife (.plt) or T-Drive.

    A walk is what one id of a file has; of GPX a segment of a track, of GeoLife a file. Between fixes a device goes
    straight on; at its end a walk is walked back, as with `trace`. Coordinates are metres east and north of
    `centre_deg`, exact to 0.1 % within 50 km.
    """

    kind = "gps"
    path: str
    """A file, or a folder or archive of them; a relative path is sought in the data folder first."""
    select: str = "*"
    """Which files of a folder or archive, such as `*.plt` or `*/004/Trajectory/*`."""
    centre_deg: tuple[float, float] | None = None
    """Latitude and longitude of the base station; null takes the median of all fixes."""
    centre_m: tuple[float, float] = Field((0.0, 0.0))
    """Coordinates [x, y] of the base station in m east and north of `centre_deg`."""

    def walks(self, data_dir: Path | None) -> list[Array]:
        tracks = [*read_tracks(locate(self.path, data_dir), self.select).values()]
        lat_deg, lon_deg = self.centre_deg or np.median(np.concatenate(tracks)[:, 1:], axis=0).tolist()
        if not (abs(lat_deg) <= 89 and abs(lon_deg) <= 180):
            raise ScenarioError(
                f"mobility.centre_deg: must be latitude and longitude, got {lat_deg:g}, {lon_deg:g}; "
                "give degrees, at most 89 north or south"
            )
        east_m, north_m = metres_per_degree(lat_deg)
        return [
            np.stack(
                [
                    rows[:, 0],
                    ((rows[:, 2] - lon_deg + 180) % 360 - 180) * east_m,
                    (rows[:, 1] - lat_deg) * north_m,
                ],
                axis=1,
            )
            for rows in tracks
        ]
