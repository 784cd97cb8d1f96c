"""Links between vehicles (TR 37.885 clause 6.2): with line of sight, blocked by a vehicle, or behind buildings."""

from __future__ import annotations

from typing import ClassVar, Literal

import numpy as np
from pydantic import Field

from fednet_emu.arrays import Array, exp, log, log10
from fednet_emu.radio.propagation.base import PathLoss, Propagation, carrier_ghz, require_range
from fednet_emu.radio.propagation.link import Hop, LinkDraws

URBAN_SEEN = {"low": (0.8548, 0.0064), "medium": (0.8372, 0.0114), "high": (0.8962, 0.017)}
URBAN_BLOCKED = {"low": (0.0396, 5.2718, 3.4827), "medium": (0.0312, 5.0063, 2.4544), "high": (0.0242, 5.0115, 2.2092)}
HIGHWAY_SEEN = {"low": (1.5e-6, -0.0015, 1.0), "medium": (2.7e-6, -0.0025, 1.0), "high": (3.2e-6, -0.003, 1.0)}
HIGHWAY_BEHIND = {
    "low": (-2.9e-7, 0.00059, 0.0017),
    "medium": (-3.7e-7, 0.00061, 0.015),
    "high": (-4.1e-7, 0.00067, 0.0),
}


class V2v(PathLoss):
    """Two vehicles on an urban grid or a highway at 0.5 to 100 GHz; links shorter than 1 m count as 1 m.

    The loss through a blocking vehicle is Gaussian in dB and at least 0 dB; it depends on which antennas are below the
    roof of the blocking vehicle. Shadowing is 3 dB with line of sight or blocked, and 4 dB behind buildings, with
    correlation distances of 10 m in cities and 25 m on highways (TR 36.885 Table A.1.4-1). A blocked link counts as
    without line of sight.
    Ignored here: the street grid (which vehicles share a street), and which vehicle blocks a link.
    """

    STATES_SIGMA: ClassVar[bool] = True
    road: Literal["urban", "highway"]
    """The road environment: an urban grid or a highway."""
    los: Literal["probabilistic", "always", "blocked", "never"] = "probabilistic"
    """State of the links. With `probabilistic`, it is drawn per link. With `always`, all links have line of sight; with
    `blocked`, all are blocked by a vehicle; with `never`, all are behind buildings."""
    density: Literal["low", "medium", "high"] | None = None
    """Density of vehicles, which selects the measured state probabilities (Boban, Gong and Xu 2016). Null takes the
    probabilities of TR 37.885 Table 6.2-1 for vehicles in one street, which are never behind buildings."""
    blocker_height_m: float = Field(default=1.6, gt=0)
    """Height of blocking vehicles in m: 1.6 for cars, 3.0 for lorries."""
    out_of_range: Literal["error", "extrapolate"] = "error"
    """Action for carriers outside 0.5 to 100 GHz: `error` raises an error, and `extrapolate` applies the formulas."""

    def propagate(self, hop: Hop, carrier_hz: float, draws: LinkDraws) -> Propagation:
        distance_m, f = np.maximum(hop.distance_3d_m, 1.0), carrier_ghz(carrier_hz)
        if self.out_of_range == "error":
            require_range("path_loss v2v", "carrier in GHz", f, 0.5, 100.0)
        seen, behind = self.probabilities(hop.distance_2d_m)
        los, hidden = np.asarray(draws.los < seen), np.asarray(draws.los >= 1.0 - behind)
        if self.road == "urban":
            open_db = 38.77 + 16.7 * log10(distance_m) + 18.2 * log10(f)
        else:
            open_db = 32.4 + 20.0 * log10(distance_m) + 20.0 * log10(f)
        hidden_db = 36.85 + 30.0 * log10(distance_m) + 18.9 * log10(f)
        vehicle_db = np.where(los | hidden, 0.0, blockage_db(hop, self.blocker_height_m, draws.penetration))
        return Propagation.of(
            np.where(hidden, hidden_db, open_db + vehicle_db),
            los,
            sigma_db=np.where(hidden, 4.0, 3.0),
            correlation_m=10.0 if self.road == "urban" else 25.0,
        )

    def probabilities(self, distance_2d_m: Array) -> tuple[Array, Array]:
        """Return each link's probabilities of line of sight and of being behind buildings; else it is blocked."""
        one, zero = np.ones_like(distance_2d_m), np.zeros_like(distance_2d_m)
        if self.los != "probabilistic":
            return {"always": (one, zero), "blocked": (zero, zero), "never": (zero, one)}[self.los]
        if self.density is None:
            return same_street_los_probability(distance_2d_m, self.road), zero
        law = urban_probabilities if self.road == "urban" else highway_probabilities
        return law(np.maximum(distance_2d_m, 1.0), self.density)


