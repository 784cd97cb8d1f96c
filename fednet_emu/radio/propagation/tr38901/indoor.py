"""Indoor sites: offices and factory halls (TR 38.901 Tables 7.4.1-1 and 7.4.2-1)."""

from __future__ import annotations

import math
from typing import ClassVar, Literal, NamedTuple

import numpy as np
from pydantic import Field

from fednet_emu.arrays import Array, exp, log10
from fednet_emu.errors import ScenarioError
from fednet_emu.radio.propagation.base import Propagation, SitePathLoss, carrier_ghz
from fednet_emu.radio.propagation.link import Hop, LinkDraws


class IndoorOffice(SitePathLoss):
    """Base stations under the ceiling of an office (InH); 3D distances up to 150 m.

    Shadowing is 3 dB with line of sight and 8.03 dB without, with correlation distances of 10 m and 6 m. The
    correlation distance of line of sight is 10 m (Table 7.6.3.1-2). Links shorter than 1 m count as 1 m.
    Ignored here: individual walls and floors, antenna heights except in the 3D distance.
    """

    kind = "3gpp-inh"
    los_correlation_m: ClassVar[float] = 10.0
    layout: Literal["open", "mixed"] = "mixed"
    """Layout of the office: `open` is an open-plan office, `mixed` an office with rooms and corridors."""

    def propagate(self, hop: Hop, carrier_hz: float, draws: LinkDraws) -> Propagation:
        self.within("carrier in GHz", carrier_ghz(carrier_hz), 0.5, 100.0)
        self.within("3D distance in m", hop.distance_3d_m, 0.0, 150.0)
        probability = inh_open_los_probability if self.layout == "open" else inh_mixed_los_probability
        los = self.sees(probability(hop.distance_2d_m), draws)
        distance_m, f = np.maximum(hop.distance_3d_m, 1.0), carrier_ghz(carrier_hz)
        seen_db = 32.4 + 17.3 * log10(distance_m) + 20.0 * log10(f)
        unseen_db = 17.3 + 38.3 * log10(distance_m) + 24.9 * log10(f)
        return Propagation.of(
            np.where(los, seen_db, np.maximum(seen_db, unseen_db)),
            los,
            sigma_db=np.where(los, 3.0, 8.03),
            correlation_m=np.where(los, 10.0, 6.0),
        )


def inh_mixed_los_probability(distance_2d_m: Array) -> Array:
    """Return the probability of line of sight in an office with rooms and corridors, at horizontal distances in m."""
    near = exp(-np.maximum(distance_2d_m - 1.2, 0.0) / 4.7)
    return np.where(distance_2d_m < 6.5, near, 0.32 * exp(-(distance_2d_m - 6.5) / 32.6))


def inh_open_los_probability(distance_2d_m: Array) -> Array:
    """Return the probability of line of sight in an open-plan office, at horizontal distances in m."""
    near = exp(-np.maximum(distance_2d_m - 5.0, 0.0) / 70.8)
    return np.where(distance_2d_m <= 49.0, near, 0.54 * exp(-(distance_2d_m - 49.0) / 211.7))


Hall = Literal["SL", "DL", "SH", "DH", "HH"]


class Clutter(NamedTuple):
    """Clutter (machines) of a hall: the covered share of the floor, and the width and the height of a machine in m."""

    density: float
    size_m: float
    height_m: float


CALIBRATION = {"S": Clutter(0.2, 10.0, 2.0), "D": Clutter(0.6, 2.0, 6.0)}
"""Sparse (S) and dense (D) clutter as calibrated in TR 38.901 (Table 7.8-7)."""

UNSEEN = {"SL": (33.0, 25.5, 5.7), "DL": (18.6, 35.7, 7.2), "SH": (32.4, 23.0, 5.9), "DH": (33.63, 21.9, 4.0)}
"""Loss without line of sight by hall, in dB: constant, slope per decade of distance, and standard deviation of the
shadowing. The loss also has the term 20 log10(f) with the frequency f in GHz."""

