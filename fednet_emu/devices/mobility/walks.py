"""Recorded walks and GPS tracks that devices replay."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import numpy as np
from pydantic import Field

from fednet_emu.arrays import Array, IntArray
from fednet_emu.devices.mobility.base import Mobility, Polylines
from fednet_emu.devices.mobility.regions import Region
from fednet_emu.devices.orbits import metres_per_degree
from fednet_emu.errors import DataError, ScenarioError
from fednet_emu.files.data_folder import locate
from fednet_emu.files.gps import read_tracks
from fednet_emu.files.npz import read_arrays
from fednet_emu.kernel.streams import Streams, mixes, uniforms

_HOW = "write it with np.savez(path, walk_1=..., walk_2=...) from arrays [n, 3] of t_s, x_m, y_m"
_DRAWS = np.arange(2)[:, None]


class TraceMobility(Mobility):
    """Walks from an .npz or .npz.xz file with arrays [n, 3] of time in s, x and y in m, with linear interpolation.

    The default file contains 92 walks of students on the KAIST campus, recorded by GPS every 30 s (CRAWDAD
    ncsu/mobilitymodels; some high speeds are jumps of the GPS receiver). A device follows its walk forwards and
    backwards repeatedly.
    """

    kind = "trace"
    path: str = "mobility_kaist/kaist_92walks_30s_f32.npz.xz"
    """File of walks; a relative path is searched in the data folder first."""
    assignment: Literal["in-turn", "random"] = "in-turn"
    """Assignment of walks to devices. With `in-turn`, device k has walk k modulo the number of walks, in file order;
    with `random`, each device has a randomly drawn walk."""
    start: Literal["random", "beginning"] = "random"
    """Time of the walk at which each device starts: `random` is a random time, `beginning` the start of the walk."""
    origin: Literal["recorded", "placement"] = "recorded"
    """Origin of the coordinates. With `recorded`, `centre_m` is subtracted from the recorded coordinates; with
    `placement`, walks are shifted so that each device starts at its placement."""
    centre_m: tuple[float, float] = (0.0, 0.0)
    """Position [x, y] of the base station in the recorded coordinates, in m."""

    @property
    def places(self) -> bool:  # type: ignore[override]
        return self.origin == "recorded"

    def walks(self, data_dir: Path | None) -> list[Array]:
        return load_walks(locate(self.path, data_dir))

    def paths(self, initial_xy_m: Array, region: Region, streams: Streams, data_dir: Path | None = None) -> WalkPaths:
        walks = self.walks(data_dir)
        count = len(initial_xy_m)
        keys = mixes(streams.key("mobility"), np.arange(count))
        which, when = uniforms(keys, _DRAWS)
        walk = np.arange(count) % len(walks) if self.assignment == "in-turn" else (which * len(walks)).astype(np.int64)
        duration_s = np.array([rows[-1, 0] - rows[0, 0] for rows in walks])
        offset_s = when * duration_s[walk] if self.start == "random" else np.zeros(count)
        paths = WalkPaths(walks, walk, offset_s, -np.array(self.centre_m))
        if self.origin == "placement":
            paths.shift_m = initial_xy_m + paths.shift_m - paths.positions_m(np.arange(count), 0.0)
        return paths


class WalkPaths:
    """Paths forwards and backwards along walks; `shift_m` [2] or [devices, 2] in m is added to the coordinates."""

    def __init__(self, walks: list[Array], walk: IntArray, offset_s: Array, shift_m: Array) -> None:
        self._lines = Polylines(walks)
        self.speed_m_s = sum(self._lines.length_m.tolist()) / float(self._lines.duration_s.sum())
        self.shift_m = np.broadcast_to(shift_m, (len(walk), 2))
        self._walk, self._offset_s = walk, offset_s

    def positions_m(self, devices: IntArray, time_s: float) -> Array:
        walk = self._walk[devices]
        duration_s = self._lines.duration_s[walk]
        phase_s = (self._offset_s[devices] + time_s) % (2 * duration_s)
        return self._lines.at_m(walk, np.minimum(phase_s, 2 * duration_s - phase_s)) + self.shift_m[devices]


def load_walks(path: Path) -> list[Array]:
    """Return the walks [n, 3] of t_s, x_m, y_m in an .npz or .npz.xz file; raise a `DataError` for other contents."""
    named = read_arrays(path, _HOW, limited=True)
    if not named:
        raise DataError(str(path), "holds no walks", _HOW)
    for name, rows in named.items():
        if rows.dtype.kind not in "iuf" or rows.ndim != 2 or rows.shape[1] != 3 or len(rows) < 2:
            raise DataError(
                str(path), f"{name} is {rows.dtype} of shape {rows.shape}, not [2 or more, 3] numbers", _HOW
            )
        if not np.isfinite(rows).all() or not np.all(np.diff(rows[:, 0]) > 0):
            raise DataError(str(path), f"{name} has values that are not finite, or times that do not increase", _HOW)
    return [rows.astype(np.float64) for rows in named.values()]


class GpsMobility(TraceMobility):
    """Tracks of GPS receivers from CSV files (columns time, id, lat, lon), GPX, GeoLife (.plt) or T-Drive.

    A walk consists of the fixes (recorded positions) of one id in a file, of one segment of a GPX track, or of one
    GeoLife file. A device moves in straight lines between fixes, and follows its walk forwards and backwards
    repeatedly. Coordinates are in metres east and north of `centre_deg`, accurate to 0.1 % within 50 km.
    """

    kind = "gps"
    path: str
    """A file, or a folder or archive of files; a relative path is searched in the data folder first."""
    select: str = "*"
    """Pattern of the files in a folder or archive, such as `*.plt` or `*/004/Trajectory/*`."""
    centre_deg: tuple[float, float] | None = None
    """Latitude and longitude in degrees of the origin of the coordinates; null for the median of all fixes."""
    centre_m: tuple[float, float] = Field((0.0, 0.0))
    """Coordinates [x, y] of the base station, in m east and north of `centre_deg`."""

    def walks(self, data_dir: Path | None) -> list[Array]:
        tracks = [*read_tracks(locate(self.path, data_dir), self.select).values()]
        lat_deg, lon_deg = self.centre_deg or np.median(np.concatenate(tracks)[:, 1:], axis=0).tolist()
        if not (abs(lat_deg) <= 89 and abs(lon_deg) <= 180):
            raise ScenarioError(
                f"mobility.centre_deg: must be latitude and longitude, got {lat_deg:g}, {lon_deg:g}; "
                "give degrees, at most 89 north or south"
            )
        east_m, north_m = metres_per_degree(lat_deg)
        walks = []
        for time_s, lats_deg, lons_deg in (rows.T for rows in tracks):
            x_m = ((lons_deg - lon_deg + 180) % 360 - 180) * east_m
            walks.append(np.stack([time_s, x_m, (lats_deg - lat_deg) * north_m], axis=1))
        return walks
