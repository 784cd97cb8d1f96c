"""Path loss: the mean attenuation of a link, in decibel, from its geometry and the carrier."""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from fednet_emu.component import Component, Slot
from fednet_emu.radio.geometry import Hop
from fednet_emu.units import SPEED_OF_LIGHT_M_S, Array


class PathLoss(Component):
    """The law of mean attenuation over distance.

    Every kind is a deterministic function of geometry and carrier: shadowing and fading are separate components.
    """

    @abstractmethod
    def loss_db(self, hop: Hop, carrier_hz: float) -> Array:
        """Mean loss of each link in dB, positive for attenuation, in the broadcast shape of `hop`."""


class FreeSpace(PathLoss):
    """Free-space loss between isotropic antennas (Friis 1946): 20 log10(4 pi d f / c), d the 3D distance.

    The speed of light is 3.0e8 m/s as in TR 38.901, which lowers the loss by 0.006 dB.
    Ignored here: ground reflection, obstacles, atmospheric absorption, antenna gains.
    """

    kind: Literal["free-space"] = "free-space"

    min_distance_m: float = Field(default=1.0, gt=0)
    """Links shorter than this lose as much as at this distance: the law diverges in the near field."""

    def loss_db(self, hop: Hop, carrier_hz: float) -> Array:
        """Free-space loss of each link in dB; constant up to `min_distance_m`."""
        return free_space_loss_db(np.maximum(hop.distance_3d_m, self.min_distance_m), carrier_hz)


class LogDistance(PathLoss):
    """Loss that grows by `10 exponent` dB per decade of 3D distance: L0 + 10 n log10(d / d0), and L0 up to d0.

    Fitted laws of the form a + b log10(d) are this one with n = b / 10 and L0 its value at any d0 below the shortest
    link. The exponent is 2 in free space, 2.7 to 3.5 in cities, up to 6 through walls (Rappaport, Wireless
    Communications).
    Ignored here: antenna heights other than through the 3D distance, breakpoints, and the carrier when
    `reference_loss_db` is given.
    """

    kind: Literal["log-distance"] = "log-distance"

    exponent: float = Field(gt=0)
    """Path-loss exponent n."""

    reference_distance_m: float = Field(default=1.0, gt=0)
    """Reference distance d0; shorter links lose as much as at d0."""

    reference_loss_db: float | None = None
    """Loss L0 at d0; when absent, the free-space loss there."""

    def loss_db(self, hop: Hop, carrier_hz: float) -> Array:
        """Log-distance loss of each link in dB; constant up to `reference_distance_m`."""
        reference_loss_db = self.reference_loss_db
        if reference_loss_db is None:
            reference_loss_db = float(free_space_loss_db(np.float64(self.reference_distance_m), carrier_hz))
        decades = np.log10(np.maximum(hop.distance_3d_m / self.reference_distance_m, 1.0))
        return reference_loss_db + 10.0 * self.exponent * decades


def free_space_loss_db(distance_m: Array | np.float64, carrier_hz: float) -> Array:
    """Free-space loss in dB at a distance above zero (Friis 1946).

    Ignored here: everything but the spreading of a spherical wave.
    """
    return np.asarray(20.0 * np.log10(4.0 * math.pi * distance_m * carrier_hz / SPEED_OF_LIGHT_M_S))


PATH_LOSSES: dict[str, type[PathLoss]] = {"free-space": FreeSpace, "log-distance": LogDistance}

AnyPathLoss = Annotated[PathLoss, Slot("path_loss", PATH_LOSSES)]
