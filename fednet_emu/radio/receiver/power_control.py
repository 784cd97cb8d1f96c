"""Power control: the transmit power of each sender."""

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
    """Rule that determines the transmit powers of senders that share a band."""

    @abstractmethod
    def powers_w(self, max_power_w: Array, gain: Array, noise_w: float, bandwidth_hz: float) -> Array:
        """Return the radiated powers [n] in W of senders with the maximum powers [n] in W and the mean link gains [n].

        `noise_w` is the noise power in W over the bandwidth `bandwidth_hz` in Hz.
        """


class FullPower(PowerControl):
    """Every sender uses its maximum power."""

    kind = "none"

    def powers_w(self, max_power_w: Array, gain: Array, noise_w: float, bandwidth_hz: float) -> Array:
        return max_power_w


class OpenLoop(PowerControl):
    """Fractional path-loss compensation of LTE and NR: min(P_max, P0 + 10 log10(M) + alpha PL) in dBm.

    Source: TS 38.213 clause 7.1.1 for the uplink data channel. P_max is the maximum power in dBm, and PL the path loss
    in dB. M is the bandwidth in resource blocks of 180 kHz, so the formula is valid for every subcarrier spacing.
    Ignored here: closed-loop commands, the offset that depends on the transport format, and errors of path-loss
    estimates.
    """

    target_dbm: float
    """Target P0 in dBm of the received power per resource block if the path loss is fully compensated; usually -80 to
    -110."""
    compensation: float = Field(default=1.0, ge=0, le=1)
    """Share alpha of the path loss that is compensated: 0.8 favours devices near the base station, 1 favours none."""

    def powers_w(self, max_power_w: Array, gain: Array, noise_w: float, bandwidth_hz: float) -> Array:
        blocks = bandwidth_hz / RESOURCE_BLOCK_HZ
        return np.minimum(max_power_w, db_to_linear(self.target_dbm - 30.0) * blocks * power(gain, -self.compensation))


class TargetSnr(PowerControl):
    """Truncated channel inversion: each sender uses the power that reaches a common SNR, up to its maximum power.

    Ignored here: interference, which does not affect the chosen power, and errors of path-loss estimates.
    """

    target_snr_db: float
    """Target SNR in dB of every sender, averaged over fading; interference is not included."""

    def powers_w(self, max_power_w: Array, gain: Array, noise_w: float, bandwidth_hz: float) -> Array:
        return np.minimum(max_power_w, db_to_linear(self.target_snr_db) * noise_w / gain)


class Feasibility(NamedTuple):
    """Whether SINR targets are feasible, the spectral radius, and the minimum powers [n] in W (infinity if none)."""

    feasible: bool
    spectral_radius: float
    power_w: Array


def feasibility(target: Array, gain: Array, noise_w: Array, max_power_w: Array | float = np.inf) -> Feasibility:
    """Check whether SINR targets can all be met, and compute the minimum powers p = (I - D F)^-1 D u in W.

    `gain` [n, n] is the gain g_ij from sender j to receiver i, and `target` [n] the linear SINR targets. F_ij is g_ij /
    g_ii off the diagonal and 0 on it, D = diag(target), and u_i = N_i / g_ii with the noise N_i = `noise_w`. Without
    power limits, the targets are feasible if and only if the spectral radius of D F is below 1 (Perron and Frobenius).
    With power limits, p must also be at most `max_power_w`.
    Ignored here: fading, and access schemes in which senders do not share the whole band.
    """
    own = np.diagonal(gain)
    coupling = np.asarray(gain / own[:, None] - np.diag(np.ones(len(own)))) * target[:, None]
    radius = float(np.abs(np.linalg.eigvals(coupling)).max())
    if radius >= 1.0:
        return Feasibility(False, radius, np.full(len(own), np.inf))
    power_w = np.asarray(np.linalg.solve(np.eye(len(own)) - coupling, target * noise_w / own), np.float64)
    return Feasibility(bool(np.all(power_w <= max_power_w)), radius, power_w)


POWER_CONTROLS: dict[str, type[PowerControl]] = kinds(FullPower, OpenLoop, TargetSnr)

AnyPowerControl = Annotated[PowerControl, Slot("power_control", POWER_CONTROLS)]
