"""The shortest round: full clock frequencies and powers, and band shares with which all uploads end at the same time.

Yang, Chen, Saad, Hong, Shikh-Bahaei: "Energy Efficient Federated Learning Over Wireless Communication Networks", IEEE
Transactions on Wireless Communications 20(3), 2021, https://arxiv.org/abs/1911.02417. The completion time is found by
bisection; each device's bandwidth for a given completion time has a closed form.

Differences from the paper: each device starts when it has received the model, and has its own computing time. The rate
law has an SNR gap, a minimum and a maximum efficiency. The algorithm sets the number of local steps, and thereby the
local accuracy.
"""

from __future__ import annotations

import numpy as np

from fednet_emu.arrays import Array, expm1
from fednet_emu.network.air.transfer import Grant
from fednet_emu.network.planning.base import Planner, Round
from fednet_emu.network.planning.closed_forms import full_power_efficiency, least


class LeastTime(Planner):
    """Minimises the duration of a round: devices that would finish early get smaller shares of the band."""

    def plan(self, round_: Round) -> Grant[Array]:
        return shortest(round_)


def shortest(round_: Round) -> Grant[Array]:
    """Return the grants with which the last upload of a round ends as early as possible."""
    starts_s = round_.ready_s + round_.compute_s
    soonest_s = float(np.max(starts_s + round_.shortest_s))
    end_s = least(
        lambda end_s: float(narrowest(round_, end_s - starts_s)[0].sum()) <= 1.0,
        soonest_s,
        float(np.max(starts_s)) + 2.0 * float(round_.shortest_s.sum()),
    )
    share, power_part = narrowest(round_, end_s - starts_s)
    return Grant.undisturbed(share, power_part, np.ones(len(share)), np.full(len(share), end_s))


def narrowest(round_: Round, air_s: Array) -> tuple[Array, Array]:
    """Smallest band shares [n] for uploads within `air_s` [n] (at least `shortest_s`), and relative powers [n]."""
    air_s = np.maximum(air_s, round_.shortest_s)
    full = full_power_efficiency(round_.gamma * air_s / round_.need_s)
    efficiency = np.clip(full, max(round_.lowest, 1e-300), round_.highest)
    share = np.minimum(round_.need_s / (air_s * efficiency), 1.0)
    return share, powers(round_, share, air_s)


def powers(round_: Round, share: Array, air_s: Array) -> Array:
    """Powers [n], relative to full power, with which uploads on band shares `share` [n] take `air_s` [n]."""
    part = share * expm1(round_.need_s / (share * air_s)) / round_.gamma
    return np.minimum(part, 1.0)
