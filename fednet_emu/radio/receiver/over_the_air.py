"""Analogue uplinks whose signals add up in the air, by truncated channel inversion.

Zhu, Wang, Huang: "Broadband Analog Aggregation for Low-Latency Federated Edge Learning", IEEE Transactions on Wireless
Communications 19(1), 2020, https://arxiv.org/abs/1812.11494. Also Yang, Jiang, Shi, Ding: "Federated Learning via
Over-the-Air Computation", same journal 19(3), 2020, https://arxiv.org/abs/1812.11750; Amiri, Gündüz: "Machine Learning
at the Wireless Edge", IEEE Transactions on Signal Processing 68, 2020, https://arxiv.org/abs/1901.00844; Cao, Zhu, Xu,
Huang: "Optimized Power Control for Over-the-Air Computation in Fading Channels", IEEE TWC 19(11), 2020,
https://arxiv.org/abs/1906.06858.

Symbols: device k sends b_k s_k, where s_k has unit power, b_k = sqrt(eta) / h_k if |h_k|^2 >= g, and 0 otherwise; the
server receives the sum of h_k b_k s_k and noise of power sigma^2, and reads (sum of s_k) / K + n / (K sqrt(eta)).
"""

from __future__ import annotations

import math
from functools import cache

import numpy as np

from fednet_emu.arrays import Array
from fednet_emu.radio.fading import Fading

_STEPS = 1 << 14
_NEVER = 1e-300
"""Probability of a gain that is taken for zero."""


def n_slots(entries: int, symbols_per_slot: int) -> int:
    """Slots that a vector takes, one entry per symbol, whatever the number of devices that send."""
    return -(-entries // symbols_per_slot)


@cache
def mean_inverse(fading: Fading, cutoff: float, *, los: bool = False) -> float:
    """Mean over the fading of 1 / |h|^2 where |h|^2 >= cutoff, and of 0 elsewhere: mean power over eta.

    For Rayleigh fading this is E1(cutoff), the exponential integral.
    """
    if math.isinf(fading.coherence_s):
        gain = fading.gain(0.5, los)
        return 1.0 / gain if gain >= cutoff else 0.0
    silent = max(float(fading.cdf(np.array([cutoff]), los)[0]), _NEVER)
    middles = silent ** ((np.arange(_STEPS) + 0.5) / _STEPS)  # evenly in the logarithm, as 1 / |h|^2 is steep near 0
    return -math.log(silent) * float(np.mean(middles / np.maximum(fading.gains(middles, los), cutoff)))


def misalignment(gain: Array, csi_error: float, normal: Array) -> Array:
    """Factors Re(h_k / h'_k) [K] with which signals arrive whose devices invert h'_k instead of the channel h_k.

    The channel has moved since it was measured: h = sqrt(1 - e) h' + sqrt(e) z with z complex normal of unit power, so
    that both have the same law if that is Rayleigh. The mean factor is sqrt(1 - e), its variance e / (2 |h'|^2).

    Args:
        gain: |h'_k|^2 [K], as measured.
        csi_error: e, the part of the channel's power that the measurement does not tell, in [0, 1).
        normal: [K] standard normal draws.
    """
    return np.asarray(math.sqrt(1.0 - csi_error) + np.sqrt(csi_error / (2.0 * gain)) * normal)


def relative_error(snr: float, devices: int) -> float:
    """Mean square of the noise in an entry of the mean of K vectors of unit power, sigma^2 / (eta K^2).

    Args:
        snr: eta / sigma^2, linear.
        devices: K, the number of devices that send.
    """
    return 1.0 / (snr * devices**2)
