"""Cities: urban macro cells above the roofs and micro cells in street canyons (TR 38.901 Tables 7.4.1-1, 7.4.2-1)."""

from __future__ import annotations

import numpy as np

from fednet_emu.arrays import Array, Mask, exp, log10, power
from fednet_emu.radio.propagation.base import Propagation, SitePathLoss, carrier_ghz
from fednet_emu.radio.propagation.link import Hop, LinkDraws
from fednet_emu.radio.propagation.tr38901.buildings import AnyBuildings, Entry, NoBuildings, lesser_of_two_depths_m
from fednet_emu.units import SPEED_OF_LIGHT_M_S

SHORTEST_M = 10.0
LONGEST_M = 5000.0
CARRIER_GHZ = (0.5, 100.0)
DEVICE_HEIGHT_M = (1.5, 22.5)
DEEPEST_M = 25.0


class UrbanMacro(SitePathLoss):
    """Urban macro cells (UMa) with base stations above the roofs; devices at heights of 1.5 to 22.5 m, up to 5 km away.

    The formulas are fitted for base stations at 25 m; other heights are used in the formulas without a check. Shadowing
    is 4 dB with line of sight, 6 dB without and 7 dB indoors, with correlation distances of 37, 50 and 7 m. Horizontal
    distances below 10 m count as 10 m. For devices at 13 m and above, the effective environment height is random.
    Ignored here: terrain, streets, antenna patterns, and the correlation of the environment height between devices.
    """

    kind = "3gpp-uma"
    buildings: AnyBuildings = NoBuildings()
    """Model of indoor devices and building entry loss."""

    def propagate(self, hop: Hop, carrier_hz: float, draws: LinkDraws) -> Propagation:
        hop = _checked(self, hop, carrier_hz)
        entry = _entry(self.buildings, carrier_hz, draws, hop)
        los = self.sees(uma_los_probability(hop.distance_2d_m - entry.depth_m, hop.low_m), draws)
        environment_m = uma_environment_height_m(hop, draws.environment)
        seen_db = uma_los_loss_db(hop, carrier_hz, environment_m)
        loss_db = np.where(los, seen_db, np.maximum(seen_db, uma_nlos_term_db(hop, carrier_hz)))
        return _state(loss_db, los, entry, sigma_db=(4.0, 6.0), correlation_m=(37.0, 50.0))


class UrbanMicro(SitePathLoss):
    """Urban micro cells (UMi) with base stations below the roofs of a street canyon; devices at 1.5 to 22.5 m height.

    The formulas are fitted for base stations at 10 m; other heights are used in the formulas without a check, so links
    between two handsets at 1.5 m are an extrapolation. Shadowing is 4 dB with line of sight, 7.82 dB without and 7 dB
    indoors, with correlation distances of 10, 13 and 7 m. Horizontal distances below 10 m count as 10 m.
    Ignored here: the layout of the streets (corners, crossings), vehicles, antenna patterns.
    """

    kind = "3gpp-umi"
    buildings: AnyBuildings = NoBuildings()
    """Model of indoor devices and building entry loss."""

    def propagate(self, hop: Hop, carrier_hz: float, draws: LinkDraws) -> Propagation:
        hop = _checked(self, hop, carrier_hz)
        entry = _entry(self.buildings, carrier_hz, draws, hop)
        los = self.sees(umi_los_probability(hop.distance_2d_m - entry.depth_m), draws)
        seen_db = umi_los_loss_db(hop, carrier_hz)
        loss_db = np.where(los, seen_db, np.maximum(seen_db, umi_nlos_term_db(hop, carrier_hz)))
        return _state(loss_db, los, entry, sigma_db=(4.0, 7.82), correlation_m=(10.0, 13.0))


def uma_los_loss_db(hop: Hop, carrier_hz: float, environment_m: Array) -> Array:
    """Return the urban macro loss in dB with line of sight: 22 dB per decade, and 40 dB beyond the breakpoint."""
    breakpoint_m, gap_m = _breakpoint_m(hop, carrier_hz, environment_m), hop.high_m - hop.low_m
    common_db = 28.0 + 20.0 * log10(carrier_ghz(carrier_hz))
    near_db = common_db + 22.0 * log10(hop.distance_3d_m)
    far_db = common_db + 40.0 * log10(hop.distance_3d_m) - 9.0 * log10(breakpoint_m**2 + gap_m**2)
    return np.asarray(np.where(hop.distance_2d_m <= breakpoint_m, near_db, far_db))


def uma_nlos_term_db(hop: Hop, carrier_hz: float) -> Array:
    """Return the fitted loss in dB without line of sight; callers raise it to the loss with line of sight if lower."""
    return np.asarray(
        13.54 + 39.08 * log10(hop.distance_3d_m) + 20.0 * log10(carrier_ghz(carrier_hz)) - 0.6 * (hop.low_m - 1.5)
    )


