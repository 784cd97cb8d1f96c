"""Shadowing of links whose ends move: correlated over distance as Gudmundson (Electronics Letters 1991) measured.

The correlation of the shadowing at two places a distance d apart is exp(-d / d_corr). `shadow_normals` gives it as a
function of position, so a trajectory may be looked up at any instants in any order; `gudmundson_step` is the classic
recursion for walks in steps.
"""

from __future__ import annotations

import math

import numpy as np

from fednet_emu.arrays import Array, cos, exp, expm1, sin

WAVES = 96
"""Sinusoids per link that `shadow_normals` is meant to be called with."""


def shadow_normals(position_m: Array, correlation_m: Array | float, uniform: Array) -> Array:
    """Standard normal shadowing of links as a random function of where their ends are, a sum of N sinusoids.

    Each link has its own random plane waves, whose wave vectors follow the spectral density of the exponential
    correlation (a bivariate Cauchy law) for each moving end. Over links, mean 0, variance 1 and correlation
    exp(-d / d_corr), times the same for the other end, are exact for every N; the marginal law is normal up to an
    excess kurtosis of -1.5 / N (-0.016 at 96 waves), and along the path of one link the sample correlation scatters by
    about 1 / sqrt(N). Passed through the normal distribution function it is a spatially consistent uniform, for example
    for line of sight (TR 38.901 clause 7.6.3.3).
    Ignored here: the correlation between links that share one end.

    Args:
        position_m: [..., 2] where one end moves, [..., 4] where both do: x, y of one end, then of the other, in an
            order that does not depend on who sends.
        correlation_m: d_corr of each link.
        uniform: [..., waves, 1 + coordinates] in (0, 1), fixed per link; `WAVES` waves are plenty.
    """
    scaled = position_m / np.asarray(correlation_m)[..., None]
    phase = 2.0 * math.pi * uniform[..., 0]
    for end in range(position_m.shape[-1] // 2):
        radial, turn = uniform[..., 1 + 2 * end], uniform[..., 2 + 2 * end]
        wave = np.sqrt(1.0 / (1.0 - radial) ** 2 - 1.0)
        angle = 2.0 * math.pi * turn
        x, y = scaled[..., None, 2 * end], scaled[..., None, 2 * end + 1]
        phase = phase + wave * (x * cos(angle) + y * sin(angle))
    return np.asarray(math.sqrt(2.0 / uniform.shape[-2]) * cos(phase).sum(axis=-1))


def gudmundson_step(shadow_db: Array, moved_m: Array, correlation_m: Array, sigma_db: Array, normal: Array) -> Array:
    """Shadowing after a step, S' = R S + sqrt(1 - R^2) sigma N with R = exp(-moved / d_corr).

    Draw afresh (sigma N) when line of sight comes or goes.
    Ignored here: everything about the path but its last step.

    Args:
        shadow_db: shadowing S of each link before the step.
        moved_m: displacement since then.
        correlation_m: distance d_corr over which the correlation falls to 1/e.
        sigma_db: standard deviation sigma.
        normal: a fresh standard normal N per link.
    """
    kept = exp(-moved_m / correlation_m)
    return np.asarray(kept * shadow_db + np.sqrt(-expm1(-2.0 * moved_m / correlation_m)) * sigma_db * normal)
