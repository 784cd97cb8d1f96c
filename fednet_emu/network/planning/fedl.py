"""FEDL: clock frequencies and sending times that minimise energy plus weighted time; devices send one at a time.

Dinh, Tran, Nguyen, Hong, Bao, Zomaya, Gramoli: "Federated Learning Over Wireless Networks: Convergence Analysis and
Resource Allocation", IEEE/ACM Transactions on Networking 29(1), 2021, https://arxiv.org/abs/1910.13067

The problem is to minimise the energy plus kappa times the duration of a round. SUB1 sets the clock frequencies: a
device that needs the time c at full frequency computes at c / T times this frequency, clipped to its limits. T is the
larger of two times: the computing time of the slowest device at full frequency, and (2 sum E c^2 / kappa)^(1/3), where
E is a device's computing energy at full frequency and the sum is over all devices that are not at a limit. SUB2 sets
the sending time tau of each device independently, within the limits of the transmit power: tau = s ln 2 / (B (1 +
W((kappa gamma / P - 1) / e))), with the symbols of `closed_forms` and Euler's number e.

Differences from the paper: SUB3, the local accuracy, is in `local_accuracy`, because the algorithm sets the number of
local steps. The cost of the downlink is not included. Amplifiers have an efficiency, and transmitters have a circuit
power. The rate law has an SNR gap, a minimum and a maximum efficiency. Devices send in the order in which they finish
computing, so that a round may end before the sum of computing and sending times.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from pydantic import Field

from fednet_emu.arrays import Array, expm1, log1p, power
from fednet_emu.kernel.clock import NS_PER_S
from fednet_emu.network.air.transfer import Grant
from fednet_emu.network.planning.base import Planner, Round
from fednet_emu.network.planning.closed_forms import priced_efficiency


class Fedl(Planner):
    """Minimises the energy plus `j_per_s` times the duration of the round; devices send one at a time."""

    IN_TURNS: ClassVar[bool] = True

    j_per_s: float = Field(1.0, gt=0)
    """Weight of the duration of a round relative to its energy, in J/s (kappa in the paper)."""
    min_power_w: float = Field(0.0, ge=0)
    """Minimum transmit power in W; a device whose full power is below this value sends at full power."""

    def plan(self, round_: Round) -> Grant[Array]:
        compute_s = computing_s(round_, self.j_per_s)
        clock = np.clip(round_.compute_s / compute_s, round_.min_clock, 1.0) if compute_s else round_.min_clock
        efficiency = sending_efficiency(round_, self.j_per_s, self.min_power_w)
        part = np.minimum(expm1(efficiency) / round_.gamma, 1.0)
        ends_s = in_turns(round_.ready_s + round_.compute_s / clock, round_.need_s / (efficiency * round_.widest))
        return Grant.undisturbed(np.ones(len(part)), part, clock, ends_s)


def in_turns(starts_s: Array, air_s: Array) -> Array:
    """Return the end times in s of uploads [n] that are sent one at a time.

    The uploads are ready at the times `starts_s` [n] in s, and last for `air_s` [n] in s. They are sent in the order in
    which they are ready; uploads that are ready in the same ns are sent in the order of the devices.
    """
    ends_s, free_s = np.empty(len(air_s)), 0.0
    for place in np.argsort(np.round(starts_s * NS_PER_S), kind="stable").tolist():
        ends_s[place] = free_s = max(free_s, float(starts_s[place])) + float(air_s[place])
    return ends_s


def computing_s(round_: Round, j_per_s: float) -> float:
    """Return the common computing time T in s that minimises the devices' computing energy plus `j_per_s` times T."""
    slowest_s = float(round_.compute_s.max())
    longest_s = round_.compute_s / round_.min_clock
    order = np.argsort(-longest_s, kind="stable")
    work = np.cumsum((2.0 * round_.compute_j * round_.compute_s**2)[order])
    best_s = 0.0
    for own_s, sum_ in zip(longest_s[order].tolist(), power(work / j_per_s, 1.0 / 3.0).tolist(), strict=True):
        best_s = max(best_s, min(sum_, own_s))
    return max(slowest_s, best_s)


def sending_efficiency(round_: Round, j_per_s: float, min_power_w: float = 0.0) -> Array:
    """Return the spectral efficiencies [n] that minimise each device's sending energy plus `j_per_s` times its airtime.

    Efficiencies are in nat/s/Hz.
    """
    drawn_w = round_.power_w / round_.amplifier_efficiency
    best = priced_efficiency((j_per_s + round_.circuit_w) * round_.gamma / drawn_w)
    slowest = log1p(round_.gamma * np.minimum(min_power_w / round_.power_w, 1.0))
    most = np.minimum(log1p(round_.gamma), round_.highest)
    return np.maximum(np.minimum(np.maximum(best, slowest), most), max(round_.lowest, 1e-300))
