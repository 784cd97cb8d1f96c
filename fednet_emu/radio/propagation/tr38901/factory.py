"""Factories: indoor halls full of machines (TR 38.901 Tables 7.4.1-1 and 7.4.2-1)."""

from __future__ import annotations

import math
from typing import Literal, NamedTuple, Self

import numpy as np
from pydantic import Field, model_validator

from fednet_emu.arrays import Array, exp, log10
from fednet_emu.errors import ScenarioError
from fednet_emu.radio.propagation.base import Propagation, SitePathLoss, carrier_ghz
from fednet_emu.radio.propagation.link import Hop, LinkDraws

Hall = Literal["SL", "DL", "SH", "DH", "HH"]


class Clutter(NamedTuple):
    """What stands in a hall: the share of floor covered, the size and the height of a machine in m."""

    density: float
    size_m: float
    height_m: float


CALIBRATION = {"S": Clutter(0.2, 10.0, 2.0), "D": Clutter(0.6, 2.0, 6.0)}
"""Sparse and dense clutter of the calibration of TR 38.901 (Table 7.8-7)."""

UNSEEN = {"SL": (33.0, 25.5, 5.7), "DL": (18.6, 35.7, 7.2), "SH": (32.4, 23.0, 5.9), "DH": (33.63, 21.9, 4.0)}
"""Constant, slope per decade and shadowing in dB of each hall without line of sight; 20 log10(f) comes on top."""

SEEING_LESS, OVERLOOKED = ("SL", "DL", "SH", "DH"), ("SH", "DH")
"""Halls in which clutter hides devices from the base station, and those in which its height matters."""


class IndoorFactory(SitePathLoss):
    """A factory hall (InF), up to 600 m: Sparse or Dense clutter, a Low or High base station, or both ends High (HH).

    Shadowing: 4.3 dB with line of sight, else 5.7 (SL), 7.2 (DL), 5.9 (SH) or 4.0 dB (DH); correlated over 10 m. Line
    of sight itself is correlated over half the width of a machine. The 600 m are 3D distance; links shorter than 1 m
    count as 1 m. HH always has line of sight.
    Ignored here: where the machines stand, moving vehicles, the size of the hall.
    """

    kind = "3gpp-inf"

    hall: Hall
    """Clutter and heights: SL, DL (base station within the clutter), SH, DH (above it), HH (both ends above)."""

    clutter_density: float | None = Field(default=None, gt=0, lt=1)
    """Share r of the floor that clutter covers; null for 0.2 (sparse) or 0.6 (dense). Not for HH, as all of these."""

    clutter_size_m: float | None = Field(default=None, gt=0)
    """Typical width of a machine in m; null for 10 m (sparse) or 2 m (dense)."""

    clutter_height_m: float | None = Field(default=None, gt=0, le=10)
    """Effective height of the clutter in m; null for 2 m (sparse) or 6 m (dense). Only for SH and DH."""

    @model_validator(mode="after")
    def _line_of_sight_exists(self) -> Self:
        if self.hall == "HH" and self.los == "never":
            raise ValueError("los: never is impossible in a hall with both ends above the clutter; choose another hall")
        return self

    @model_validator(mode="after")
    def _clutter_matters(self) -> Self:
        halls = {"clutter_density": SEEING_LESS, "clutter_size_m": SEEING_LESS, "clutter_height_m": OVERLOOKED}
        for key, among in halls.items():
            value = getattr(self, key)
            if value is not None and self.hall not in among:
                what = f"{key}: the formulas of hall {self.hall} do not have it, got {value:g}"
                raise ValueError(f"{what}; leave it out, or choose a hall of {', '.join(among)}")
        return self

    @property
    def clutter(self) -> Clutter:
        """What stands in the hall, the calibration of the report where nothing is set."""
        standard = CALIBRATION[self.hall[0]] if self.hall != "HH" else CALIBRATION["S"]
        own = (self.clutter_density, self.clutter_size_m, self.clutter_height_m)
        return Clutter(*(value if mine is None else mine for mine, value in zip(own, standard, strict=True)))

    @property
    def los_correlation_m(self) -> float:
        """Half the width of a machine, d_clutter / 2 (Table 7.6.3.1-2)."""
        return self.clutter.size_m / 2.0

    def propagate(self, hop: Hop, carrier_hz: float, draws: LinkDraws) -> Propagation:
        """State of each link."""
        self.within("carrier in GHz", carrier_ghz(carrier_hz), 0.5, 100.0)
        self.within("3D distance in m", hop.distance_3d_m, 0.0, 600.0)
        los = self.sees(inf_los_probability(hop, self.hall, self.clutter), draws)
        distance_m = np.maximum(hop.distance_3d_m, 1.0)
        seen_db = inf_los_loss_db(distance_m, carrier_hz)
        unseen_db, sigma_db = seen_db, 4.3
        if self.hall != "HH":
            unseen_db, sigma_db = inf_nlos_loss_db(distance_m, carrier_hz, self.hall), UNSEEN[self.hall][2]
        return Propagation.of(
            np.where(los, seen_db, unseen_db), los, sigma_db=np.where(los, 4.3, sigma_db), correlation_m=10.0
        )


def inf_los_loss_db(distance_3d_m: Array, carrier_hz: float) -> Array:
    """Loss in a hall with line of sight.

    Ignored here: antenna heights other than through the 3D distance.
    """
    return np.asarray(31.84 + 21.5 * log10(distance_3d_m) + 19.0 * log10(carrier_ghz(carrier_hz)))


def inf_nlos_loss_db(distance_3d_m: Array, carrier_hz: float, hall: str) -> Array:
    """Loss in a hall without line of sight: never less than with it, and in DL never less than in SL.

    Ignored here: antenna heights other than through the 3D distance.
    """
    constant_db, slope_db, _ = UNSEEN[hall]
    term_db: Array = constant_db + slope_db * log10(distance_3d_m) + 20.0 * log10(carrier_ghz(carrier_hz))
    if hall == "DL":
        return np.maximum(term_db, inf_nlos_loss_db(distance_3d_m, carrier_hz, "SL"))
    return np.maximum(term_db, inf_los_loss_db(distance_3d_m, carrier_hz))


def inf_los_probability(hop: Hop, hall: str, clutter: Clutter) -> Array:
    """Probability of line of sight, exp(-d / k); a high base station looks over the clutter and k grows.

    Ignored here: that neighbours see the base station together; key the draws by place to add it.

    Raises:
        ScenarioError: when a hall with a high base station has it, or the devices, on the wrong side of the clutter.
    """
    if hall == "HH":
        return np.ones_like(hop.distance_3d_m)
    reach_m: Array = np.asarray(-clutter.size_m / math.log(1.0 - clutter.density))
    if hall in OVERLOOKED:
        if np.any(hop.low_m >= clutter.height_m) or np.any(hop.high_m <= clutter.height_m):
            low_m, high_m = float(np.max(hop.low_m)), float(np.min(hop.high_m))
            raise ScenarioError(
                f"path_loss 3gpp-inf: hall {hall} has its clutter between device and base station, got "
                f"{clutter.height_m:g} m with antennas at {low_m:g} and {high_m:g} m; expected a height in between"
            )
        reach_m = reach_m * (hop.high_m - hop.low_m) / (clutter.height_m - hop.low_m)
    return exp(-hop.distance_2d_m / reach_m)