def umi_los_loss_db(hop: Hop, carrier_hz: float) -> Array:
    """Return the street canyon loss in dB with line of sight: 21 dB per decade, and 40 dB beyond the breakpoint."""
    breakpoint_m, gap_m = _breakpoint_m(hop, carrier_hz, np.asarray(1.0)), hop.high_m - hop.low_m
    common_db = 32.4 + 20.0 * log10(carrier_ghz(carrier_hz))
    near_db = common_db + 21.0 * log10(hop.distance_3d_m)
    far_db = common_db + 40.0 * log10(hop.distance_3d_m) - 9.5 * log10(breakpoint_m**2 + gap_m**2)
    return np.asarray(np.where(hop.distance_2d_m <= breakpoint_m, near_db, far_db))


def umi_nlos_term_db(hop: Hop, carrier_hz: float) -> Array:
    """Return the fitted loss in dB in a street canyon without line of sight; callers use at least that with it."""
    return np.asarray(
        22.4 + 35.3 * log10(hop.distance_3d_m) + 21.3 * log10(carrier_ghz(carrier_hz)) - 0.3 * (hop.low_m - 1.5)
    )


def umi_los_probability(outdoor_m: Array) -> Array:
    """Return the probability of line of sight in a street canyon; `outdoor_m` is the outdoor distance in m."""
    far_m = np.maximum(outdoor_m, 18.0)
    return 18.0 / far_m + exp(-far_m / 36.0) * (1.0 - 18.0 / far_m)


def uma_los_probability(outdoor_m: Array, device_height_m: Array) -> Array:
    """Return the probability of line of sight to a station above the roofs; it increases with heights above 13 m."""
    far_m = np.maximum(outdoor_m, 18.0)
    street = 18.0 / far_m + exp(-far_m / 63.0) * (1.0 - 18.0 / far_m)
    high = _above_13_m(device_height_m) * 1.25 * power(far_m / 100.0, 3.0) * exp(-far_m / 150.0)
    return np.where(outdoor_m <= 18.0, 1.0, street * (1.0 + high))


def uma_environment_height_m(hop: Hop, uniform: Array) -> Array:
    """Return the effective environment height in m, a quantile at `uniform` (note 1 of Table 7.4.1-1).

    The height is 1 m for a device below 13 m. For a device at a height h_UT of 13 m or more, it is 1 m with probability
    1 / (1 + C), where C depends on the distance and on h_UT; otherwise it is uniform over 12, 15, ... h_UT - 1.5 m.
    Ignored here: correlation between the links of one device to several base stations.
    """
    distance_m = hop.distance_2d_m
    g = np.where(distance_m <= 18.0, 0.0, 1.25 * power(distance_m / 100.0, 3.0) * exp(-distance_m / 150.0))
    low = 1.0 / (1.0 + _above_13_m(hop.low_m) * g)
    count = np.maximum(np.floor((hop.low_m - 13.5) / 3.0) + 1.0, 1.0)
    rest = (uniform - low) / np.maximum(1.0 - low, np.finfo(float).tiny)
    step = np.clip(np.floor(rest * count), 0.0, count - 1.0)
    return np.where(uniform < low, 1.0, 12.0 + 3.0 * step)


def _above_13_m(device_height_m: Array) -> Array:
    return power(np.maximum(device_height_m - 13.0, 0.0) / 10.0, 1.5)


def _breakpoint_m(hop: Hop, carrier_hz: float, environment_m: Array) -> Array:
    effective_m2 = (hop.high_m - environment_m) * (hop.low_m - environment_m)
    return np.asarray(4.0 * effective_m2 * carrier_hz / SPEED_OF_LIGHT_M_S)


def _checked(law: SitePathLoss, hop: Hop, carrier_hz: float) -> Hop:
    law.within("carrier in GHz", carrier_ghz(carrier_hz), *CARRIER_GHZ)
    law.within("height of the lower antenna in m", hop.low_m, *DEVICE_HEIGHT_M)
    law.within("distance in m", hop.distance_2d_m, 0.0, LONGEST_M)
    return hop.at_least(SHORTEST_M)


def _entry(buildings: AnyBuildings, carrier_hz: float, draws: LinkDraws, hop: Hop) -> Entry:
    depth_m = np.minimum(lesser_of_two_depths_m(draws.depth, DEEPEST_M), hop.distance_2d_m)
    return buildings.enter(carrier_hz, draws, depth_m)


def _state(
    loss_db: Array, los: Mask, entry: Entry, sigma_db: tuple[float, float], correlation_m: tuple[float, float]
) -> Propagation:
    """Return the state of links; pairs are values with and without line of sight. Indoor shadowing is 7 dB over 7 m."""
    return Propagation.of(
        loss_db + entry.loss_db,
        los,
        sigma_db=np.where(entry.indoor, 7.0, np.where(los, *sigma_db)),
        correlation_m=np.where(entry.indoor, 7.0, np.where(los, *correlation_m)),
    )
