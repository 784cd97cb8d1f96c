"""Baselines for planned rounds: equal shares of the band, and one device at a time on the whole band (TDMA).

Yang, Chen, Saad, Hong, Shikh-Bahaei: "Energy Efficient Federated Learning Over Wireless Communication Networks", IEEE
Transactions on Wireless Communications 20(3), 2021, https://arxiv.org/abs/1911.02417. In this paper, `equal-band` is
called EB-FDMA, and `turns` is called TDMA. The paper's third baseline, FE-FDMA, has a fixed local accuracy; it is
`least-time` or `least-energy` with a fixed number of local steps.
"""

from __future__ import annotations

import math
from typing import ClassVar

import numpy as np
from pydantic import Field

from fednet_emu.arrays import Array, bisected, exp, log1p
from fednet_emu.network.air.transfer import Grant
from fednet_emu.network.planning.base import Planner, Round
from fednet_emu.network.planning.fedl import Fedl, computing_s, in_turns, sending_efficiency

_PRICES = (-80.0, 80.0)
"""Natural logarithms of the smallest and the largest weight of time in J/s, between which the best weight is
searched."""
_HALVINGS = 100


class EqualBand(Planner):
    """Full power, full clock frequency and an equal share of the band for each device (EB-FDMA)."""

    def plan(self, round_: Round) -> Grant[Array]:
        """Return the grants; a device with a weak signal uses only the part of its share with the highest rate."""
        full = np.ones(len(round_.snr))
        share = np.minimum(full / len(full), round_.widest)
        efficiency = np.minimum(log1p(round_.gamma / share), round_.highest)
        ends_s = round_.ready_s + round_.compute_s + round_.need_s / (share * efficiency)
        return Grant.undisturbed(share, full, full, ends_s)


class Turns(Planner):
    """Devices take turns on the whole band (TDMA), either at full power and clock frequency or with minimum energy."""

    IN_TURNS: ClassVar[bool] = True

    round_s: float | None = Field(None, gt=0)
    """Time in s within which all devices must compute and send, with minimum energy. If the setting is null or the time
    is too short, devices have full power and clock frequency."""

    def plan(self, round_: Round) -> Grant[Array]:
        """Return grants at full power and clock frequency, or FEDL's solution for the round duration `round_s`."""
        full = np.ones(len(round_.snr))
        fastest = Grant.undisturbed(full, full, full, in_turns(round_.ready_s + round_.compute_s, round_.shortest_s))
        if self.round_s is None:
            return fastest
        left_s = self.round_s - float(round_.ready_s.max())
        if turns_s(round_, float(exp(_PRICES[1]))) >= left_s:
            return fastest
        price = bisected(lambda log: turns_s(round_, float(exp(log))) > left_s, *_PRICES, _HALVINGS)[1]
        return Fedl(j_per_s=float(exp(price))).plan(round_)


def turns_s(round_: Round, j_per_s: float) -> float:
    """Return computing time plus airtime of all uploads in s, in FEDL's solution with the weight `j_per_s` of time."""
    efficiency = sending_efficiency(round_, j_per_s)
    return computing_s(round_, j_per_s) + float((round_.need_s / (efficiency * round_.widest)).sum())


def energy_j(round_: Round, grants: Grant[Array]) -> tuple[Array, Array]:
    """Return each device's energy in J for computing [n] and for sending [n] in a round with the grants `grants`."""
    snr, lowest = grants.power_part * round_.gamma, math.expm1(round_.lowest)
    share = np.minimum(grants.share, snr / lowest) if lowest else grants.share  # weak signals use a part of the grant
    air_s = round_.need_s / (share * np.minimum(log1p(snr / share), round_.highest))
    drawn_w = grants.power_part * round_.power_w / round_.amplifier_efficiency + round_.circuit_w
    return round_.compute_j * grants.clock_part**2, drawn_w * air_s + round_.bits_j
