"""Conversions between decibel and linear quantities, the constants of the radio formulas, and units by name."""

from __future__ import annotations

import math
from typing import overload

import numpy as np

from fednet_emu.arrays import Array, exp10, log10

SPEED_OF_LIGHT_M_S = 3.0e8
"""Speed of light in m/s, rounded as in TR 38.901; the exact value changes path loss by less than 0.006 dB."""

THERMAL_NOISE_DBM_HZ = -174.0
"""Power density of thermal noise at 290 K, rounded as in TS 38.101 link budgets."""


@overload
def db_to_linear(value_db: float) -> float: ...
@overload
def db_to_linear(value_db: Array) -> Array: ...
def db_to_linear(value_db: float | Array) -> float | Array:
    """Convert a level in dB to a linear power ratio."""
    return exp10(value_db / 10.0) if isinstance(value_db, np.ndarray) else 10.0 ** (value_db / 10.0)


@overload
def linear_to_db(ratio: float) -> float: ...
@overload
def linear_to_db(ratio: Array) -> Array: ...
def linear_to_db(ratio: float | Array) -> float | Array:
    """Convert a linear power ratio to dB; minus infinity for 0."""
    if isinstance(ratio, np.ndarray):
        with np.errstate(divide="ignore"):
            levels: Array = 10.0 * log10(ratio)
        return levels
    return 10.0 * math.log10(ratio) if ratio > 0 else -math.inf


def dbm_to_watt(level_dbm: float) -> float:
    """Convert a level in dBm to a power in W."""
    return db_to_linear(level_dbm - 30.0)


UNITS = {
    "_j_per_bit": "J/bit",
    "_j_per_s": "J/s",
    "_flop_per_s": "FLOP/s",
    "_flop_per_cycle": "FLOP per cycle",
    "_bps_hz": "bit/s/Hz",
    "_dbm_hz": "dBm/Hz",
    "_m_s": "m/s",
    "_per_s": "per second",
    "_bps": "bit/s",
    "_bit": "bit",
    "_byte": "byte",
    "_mb": "MB",
    "_dbm": "dBm",
    "_db": "dB",
    "_khz": "kHz",
    "_hz": "Hz",
    "_flop": "floating-point operations",
    "_rad": "rad",
    "_ms": "ms",
    "_ns": "ns",
    "_s": "s",
    "_m": "m",
    "_w": "W",
    "_j": "J",
}
"""Unit for each suffix of a name. The first matching suffix, in the order of this dict, determines the unit."""


def unit_of(name: str) -> str | None:
    """Return the unit of a setting or column from the suffix of its name ("Hz" for `bandwidth_hz`), or None."""
    return next((unit for ending, unit in UNITS.items() if f"_{name}".endswith(ending) and f"_{name}" != ending), None)
