"""Rural macro cells (TR 38.901 Tables 7.4.1-1 and 7.4.2-1)."""

from __future__ import annotations

import math
from typing import ClassVar

import numpy as np
from pydantic import Field

from fednet_emu.arrays import Array, exp, log10
from fednet_emu.radio.propagation.base import Propagation, SitePathLoss, carrier_ghz
from fednet_emu.radio.propagation.link import Hop, LinkDraws
from fednet_emu.radio.propagation.tr38901.buildings import (
    AnyBuildings,
    NoBuildings,
    OutdoorToIndoor,
    OutdoorToIndoorBelow6GHz,
    lesser_of_two_depths_m,
)
from fednet_emu.units import SPEED_OF_LIGHT_M_S

SHORTEST_M = 10.0
LONGEST_M = 10_000.0
LONGEST_NLOS_M = 5000.0
DEEPEST_M = 10.0
CARRIER_GHZ = (0.5, 30.0)


class RuralMacro(SitePathLoss):
    """Rural macro cells (RMa): base stations at heights of 10 to 150 m, devices at 1 to 10 m, distances up to 10 km.

    Without line of sight, distances go up to 5 km. Shadowing with line of sight is 4 dB up to the breakpoint and 6 dB
    beyond; without line of sight and indoors, 8 dB. Its correlation distance is 37 m with line of sight and 120 m
    without. The correlation distance of line of sight is 60 m (Table 7.6.3.1-2). Indoor devices are up to 10 m inside a
    building. Horizontal distances below 10 m count as 10 m.
    Ignored here: hills, forests and the curvature of the earth.
    """

    kind = "3gpp-rma"
    los_correlation_m: ClassVar[float] = 60.0
    building_height_m: float = Field(default=5.0, ge=5, le=50)
    """Average height h of buildings in m."""
    street_width_m: float = Field(default=20.0, ge=5, le=50)
    """Average width W of streets in m."""
    buildings: AnyBuildings = NoBuildings()
    """Model of indoor devices and building entry loss; RMa has only low-loss buildings (clause 7.4.3.1)."""

    def _check(self) -> None:
        found = None
        if isinstance(self.buildings, OutdoorToIndoor) and self.buildings.high_loss_share > 0:
            found = f"high_loss_share {self.buildings.high_loss_share:g}"
        if isinstance(self.buildings, OutdoorToIndoorBelow6GHz):
            found = self.buildings.kind
        if found:
            raise ValueError(
                f"buildings: TR 38.901 has only low-loss buildings for RMa, got {found}; "
                "use kind: o2i with high_loss_share: 0"
            )

    def propagate(self, hop: Hop, carrier_hz: float, draws: LinkDraws) -> Propagation:
        self.within("carrier in GHz", carrier_ghz(carrier_hz), *CARRIER_GHZ)
        self.within("height of the higher antenna in m", hop.high_m, 10.0, 150.0)
        self.within("height of the lower antenna in m", hop.low_m, 1.0, 10.0)
        self.within("distance in m", hop.distance_2d_m, 0.0, LONGEST_M)
        hop = hop.at_least(SHORTEST_M)
        depth_m = np.minimum(lesser_of_two_depths_m(draws.depth, DEEPEST_M), hop.distance_2d_m)
        entry = self.buildings.enter(carrier_hz, draws, depth_m)
        los = self.sees(rma_los_probability(hop.distance_2d_m - entry.depth_m), draws)
        if not los.all():
            self.within("distance without line of sight in m", np.where(los, 0.0, hop.distance_2d_m), 0, LONGEST_NLOS_M)
        seen_db = rma_los_loss_db(hop, carrier_hz, self.building_height_m)
        unseen_db = rma_nlos_term_db(hop, carrier_hz, self.building_height_m, self.street_width_m)
        near = hop.distance_2d_m <= rma_breakpoint_m(hop, carrier_hz)
        return Propagation.of(
            np.where(los, seen_db, np.maximum(seen_db, unseen_db)) + entry.loss_db,
            los,
            sigma_db=np.where(entry.indoor | ~los, 8.0, np.where(near, 4.0, 6.0)),
            correlation_m=np.where(entry.indoor | ~los, 120.0, 37.0),
        )


def rma_breakpoint_m(hop: Hop, carrier_hz: float) -> Array:
    """Return the breakpoint in m, beyond which the loss with line of sight grows by 40 dB per decade of distance.

    It is 2 pi h_BS h_UT f / c, where h_BS and h_UT are the antenna heights of base station and device, f is the carrier
    frequency and c the speed of light.
    """
    return 2.0 * math.pi * hop.high_m * hop.low_m * carrier_hz / SPEED_OF_LIGHT_M_S


def rma_los_loss_db(hop: Hop, carrier_hz: float, building_height_m: float) -> Array:
    """Return the rural loss in dB with line of sight; the two formulas differ by at most 0.001 dB at the breakpoint."""
    breakpoint_m = rma_breakpoint_m(hop, carrier_hz)
    far_db = _near_db(breakpoint_m, carrier_hz, building_height_m) + 40.0 * log10(hop.distance_3d_m / breakpoint_m)
    near_db = _near_db(hop.distance_3d_m, carrier_hz, building_height_m)
    return np.where(hop.distance_2d_m <= breakpoint_m, near_db, far_db)


def rma_nlos_term_db(hop: Hop, carrier_hz: float, building_height_m: float, street_width_m: float) -> Array:
    """Return the fitted loss in dB without line of sight; callers raise it to the loss with line of sight if lower."""
    h_bs, h_ut, h, w = hop.high_m, hop.low_m, building_height_m, street_width_m
    return np.asarray(
        161.04
        - 7.1 * log10(w)
        + 7.5 * log10(h)
        - (24.37 - 3.7 * (h / h_bs) ** 2) * log10(h_bs)
        + (43.42 - 3.1 * log10(h_bs)) * (log10(hop.distance_3d_m) - 3.0)
        + 20.0 * log10(carrier_ghz(carrier_hz))
        - (3.2 * log10(11.75 * h_ut) ** 2 - 4.97)
    )


def rma_los_probability(outdoor_m: Array) -> Array:
    """Return the probability of line of sight in rural areas; `outdoor_m` is the outdoor part of the distance in m."""
    return exp(-np.maximum(outdoor_m - 10.0, 0.0) / 1000.0)


def _near_db(distance_m: Array, carrier_hz: float, building_height_m: float) -> Array:
    h = building_height_m
    return np.asarray(
        20.0 * log10(40.0 * math.pi * distance_m * carrier_ghz(carrier_hz) / 3.0)
        + min(0.03 * h**1.72, 10.0) * log10(distance_m)
        - min(0.044 * h**1.72, 14.77)
        + 0.002 * log10(h) * distance_m
    )
