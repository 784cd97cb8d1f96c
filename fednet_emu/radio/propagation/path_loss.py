"""Path loss: the mean attenuation of a link in dB as a function of its geometry and the carrier.

This module has the classical models and the list of all kinds. `tr38901` has the models of TR 38.901; `d2d` and `v2v`
have models of links between devices.
"""

from __future__ import annotations

import math
from typing import Annotated

import numpy as np
from pydantic import Field

from fednet_emu.arrays import log10
from fednet_emu.component.slot import Slot, kinds
from fednet_emu.errors import ScenarioError
from fednet_emu.radio.propagation.base import PathLoss, Propagation, free_space_loss_db
from fednet_emu.radio.propagation.d2d import D2dIndoor, D2dOutdoor
from fednet_emu.radio.propagation.link import Hop, LinkDraws
from fednet_emu.radio.propagation.table import TablePathLoss
from fednet_emu.radio.propagation.tr38901.indoor import IndoorFactory, IndoorOffice
from fednet_emu.radio.propagation.tr38901.rural import RuralMacro
from fednet_emu.radio.propagation.tr38901.urban import UrbanMacro, UrbanMicro
from fednet_emu.radio.propagation.v2v import V2v
from fednet_emu.units import SPEED_OF_LIGHT_M_S


class FreeSpace(PathLoss):
    """Free-space loss between isotropic antennas (Friis 1946): 20 log10(4 pi d f / c), where d is the 3D distance.

    The speed of light is 3.0e8 m/s as in TR 38.901, which lowers the loss by 0.006 dB. All links have line of sight.
    Ignored here: ground reflection, obstacles, atmospheric absorption, antenna gains.
    """

    min_distance_m: float = Field(default=1.0, gt=0)
    """Distance in m below which the loss is constant, because the formula diverges in the near field."""

    def propagate(self, hop: Hop, carrier_hz: float, draws: LinkDraws) -> Propagation:
        loss_db = free_space_loss_db(np.maximum(hop.distance_3d_m, self.min_distance_m), carrier_hz)
        return Propagation.of(loss_db, los=True)


class LogDistance(PathLoss):
    """Loss L0 + 10 n log10(d / d0) in dB, which grows by 10 n dB per decade of the 3D distance d.

    The formula holds on both sides of d0, from a minimum distance on: 1 m, or d0 if d0 is shorter. Shorter links have
    the loss at the minimum distance. For a fitted formula a + b log10(d), set n = b / 10, any d0, and L0 to the
    formula's value at d0. The exponent n is 2 in free space, 2.7 to 3.5 in cities, up to 6 through walls (Rappaport,
    Wireless Communications). All links count as without line of sight.
    Ignored here: antenna heights except in the 3D distance, breakpoints, and the carrier if `reference_loss_db` is
    given.
    """

    exponent: float = Field(gt=0)
    """Path-loss exponent n."""
    reference_distance_m: float = Field(default=1.0, gt=0)
    """Reference distance d0 in m, at which the loss is L0."""
    reference_loss_db: float | None = None
    """Loss L0 in dB at d0; null for the free-space loss at d0."""

    def propagate(self, hop: Hop, carrier_hz: float, draws: LinkDraws) -> Propagation:
        reference_loss_db = self.reference_loss_db
        if reference_loss_db is None:
            reference_loss_db = float(free_space_loss_db(np.float64(self.reference_distance_m), carrier_hz))
        nearest = min(1.0 / self.reference_distance_m, 1.0)
        decades = log10(np.maximum(hop.distance_3d_m / self.reference_distance_m, nearest))
        return Propagation.of(reference_loss_db + 10.0 * self.exponent * decades, los=False)


class MacroClassic(PathLoss):
    """Macro-cell loss of the LTE studies and of most federated-learning papers: 128.1 + 37.6 log10(d in km) dB.

    Source: TR 36.942 clause 4.5.2 at 2 GHz with the antenna 15 m above the roofs; d is the horizontal distance. All
    links count as without line of sight.
    Ignored here: the carrier (other carriers would add 21 log10(f / 2 GHz)), antenna heights, line of sight.
    """

    penetration_db: float = Field(default=0.0, ge=0)
    """Building penetration loss in dB that is added to every link; papers that include it mostly use 20 dB."""
    min_distance_m: float = Field(default=10.0, gt=0)
    """Distance in m below which the loss is constant."""

    def propagate(self, hop: Hop, carrier_hz: float, draws: LinkDraws) -> Propagation:
        distance_2d_m = hop.at_least(self.min_distance_m).distance_2d_m
        loss_db = 128.1 + 37.6 * log10(distance_2d_m / 1000.0) + self.penetration_db
        return Propagation.of(loss_db, los=False)


class TwoRayGround(PathLoss):
    """Loss over flat ground: free space up to 4 pi h1 h2 / wavelength, then 40 log10(d) - 20 log10(h1 h2) dB.

    Here, d is the 3D distance, and h1 and h2 are the antenna heights. Both formulas meet at the crossover distance 4 pi
    h1 h2 / wavelength, beyond which the direct and the reflected wave increasingly cancel (Rappaport, Wireless
    Communications, section 4.6). All links have line of sight.
    Ignored here: the fluctuation of the sum of both waves at shorter distances, the conductivity of the ground, and
    obstacles.
    """

    kind = "two-ray"
    min_distance_m: float = Field(default=1.0, gt=0)
    """Distance in m below which the loss is constant."""

    def propagate(self, hop: Hop, carrier_hz: float, draws: LinkDraws) -> Propagation:
        if np.any(hop.low_m <= 0):
            raise ScenarioError("path_loss two-ray: an antenna stands on the ground, got height 0 m; raise height_m")
        distance_m = np.maximum(hop.distance_3d_m, self.min_distance_m)
        heights_m2 = hop.tx_height_m * hop.rx_height_m
        crossover_m = 4.0 * math.pi * heights_m2 * carrier_hz / SPEED_OF_LIGHT_M_S
        far_db = 40.0 * log10(distance_m) - 20.0 * log10(heights_m2)
        loss_db = np.where(distance_m <= crossover_m, free_space_loss_db(distance_m, carrier_hz), far_db)
        return Propagation.of(loss_db, los=True)


PATH_LOSSES: dict[str, type[PathLoss]] = kinds(
    *(FreeSpace, LogDistance, TwoRayGround, MacroClassic, UrbanMacro, UrbanMicro, RuralMacro),
    *(IndoorOffice, IndoorFactory, D2dOutdoor, D2dIndoor, V2v, TablePathLoss),
)

AnyPathLoss = Annotated[PathLoss, Slot("path_loss", PATH_LOSSES)]
