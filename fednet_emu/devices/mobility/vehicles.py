"""Vehicles from a traffic simulator: devices that join, drive and leave."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import ClassVar, Literal

import numpy as np

from fednet_emu.arrays import Array, IntArray
from fednet_emu.devices.mobility.base import Mobility, Polylines
from fednet_emu.devices.mobility.regions import Region
from fednet_emu.errors import ScenarioError
from fednet_emu.files.data_folder import locate
from fednet_emu.files.fcd import read_fcd
from fednet_emu.kernel.streams import Streams

Window = tuple[float, float]


class SumoMobility(Mobility):
    """Vehicles from floating car data of Eclipse SUMO (`--fcd-output`), as .xml, .csv, .parquet, or .gz files.

    The position of a vehicle is the middle of its front bumper. Time 0 is the first time step of the file, even if no
    vehicle has appeared yet. Positions between the rows of a vehicle are interpolated. Persons and containers (rows
    without a lane in tables) are ignored. Unless `availability` is `from-mobility`, a device stays at the first
    position of its vehicle until the vehicle appears, and at the last position after the vehicle has left.
    """

    COMES_AND_GOES: ClassVar[bool] = True

    kind = "sumo"
    places = True
    path: str
    """Path of the file; a relative path is searched in the data folder first."""
    pick: Literal["first", "longest", "random"] = "first"
    """Choice of the vehicles that become devices: `first` takes the first vehicles to appear, `longest` the vehicles
    that are present for the longest time, and `random` a random choice."""
    reuse: bool = False
    """Whether a device whose vehicle has left continues, with the same data and model, in the next vehicle that
    appears."""
    centre_m: tuple[float, float] = (0.0, 0.0)
    """Position [x, y] of the base station in the recorded coordinates, in m."""

    def _check(self) -> None:
        if self.reuse and self.pick != "first":
            raise ValueError(
                f"reuse takes vehicles as they appear, got pick: {self.pick}; write pick: first, or no reuse"
            )

    def paths(
        self, initial_xy_m: Array, region: Region, streams: Streams, data_dir: Path | None = None
    ) -> VehiclePaths:
        recording, count = read_fcd(locate(self.path, data_dir)), len(initial_xy_m)
        order = np.argsort(recording.vehicle, kind="stable")  # vehicles in the order in which they appear
        edges = np.flatnonzero(np.diff(recording.vehicle[order])) + 1
        vehicles = [Vehicle(rows, recording.step_s) for rows in np.split(recording.rows[order], edges)]
        rides = _in_turn(vehicles, count) if self.reuse else [[k] for k in self._picked(vehicles, count, streams)]
        if len(rides) < count:
            what = f"{self.path} has vehicles for {len(rides)}, got {count}"
            raise ScenarioError(f"devices.count: {what}; give {len(rides)} or fewer, or record more traffic")
        return VehiclePaths([[vehicles[k] for k in ride] for ride in rides], np.array(self.centre_m))

    def _picked(self, vehicles: list[Vehicle], count: int, streams: Streams) -> list[int]:
        order = list(range(len(vehicles)))
        if self.pick == "longest":
            order.sort(key=lambda k: -sum(to_s - from_s for from_s, to_s in vehicles[k].present_s))
        elif self.pick == "random":
            order = streams("mobility").permutation(len(vehicles)).tolist()
        return sorted(order[:count])


class Vehicle:
    """A recorded vehicle: time windows [from, to) in s in which it is present, and a polyline [rows, 3] per window."""

    def __init__(self, rows: Array, step_s: float) -> None:
        parts = np.split(rows, np.flatnonzero(np.diff(rows[:, 0]) > 1.5 * step_s) + 1)
        self.present_s = [(float(part[0, 0]), float(part[-1, 0] + step_s)) for part in parts]
        self.lines = [np.concatenate([part, [[part[-1, 0] + step_s, *part[-1, 1:]]]]) for part in parts]


class VehiclePaths:
    """Paths of devices in one or more consecutive vehicles; typical speed is total distance divided by total time."""

    def __init__(self, rides: list[list[Vehicle]], centre_m: Array) -> None:
        driven = [[line for vehicle in ride for line in vehicle.lines] for ride in rides]
        whole = Polylines([line for lines in driven for line in lines])
        self.speed_m_s = float(whole.length_m.sum() / whole.duration_s.sum())
        self.present_s = [tuple(_merged([its for vehicle in ride for its in vehicle.present_s])) for ride in rides]
        self._lines, self._centre_m = Polylines([_with_waits(lines) for lines in driven]), centre_m
        self._starts_s = np.array([lines[0][0, 0] for lines in driven])

    def positions_m(self, devices: IntArray, time_s: float) -> Array:
        return self._lines.at_m(devices, time_s - self._starts_s[devices]) - self._centre_m


def _in_turn(vehicles: list[Vehicle], count: int) -> list[list[int]]:
    """Return the indices of each device's vehicles; the device that has waited longest takes the next vehicle."""
    rides: list[list[int]] = []
    free_s: list[float] = []
    for k, vehicle in enumerate(vehicles):
        appears_s, leaves_s = vehicle.present_s[0][0], vehicle.present_s[-1][1]
        device = min(range(len(rides)), key=free_s.__getitem__, default=0)
        if rides and free_s[device] <= appears_s:
            rides[device].append(k)
            free_s[device] = leaves_s
        elif len(rides) < count:
            rides.append([k])
            free_s.append(leaves_s)
    return rides


def _with_waits(lines: list[Array]) -> Array:
    """Return one polyline for several; between two of them, the device stays at the end of the earlier one."""
    waits = ([[after[0, 0], *before[-1, 1:]]] for before, after in pairwise(lines))
    return np.concatenate([piece for pair in zip(lines, [*waits, lines[0][:0]], strict=True) for piece in pair])


def _merged(windows: list[Window]) -> Iterator[Window]:
    from_s, to_s = windows[0]
    for next_s, end_s in windows[1:]:
        if next_s > to_s:
            yield from_s, to_s
            from_s = next_s
        to_s = end_s
    yield from_s, to_s
