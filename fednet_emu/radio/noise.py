"""Thermal noise of a receiver."""

from __future__ import annotations

from fednet_emu.units import THERMAL_NOISE_DBM_HZ, dbm_to_watt


def thermal_noise_w(bandwidth_hz: float, noise_figure_db: float, density_dbm_hz: float = THERMAL_NOISE_DBM_HZ) -> float:
    """Noise power over a whole band, in W (not W/Hz): density times bandwidth times noise figure.

    Papers quote either the density (-174 dBm/Hz) or the power over their band (say 1e-10 W): only the former goes here.
    Ignored here: interference, man-made noise, and the temperature of the antenna (290 K assumed by the default).

    Args:
        bandwidth_hz: the part of the band that the transmission uses, not the whole channel.
        noise_figure_db: noise that the receiver's electronics add; 5 for base stations, 9 for handsets.
        density_dbm_hz: power density at the antenna, in dBm per Hz.
    """
    return bandwidth_hz * dbm_to_watt(density_dbm_hz + noise_figure_db)
