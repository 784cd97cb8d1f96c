"""The local accuracy: the trade-off between more local steps per round and more rounds.

SUB3 of FEDL, which finds the local accuracy for given costs of a round, has two versions. INFOCOM: Tran, Bao, Zomaya,
Nguyen, Hong, "Federated Learning over Wireless Networks: Optimization Model Design and Analysis", IEEE INFOCOM 2019.
ToN: Dinh, Tran, Nguyen, Hong, Bao, Zomaya, Gramoli, IEEE/ACM Transactions on Networking 29(1), 2021,
https://arxiv.org/abs/1910.13067. The outer search over planners follows Yang, Chen, Saad, Hong, Shikh-Bahaei, IEEE
Transactions on Wireless Communications 20(3), 2021, https://arxiv.org/abs/1911.02417: a run with the local accuracy eta
takes a / (1 - eta) rounds of v log2(1 / eta) local steps each, where a and v are constants.

Difference from the papers: Yang et al. alternate between the local accuracy and all other variables. Here the planner
is solved for each local accuracy, in a one-dimensional search for the best local accuracy.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import scipy

from fednet_emu.network.planning.base import Planner, Round
from fednet_emu.network.planning.baselines import Turns, energy_j
from fednet_emu.network.planning.fedl import computing_s, sending_efficiency
from fednet_emu.network.planning.least_energy import LeastEnergy, LeastTime

_EDGE = 1e-12
_EXACT = {"xtol": 1e-15, "rtol": 1e-14}


class RoundCost(NamedTuple):
    """Times in s and energies in J for computing and sending in a round in which each device uploads once.

    The computing time is that of the slowest device. The sending time and both energies are sums over devices.
    """

    compute_s: float
    compute_j: float
    send_s: float
    send_j: float


class LocalAccuracy(NamedTuple):
    """Solution of the subproblem SUB3 of FEDL, which determines the local accuracy.

    Attributes:
        theta: local accuracy, which is the relative error that remains after the local steps of a round.
        cost: total energy plus kappa (J/s) times total duration of all rounds, in J, up to a constant factor of the
            paper.
        eta: share of computing in the cost of a round (INFOCOM); step size of the surrogate (ToN).
        progress: relative reduction of the global error in a round (Theta in ToN, 1 - theta in INFOCOM).
    """

    theta: float
    cost: float
    eta: float
    progress: float


def fedl_cost(round_: Round, j_per_s: float, min_power_w: float = 0.0) -> RoundCost:
    """Return the costs of a round in which devices send one at a time, from the solutions of FEDL's SUB1 and SUB2."""
    compute_s = computing_s(round_, j_per_s)
    clock = np.clip(round_.compute_s / compute_s, round_.min_clock, 1.0) if compute_s else round_.min_clock
    efficiency = sending_efficiency(round_, j_per_s, min_power_w)
    air_s = round_.need_s / (efficiency * round_.widest)
    part = np.minimum(np.expm1(efficiency) / round_.gamma, 1.0)
    drawn_w = part * round_.power_w / round_.amplifier_efficiency + round_.circuit_w
    return RoundCost(
        compute_s, float((round_.compute_j * clock**2).sum()), float(air_s.sum()), float((air_s * drawn_w).sum())
    )


def infocom_accuracy(cost: RoundCost, j_per_s: float) -> LocalAccuracy:
    """Return the solution whose theta minimises (sending - ln(theta) computing) / (1 - theta) (INFOCOM).

    theta is the local accuracy; `sending` and `computing` are the costs of a round in J: energy plus `j_per_s` times
    the time. The minimum solves ln(theta) + 1 / theta = 1 / eta, where eta is the share of computing in the sum of both
    costs.
    """
    computing, sending = cost.compute_j + j_per_s * cost.compute_s, cost.send_j + j_per_s * cost.send_s
    eta = computing / (computing + sending)
    theta = float(scipy.optimize.brentq(lambda x: math.log(x) + 1 / x - 1 / eta, 0.1 * eta, 1.0, **_EXACT))
    return LocalAccuracy(theta, (sending - math.log(theta) * computing) / (1 - theta), eta, 1 - theta)