def blockage_db(hop: Hop, blocker_height_m: float, standard_normal: Array) -> Array:
    """Return the loss through a blocking vehicle (TR 37.885 clause 6.2.1), Gaussian in dB and at least 0 dB.

    The mean is 9 + max(0, 15 log10(d) - 41) dB at the distance d in m, and the standard deviation 4.5 dB, if both
    antennas are below the roof of the blocking vehicle. With one antenna below the roof, the mean is 4 dB lower and the
    standard deviation 4 dB; with none, the loss is 0 dB.
    """
    far_db = np.maximum(0.0, 15.0 * log10(np.maximum(hop.distance_3d_m, 1.0)) - 41.0)
    both, none = hop.high_m < blocker_height_m, hop.low_m > blocker_height_m
    mean_db, spread_db = np.where(both, 9.0, 5.0) + far_db, np.where(both, 4.5, 4.0)
    return np.where(none, 0.0, np.maximum(0.0, mean_db + spread_db * standard_normal))


def same_street_los_probability(distance_2d_m: Array, road: str) -> Array:
    """Return the probability of line of sight between vehicles in one street at any density (TR 37.885 Table 6.2-1)."""
    d = distance_2d_m
    if road == "urban":
        return np.minimum(1.0, 1.05 * exp(-0.0114 * d))
    near = np.minimum(1.0, 2.1013e-6 * d**2 - 0.002 * d + 1.0193)
    return np.where(d <= 475.0, near, np.maximum(0.0, 0.54 - 0.001 * (d - 475.0)))


def urban_probabilities(distance_2d_m: Array, density: str) -> tuple[Array, Array]:
    """Return the mean probabilities of line of sight and of a link behind buildings on urban grids.

    Source: Boban, Gong and Xu 2016, as implemented in ns-3.
    """
    scale, decay = URBAN_SEEN[density]
    rate, centre, width = URBAN_BLOCKED[density]
    seen = scale * exp(-decay * distance_2d_m)
    blocked = exp(-((log(distance_2d_m) - centre) ** 2) / width) / (rate * distance_2d_m)
    return seen, np.clip(1.0 - seen - np.clip(blocked, 0.0, 1.0), 0.0, 1.0)


def highway_probabilities(distance_2d_m: Array, density: str) -> tuple[Array, Array]:
    """Return the probabilities of line of sight and of a link behind obstacles on a highway.

    Source: parabolas fitted by Boban, Gong and Xu 2016, as implemented in ns-3. The probabilities are constant beyond
    the vertex of the parabola, at 463 to 500 m (line of sight) or 817 to 1017 m (behind obstacles).
    """
    a, b, c = HIGHWAY_SEEN[density]
    seen = _parabola(distance_2d_m, a, b, c)
    a, b, c = HIGHWAY_BEHIND[density]
    behind = _parabola(distance_2d_m, a, b, c)
    return seen, np.minimum(behind, 1.0 - seen)


def _parabola(distance_m: Array, a: float, b: float, c: float) -> Array:
    turned_m = np.minimum(distance_m, -b / (2.0 * a))
    return np.clip(a * turned_m**2 + b * turned_m + c, 0.0, 1.0)
