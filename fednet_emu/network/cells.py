"""Base stations: their positions, and the selection of a cell for each transfer.

All base stations are connected to the server.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections import defaultdict
from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Annotated, Any, final

import numpy as np
from pydantic import Field, field_validator
from typing_extensions import override

from fednet_emu.arrays import Array, cos, sin
from fednet_emu.component.component import Component
from fednet_emu.component.slot import Slot, kinds
from fednet_emu.devices.mobility.base import Paths
from fednet_emu.devices.orbits import Orbits, SatelliteView, Site, stations_m
from fednet_emu.network.air.transfer import Burst, Transfer
from fednet_emu.network.links.links import LinksOverTime, cell_of
from fednet_emu.records.ledger import Ledger
from fednet_emu.records.rows import HandoverRow


class Cells(Component):
    """Base stations that all use the same band (reuse 1)."""

    @abstractmethod
    def positions_m(self) -> Array:
        """Return the coordinates of the stations in m, [stations, 2] or, if they include heights, [stations, 3]."""

    def around(self, paths: Paths) -> Paths:
        """Return the paths of the devices, in the coordinate system of the stations."""
        return paths

    @cached_property
    def count(self) -> int:
        """Number of base stations."""
        return len(self.positions_m())


class SingleCell(Cells):
    """One base station at the origin."""

    kind = "single"

    def positions_m(self) -> Array:
        return np.zeros((1, 2))


class HexagonalCells(Cells):
    """A base station at the origin, surrounded by rings of base stations on a hexagonal grid, as in 3GPP evaluations.

    The outermost cells have fewer neighbours than inner cells (no wrap-around).
    Ignored here: sectors; each site has one omnidirectional station.
    """

    kind = "hexagonal"

    rings: int = Field(ge=1, le=10)
    """Number of rings around the centre; 1 ring gives 7 stations, 2 rings give 19."""

    inter_site_distance_m: float = Field(gt=0)
    """Distance in m between neighbouring stations; 500 in 3GPP's urban macro cells, 200 in its urban micro cells."""

    def positions_m(self) -> Array:
        angle = np.pi / 3 * np.arange(6)
        corner = cos(angle) + 1j * sin(angle)
        places = [np.zeros(1, complex)]
        for ring in range(1, self.rings + 1):
            steps = np.arange(ring)
            sides = ring * corner[:, None] + (np.roll(corner, -1) - corner)[:, None] * steps[None, :]
            places.append(sides.ravel())
        grid = self.inter_site_distance_m * np.concatenate(places)
        return np.stack([grid.real, grid.imag], axis=1)


class ListedCells(Cells):
    """Base stations at given coordinates."""

    kind = "list"

    xy_m: tuple[tuple[float, float], ...] = Field(min_length=1)
    """Coordinates [x, y] in m, one pair per base station."""

    @field_validator("xy_m")
    @classmethod
    def _differ(cls, xy_m: tuple[tuple[float, float], ...]) -> tuple[tuple[float, float], ...]:
        for place, here in enumerate(xy_m):
            if any(math.dist(here, other) == 0 for other in xy_m[:place]):
                raise ValueError(f"two base stations are at one place, got {list(here)} twice; each needs its own")
        return xy_m

    def positions_m(self) -> Array:
        return np.array(self.xy_m, dtype=np.float64)


class GroundCells(Cells):
    """Ground stations for satellites (`mobility: walker` or `tle`), each of which is served by the nearest station.

    Coordinates are in m to the east, to the north, and upwards from the first station. Heights are measured from the
    plane through this station, not from the curved surface of the Earth, so that distances are slant ranges.
    """

    kind = "ground"

    sites: tuple[Site, ...] = Field(min_length=1)
    """Sites of the ground stations."""

    @field_validator("sites")
    @classmethod
    def _differ(cls, sites: tuple[Site, ...]) -> tuple[Site, ...]:
        for place, site in enumerate(sites):
            if site in sites[:place]:
                where = f"{site.lat_deg:g}, {site.lon_deg:g}"
                raise ValueError(f"two stations are at one place, got {where} twice; each needs its own")
        return sites

    @override
    def conflicts(self, scenario: Any) -> Iterator[tuple[str, str]]:
        mobility = scenario.devices.mobility
        if not mobility.ORBITS:
            yield "", f"is for satellites, got ground with {mobility.kind} mobility; give walker or tle, or kind: list"

    def positions_m(self) -> Array:
        return stations_m(self.sites)

    @override
    def around(self, paths: Paths) -> Paths:
        return SatelliteView(paths, self.sites) if isinstance(paths, Orbits) else paths


CELLS: dict[str, type[Cells]] = kinds(SingleCell, HexagonalCells, ListedCells, GroundCells)

AnyCells = Annotated[Cells, Slot("cells", CELLS)]


@final
class Serving:
    """Selects the cell of each transfer, such that all current transfers of a device are in the same cell.

    Args:
        during: True if a device can change cells during its transfers, which continue in the new cell. If False, a
            device changes cells only while it has no waiting or current transfer.
    """

    def __init__(self, links: LinksOverTime, ledger: Ledger, *, during: bool) -> None:
        self._links, self._ledger, self._during = links, ledger, during
        self._under_way: dict[int, dict[Transfer, int]] = defaultdict(dict)  # for each device, the cells of transfers

    def serve(self, transfer: Transfer) -> None:
        device = max(transfer.sender, transfer.receiver)
        under_way = self._under_way[device]
        if under_way:
            transfer.cell = next(iter(under_way.values()))
        else:
            transfer.cell = cell_of(self._links.now().station_of(device))
        if not transfer.cancelled:
            under_way[transfer] = transfer.cell

    def release(self, transfer: Transfer) -> None:
        """Record the end of a transfer; a device without other transfers may now change to another cell."""
        self._under_way[max(transfer.sender, transfer.receiver)].pop(transfer, None)

    def hand_over(self, on_air: Mapping[Transfer, Burst], now_ns: int) -> None:
        """Move each transfer on the air to the cell that now serves its device.

        A device that receives a broadcast stays in its cell.
        """
        if not self._during:
            return
        links, held = self._links.now(), {leg.receiver for leg, burst in on_air.items() if len(burst) > 1}
        for transfer in on_air:
            device, old = max(transfer.sender, transfer.receiver), transfer.cell
            new = cell_of(links.station_of(device))
            if device not in held and new != old:
                self._ledger.handovers.append(HandoverRow(transfer.kind, device, now_ns, transfer.number, old, new))
                transfer.cell = self._under_way[device][transfer] = new
