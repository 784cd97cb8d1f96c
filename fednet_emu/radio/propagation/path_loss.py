"""Path loss: the mean attenuation of a link, in decibel, from its geometry and the carrier.

Here are the classical laws and the table of all kinds; those of TR 38.901 are in `tr38901`, links between devices in
`d2d` and `v2v`.
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
from fednet_emu.radio.propagation.tr38901.factory import IndoorFactory
from fednet_emu.radio.propagation.tr38901.office import IndoorOffice
from fednet_emu.radio.propagation.tr38901.rural import RuralMacro
from fednet_emu.radio.propagation.tr38901.urban import UrbanMacro, UrbanMicro
from fednet_emu.radio.propagation.v2v import V2v
from fednet_emu.units import SPEED_OF_LIGHT_M_S


class FreeSpace(PathLoss):
    """Free-space loss between isotropic antennas (Friis 1946): 20 log10(4 pi d f / c), d the 3D distance.

    The speed of light is 3.0e8 m/s as in TR 38.901, which lowers the loss by 0.006 dB.
    Ignored here: ground reflection, obstacles, atmospheric absorption, antenna gains.
    """

    min_distance_m: float = Field(default=1.0, gt=0)
    """Distance in m below which the loss is constant, because the law diverges in the near field."""

    def propagate(self, hop: Hop, carrier_hz: float, draws: LinkDraws) -> Propagation:
        """Free-space loss of each link; constant up to `min_distance_m`, always with line of sight."""
        loss_db = free_space_loss_db(np.maximum(hop.distance_3d_m, self.min_distance_m), carrier_hz)
        return Propagation.of(loss_db, los=True)


class LogDistance(PathLoss):
    """Loss that grows by `10 exponent` dB per decade of 3D distance: L0 + 10 n log10(d / d0).

    It holds on both sides of d0, from 1 m on (from d0 if that is less); the loss of shorter links is constant. Fitted
    laws of the form a + b log10(d) are this one with n = b / 10 and L0 its value at any d0. The exponent is 2 in free
    space, 2.7 to 3.5 in cities, up to 6 through walls (Rappaport, Wireless Communications). Links count as without line
    of sight.
    Ignored here: antenna heights other than through the 3D distance, breakpoints, and the carrier when
    `reference_loss_db` is given.
    """

    exponent: float = Field(gt=0)
    """Path-loss exponent n."""

    reference_distance_m: float = Field(default=1.0, gt=0)
    """Reference distance d0 in m, at which the loss is L0."""

    reference_loss_db: float | None = None
    """Loss L0 in dB at d0; null for the free-space loss at d0."""

    def propagate(self, hop: Hop, carrier_hz: float, draws: LinkDraws) -> Propagation:
        """Log-distance loss of each link; constant up to 1 m."""
        reference_loss_db = self.reference_loss_db
        if reference_loss_db is None:
            reference_loss_db = float(free_space_loss_db(np.float64(self.reference_distance_m), carrier_hz))
        nearest = min(1.0 / self.reference_distance_m, 1.0)
        decades = log10(np.maximum(hop.distance_3d_m / self.reference_distance_m, nearest))
        return Propagation.of(reference_loss_db + 10.0 * self.exponent * decades, los=False)


class MacroClassic(PathLoss):
    """The macro-cell law of the LTE studies and of most federated-learning papers: 128.1 + 37.6 log10(d in km) dB.

    It is TR 36.942 clause 4.5.2 at 2 GHz with the antenna 15 m above the roofs, and d the horizontal distance. Links
    count as without line of sight.
    Ignored here: the carrier (other carriers would add 21 log10(f / 2 GHz)), antenna heights, line of sight.
    """

    penetration_db: float = Field(default=0.0, ge=0)
    """Building penetration loss in dB, added to every link as some papers do; usually 20 dB."""

    min_distance_m: float = Field(default=10.0, gt=0)
    """Distance in m below which the loss is constant."""

    def propagate(self, hop: Hop, carrier_hz: float, draws: LinkDraws) -> Propagation:
        """Classic macro-cell loss of each link; constant up to `min_distance_m`."""
        distance_2d_m = hop.at_least(self.min_distance_m).distance_2d_m
        loss_db = 128.1 + 37.6 * log10(distance_2d_m / 1000.0) + self.penetration_db
        return Propagation.of(loss_db, los=False)


class TwoRayGround(PathLoss):
    """Loss over flat ground: free space up to 4 pi h1 h2 / wavelength, then 40 log10(d) - 20 log10(h1 h2) dB.

    The direct wave and the one reflected by the ground cancel more and more beyond that distance, where both branches
    meet (Rappaport, Wireless Communications, section 4.6). d is the 3D distance.
    Ignored here: the fluctuation of both waves' sum before the crossover, the conductivity of the ground, obstacles.
    """

    kind = "two-ray"

    min_distance_m: float = Field(default=1.0, gt=0)
    """Distance in m below which the loss is constant."""

    def propagate(self, hop: Hop, carrier_hz: float, draws: LinkDraws) -> Propagation:
        """Two-ray loss of each link, always with line of sight."""
        if np.any(hop.low_m <= 0):
            raise ScenarioError("path_loss two-ray: an antenna stands on the ground, got height 0 m; raise height_m")
        distance_m = np.maximum(hop.distance_3d_m, self.min_distance_m)
        heights_m2 = hop.tx_height_m * hop.rx_height_m
        crossover_m = 4.0 * math.pi * heights_m2 * carrier_hz / SPEED_OF_LIGHT_M_S
        far_db = 40.0 * log10(distance_m) - 20.0 * log10(heights_m2)
        loss_db = np.where(distance_m <= crossover_m, free_space_loss_db(distance_m, carrier_hz), far_db)
        return Propagation.of(loss_db, los=True)


PATH_LOSSES: dict[str, type[PathLoss]] = kinds(
    FreeSpace,
    LogDistance,
    TwoRayGround,
    MacroClassic,
    UrbanMacro,
    UrbanMicro,
    RuralMacro,
    IndoorOffice,
    IndoorFactory,
    D2dOutdoor,
    D2dIndoor,
    V2v,
    TablePathLoss,
)

AnyPathLoss = Annotated[PathLoss, Slot("path_loss", PATH_LOSSES)]
