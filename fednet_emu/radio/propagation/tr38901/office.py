"""Offices: indoor hotspots in open-plan and mixed offices (TR 38.901 Tables 7.4.1-1 and 7.4.2-1)."""

from __future__ import annotations

from typing import Literal

import numpy as np

from fednet_emu.arrays import Array, exp, log10
from fednet_emu.radio.propagation.base import Propagation, SitePathLoss, carrier_ghz
from fednet_emu.radio.propagation.link import Hop, LinkDraws


class IndoorOffice(SitePathLoss):
    """Base stations under the ceiling of an office (InH), up to 150 m away in a straight line (3D distance).

    Shadowing: 3 dB with line of sight, 8.03 dB without; correlated over 10 and 6 m. Line of sight itself is correlated
    over 10 m. Links shorter than 1 m count as 1 m.
    Ignored here: walls and floors one by one, antenna heights other than through the 3D distance.
    """

    kind = "3gpp-inh"

    layout: Literal["open", "mixed"] = "mixed"
    """An open-plan office, or one with rooms and corridors."""

    @property
    def los_correlation_m(self) -> float:
        """10 m (Table 7.6.3.1-2)."""
        return 10.0

    def propagate(self, hop: Hop, carrier_hz: float, draws: LinkDraws) -> Propagation:
        """State of each link."""
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
    """Probability of line of sight in an office with rooms and corridors.

    Ignored here: that neighbours see the base station together; key the draws by place to add it.
    """
    near = exp(-np.maximum(distance_2d_m - 1.2, 0.0) / 4.7)
    return np.where(distance_2d_m < 6.5, near, 0.32 * exp(-(distance_2d_m - 6.5) / 32.6))


def inh_open_los_probability(distance_2d_m: Array) -> Array:
    """Probability of line of sight in an open-plan office.

    Ignored here: that neighbours see the base station together; key the draws by place to add it.
    """
    near = exp(-np.maximum(distance_2d_m - 5.0, 0.0) / 70.8)
    return np.where(distance_2d_m <= 49.0, near, 0.54 * exp(-(distance_2d_m - 49.0) / 211.7))
