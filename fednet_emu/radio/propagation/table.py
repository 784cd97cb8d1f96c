"""Path loss from a table of gains at grid positions that a ray tracer has computed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
from pydantic import PrivateAttr

from fednet_emu.arrays import Array, IntArray
from fednet_emu.errors import DataError, ScenarioError
from fednet_emu.files.data_folder import locate
from fednet_emu.files.gains import Gains, read_gains
from fednet_emu.radio.propagation.base import PathLoss, Propagation, free_space_loss_db
from fednet_emu.radio.propagation.link import Hop, LinkDraws

_APART_M = 0.1
"""Maximum allowed difference in m between station coordinates, or heights, in the scenario and in the table."""
_OFF_DB = 3.0
"""Maximum allowed difference in dB between the mean gain of direct paths and the gain in free space."""


class TablePathLoss(PathLoss):
    """Gains that a ray tracer computed at the positions of a grid: an .npz file, or a folder of DeepMIMO 4.

    The file has `gain_db` [positions, stations], `xyz_m` [positions, 3], `stations_m` [stations, 3], `carrier_hz` and
    optionally `los` [positions, stations]. A gain is the sum of the powers of all paths. Gains include multipath and
    obstacles, so fading and shadowing must be off. Positions without any path have a gain of minus infinity.
    Ignored here: delays of the paths, and antenna patterns other than those in the ray tracer.
    """

    kind = "table"
    PLACED: ClassVar[bool] = True
    path: str
    """Path of the file or folder; a relative path is searched in the data folder first."""
    interpolation: Literal["nearest", "bilinear"] = "nearest"
    """Interpolation between grid positions: `nearest` takes the nearest position; `bilinear` interpolates linearly in
    dB between the four surrounding positions."""
    out_of_range: Literal["error", "no-link"] = "error"
    """Action for devices outside the grid: `error` raises an error, and `no-link` sets their gain to zero."""
    _gains: Gains | None = PrivateAttr(None)

    def conflicts(self, scenario: Any) -> Iterator[tuple[str, str]]:
        channel, sidelink = scenario.channel, scenario.network.sidelink
        if sidelink is not None and sidelink.channel.path_loss is self:
            yield "", "a table has the links of stations, got table for a sidelink; choose a law of the distance"
            return
        for name, part in (("fading", channel.fading), ("shadowing", channel.shadowing)):
            if part.kind != "none":
                yield "", f"traced gains have it in them, got table with channel.{name}: {part.kind}; set it to none"

    def on_site(
        self, carrier_hz: float, heights_m: tuple[float, float], stations_m: Array, data_dir: Path | None
    ) -> PathLoss:
        path = locate(self.path, data_dir)
        gains = read_gains(path)
        for what, how in _unfit(gains, carrier_hz, heights_m, stations_m):
            raise DataError(str(path), what, how)
        placed = self.model_copy()
        placed._gains = gains
        return placed

    @property
    def gains(self) -> Gains | None:
        return self._gains

    def propagate(self, hop: Hop, carrier_hz: float, draws: LinkDraws) -> Propagation:
        gains = self._gains
        if gains is None or hop.place_m is None:
            raise ScenarioError(
                "path_loss table: has the links of stations with places on its grid, got a distance only"
            )
        x, y = hop.place_m[..., 0], hop.place_m[..., 1]
        beyond = (x < gains.x_m[0]) | (x > gains.x_m[-1]) | (y < gains.y_m[0]) | (y > gains.y_m[-1])
        if self.out_of_range == "error" and beyond.any():
            at = f"{x[beyond][0]:g}, {y[beyond][0]:g} m"
            grid = f"x from {gains.x_m[0]:g} to {gains.x_m[-1]:g} and y from {gains.y_m[0]:g} to {gains.y_m[-1]:g} m"
            raise ScenarioError(
                f"path_loss table: a device is beyond the grid, got {at}; must be {grid}, or set out_of_range: no-link"
            )
        own_db, los = gains.gain_db[hop.station], gains.los[hop.station]
        (column, along_x), (row, along_y) = _cell(gains.x_m, x), _cell(gains.y_m, y)
        near = column + (along_x >= 0.5), row + (along_y >= 0.5)
        if self.interpolation == "nearest":
            gain_db = own_db[near]
        else:
            corners = [(dx, dy) for dx in (0, 1) for dy in (0, 1)]
            weights = [(along_x if dx else 1 - along_x) * (along_y if dy else 1 - along_y) for dx, dy in corners]
            values = [own_db[column + dx, row + dy] for dx, dy in corners]
            # a corner with weight 0 must not count, even if its gain is minus infinity
            parts = [w * np.where(w > 0, v, 0.0) for w, v in zip(weights, values, strict=True)]
            gain_db = np.add.reduce(parts)
        return Propagation.of(-np.where(beyond, -np.inf, gain_db), los[near] & ~beyond)


def _cell(lines_m: Array, at_m: Array) -> tuple[IntArray, Array]:
    """Return the index of the grid line below each coordinate, and the fraction (0 to 1) of the way to the next."""
    line = np.clip(np.searchsorted(lines_m, at_m, side="right") - 1, 0, len(lines_m) - 2)
    return line, np.clip((at_m - lines_m[line]) / (lines_m[line + 1] - lines_m[line]), 0.0, 1.0)


def _unfit(
    gains: Gains, carrier_hz: float, heights_m: tuple[float, float], stations_m: Array
) -> Iterator[tuple[str, str]]:
    device_m, station_m = heights_m
    if gains.carrier_hz is not None and abs(gains.carrier_hz - carrier_hz) > 1e-6 * carrier_hz:
        yield f"is of another carrier, got {gains.carrier_hz:g} Hz for {carrier_hz:g} Hz", "set channel.carrier_hz"
    if abs(gains.height_m - device_m) > _APART_M:
        yield f"is of another height, got {gains.height_m:g} m for {device_m:g} m", "set channel.device.height_m"
    due_m = np.column_stack([stations_m[:, :2], np.full(len(stations_m), station_m)])
    if gains.stations_m.shape != due_m.shape:
        what = f"has {len(gains.stations_m)} stations, got network.cells of {len(due_m)}"
        yield what, "give cells: {kind: list, xy_m: [...]} those of the table"
    elif (np.abs(gains.stations_m - due_m) > _APART_M).any():
        station = int(np.argmax(np.abs(gains.stations_m - due_m).max(axis=1)))
        there, here = (", ".join(f"{m:g}" for m in its[station]) for its in (gains.stations_m, due_m))
        what = f"station {station} is at {there} m, got {here} m by network.cells and channel.base_station.height_m"
        yield what, "give both the same coordinates"
    direct_db, length_m = gains.direct_db
    if len(direct_db):
        off_db = float(np.mean(direct_db + free_space_loss_db(np.maximum(length_m, 1e-3), carrier_hz)))
        if abs(off_db) > _OFF_DB:
            what = f"direct paths are {off_db:.1f} dB from free space at {carrier_hz:g} Hz"
            yield what, "give gains, not received powers, and the carrier that was traced"
