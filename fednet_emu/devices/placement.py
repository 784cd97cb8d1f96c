"""Placement of devices, in metres relative to the base station at the origin."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterator
from typing import Annotated, Any

import numpy as np
from pydantic import Field

from fednet_emu.arrays import Array, cos, sin
from fednet_emu.component.component import Component
from fednet_emu.component.slot import Slot, kinds


class Placement(Component):
    """A rule for the initial positions of devices."""

    @abstractmethod
    def positions_m(self, count: int, rng: np.random.Generator) -> Array:
        """Return the initial coordinates [count, 2] of the devices, in m."""


class Disc(Placement):
    """Places devices uniformly in a disc, or a ring, around the base station."""

    radius_m: float = Field(gt=0, le=1e7)
    """Maximum distance of a device from the base station, in m."""
    inner_radius_m: float = Field(0.0, ge=0)
    """Minimum distance of a device from the base station, in m."""

    def _check(self) -> None:
        if self.inner_radius_m >= self.radius_m:
            raise ValueError(
                f"inner_radius_m must be below radius_m, got {self.inner_radius_m:g} and {self.radius_m:g}"
            )

    def positions_m(self, count: int, rng: np.random.Generator) -> Array:
        draws = rng.random((count, 2))  # additional devices do not change the positions of others
        inner_m2, outer_m2 = self.inner_radius_m**2, self.radius_m**2
        distance_m = np.sqrt(inner_m2 + (outer_m2 - inner_m2) * draws[:, 0])
        angle = 2 * math.pi * draws[:, 1]
        return np.stack([distance_m * cos(angle), distance_m * sin(angle)], axis=1)


class Listed(Placement):
    """Places devices at given coordinates, one pair per device."""

    kind = "list"
    xy_m: tuple[tuple[float, float], ...] = Field(min_length=1)
    """Coordinates [x, y] in m, one pair per device; the base station is at [0, 0]."""

    def conflicts(self, scenario: Any) -> Iterator[tuple[str, str]]:
        if len(self.xy_m) != (count := scenario.devices.count):
            what = f"not one for each device, got {len(self.xy_m)}"
            yield "xy_m", f"{what}; must be as many as devices.count, {count}"

    def positions_m(self, count: int, rng: np.random.Generator) -> Array:
        return np.array(self.xy_m, dtype=np.float64)


PLACEMENTS = kinds(Disc, Listed)
AnyPlacement = Annotated[Placement, Slot("placement", PLACEMENTS)]
