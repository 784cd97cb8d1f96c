"""Distances between the ends of transfers, for the records."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fednet_emu.arrays import Array, IntArray
from fednet_emu.devices.mobility.base import Paths
from fednet_emu.kernel.clock import NS_PER_S
from fednet_emu.records.ledger import SERVER
from fednet_emu.records.table import Rows


class Distances:
    """How far the antennas of both ends of transfers are apart when these start.

    Ignored here: movement within a period of movement, as for the links.

    Args:
        paths: positions of the devices over time.
        stations_m: coordinates of the base stations, [stations, 3] in m.
        heights_m: by kind of link, the height in m of devices whose paths state none; None where links are wired or
            recorded.
        period_ns: the period of movement in ns.
    """

    def __init__(self, paths: Paths, stations_m: Array, heights_m: Sequence[float | None], period_ns: int) -> None:
        self._paths, self._stations_m, self._period_ns = paths, stations_m, period_ns
        self._heights_m = np.array([np.nan if height_m is None else height_m for height_m in heights_m])

    def __call__(self, transfers: Rows, receivers: IntArray) -> Array:
        """Distances [n] in m of transfers [n] that have started to one receiver each; NaN on wires and records."""
        height_m, moves = self._heights_m[transfers["kind"]], self._paths.speed_m_s > 0
        at_ns = transfers["started_ns"] // self._period_ns * self._period_ns * moves
        ends_m = []
        for radio in (transfers["sender"], receivers):
            device = radio > SERVER
            place_m = self._stations_m[np.where(device, 0, transfers["cell"])]
            place_m[device] = self._devices_m(radio[device], at_ns[device], height_m[device])
            ends_m.append(place_m)
        distance_m: Array = np.linalg.norm(ends_m[0] - ends_m[1], axis=1)
        return distance_m

    def _devices_m(self, device: IntArray, at_ns: IntArray, height_m: Array) -> Array:
        """Coordinates [n, 3] of devices at times."""
        place_m = np.column_stack([np.empty((len(device), 2)), height_m])
        order = np.argsort(at_ns, kind="stable")
        for rows in np.split(order, np.flatnonzero(np.diff(at_ns[order])) + 1) if len(order) else ():
            known_m = self._paths.positions_m(device[rows], int(at_ns[rows[0]]) / NS_PER_S)
            place_m[rows, : known_m.shape[1]] = known_m
        return place_m
