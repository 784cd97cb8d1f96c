"""Links between two handsets (device-to-device), outdoors and inside one building (TR 36.843 Annex A.2.1.2)."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from fednet_emu.arrays import Array, exp, log10
from fednet_emu.radio.propagation.base import Propagation, SitePathLoss, carrier_ghz
from fednet_emu.radio.propagation.link import Hop, LinkDraws
from fednet_emu.units import SPEED_OF_LIGHT_M_S

EFFECTIVE_HEIGHT_M = 0.8
HANDSET_HEIGHT_M = 1.5


class D2dOutdoor(SitePathLoss):
    """Two handsets outdoors: WINNER+ B1 (D5.3) with the offsets of TR 36.843, but never less than free-space loss.

    Heights are fixed at 1.5 m (0.8 m effective); distances go up to 5 km. Shadowing is 7 dB with and without line of
    sight. TR 36.843 gives no correlation distance of shadowing, so the distances of street canyons are used: 10 m with
    line of sight and 13 m without. Below 3 m the loss is the free-space loss; below 1 m the loss is constant.
    Ignored here: actual heights except in the 3D distance, streets, and the bodies of users.
    """

    def propagate(self, hop: Hop, carrier_hz: float, draws: LinkDraws) -> Propagation:
        self.within("carrier in GHz", carrier_ghz(carrier_hz), 0.45, 6.0)
        self.within("distance in m", hop.distance_3d_m, 0.0, 5000.0)
        distance_m = np.maximum(hop.distance_3d_m, 1.0)
        los = self.sees(b1_los_probability(distance_m), draws)
        fitted_db = np.where(los, b1_los_db(distance_m, carrier_hz), b1_nlos_db(distance_m, carrier_hz) - 5.0)
        # the free-space formula of WINNER, 0.02 dB below Friis
        free_db = 20.0 * log10(distance_m) + 46.4 + 20.0 * log10(carrier_ghz(carrier_hz) / 5.0)
        return Propagation.of(
            np.where(distance_m < 3.0, free_db, np.maximum(free_db, fitted_db)),
            los,
            sigma_db=7.0,
            correlation_m=np.where(los, 10.0, 13.0),
        )


class D2dIndoor(SitePathLoss):
    """Two handsets in one building: 89.5 + 16.9 log10(d_km) dB with line of sight, 147.4 + 43.3 log10(d_km) without.

    Shadowing is 3 dB with line of sight and 4 dB without, with correlation distances of 10 m and 6 m. The correlation
    distance of line of sight is 10 m. TR 36.843 gives no correlation distances; these are the distances for offices.
    The loss without line of sight is never below the loss with line of sight. Below 1 m the loss is constant. Corridors
    guide waves, so the loss with line of sight may be below that of free space. The formulas are fitted at 2 GHz.
    Ignored here: individual walls and floors, and the carrier.
    """

    los_correlation_m: ClassVar[float] = 10.0

    def propagate(self, hop: Hop, carrier_hz: float, draws: LinkDraws) -> Propagation:
        self.within("carrier in GHz", carrier_ghz(carrier_hz), 0.45, 6.0)
        self.within("distance in m", hop.distance_3d_m, 0.0, 150.0)
        distance_m = np.maximum(hop.distance_3d_m, 1.0)
        los = self.sees(indoor_los_probability(distance_m), draws)
        decades = log10(distance_m / 1000.0)
        seen_db = 89.5 + 16.9 * decades
        return Propagation.of(
            np.where(los, seen_db, np.maximum(seen_db, 147.4 + 43.3 * decades)),
            los,
            sigma_db=np.where(los, 3.0, 4.0),
            correlation_m=np.where(los, 10.0, 6.0),
        )


def b1_los_db(distance_m: Array, carrier_hz: float) -> Array:
    """Return the WINNER+ B1 loss in dB with line of sight: 22.7 dB per decade up to `b1_breakpoint_m`, then 40 dB.

    At the breakpoint, the two published formulas differ by up to 0.03 dB.
    Ignored here: heights other than 0.8 m effective.
    """
    f, breakpoint_m = carrier_ghz(carrier_hz), b1_breakpoint_m(carrier_hz)
    near_db = 22.7 * log10(distance_m) + 27.0 + 20.0 * log10(f)
    heights_db = 2 * 17.3 * log10(EFFECTIVE_HEIGHT_M)
    far_db = 40.0 * log10(distance_m) + 7.56 - heights_db + 2.7 * log10(f)
    return np.asarray(np.where(distance_m <= breakpoint_m, near_db, far_db))


def b1_nlos_db(distance_m: Array, carrier_hz: float) -> Array:
    """Return the WINNER+ B1 loss in dB without line of sight and before the offset of -5 dB of TR 36.843.

    The loss grows by (44.9 - 6.55 log10 h) dB per decade of distance, where h is the height of 1.5 m. The frequency
    term is piecewise in three ranges and continuous at 1.5 and 2 GHz; TR 36.843 quotes the values at 700 MHz and 2 GHz.
    Ignored here: heights other than 1.5 m.
    """
    f, log_h = carrier_ghz(carrier_hz), log10(HANDSET_HEIGHT_M)
    constant_db, slope_db = (16.33, 26.16) if f < 1.5 else (14.78, 34.97) if f <= 2.0 else (18.38, 23.0)
    per_decade_db = 44.9 - 6.55 * log_h
    return np.asarray(per_decade_db * log10(distance_m) + 5.83 * log_h + constant_db + slope_db * log10(f))


def b1_breakpoint_m(carrier_hz: float) -> float:
    """Return the breakpoint distance 4 h'^2 f / c in m between two handsets with effective height h': 17.07 m at 2 GHz.

    Ignored here: heights other than 0.8 m effective.
    """
    return 4.0 * EFFECTIVE_HEIGHT_M**2 * carrier_hz / SPEED_OF_LIGHT_M_S


def b1_los_probability(distance_m: Array) -> Array:
    """Return the probability min(18 / d, 1) (1 - exp(-d / 36)) + exp(-d / 36) of line of sight outdoors (d in m)."""
    decay = exp(-distance_m / 36.0)
    return np.minimum(18.0 / distance_m, 1.0) * (1.0 - decay) + decay


def indoor_los_probability(distance_m: Array) -> Array:
    """Return the probability of line of sight indoors: 1 up to d = 18 m, exp(-(d - 18) / 27) up to 37 m, then 0.5.

    Ignored here: rooms and corridors.
    """
    near = exp(-np.maximum(distance_m - 18.0, 0.0) / 27.0)
    return np.where(distance_m < 37.0, near, 0.5)
