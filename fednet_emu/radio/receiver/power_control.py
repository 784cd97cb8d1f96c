"""Power control: how strongly each sender transmits."""

from __future__ import annotations

from abc import abstractmethod
from typing import Annotated, NamedTuple

import numpy as np
from pydantic import Field

from fednet_emu.arrays import Array, power
from fednet_emu.component.component import Component
from fednet_emu.component.slot import Slot, kinds
from fednet_emu.units import db_to_linear

RESOURCE_BLOCK_HZ = 180e3


class PowerControl(Component):
    """Determines the transmit powers of senders that share a band."""

    @abstractmethod
    def powers_w(self, max_power_w: Array, gain: Array, noise_w: Array, bandwidth_hz: float) -> Array:
        """Radiated power of each of n senders.

        Args:
            max_power_w: [n] cap of each sender.
            gain: [n, n] mean power gain to receiver i from sender j; the diagonal holds each sender's own link.
            noise_w: [n] noise power of each receiver.
            bandwidth_hz: width that each transmission occupies.
        """

    @abstractmethod
    def lone_powers_w(self, max_power_w: Array, gain: Array, noise_w: float, bandwidth_hz: float) -> Array:
        """Radiated power in W of each of n senders, chosen from its own link's power gain [n] as if alone."""


class FullPower(PowerControl):
    """Every sender uses its maximum power."""

    kind = "none"

    def powers_w(self, max_power_w: Array, gain: Array, noise_w: Array, bandwidth_hz: float) -> Array:
        """The caps."""
        return max_power_w

    def lone_powers_w(self, max_power_w: Array, gain: Array, noise_w: float, bandwidth_hz: float) -> Array:
        """The caps."""
        return max_power_w


class OpenLoop(PowerControl):
    """Fractional path-loss compensation of LTE and NR, min(P_max, P0 + 10 log10(M) + alpha PL) in dBm.

    This is TS 38.213 clause 7.1.1 for the uplink data channel. M counts resource blocks of 180 kHz, so one formula
    serves every subcarrier spacing.
    Ignored here: closed-loop commands, the offset by transport format, and the error of path-loss estimates.
    """

    target_dbm: float
    """Target P0 in dBm of the received power per resource block under full compensation; usually -80 to -110."""

    compensation: float = Field(default=1.0, ge=0, le=1)
    """Share alpha of the path loss that is made up for; 0.8 favours the cell centre, 1 treats all alike."""

    def powers_w(self, max_power_w: Array, gain: Array, noise_w: Array, bandwidth_hz: float) -> Array:
        """Open-loop powers, each from its own link only."""
        return self.lone_powers_w(max_power_w, np.diagonal(gain), 0.0, bandwidth_hz)

    def lone_powers_w(self, max_power_w: Array, gain: Array, noise_w: float, bandwidth_hz: float) -> Array:
        """Open-loop powers."""
        blocks = bandwidth_hz / RESOURCE_BLOCK_HZ
        return np.minimum(max_power_w, db_to_linear(self.target_dbm - 30.0) * blocks * power(gain, -self.compensation))


class FoschiniMiljanic(PowerControl):
    """The lowest powers with which all senders reach the same SINR; senders that cannot reach it use maximum power.

    The fixed point of the capped iteration p <- min(cap, target / SINR p) (Foschini and Miljanic 1993; Yates 1995).
    Ignored here: fading between iterations, and the time they take.
    """

    target_sinr_db: float
    """SINR in dB that every sender aims at."""

    iterations: int = Field(default=1000, gt=0)
    """Bound on the iterations; they stop once no power moves by more than 1e-12 of itself."""

    def powers_w(self, max_power_w: Array, gain: Array, noise_w: Array, bandwidth_hz: float) -> Array:
        """Capped powers after convergence."""
        target = np.full_like(max_power_w, db_to_linear(self.target_sinr_db))
        return foschini_miljanic(target, gain, noise_w, max_power_w, self.iterations)

    def lone_powers_w(self, max_power_w: Array, gain: Array, noise_w: float, bandwidth_hz: float) -> Array:
        """The powers that reach the target over noise alone; groups that send together are for `powers_w`."""
        return np.minimum(max_power_w, db_to_linear(self.target_sinr_db) * noise_w / gain)


class Feasibility(NamedTuple):
    """Whether targets can be met at all, the spectral radius that says so, and the lowest powers (infinite if not)."""

    feasible: bool
    spectral_radius: float
    power_w: Array


def foschini_miljanic(target: Array, gain: Array, noise_w: Array, max_power_w: Array, iterations: int = 1000) -> Array:
    """Powers after iterating p <- min(cap, target / SINR p), starting at the caps, until convergence or `iterations`.

    It converges geometrically with the spectral radius of `feasibility`; if the targets cannot all be met, senders that
    miss theirs end at their caps.
    Ignored here: fading between iterations.
    """
    own = np.diagonal(gain)
    coupling = relative_interference(gain)
    power_w = max_power_w
    for _ in range(iterations):
        moved_w = np.minimum(max_power_w, target * (coupling @ power_w + noise_w / own))
        if np.all(np.abs(moved_w - power_w) <= 1e-12 * power_w):
            return moved_w
        power_w = moved_w
    return power_w


def feasibility(target: Array, gain: Array, noise_w: Array, max_power_w: Array | float = np.inf) -> Feasibility:
    """Whether SINR targets can be met together, and the component-wise lowest powers p = (I - D F)^-1 D u.

    F_ij = g_ij / g_ii off the diagonal, D = diag(target), u_i = N_i / g_ii: feasible without caps exactly when the
    spectral radius of D F is below 1 (Perron and Frobenius), with caps exactly when also p <= cap.
    Ignored here: fading, and anything but a shared band.

    Args:
        target: [n] SINR that each pair needs (linear).
        gain: [n, n] power gain to receiver i from sender j.
        noise_w: [n] noise power of each receiver.
        max_power_w: cap of each sender.
    """
    own = np.diagonal(gain)
    coupling = relative_interference(gain) * target[:, None]
    radius = spectral_radius(coupling)
    if radius >= 1.0:
        return Feasibility(False, radius, np.full(len(own), np.inf))
    power_w = np.asarray(np.linalg.solve(np.eye(len(own)) - coupling, target * noise_w / own), np.float64)
    return Feasibility(bool(np.all(power_w <= max_power_w)), radius, power_w)


def best_common_sinr(gain: Array) -> float:
    """The SINR that all pairs can approach together with unlimited power, 1 / spectral radius of F.

    Ignored here: noise and caps, which only lower it.
    """
    radius = spectral_radius(relative_interference(gain))
    return 1.0 / radius if radius > 0 else np.inf


def relative_interference(gain: Array) -> Array:
    """The matrix F of interfering gains over each receiver's own, zero on the diagonal.

    Ignored here: noise.
    """
    own = np.diagonal(gain)
    return np.asarray(gain / own[:, None] - np.diag(np.ones(len(own))))


def spectral_radius(matrix: Array) -> float:
    """Largest absolute eigenvalue of a square matrix.

    Ignored here: nothing.
    """
    return float(np.abs(np.linalg.eigvals(matrix)).max())


POWER_CONTROLS: dict[str, type[PowerControl]] = kinds(FullPower, OpenLoop, FoschiniMiljanic)

AnyPowerControl = Annotated[PowerControl, Slot("power_control", POWER_CONTROLS)]
