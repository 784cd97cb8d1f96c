"""Base classes of path-loss models: the large-scale state of links, and the validity ranges of formulas."""

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
    """The large-scale state of links; all arrays have the same shape.

    Attributes:
        loss_db: mean loss in dB, including walls and blocking vehicles, and shadowing if it has been added.
        los: True for each link that has line of sight.
        sigma_db: standard deviation in dB of the shadowing, as given by the path-loss model; 0 if the model gives none.
        correlation_m: distance in m at which the correlation of shadowing has fallen to 1/e; infinity if the model
            gives none.
    """

    loss_db: Array
    los: Mask
    sigma_db: Array
    correlation_m: Array

    @property
    def gain(self) -> Array:
        return db_to_linear(-self.loss_db)

    @classmethod
    def of(
        cls, loss_db: Array, los: Mask | bool, sigma_db: Array | float = 0.0, correlation_m: Array | float = np.inf
    ) -> Propagation:
        """Return the state from arrays that are broadcast to a common shape."""
        return cls(*np.broadcast_arrays(loss_db, los, sigma_db, correlation_m))


class PathLoss(Component):
    """Path-loss model: mean attenuation of a link as a function of geometry, carrier frequency and random draws.

    Formulas take the higher antenna of a link as the base station, so the loss is the same in both directions.
    """

    STATES_SIGMA: ClassVar[bool] = False
    """True if the model gives the standard deviation of shadowing, which `shadowing: of-path-loss` needs."""
    PLACED: ClassVar[bool] = False
    """True if the model needs the coordinates of devices, and not only distances."""

    def on_site(
        self, carrier_hz: float, heights_m: tuple[float, float], stations_m: Array, data_dir: Path | None
    ) -> PathLoss:
        """Return the model for the given base stations; a model that needs a data file reads it in this call.

        Args:
            carrier_hz: carrier frequency in Hz.
            heights_m: heights in m of the antennas of devices and of base stations.
            stations_m: coordinates [stations, 2 or 3] of the base stations in m.
            data_dir: folder of data files.

        Raises:
            DataError: the file cannot be used, or it describes other base stations.
        """
        return self

    @property
    def gains(self) -> Gains | None:
        """The table of gains of a model that needs coordinates; None if the model needs only distances."""
        return None

    @property
    def los_correlation_m(self) -> float:
        """Distance in m between positions at which the correlation of line of sight has fallen to 1/e.

        The default of 50 m is the value of UMa and UMi in TR 38.901 Table 7.6.3.1-2.
        """
        return 50.0

    @abstractmethod
    def propagate(self, hop: Hop, carrier_hz: float, draws: LinkDraws) -> Propagation:
        """Return the large-scale state of each link, in the broadcast shape of `hop` and `draws`.

        Raises:
            ScenarioError: a link is outside the range of the formula, and extrapolation is not allowed.
        """

    def loss_db(self, hop: Hop, carrier_hz: float, draws: LinkDraws | None = None) -> Array:
        """Return the mean loss (attenuation) of each link in dB.

        If `draws` is None, each link has its more likely state (line of sight or not).
        """
        return self.propagate(hop, carrier_hz, draws or LinkDraws.typical()).loss_db


class SitePathLoss(PathLoss):
    """A path-loss model for links with and without line of sight, fitted to measurements within given ranges.

    Ignored here: correlation of line of sight between neighbouring devices, unless the draws depend on position.
    """

    STATES_SIGMA: ClassVar[bool] = True
    los: Literal["probabilistic", "always", "never"] = "probabilistic"
    """State of the links. With `probabilistic`, each link has line of sight with the model's probability. With
    `always`, all links have line of sight; with `never`, no link has line of sight."""
    out_of_range: Literal["error", "extrapolate"] = "error"
    """Action for values outside the ranges of the formula: `error` raises an error, and `extrapolate` applies the
    formula. Distances below the minimum always count as the minimum."""

    def sees(self, probability: Array, draws: LinkDraws) -> Mask:
        """Return True for each link with line of sight, given its probability and the setting `los`."""
        if self.los != "probabilistic":
            probability = np.full_like(probability, 1.0 if self.los == "always" else 0.0)
        return np.asarray(draws.los < probability)

    def within(self, what: str, value: Array | float, low: float, high: float) -> None:
        """Raise a `ScenarioError` if a value is outside [`low`, `high`], unless `out_of_range` is `extrapolate`."""
        if self.out_of_range == "error":
            require_range(f"path_loss {self.kind}", what, value, low, high)


def require_range(where: str, what: str, value: Array | float, low: float, high: float) -> None:
    """Raise a `ScenarioError` if a value of `what` is outside [`low`, `high`], with a relative tolerance of 1e-9."""
    values = np.atleast_1d(value)
    beyond = (values < low - 1e-9 * high) | (values > high + 1e-9 * high)
    if beyond.any():
        raise ScenarioError(
            f"{where}: {what} is outside the range of the formula, got {values[beyond][0]:g}; "
            f"expected {low:g} to {high:g}, or set out_of_range: extrapolate"
        )


def carrier_ghz(carrier_hz: float) -> float:
    """Return the carrier frequency in GHz, the unit in the fitted formulas."""
    return carrier_hz / 1e9


def free_space_loss_db(distance_m: Array | np.float64, carrier_hz: float) -> Array:
    """Return the free-space loss in dB at distances in m that are above 0 (Friis 1946)."""
    return np.asarray(20.0 * log10(4.0 * math.pi * distance_m * carrier_hz / SPEED_OF_LIGHT_M_S))
