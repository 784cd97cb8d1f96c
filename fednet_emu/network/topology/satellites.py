"""Edges between satellites in line of sight: rings in orbital planes, grids across planes, or all visible pairs."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, Literal

import numpy as np
from pydantic import Field
from typing_extensions import override

from fednet_emu.arrays import IntArray, Mask
from fednet_emu.devices.orbits import MEAN_RADIUS_M, SatelliteView
from fednet_emu.network.topology.edges import Edges, EdgeSource, Ends, TopologyInputs


class SatelliteEdges(Edges):
    """Links between satellites that see each other above the Earth at the start of a round.

    The satellites of `mobility: walker` are numbered plane by plane.
    Ignored here: Doppler shifts, which receivers compensate; pointing and acquisition of optical terminals; and the
    flattening of the Earth (some 20 km).
    """

    kind = "satellites"

    neighbours: Literal["ring", "grid", "all"] = "ring"
    """Neighbours of a satellite. ring: the satellites directly ahead and behind in the same orbital plane. grid: in
    addition, the satellites at the same position in the adjacent planes; the first and the last plane of a `star` are
    not adjacent. all: every satellite in sight."""
    min_grazing_altitude_m: float = Field(8.0e4, ge=0, le=1e6)
    """Minimum height in m at which the line of sight between two satellites must pass above a sphere with a radius of
    6371 km. At lower heights, the atmosphere bends and absorbs signals."""

    @override
    def conflicts(self, scenario: Any) -> Iterator[tuple[str, str]]:
        mobility = scenario.devices.mobility
        if not mobility.ORBITS:
            yield "", f"joins satellites, got {mobility.kind} mobility; give walker or tle, or other edges"
        elif self.neighbours != "all" and mobility.kind != "walker":
            yield "neighbours", f"no planes are known, got {self.neighbours} with {mobility.kind} mobility; choose all"
        elif self.neighbours != "all" and (each := scenario.devices.count // mobility.planes) > 1:
            radius_m = MEAN_RADIUS_M + mobility.height_m
            dip_m = radius_m * math.cos(math.pi / each) - MEAN_RADIUS_M
            if dip_m < self.min_grazing_altitude_m:
                least = (MEAN_RADIUS_M + self.min_grazing_altitude_m) / radius_m
                fewest = (
                    f"take {math.ceil(math.pi / math.acos(least) - 1e-12)} or more per plane, or " if least < 1 else ""
                )
                what = f"a ring of {each} at {mobility.height_m / 1e3:.4g} km dips to {dip_m / 1e3:.3g} km"
                limit = f"below min_grazing_altitude_m {self.min_grazing_altitude_m / 1e3:.3g} km at all times"
                yield "", f"{what}, {limit}; {fewest}lower it"

    def source(self, inputs: TopologyInputs) -> EdgeSource:
        sky = inputs.paths
        assert isinstance(sky, SatelliteView), "satellites are seen from stations on the ground"
        orbits = sky.orbits
        sender, receiver = self._pairs(
            inputs.count,
            getattr(orbits, "planes", 1),
            getattr(orbits, "phasing", 0),
            star=getattr(orbits, "star", False),
        )

        def edges(group: IntArray, at_s: float, name: tuple[int, ...]) -> Ends:
            kept = in_sight(sky, sender, receiver, at_s, self.min_grazing_altitude_m)
            return sender[kept], receiver[kept]

        return edges

    def _pairs(self, count: int, planes: int, phasing: int, *, star: bool) -> Ends:
        k = np.arange(count)
        if self.neighbours == "all":
            sender, receiver = (side.ravel() for side in np.meshgrid(k, k, indexing="ij"))
            return sender[sender != receiver], receiver[sender != receiver]
        each = count // planes
        plane, place = np.divmod(k, each)
        pairs = [np.stack([k, plane * each + (place + step) % each]) for step in (1, -1)]
        for step in (1, -1) if self.neighbours == "grid" else ():
            beside = plane + step
            kept = (beside >= 0) & (beside < planes) if star else np.ones(count, np.bool_)
            # from the last plane to the first, the offset between planes has grown to `phasing` whole places
            beyond = place + phasing * (beside // planes)
            pairs.append(np.stack([k, beside % planes * each + beyond % each])[:, kept])
        both = np.unique(np.concatenate(pairs, axis=1).T, axis=0)
        both = both[both[:, 0] != both[:, 1]]
        return both[:, 0], both[:, 1]


def in_sight(sky: SatelliteView, sender: IntArray, receiver: IntArray, at_s: float, min_altitude_m: float) -> Mask:
    """Return the mask [pairs] of satellite pairs whose line of sight stays `min_altitude_m` or more above the Earth."""
    place_m = sky.orbits.positions_m(np.arange(sky.count), at_s)
    one, way = place_m[sender], place_m[receiver] - place_m[sender]
    length2 = way[:, 0] ** 2 + way[:, 1] ** 2 + way[:, 2] ** 2
    along = one[:, 0] * way[:, 0] + one[:, 1] * way[:, 1] + one[:, 2] * way[:, 2]
    share = np.clip(-along / length2, 0.0, 1.0)
    nearest = one + share[:, None] * way
    height_m = np.sqrt(nearest[:, 0] ** 2 + nearest[:, 1] ** 2 + nearest[:, 2] ** 2) - MEAN_RADIUS_M
    seen: Mask = height_m >= min_altitude_m - 1e-6
    return seen
