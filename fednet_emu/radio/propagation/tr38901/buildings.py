"""Building entry loss of indoor devices (TR 38.901 clause 7.4.3)."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Annotated

import numpy as np
from pydantic import Field

from fednet_emu.arrays import Array, Mask, log10
from fednet_emu.component.component import Component
from fednet_emu.component.slot import Slot, kinds
from fednet_emu.radio.propagation.base import carrier_ghz
from fednet_emu.radio.propagation.link import LinkDraws


@dataclass(frozen=True, slots=True, eq=False)
class Entry:
    """Building entry of each link: whether the device is indoors, its indoor distance, and the building entry loss."""

    indoor: Mask  # whether the device is indoors
    depth_m: Array  # indoor part of the horizontal distance in m; zero for outdoor devices
    loss_db: Array  # loss in dB through the wall and inside, with random variation; zero for outdoor devices


class Buildings(Component):
    """Model that determines which devices are indoors, and the building entry loss."""

    @abstractmethod
    def enter(self, carrier_hz: float, draws: LinkDraws, depth_m: Array) -> Entry:
        """Return the building entry loss of each link; `depth_m` is the indoor part of the distance in m."""


class NoBuildings(Buildings):
    """Every device is outdoors."""

    kind = "none"

    def enter(self, carrier_hz: float, draws: LinkDraws, depth_m: Array) -> Entry:
        return Entry(np.zeros_like(depth_m, dtype=bool), np.zeros_like(depth_m), np.zeros_like(depth_m))


class OutdoorToIndoor(Buildings):
    """Low-loss and high-loss buildings of Table 7.4.3-2: glass and concrete walls, 0.5 dB per metre inside.

    Low-loss walls are 30 % standard glass and 70 % concrete, high-loss walls 70 % coated glass and 30 % concrete. The
    wall loss varies with a standard deviation of 4.4 dB (low-loss) or 6.5 dB (high-loss).
    Ignored here: the storey of a device (set its height), and the correlation of devices in one building.
    """

    kind = "o2i"
    indoor_share: float = Field(default=1.0, ge=0, le=1)
    """Share of the devices that are indoors; 0.8 in the calibration of TR 38.901 for cities."""
    high_loss_share: float = Field(ge=0, le=1)
    """Share of high-loss buildings (coated glass): 0 in rural areas, 0.5 in many city studies, 1 for new offices."""

    def enter(self, carrier_hz: float, draws: LinkDraws, depth_m: Array) -> Entry:
        indoor = np.asarray(draws.indoor < self.indoor_share)
        high = draws.building < self.high_loss_share
        f = carrier_ghz(carrier_hz)
        low_db, high_db = _wall_db(carrier_hz, 0.3, 2.0 + 0.2 * f, 0.7), _wall_db(carrier_hz, 0.7, 23.0 + 0.3 * f, 0.3)
        wall_db = np.where(high, high_db, low_db)
        spread_db = np.where(high, 6.5, 4.4) * draws.penetration
        return Entry(indoor, np.where(indoor, depth_m, 0.0), np.where(indoor, wall_db + 0.5 * depth_m + spread_db, 0.0))


class OutdoorToIndoorBelow6GHz(Buildings):
    """The single-frequency model of Table 7.4.3-3: 20 dB through the wall, and 0.5 dB per metre inside.

    TR 38.901 has this model for UMa and UMi, for backward compatibility below 6 GHz. The indoor distance, uniform
    between 0 and 25 m, replaces the indoor distance of the site model.
    Ignored here: the material of the wall, the carrier, and any variation of the wall loss.
    """

    kind = "o2i-single-frequency"
    indoor_share: float = Field(default=1.0, ge=0, le=1)
    """Share of the devices that are indoors."""

    def enter(self, carrier_hz: float, draws: LinkDraws, depth_m: Array) -> Entry:
        indoor, inside_m = np.asarray(draws.indoor < self.indoor_share), 25.0 * draws.depth
        return Entry(indoor, np.where(indoor, inside_m, 0.0), np.where(indoor, 20.0 + 0.5 * inside_m, 0.0))


def lesser_of_two_depths_m(uniform: Array, deepest_m: float) -> Array:
    """Return the indoor distance in m: the smaller of two depths, both uniform on (0, `deepest_m`) (clause 7.4.3.1).

    The result is the quantile at `uniform` of the distribution P(depth < x) = 1 - (1 - x / deepest)^2, where deepest is
    25 m in cities and 10 m in rural areas.
    """
    return deepest_m * (1.0 - np.sqrt(1.0 - uniform))


def _wall_db(carrier_hz: float, glass_share: float, glass_db: float, concrete_share: float) -> float:
    """Return the loss in dB through a wall of concrete and of glass with the loss `glass_db` in dB (Table 7.4.3-2)."""
    concrete_db = 5.0 + 4.0 * carrier_ghz(carrier_hz)
    glass, concrete = (float(10.0 ** (-loss_db / 10.0)) for loss_db in (glass_db, concrete_db))
    return 5.0 - 10.0 * float(log10(glass_share * glass + concrete_share * concrete))


BUILDINGS: dict[str, type[Buildings]] = kinds(NoBuildings, OutdoorToIndoor, OutdoorToIndoorBelow6GHz)

AnyBuildings = Annotated[Buildings, Slot("buildings", BUILDINGS)]
