"""Interference: the SINR of simultaneous transmissions."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fednet_emu.arrays import Array, Mask


class Decoded(NamedTuple):
    """Linear SINR of each signal after cancellation of stronger signals, and whether the signal is decoded."""

    sinr: Array
    decoded: Mask


def sum_of_others(power: Array, axis: int = -1) -> Array:
    """Return the interference to each entry: the sum of all other entries along an axis, in the shape of `power`.

    The result is the sum of all earlier entries plus the sum of all later entries. "Total minus own power" would leave
    only rounding errors for an entry far above all others (100 % error from a ratio of 160 dB). Powers are not
    negative, so no digits cancel. The relative error for n entries is at most n rounding errors of 2e-16, for any range
    of powers.
    """
    along = np.asarray(power, np.float64).swapaxes(axis, 0)
    others = np.zeros(along.shape)
    np.add.accumulate(along[:-1], axis=0, out=others[1:])
    others[:-1] += np.add.accumulate(along[:0:-1], axis=0)[::-1]
    return others.swapaxes(axis, 0)


def successive_cancellation(
    received_w: Array, noise_w: Array | float, threshold: float = 0.0, residual: float = 0.0
) -> Decoded:
    """Return the SINRs in uplink NOMA with successive interference cancellation, and which signals are decoded.

    Signals are decoded and subtracted from the strongest to the weakest, until the SINR of a signal is below the linear
    `threshold`. `received_w` [..., n] are the received powers in W, `noise_w` in W is broadcast with [..., 1], and a
    share `residual` of a decoded signal remains as interference. With threshold 0 and residual 0, the rates log2(1 +
    SINR) add up to log2(1 + sum of all powers / noise) exactly (Tse and Viswanath, Fundamentals of Wireless
    Communication, section 6.1). A signal that is not decoded interferes with all weaker signals, which then also fail
    at the same threshold. Signals of equal power are decoded in the given order.
    Ignored here: errors that propagate from a wrongly decoded signal, except through `residual`.
    """
    rows_w = np.ascontiguousarray(received_w, np.float64).reshape(-1, received_w.shape[-1])
    rows, count = rows_w.shape
    each = (*received_w.shape[:-1], 1)
    if isinstance(noise_w, np.ndarray) and noise_w.ndim > 0:
        noise_w = (noise_w if noise_w.shape == each else np.broadcast_to(noise_w, each)).reshape(-1, 1)
    order = (-rows_w).argsort(axis=1, kind="stable")
    if rows > 1:
        order += np.arange(0, rows * count, count)[:, None]  # flat indices are faster than indices along an axis
    sorted_w = rows_w.reshape(-1)[order]
    over_w = np.zeros(sorted_w.shape)
    np.add.accumulate(sorted_w[:, :0:-1], axis=1, out=over_w[:, -2::-1])  # from the weakest, so that no digits cancel
    over_w += noise_w
    clean = sorted_w / (over_w + residual * _before(sorted_w) if residual else over_w)
    decoded = np.ones(clean.shape, np.bool_)
    if threshold > 0.0:
        passed = np.logical_and.accumulate(clean >= threshold, axis=1)
        if not passed.all():
            clean = sorted_w / (over_w + _before(np.where(passed, residual, 1.0) * sorted_w))
            decoded.reshape(-1)[order] = passed
    sinr = np.empty(clean.shape)
    sinr.reshape(-1)[order] = clean
    return Decoded(sinr.reshape(received_w.shape), decoded.reshape(received_w.shape))


def _before(sorted_w: Array) -> Array:
    before_w = np.zeros(sorted_w.shape)
    np.add.accumulate(sorted_w[:, :-1], axis=1, out=before_w[:, 1:])
    return before_w
