"""Movement files of ns-2: commands that send nodes to destinations at given speeds."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import NamedTuple

import numpy as np

from fednet_emu.arrays import Array, IntArray
from fednet_emu.devices.mobility.base import Mobility, Polylines
from fednet_emu.devices.mobility.regions import Region
from fednet_emu.errors import DataError, ScenarioError
from fednet_emu.files.data_folder import locate
from fednet_emu.files.lines import LONGEST_S, lines, number
from fednet_emu.files.recordings import read_texts
from fednet_emu.kernel.streams import Streams

_NODE = r"\$node_\((\d+)\)\s+"
_NUMBER = r"([^\s\"{}]+)"
_PLACED = re.compile(rf"{_NODE}set\s+([XYZ])_\s+{_NUMBER}", re.ASCII)
_AT = re.compile(rf'\$ns_?\s+at\s+{_NUMBER}\s+(?:"([^"]*)"|\{{([^{{}}]*)\}})', re.ASCII)
_SENT = re.compile(rf"{_NODE}setdest(?:3d\s+{_NUMBER})?\s+{_NUMBER}\s+{_NUMBER}\s+{_NUMBER}", re.ASCII)
_STILL = re.compile(rf"{_NODE}(?:reset|random-motion\s+0)", re.ASCII)
_HOW = 'write lines `$node_(0) set X_ 1.0` and `$ns_ at 2.0 "$node_(0) setdest 5.0 6.0 1.5"`, as setdest and SUMO do'
_MAX_M = 1e9
_MAX_M_S = 1e9


class Ns2Mobility(Mobility):
    """A movement file of ns-2, as written by its `setdest` and by SUMO's `traceExporter.py`.

    Device k is node k. Its initial position is set by `set X_` and `set Y_`. A `setdest` command moves the node in a
    straight line to the destination at the given speed; the node then stays there. A `set X_` or `set Y_` command with
    a time makes the node jump at this time. Heights are ignored, except that a difference in height lengthens the
    distance of a `setdest3d` command. Of two simultaneous commands, the one in the later line takes effect. Lines that
    do not refer to a node are ignored; unknown commands are errors.
    """

    kind = "ns2"
    places = True
    path: str
    """Path of the file; a relative path is searched in the data folder first."""
    centre_m: tuple[float, float] = (0.0, 0.0)
    """Position [x, y] of the base station in the recorded coordinates, in m."""

    def paths(self, initial_xy_m: Array, region: Region, streams: Streams, data_dir: Path | None = None) -> SentPaths:
        ways, count = read_movements(locate(self.path, data_dir)), len(initial_xy_m)
        lacking = next((node for node in range(count) if node not in ways), None)
        if lacking is not None:
            what = f"{self.path} has no node {lacking}, got {count} devices"
            raise ScenarioError(f"devices.count: {what}; give {lacking} or fewer" if lacking else f"mobility: {what}")
        return SentPaths([ways[node] for node in range(count)], np.array(self.centre_m))


class SentPaths:
    """Paths of nodes; the typical speed is the total distance, without jumps, divided by the total time in motion."""

    def __init__(self, ways: list[Array], centre_m: Array) -> None:
        self._lines, self._centre_m = Polylines(ways), centre_m
        steps = [np.diff(rows, axis=0) for rows in ways]
        length_m = [np.hypot(its[:, 1], its[:, 2]) for its in steps]
        moving_s = sum(float(its[own > 0, 0].sum()) for its, own in zip(steps, length_m, strict=True))
        jumped_m = sum(float(own[its[:, 0] == 0].sum()) for its, own in zip(steps, length_m, strict=True))
        self.speed_m_s = (float(self._lines.length_m.sum()) - jumped_m) / moving_s if moving_s else 0.0

    def positions_m(self, devices: IntArray, time_s: float) -> Array:
        return self._lines.at_m(devices, np.full(len(devices), time_s)) - self._centre_m


class _Order(NamedTuple):
    """A timed command to a node: a coordinate of None does not change, and a speed of None means a jump."""

    at_s: float
    to_m: tuple[float | None, ...]
    speed_m_s: float | None
    where: str


def read_movements(path: Path) -> dict[int, Array]:
    """Return the polyline [rows, 3] of t_s, x_m, y_m of each node; raise a `DataError` for an unknown command."""
    at_m: dict[int, dict[str, float]] = {}
    sent: dict[int, list[_Order]] = {}
    for file, text in read_texts(path):
        for count, line in lines(text):
            try:
                for statement in map(str.strip, re.split(r";\s*#", line)[0].split(";")):
                    if "$node_(" in statement or " setdest" in statement:
                        _take(statement, f"{file}:{count}", at_m, sent)
            except ValueError as error:
                raise DataError(f"{file}:{count}", f"{error}, got {line[:80]!r}", _HOW) from error
    for node in [*at_m, *sent]:
        if not {"X", "Y"} <= at_m.get(node, {}).keys():
            raise DataError(str(path), f"node {node} has no place to start from, got no set X_ or set Y_", _HOW)
    if not at_m:
        raise DataError(str(path), "has no nodes, got no line `$node_(0) set X_ ...`", _HOW)
    return {
        node: _line((here["X"], here["Y"], here.get("Z", 0.0)), sorted(sent.get(node, []), key=lambda its: its.at_s))
        for node, here in at_m.items()
    }


def _take(statement: str, where: str, at_m: dict[int, dict[str, float]], sent: dict[int, list[_Order]]) -> None:
    """Add a statement to the initial positions or to the commands; raise a `ValueError` if it is unknown."""
    if placed := _PLACED.fullmatch(statement):
        at_m.setdefault(int(placed[1]), {})[placed[2]] = _metres(placed[3])
        return
    at = _AT.fullmatch(statement)
    what = statement if at is None else (at[2] or at[3] or "").strip()
    if at and (order := _SENT.fullmatch(what)):
        # setdest3d has x, y, z and speed; the optional group of the pattern has matched the x coordinate
        numbers = [its for its in order.groups()[1:] if its is not None]
        speed_m_s = _bounded("the speed", numbers.pop(), 0.0, _MAX_M_S)
        to_m = (*(_metres(its) for its in numbers), None)[:3]
        sent.setdefault(int(order[1]), []).append(_Order(_time_s(at[1]), to_m, speed_m_s, where))
    elif at and (placed := _PLACED.fullmatch(what)):
        to_m = tuple(_metres(placed[3]) if placed[2] == axis else None for axis in "XYZ")
        sent.setdefault(int(placed[1]), []).append(_Order(_time_s(at[1]), to_m, None, where))
    elif not _STILL.fullmatch(what):
        raise ValueError("is no order that can be followed")


def _metres(text: str) -> float:
    return _bounded("a coordinate", text, -_MAX_M, _MAX_M)


def _time_s(text: str) -> float:
    return _bounded("the time", text, 0.0, LONGEST_S)


def _bounded(name: str, text: str, low: float, high: float) -> float:
    try:
        return number(text, low, high)
    except ValueError as error:
        raise ValueError(f"{name} {text} {error}") from error


def _line(here_m: tuple[float, float, float], orders: list[_Order]) -> Array:
    """Return the polyline [rows, 3] of a node for its initial position in m and its commands, sorted by time."""
    found = [(0.0, *here_m)]
    for order, until_s in zip(orders, [*(its.at_s for its in orders), math.inf][1:], strict=True):
        here_m = found[-1][1:]
        to_m = [there if to is None else to for there, to in zip(here_m, order.to_m, strict=True)]
        found.append((order.at_s, *here_m))
        distance_m = math.dist(here_m, to_m)
        if order.speed_m_s is None:
            found.append((order.at_s, to_m[0], to_m[1], to_m[2]))
        elif distance_m and order.speed_m_s:
            needed_s = distance_m / order.speed_m_s
            part = min(1.0, (until_s - order.at_s) / needed_s)
            x_m, y_m, z_m = (there + part * (to - there) for there, to in zip(here_m, to_m, strict=True))
            found.append((min(order.at_s + needed_s, until_s), x_m, y_m, z_m))
        if found[-1][0] > LONGEST_S:
            what = f"arrives after {found[-1][0]:.3g} s, got a speed of {order.speed_m_s:g} m/s"
            raise DataError(order.where, what, f"order ways that end within {LONGEST_S:g} s; a speed of 0 stands still")
    found.append((found[-1][0] + 1.0, *found[-1][1:]))
    return np.array(found)[:, :3]
