"""Broadband analog aggregation of Zhu, Wang and Huang (IEEE TWC 19(1), 2020), from closed forms.

Settings that are not in the abstract are our choice: 1,000 sub-channels, 16 bit per parameter, a bit error rate of
1e-3, and three SNRs. The study `analog_latency` runs the same comparison on the emulated radio.
"""

from __future__ import annotations

import math

import numpy as np
import scipy

from fednet_emu.arrays import Array
from fednet_emu.results.published import Sources

BIT, GAP = 16, -math.log(5e-3) / 1.5
"""Bits per parameter, and the SNR gap of uncoded QAM at a bit error rate of 1e-3."""
DEVICES = (10, 20, 50, 100, 200, 500, 1000)
SNRS_DB = (0.0, 10.0, 20.0)
CUTOFFS = (0.001, 0.005, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
INTERIORS = (0.3, 0.5, 0.7, 0.9, 1.0)
PATH_LOSS_EXPONENT = 3.0
PARAMETERS = 2410
"""Number of parameters of the model in the study."""


def mean_rate(snr: float) -> float:
    """Return E log2(1 + snr g) for an exponential power gain g with mean 1, in bit/s/Hz: e^(1/snr) E1(1/snr) / ln 2."""
    return float(scipy.special.exp1(1 / snr) * math.exp(1 / snr)) / math.log(2)


def ratio(snr_db: float, devices: int) -> float:
    """Return the latency of OFDMA divided by the latency of analog aggregation.

    `snr_db` is the SNR of a sub-channel if the power is spread over all sub-channels. With OFDMA a device sends on 1/K
    of the sub-channels, each with K times the power: q Q K / (M rate) symbols, against q / M for analog aggregation.
    """
    return BIT * devices / mean_rate(10 ** (snr_db / 10) * devices / GAP)


def exponent(values: Array) -> float:
    """Return the exponent of a power law in the number of devices, by least squares of logarithms."""
    return float(np.polyfit(np.log(DEVICES), np.log(values), 1)[0])


def truncated(cutoff: float) -> tuple[float, float]:
    """Return the truncated share 1 - e^-g, and the receive SNR in dB for a mean inverse of 1: -10 log10 E1(g)."""
    return -math.expm1(-cutoff), -10 * math.log10(float(scipy.special.exp1(cutoff)))


def interior(radius: float) -> tuple[float, float]:
    """Return the share x^2 of data within the part x of the radius, and the SNR gain in dB of its weakest device."""
    return radius**2, -10 * PATH_LOSS_EXPONENT * math.log10(radius)


def ours(sources: Sources) -> dict[str, float]:
    """Return the exponents of the latency ratio, and the extreme slopes of both trade-offs, whose sign is constant."""
    values = {f"exponent_{snr_db:g}db": exponent(np.array([ratio(snr_db, k) for k in DEVICES])) for snr_db in SNRS_DB}
    alone = mean_rate(10.0 / GAP)
    values["exponent_turns"] = exponent(np.array([BIT * k / alone for k in DEVICES]))
    values["ratio_200"] = ratio(10.0, 200)
    for name, curve in (("truncation", [*map(truncated, CUTOFFS)]), ("interior", [*map(interior, INTERIORS)])):
        share, snr_db = np.array(curve).T
        slopes = np.diff(snr_db) / np.diff(share)
        values[f"{name}_slope"] = float(slopes.min() if name == "truncation" else -slopes.max())
    return values
