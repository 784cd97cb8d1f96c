"""What a path-loss law says about links, and what all laws share: the state of a link and the range of a formula."""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

import numpy as np

from fednet_emu.arrays import Array, Mask, log10
from fednet_emu.component.component import Component
from fednet_emu.errors import ScenarioError
from fednet_emu.files.gains import Gains
from fednet_emu.radio.propagation.link import Hop, LinkDraws
from fednet_emu.units import SPEED_OF_LIGHT_M_S, db_to_linear


@dataclass(frozen=True, slots=True, eq=False)
class Propagation:
    """The large-scale state of links, every array in the same shape.

    Attributes:
        loss_db: mean loss, including walls and vehicles in between; shadowing too where it has been added.
        los: whether the link has line of sight.
        sigma_db: standard deviation of the shadowing that the law states for this state; 0 when it states none.
        correlation_m: distance over which the shadowing falls to a correlation of 1/e; infinity when none is stated.
    """

    loss_db: Array
    los: Mask
    sigma_db: Array
    correlation_m: Array

    @property
    def gain(self) -> Array:
        """Power gain, received over sent, linear."""
        return db_to_linear(-self.loss_db)

    @classmethod
    def of(
        cls, loss_db: Array, los: Mask | bool, sigma_db: Array | float = 0.0, correlation_m: Array | float = np.inf
    ) -> Propagation:
        """The state in the common shape of its parts."""
        shape = np.broadcast_shapes(*(np.shape(part) for part in (loss_db, los, sigma_db, correlation_m)))
        return cls(
            loss_db=np.broadcast_to(loss_db, shape),
            los=np.broadcast_to(los, shape),
            sigma_db=np.broadcast_to(sigma_db, shape),
            correlation_m=np.broadcast_to(correlation_m, shape),
        )


class PathLoss(Component):
    """The law of mean attenuation over distance.

    A kind is a deterministic function of geometry, carrier and draws. The higher antenna of a link counts as the base
    station, so a link loses as much one way as the other.
    """

    STATES_SIGMA: ClassVar[bool] = False
    """Whether the law states the standard deviation of shadowing, as `shadowing: of-path-loss` needs."""
    PLACED: ClassVar[bool] = False
    """Whether the law is of certain places, so that a distance alone tells nothing."""

    def on_site(
        self, carrier_hz: float, heights_m: tuple[float, float], stations_m: Array, data_dir: Path | None
    ) -> PathLoss:
        """The law as it is for these stations, for kinds that read a file.

        Args:
            carrier_hz: carrier in Hz.
            heights_m: heights in m of the antennas of devices and of stations.
            stations_m: coordinates of the stations, [stations, 2 or 3].
            data_dir: folder of files.

        Raises:
            DataError: the file cannot be used, or is of other stations.
        """
        return self

    @property
    def gains(self) -> Gains | None:
        """What it knows of places; None for a law of the distance."""
        return None

    @property
    def los_correlation_m(self) -> float:
        """Distance over which line of sight comes and goes as devices move: its correlation falls to 1/e.

        50 m, that of UMa and UMi in TR 38.901 Table 7.6.3.1-2, for every law that states none of its own.
        """
        return 50.0

    @abstractmethod
    def propagate(self, hop: Hop, carrier_hz: float, draws: LinkDraws) -> Propagation:
        """State of each link, in the broadcast shape of `hop` and `draws`.

        Raises:
            ScenarioError: when a link lies outside the range of the formula and the law is not told to extrapolate.
        """

    def loss_db(self, hop: Hop, carrier_hz: float, draws: LinkDraws | None = None) -> Array:
        """Mean loss of each link in dB, positive for attenuation; without draws each link is in its likelier state."""
        return self.propagate(hop, carrier_hz, draws or LinkDraws.typical()).loss_db


class SitePathLoss(PathLoss):
    """A law with two states, with and without line of sight, fitted to measurements within stated ranges."""

    STATES_SIGMA: ClassVar[bool] = True

    los: Literal["probabilistic", "always", "never"] = "probabilistic"
    """Whether each link draws its line of sight from the law's probability, or all have it, or none."""

    outside: Literal["error", "extrapolate"] = "error"
    """What to do beyond the ranges of the formula: refuse, or use it as it stands. Short links are always clamped."""

    def sees(self, probability: Array, draws: LinkDraws) -> Mask:
        """Whether each link has line of sight, from its probability and the setting `los`."""
        if self.los != "probabilistic":
            probability = np.full_like(probability, 1.0 if self.los == "always" else 0.0)
        return np.asarray(draws.los < probability)

    def within(self, what: str, value: Array | float, low: float, high: float) -> None:
        """Refuse values outside [low, high] unless told to extrapolate; the last digits of a position do not matter."""
        if self.outside == "error":
            require_range(f"path_loss {self.kind}", what, value, low, high)


def require_range(where: str, what: str, value: Array | float, low: float, high: float) -> None:
    """Refuse values outside the range [low, high] of a formula, with a relative tolerance of 1e-9 for rounding.

    Raises:
        ScenarioError: naming the formula, the quantity and the first value outside.
    """
    values = np.atleast_1d(value)
    beyond = (values < low - 1e-9 * high) | (values > high + 1e-9 * high)
    if beyond.any():
        raise ScenarioError(
            f"{where}: {what} is outside the range of the formula, got {values[beyond][0]:g}; "
            f"expected {low:g} to {high:g}, or set outside: extrapolate"
        )


def carrier_ghz(carrier_hz: float) -> float:
    """Carrier frequency in GHz, the unit of the fitted formulas."""
    return carrier_hz / 1e9


def free_space_loss_db(distance_m: Array | np.float64, carrier_hz: float) -> Array:
    """Free-space loss in dB at a distance above zero (Friis 1946).

    Ignored here: everything but the spreading of a spherical wave.
    """
    return np.asarray(20.0 * log10(4.0 * math.pi * distance_m * carrier_hz / SPEED_OF_LIGHT_M_S))
