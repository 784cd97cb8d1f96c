"""Vehicles that a traffic simulator has moved: devices that come, drive and leave."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import ClassVar, Literal

import numpy as np
from pydantic import model_validator

from fednet_emu.arrays import Array, IntArray
from fednet_emu.devices.mobility.base import Mobility
from fednet_emu.devices.mobility.polylines import Polylines
from fednet_emu.devices.mobility.regions import Region
from fednet_emu.errors import ScenarioError
from fednet_emu.files.data_folder import locate
from fednet_emu.files.fcd import Recording, read_fcd
from fednet_emu.kernel.streams import Streams

Window = tuple[float, float]


class SumoMobility(Mobility):
    """Vehicles from the floating car data that Eclipse SUMO writes with `--fcd-output`: .xml, .csv, .parquet, or .gz.

    The position of a vehicle is that of the middle of its front bumper; time 0 is the first time step of the file,
    with vehicles or not, and between its rows a vehicle drives straight on. Persons and containers are left out: in
    tables they are the rows without a lane. Without `availability: from-mobility` a device waits where its vehicle
    appears, and stays where it was last.
    """

    COMES_AND_GOES: ClassVar[bool] = True

    kind = "sumo"
    places = True
    path: str
    """The file; a relative path is sought in the data folder first."""
    pick: Literal["first", "longest", "random"] = "first"
    """Which vehicles are devices, if there are more: `first` takes them as they appear, `longest` those that are there
    for the longest time, `random` draws them."""
    reuse: bool = False
    """Whether a device takes the next vehicle that appears once its own has left; it keeps its data and its model."""
    centre_m: tuple[float, float] = (0.0, 0.0)
    """Recorded coordinates [x, y] in m of the base station."""

    @model_validator(mode="after")
    def _takes_them_in_turn(self) -> SumoMobility:
        if self.reuse and self.pick != "first":
            raise ValueError(
                f"reuse takes vehicles as they appear, got pick: {self.pick}; write pick: first, or no reuse"
            )
        return self

    def paths(
        self, initial_xy_m: Array, region: Region, streams: Streams, data_dir: Path | None = None
    ) -> VehiclePaths:
        recording, count = read_fcd(locate(self.path, data_dir)), len(initial_xy_m)
        vehicles = list(_vehicles(recording))
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
    """A vehicle of a recording.

    Attributes:
        present_s: When it is there, windows [from, to) in s.
        lines: Its positions in each window: rows of time in s, x and y in m; at the end where it was last.
    """

    def __init__(self, rows: Array, step_s: float) -> None:
        parts = np.split(rows, np.flatnonzero(np.diff(rows[:, 0]) > 1.5 * step_s) + 1)
        self.present_s = [(float(part[0, 0]), float(part[-1, 0] + step_s)) for part in parts]
        self.lines = [np.concatenate([part, [[part[-1, 0] + step_s, *part[-1, 1:]]]]) for part in parts]


class VehiclePaths:
    """Devices in vehicles, one after the other; one that is away waits where it was last, or where it will appear.

    Attributes:
        speed_m_s: All distance over all time in which vehicles are there.
        present_s: When each device is there: windows [from, to) in s.
    """

    def __init__(self, rides: list[list[Vehicle]], centre_m: Array) -> None:
        driven = [[line for vehicle in ride for line in vehicle.lines] for ride in rides]
        whole = Polylines([line for lines in driven for line in lines])
        self.speed_m_s = float(whole.length_m.sum() / whole.duration_s.sum())
        self.present_s = [tuple(_merged([its for vehicle in ride for its in vehicle.present_s])) for ride in rides]
        self._lines, self._centre_m = Polylines([_with_waits(lines) for lines in driven]), centre_m
        self._starts_s = np.array([lines[0][0, 0] for lines in driven])

    def positions_m(self, devices: IntArray, time_s: float) -> Array:
        """Coordinates [k, 2] in metres of devices [k] at a time of 0 or later."""
        return self._lines.at_m(devices, time_s - self._starts_s[devices]) - self._centre_m


def _vehicles(recording: Recording) -> Iterator[Vehicle]:
    """The vehicles in the order in which they appear."""
    order = np.argsort(recording.vehicle, kind="stable")
    rows = recording.rows[order]
    edges = np.flatnonzero(np.diff(recording.vehicle[order])) + 1
    for own in np.split(rows, edges):
        yield Vehicle(own, recording.step_s)


def _in_turn(vehicles: list[Vehicle], count: int) -> list[list[int]]:
    """The vehicles of each device: the device that has waited longest takes the next one that appears."""
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
    """One line of several, each of which ends where it waits for the next one."""
    waits = ([[after[0, 0], *before[-1, 1:]]] for before, after in pairwise(lines))
    return np.concatenate([piece for pair in zip(lines, [*waits, lines[0][:0]], strict=True) for piece in pair])


def _merged(windows: list[Window]) -> Iterator[Window]:
    """The same windows, those that touch as one."""
    from_s, to_s = windows[0]
    for next_s, end_s in windows[1:]:
        if next_s > to_s:
            yield from_s, to_s
            from_s = next_s
        to_s = end_s
    yield from_s, to_s