SEEING_LESS, OVERLOOKED = ("SL", "DL", "SH", "DH"), ("SH", "DH")
"""Types of halls in which clutter may block line of sight, and types whose formulas depend on the clutter height."""


class IndoorFactory(SitePathLoss):
    """A factory hall (InF), up to 600 m: Sparse or Dense clutter, a Low or High base station, or both ends High (HH).

    Shadowing is 4.3 dB with line of sight, else 5.7 (SL), 7.2 (DL), 5.9 (SH) or 4.0 dB (DH), correlated over 10 m. Line
    of sight is correlated over half the width of a machine. 600 m is a 3D distance; links shorter than 1 m count as 1
    m. HH always has line of sight.
    Ignored here: the positions of machines, moving vehicles, and the size of the hall.
    """

    kind = "3gpp-inf"
    hall: Hall
    """Type of hall by clutter and antennas. In SL and DL halls, the base station is within the clutter; in SH and DH
    halls, it is above the clutter. In HH halls, both ends are above the clutter."""
    clutter_density: float | None = Field(default=None, gt=0, lt=1)
    """Share r of the floor that clutter covers; null means 0.2 (sparse) or 0.6 (dense). Not allowed for HH."""
    clutter_size_m: float | None = Field(default=None, gt=0)
    """Typical width of a machine in m; null means 10 m (sparse) or 2 m (dense). Not allowed for HH."""
    clutter_height_m: float | None = Field(default=None, gt=0, le=10)
    """Effective height of the clutter in m; null means 2 m (sparse) or 6 m (dense). Only allowed for SH and DH."""

    def _check(self) -> None:
        if self.hall == "HH" and self.los == "never":
            raise ValueError("los: never is impossible in a hall with both ends above the clutter; choose another hall")
        halls = {"clutter_density": SEEING_LESS, "clutter_size_m": SEEING_LESS, "clutter_height_m": OVERLOOKED}
        for key, among in halls.items():
            value = getattr(self, key)
            if value is not None and self.hall not in among:
                what = f"{key}: the formulas of hall {self.hall} do not have it, got {value:g}"
                raise ValueError(f"{what}; leave it out, or choose a hall of {', '.join(among)}")

    @property
    def clutter(self) -> Clutter:
        """The clutter of the hall; values that are not set are taken from the calibration of TR 38.901."""
        standard = CALIBRATION[self.hall[0]] if self.hall != "HH" else CALIBRATION["S"]
        own = (self.clutter_density, self.clutter_size_m, self.clutter_height_m)
        return Clutter(*(value if mine is None else mine for mine, value in zip(own, standard, strict=True)))

    @property
    def los_correlation_m(self) -> float:
        """Correlation distance of line of sight in m: half the width of a machine, d_clutter / 2 (Table 7.6.3.1-2)."""
        return self.clutter.size_m / 2.0

    def propagate(self, hop: Hop, carrier_hz: float, draws: LinkDraws) -> Propagation:
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
    """Return the path loss in dB in a factory hall with line of sight, at distances in m."""
    return np.asarray(31.84 + 21.5 * log10(distance_3d_m) + 19.0 * log10(carrier_ghz(carrier_hz)))


def inf_nlos_loss_db(distance_3d_m: Array, carrier_hz: float, hall: str) -> Array:
    """Return the path loss in dB in a factory hall without line of sight, at distances in m.

    The loss is at least the loss with line of sight and, in halls of type DL, at least the loss in halls of type SL.
    """
    constant_db, slope_db, _ = UNSEEN[hall]
    term_db: Array = constant_db + slope_db * log10(distance_3d_m) + 20.0 * log10(carrier_ghz(carrier_hz))
    if hall == "DL":
        return np.maximum(term_db, inf_nlos_loss_db(distance_3d_m, carrier_hz, "SL"))
    return np.maximum(term_db, inf_los_loss_db(distance_3d_m, carrier_hz))


def inf_los_probability(hop: Hop, hall: str, clutter: Clutter) -> Array:
    """Return the probability exp(-d / k) of line of sight at distance d; k is larger for antennas above the clutter."""
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