def ton_accuracy(
    cost: RoundCost,
    j_per_s: float,
    *,
    smoothness: float = 1.0,
    convexity: float = 0.5,
    decay: float = 0.5,
    c: float = 1,
) -> LocalAccuracy:
    """Return the solution whose theta minimises (sending + ln(C / theta) / decay * computing) / Theta (ToN).

    theta is the local accuracy; `sending` and `computing` are the costs of a round in J: energy plus `j_per_s` times
    the time. C is `c` rho, and rho is `smoothness` / `convexity`, the condition number. Theta = 2 eta rho ((1 -
    theta)^2 / rho^2 - theta (1 + theta) - (1 + theta)^2 eta / 2) is a parabola in the step size eta. With eta at the
    vertex of this parabola, the derivative with respect to theta has one root.
    """
    computing, sending = cost.compute_j + j_per_s * cost.compute_s, cost.send_j + j_per_s * cost.send_s
    rho = smoothness / convexity

    def height(theta: float) -> float:
        return (1 - theta) ** 2 / rho**2 - theta * (1 + theta)

    def spent(theta: float) -> float:
        return sending + (math.log(c * rho) - math.log(theta)) / decay * computing

    def slope(theta: float) -> float:
        shrinking = 2 * (2 * (1 - theta) / rho**2 + 1 + 2 * theta) / height(theta)
        return shrinking + 2 / (1 + theta) - computing / (decay * theta * spent(theta))

    largest = float(scipy.optimize.brentq(height, 0.0, 1.0, **_EXACT))
    theta = float(scipy.optimize.brentq(slope, _EDGE * largest, largest * (1 - 1e-9), **_EXACT))
    eta = height(theta) / (1 + theta) ** 2
    progress = rho * height(theta) ** 2 / (1 + theta) ** 2
    return LocalAccuracy(theta, spent(theta) / progress, eta, progress)


class Convergence(NamedTuple):
    """Numbers of rounds and local steps until convergence, given the local accuracy (Yang et al., Section II).

    Attributes:
        rounds: number of rounds at a local accuracy of 0 (a).
        steps: number of local steps that halve the local error (v).
    """

    rounds: float
    steps: float

    def total_rounds(self, eta: float) -> float:
        """Return the number of rounds at the local accuracy `eta`: `rounds` / (1 - `eta`)."""
        return self.rounds / (1 - eta)

    def round_of(self, step: Round, eta: float) -> Round:
        """Return the round with as many local steps as the local accuracy `eta` requires: `steps` * log2(1 / `eta`).

        `step` is the same round with one local step.
        """
        steps = self.steps * math.log2(1 / eta)
        return replace(step, compute_s=step.compute_s * steps, compute_j=step.compute_j * steps)

    def completion_s(self, step: Round, eta: float, planner: Planner) -> float:
        return self.total_rounds(eta) * float(np.max(planner.plan(self.round_of(step, eta)).ends_s))

    def energies_j(self, step: Round, eta: float, planner: Planner) -> tuple[float, float]:
        """Return the total energies in J for computing and for sending at the local accuracy `eta`."""
        round_ = self.round_of(step, eta)
        computing_j, sending_j = energy_j(round_, planner.plan(round_))
        return self.total_rounds(eta) * float(computing_j.sum()), self.total_rounds(eta) * float(sending_j.sum())

    def shortest(self, step: Round, planner: Planner) -> tuple[float, float]:
        """Return the local accuracy with the shortest completion time of all rounds, and this completion time in s."""
        return _least(lambda eta: self.completion_s(step, eta, planner), _EDGE, 1 - 1e-6)

    def cheapest(self, step: Round, within_s: float, *, in_turns: bool = False) -> tuple[float, float]:
        """Return the local accuracy with the minimum energy over all rounds, and this energy in J.

        The completion time is at most `within_s` s; both results are NaN if `within_s` is too short. Devices take turns
        if `in_turns` is True, and otherwise have shares of the band.
        """
        fastest: Planner = Turns() if in_turns else LeastTime()
        best, min_s = self.shortest(step, fastest)
        if min_s > within_s:
            return math.nan, math.nan

        def late_s(eta: float) -> float:
            return self.completion_s(step, eta, fastest) - within_s

        def cost_j(eta: float) -> float:
            round_s = within_s / self.total_rounds(eta)
            planner = Turns(round_s=round_s) if in_turns else LeastEnergy(round_s=round_s)
            return sum(self.energies_j(step, eta, planner))

        low = float(scipy.optimize.brentq(late_s, 1e-9, best)) if late_s(1e-9) > 0 else 1e-9
        high = float(scipy.optimize.brentq(late_s, best, 1 - 1e-9))
        return _least(cost_j, low, high)


def _least(function: Callable[[float], float], low: float, high: float) -> tuple[float, float]:
    """Return the argument between `low` and `high` that minimises a unimodal function, and the minimum."""
    found = scipy.optimize.minimize_scalar(function, bounds=(low, high), method="bounded", options={"xatol": 1e-9})
    return float(found.x), float(found.fun)
