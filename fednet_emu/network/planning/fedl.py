"""FEDL: clocks and times to send that weigh energy against time, for an uplink in turns.

Dinh, Tran, Nguyen, Hong, Bao, Zomaya, Gramoli: "Federated Learning Over Wireless Networks: Convergence Analysis and
Resource Allocation", IEEE/ACM Transactions on Networking 29(1), 2021, https://arxiv.org/abs/1910.13067

Line by line: minimise the energy plus kappa times the time. SUB1 has the clocks: a device computes at c / T within its
limits, where T is the largest of the time of the slowest device at its full clock and (2 sum e c^2 / kappa)^(1/3) over
the devices that are neither. SUB2 has the times to send, each for itself: tau = s ln 2 / (B (1 + W((kappa gamma / P -
1) / e))), within the limits of the power.

Differences from the paper: SUB3, the local accuracy, is in `local_accuracy`, as the number of local steps is the
algorithm's. The model's way to the devices is not weighed. Amplifiers have an efficiency and transmitters a circuit
power; the rate law has a gap, a lowest and a highest efficiency. Devices send in the order in which they have computed,
so that a round may end sooner than the sum of both times.
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
    """Energy plus `j_per_s` times the time of the round, as little as possible; devices send in turns."""

    IN_TURNS: ClassVar[bool] = True

    j_per_s: float = Field(1.0, gt=0)
    """Weight of a second of the round in J (kappa in the paper)."""
    least_power_w: float = Field(0.0, ge=0)
    """Lowest transmit power in W; a device whose full power is lower sends at full power."""

    def plan(self, round_: Round) -> Grant[Array]:
        """The closed forms of both sub-problems."""
        compute_s = computing_s(round_, self.j_per_s)
        clock = np.clip(round_.compute_s / compute_s, round_.least_clock, 1.0) if compute_s else round_.least_clock
        efficiency = sending_efficiency(round_, self.j_per_s, self.least_power_w)
        part = np.minimum(expm1(efficiency) / round_.gamma, 1.0)
        ends_s = in_turns(round_.ready_s + round_.compute_s / clock, round_.need_s / (efficiency * round_.widest))
        return Grant.undisturbed(np.ones(len(part)), part, clock, ends_s)


def in_turns(starts_s: Array, air_s: Array) -> Array:
    """When uploads [n] of these lengths [n] end that are ready at these times [n] and are sent one after the other.

    Devices send in the order in which they are ready, and those ready in one nanosecond in the order of devices.
    """
    ends_s, free_s = np.empty(len(air_s)), 0.0
    for place in np.argsort(np.round(starts_s * NS_PER_S), kind="stable").tolist():
        ends_s[place] = free_s = max(free_s, float(starts_s[place])) + float(air_s[place])
    return ends_s


def computing_s(round_: Round, j_per_s: float) -> float:
    """The time T in s in which all devices compute: the least energy of computing plus `j_per_s` T."""
    slowest_s = float(round_.compute_s.max())
    longest_s = round_.compute_s / round_.least_clock
    order = np.argsort(-longest_s, kind="stable")
    work = np.cumsum((2.0 * round_.compute_j * round_.compute_s**2)[order])
    best_s = 0.0
    for own_s, sum_ in zip(longest_s[order].tolist(), power(work / j_per_s, 1.0 / 3.0).tolist(), strict=True):
        best_s = max(best_s, min(sum_, own_s))
    return max(slowest_s, best_s)


def sending_efficiency(round_: Round, j_per_s: float, least_power_w: float = 0.0) -> Array:
    """The efficiencies [n] in nat/s/Hz at which the energy of sending plus `j_per_s` times its time is least."""
    drawn_w = round_.power_w / round_.amplifier_efficiency
    best = priced_efficiency((j_per_s + round_.circuit_w) * round_.gamma / drawn_w)
    slowest = log1p(round_.gamma * np.minimum(least_power_w / round_.power_w, 1.0))
    most = np.minimum(log1p(round_.gamma), round_.highest)
    return np.maximum(np.minimum(np.maximum(best, slowest), most), max(round_.lowest, 1e-300))
