"""Interference: the SINR of transmissions that are on the air together."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from fednet_emu.radio.propagation import Mask
from fednet_emu.units import Array


class Decoded(NamedTuple):
    """SINR of each transmission when its turn came, and whether the receiver could decode it."""

    sinr: Array
    decoded: Mask


def sinr_of_pairs(power_w: Array, gain: Array, noise_w: Array | float) -> Array:
    """SINR of n pairs that share a band, p_i g_ii / (N_i + sum over j of p_j g_ij).

    Ignored here: partial overlap in frequency, and correlation between interfering signals.

    Args:
        power_w: [..., n] radiated power of each sender.
        gain: [n, n] power gain to receiver i (row) from sender j (column); several senders may have one receiver, whose
            row then repeats.
        noise_w: noise power of each receiver.
    """
    received_w = np.diagonal(gain) * power_w
    return np.asarray(received_w / (noise_w + power_w @ gain.T - received_w))


def sinr_at_one_receiver(received_w: Array, noise_w: Array | float) -> Array:
    """SINR of each of the last axis' transmissions at their common receiver, all others being noise to it.

    Ignored here: several antennas, spreading gain, and any attempt to cancel interference.
    """
    return np.asarray(received_w / (noise_w + received_w.sum(axis=-1, keepdims=True) - received_w))


def successive_cancellation(
    received_w: Array, noise_w: Array | float, threshold: float = 0.0, residual: float = 0.0
) -> Decoded:
    """Uplink NOMA: decode the strongest first, take it off, go on until one falls below the threshold.

    With threshold 0 and residual 0 the rates log2(1 + SINR) add up to log2(1 + sum of all / noise) exactly (Tse and
    Viswanath, Fundamentals of Wireless Communication, section 6.1). One that is not decoded stays in the way of all
    weaker ones, which then fail at the same threshold too. Equal powers are taken in the order given.
    Ignored here: errors that propagate from a wrongly decoded signal, other than through `residual`.

    Args:
        received_w: [..., n] received power of each transmission.
        noise_w: noise power of the receiver, in a shape that broadcasts against [..., 1].
        threshold: SINR (linear) below which a transmission cannot be decoded.
        residual: share of a decoded signal's power that cancellation leaves behind.
    """
    order = np.argsort(-received_w, axis=-1, kind="stable")
    sorted_w = np.take_along_axis(received_w, order, axis=-1)
    weaker_w = np.flip(np.cumsum(np.flip(sorted_w, -1), axis=-1), -1) - sorted_w
    stronger_w = np.cumsum(sorted_w, axis=-1) - sorted_w
    clean = sorted_w / (noise_w + weaker_w + residual * stronger_w)
    decoded = np.logical_and.accumulate(clean >= threshold, axis=-1)
    left_w = (
        np.cumsum(np.where(decoded, residual, 1.0) * sorted_w, axis=-1) - np.where(decoded, residual, 1.0) * sorted_w
    )
    sinr = sorted_w / (noise_w + weaker_w + left_w)
    back = np.argsort(order, axis=-1, kind="stable")
    return Decoded(np.take_along_axis(sinr, back, axis=-1), np.take_along_axis(decoded, back, axis=-1))


def most_at_one_receiver(threshold: float, snr: float) -> int:
    """How many transmissions of equal received power one receiver can decode together without cancellation.

    The most K with SNR / (1 + (K - 1) SNR) >= threshold, floor(1 + 1 / threshold - 1 / SNR): at most one from a
    threshold of 1 (0 dB) on, as soon as there is any noise. Thresholds are above 0.
    Ignored here: unequal powers, with which fewer get through.
    """
    if snr < threshold:
        return 0
    return max(1, math.floor(1.0 + 1.0 / threshold - 1.0 / snr + 1e-12))
