"""Movement in the form of ns-2: orders to go somewhere at a speed."""

from __future__ import annotations

import math
import re
from pathlib import Path

import numpy as np
from typing_extensions import override

from fednet_emu.arrays import Array, IntArray
from fednet_emu.devices.mobility.base import Mobility
from fednet_emu.devices.mobility.polylines import Polylines
from fednet_emu.devices.mobility.regions import Region
from fednet_emu.errors import DataError, ScenarioError
from fednet_emu.files.data_folder import locate
from fednet_emu.files.recordings import read_texts
from fednet_emu.kernel.streams import Streams

_NUMBER = r"([-+.\deE]+)"
_PLACED = re.compile(rf"\s*\$node_\((\d+)\)\s+set\s+([XYZ])_\s+{_NUMBER}")
_SENT = re.compile(rf'\s*\$ns_\s+at\s+{_NUMBER}\s+"\$node_\((\d+)\)\s+setdest\s+{_NUMBER}\s+{_NUMBER}\s+{_NUMBER}"')
_HOW = 'write lines `$node_(0) set X_ 1.0` and `$ns_ at 2.0 "$node_(0) setdest 5.0 6.0 1.5"`, as setdest and SUMO do'


class Ns2Mobility(Mobility):
    """A movement file of ns-2, as its `setdest` and SUMO's `traceExporter.py` write it.

    Device k is node k. It starts where `set X_` and `set Y_` put it; from the time of a `setdest` on it goes straight
    to the place at the speed, from wherever it is, and waits there. All other lines, and heights, are left out.
    """

    kind = "ns2"
    path: str
    """The file; a relative path is sought in the data folder first."""
    centre_m: tuple[float, float] = (0.0, 0.0)
    """Recorded coordinates [x, y] in m of the base station."""

    @property
    @override
    def places(self) -> bool:
        return True

    @override
    def paths(self, initial_xy_m: Array, region: Region, streams: Streams, data_dir: Path | None = None) -> SentPaths:
        """Paths of the nodes.

        Raises:
            DataError: The file cannot be used.
            ScenarioError: It has fewer nodes than there are devices.
        """
        lines, count = read_movements(locate(self.path, data_dir)), len(initial_xy_m)
        lacking = next((node for node in range(count) if node not in lines), None)
        if lacking is not None:
            what = f"{self.path} has no node {lacking}, got {count} devices"
            raise ScenarioError(f"devices.count: {what}; give {lacking} or fewer" if lacking else f"mobility: {what}")
        return SentPaths([lines[node] for node in range(count)], np.array(self.centre_m))


class SentPaths:
    """Devices on their ways, and at rest between them.

    Attributes:
        speed_m_s: All distance over all time in motion.
    """

    def __init__(self, lines: list[Array], centre_m: Array) -> None:
        self._lines, self._centre_m = Polylines(lines), centre_m
        steps = [np.diff(rows, axis=0) for rows in lines]
        moving_s = sum(float(its[np.hypot(its[:, 1], its[:, 2]) > 0, 0].sum()) for its in steps)
        self.speed_m_s = float(self._lines.length_m.sum()) / moving_s if moving_s else 0.0

    def positions_m(self, devices: IntArray, time_s: float) -> Array:
        """Coordinates [k, 2] in metres of devices [k] at a time of 0 or later."""
        return self._lines.at_m(devices, np.full(len(devices), time_s)) - self._centre_m


def read_movements(path: Path) -> dict[int, Array]:
    """The lines [rows, 3] of t_s, x_m, y_m of the nodes, by number; each begins at 0 s.

    Raises:
        DataError: The file cannot be read, or an order cannot be followed; the line is named.
    """
    at_m: dict[int, dict[str, float]] = {}
    sent: dict[int, list[tuple[float, float, float, float]]] = {}
    for where, text in read_texts(path):
        for number, line in enumerate(text.splitlines(), 1):
            try:
                if placed := _PLACED.match(line):
                    at_m.setdefault(int(placed[1]), {})[placed[2]] = _finite(placed[3])
                elif order := _SENT.match(line):
                    at_s, x_m, y_m, speed_m_s = (_finite(order[group]) for group in (1, 3, 4, 5))
                    sent.setdefault(int(order[2]), []).append((max(at_s, 0.0), x_m, y_m, speed_m_s))
            except ValueError as error:
                raise DataError(f"{where}:{number}", f"{error}, got {line.strip()!r}", _HOW) from error
    for node in [*at_m, *sent]:
        if not {"X", "Y"} <= at_m.get(node, {}).keys():
            raise DataError(str(path), f"node {node} has no place to start from", _HOW)
    if not at_m:
        raise DataError(str(path), "has no nodes", _HOW)
    return {node: _line(here["X"], here["Y"], sorted(sent.get(node, []))) for node, here in at_m.items()}


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text} is not finite")
    return value


def _line(x_m: float, y_m: float, orders: list[tuple[float, float, float, float]]) -> Array:
    """The way of a node through its orders (time in s, destination x and y in m, speed in m/s)."""
    rows = [(0.0, x_m, y_m)]
    for (at_s, to_x, to_y, speed), (until_s, *_) in zip(orders, [*orders, (math.inf,)][1:], strict=True):
        _, x_m, y_m = rows[-1]
        rows.append((at_s, x_m, y_m))
        distance_m = math.hypot(to_x - x_m, to_y - y_m)
        needed_s = distance_m / speed if speed > 0 else math.inf
        if math.isfinite(needed_s) and distance_m:
            part = min(1.0, (until_s - at_s) / needed_s)
            rows.append((min(at_s + needed_s, until_s), x_m + part * (to_x - x_m), y_m + part * (to_y - y_m)))
    rows.append((rows[-1][0] + 1.0, *rows[-1][1:]))
    return np.array(rows)
