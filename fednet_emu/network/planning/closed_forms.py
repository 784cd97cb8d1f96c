"""Closed forms with Lambert's W function for the spectral efficiency of an upload.

An upload has s bits, and takes the time t on the share b of a band of B Hz. The spectral efficiency is u nat/s/Hz, so
that b t u = s ln 2 / B. The power is P b (e^u - 1) / gamma, where gamma is the SNR at full power P on the whole band,
divided by the SNR gap of the rate law. See Yang, Chen, Saad, Hong, Shikh-Bahaei, "Energy Efficient Federated Learning
Over Wireless Communication Networks", IEEE Transactions on Wireless Communications 20(3), 2021,
https://arxiv.org/abs/1911.02417.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import scipy

from fednet_emu.arrays import Array, bisected, expm1

LN_2 = math.log(2.0)
_HALVINGS = 60
_MOST_STEPS, _CLOSE = 100, 1e-12
_NEAR, _NEWTON = 1.1, 3
_BRANCH, _SERIES = 0.02, (-221 / 8505, 769 / 17280, -43 / 540, 11 / 72, -1 / 3, 1.0)


def full_power_efficiency(a: Array) -> Array:
    """Return the spectral efficiency u [n] of uploads at full power: the largest u with (e^u - 1) / u <= `a`.

    `a` [n] is gamma t B / (s ln 2), where gamma is the SNR at full power on the whole band of B Hz divided by the SNR
    gap, t the airtime in s, and s the number of bits. u is in nat/s/Hz. The solution is u = -1/a - W(-e^(-1/a) / a)
    with the lower branch of Lambert's W. If a <= 1, no bandwidth suffices, and the result is 0.
    """
    with np.errstate(all="ignore"):
        q = 1.0 / np.maximum(a, 1e-300)
        u = -q - scipy.special.lambertw(-q * (expm1(-q) + 1.0), k=-1).real
        if np.any(near := a < _NEAR):  # W loses digits near its branch point; use a series and Newton steps instead
            d = a - 1.0
            close = 2.0 * d * (1.0 - d * (2.0 / 3.0))
            for _ in range(_NEWTON):
                ratio = expm1(close) / close
                close = close - (ratio - a) * close / (expm1(close) + 1.0 - ratio)
            u = np.where(near, close, u)
    return np.where(a > 1.0, u, 0.0)


def priced_efficiency(y: Array) -> Array:
    """Return the spectral efficiency u [n] that minimises energy plus weighted bandwidth, or energy plus weighted time.

    u, in nat/s/Hz, solves (u - 1) e^u + 1 = `y`, so that u = 1 + W((y - 1) / e) with Lambert's W. Near the branch point
    of W, where W loses digits, a series replaces W. The argument `y` [n] determines which of two problems is solved. In
    both, P is the full transmit power, gamma the SNR at P on the whole band divided by the SNR gap, eta the efficiency
    of the amplifier, and t the airtime.
    Weighted bandwidth: y = c gamma eta / (P t), where c is the weight of the whole band. The share b that belongs to u
    minimises P t b (e^u - 1) / (gamma eta) + c b, for a constant product b u.
    Weighted time: y = (K + P_c) gamma eta / P, where K is the weight of time and P_c the circuit power. u minimises the
    energy of a transmission plus K times its duration.
    """
    p = np.sqrt(2.0 * np.maximum(y, 0.0))
    near = p < _BRANCH
    w = scipy.special.lambertw(np.where(near, 0.0, (y - 1.0) / math.e)).real
    return np.asarray(np.where(near, p * np.polyval(_SERIES, p), 1.0 + w))


def root(function: Callable[[Array], Array], low: Array, high: Array) -> Array:
    """Return the zero of an increasing function between `low` and `high`, for each element.

    For an element, the result is `high` if the function is negative everywhere, and `low` if it is positive everywhere.
    The method is Chandrupatla's (Advances in Engineering Software 28(3), 1997), which uses inverse quadratic
    interpolation or bisection.
    """
    a, b = low, high
    f_a, f_b = function(a), function(b)
    a, f_a = np.where(f_b <= 0, b, a), np.where(f_b <= 0, f_b, f_a)
    b, f_b = np.where(f_a >= 0, a, b), np.where(f_a >= 0, f_a, f_b)
    part = np.full(len(low), 0.5)
    for _ in range(_MOST_STEPS):
        if np.all(np.abs(b - a) <= _CLOSE * np.abs(b)):
            break
        x = a + part * (b - a)
        f_x = function(x)
        same = (f_x > 0) == (f_a > 0)
        c, f_c = np.where(same, a, b), np.where(same, f_a, f_b)  # c: the end of the interval that x replaces
        b, f_b = np.where(same, b, a), np.where(same, f_b, f_a)
        a, f_a = x, f_x
        with np.errstate(all="ignore"):
            xi, phi = (a - b) / (c - b), (f_a - f_b) / (f_c - f_b)
            quadratic = (f_a / (f_b - f_a)) * (f_c / (f_b - f_c))
            quadratic += (c - a) / (b - a) * (f_a / (f_c - f_a)) * (f_b / (f_c - f_b))
            smooth = (phi**2 < xi) & ((1 - phi) ** 2 < 1 - xi) & np.isfinite(quadratic)
            edge = np.minimum(0.5, _CLOSE * np.abs(a) / np.abs(b - a))
        part = np.where(smooth, np.clip(quadratic, edge, 1 - edge), 0.5)
        part = np.where(np.isfinite(part), part, 0.5)
    return a


def least(fits: Callable[[float], bool], low: float, high: float) -> float:
    """Return the smallest number, at least `low`, for which `fits` is True.

    The number is found by bisection. `high` is a first guess of an upper limit, which is doubled until `fits` is True.
    `fits` must be False below the result and True above it.
    """
    if fits(low):
        return low
    while not fits(high):
        low, high = high, 2.0 * high
    return bisected(lambda middle: not fits(middle), low, high, _HALVINGS)[1]
