"""Planned rounds of the shortest duration, and rounds of a given duration with minimum energy.

The shortest round has full clock frequencies and powers, and shares with which all uploads end at the same time. This
time is found by bisection; each device's bandwidth for a given time has a closed form. The other planner sets
bandwidths, transmit powers, clock frequencies and sending times with minimum energy.

Yang, Chen, Saad, Hong, Shikh-Bahaei: "Energy Efficient Federated Learning Over Wireless Communication Networks", IEEE
Transactions on Wireless Communications 20(3), 2021, https://arxiv.org/abs/1911.02417, equations (10) to (12) for a
given local accuracy: minimise the sum over devices of kappa C D f^2 + p t. Here kappa C D f^2 is the energy of a
computation of C D cycles at the clock frequency f, and p t is the energy to send for the time t at the power p. Each
device computes and sends within the time T, the bandwidths add up to at most B, and powers and clock frequencies have
limits.

The Lagrange multiplier of the bandwidth limit is a price of the band. The bandwidth of a device at a given price has a
closed form with Lambert's W, and lies between the bandwidths at full power and at maximum efficiency. The clock
frequency is f = C D / (T - t). Root finding gives the price at which the whole band is used.

Differences from the paper: the paper alternates between sending times (with the local accuracy) and all other
variables. For given local steps, the problem is jointly convex in sending times and bandwidths: the sending energy
depends only on the product z of sending time and bandwidth, through the function g(z) = z (e^(q / z) - 1), for which 2
z g'' + g' > 0. Therefore one root per device and one root for the price give the optimum. Amplifiers have an
efficiency, and transmitters have a circuit power. The rate law has an SNR gap, a minimum and a maximum efficiency. The
algorithm sets the number of local steps. Each device starts when it has received the model, and has its own computing
time.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import scipy
from pydantic import Field

from fednet_emu.arrays import Array, Mask, expm1
from fednet_emu.network.air.transfer import Grant
from fednet_emu.network.planning.base import Planner, Round
from fednet_emu.network.planning.closed_forms import full_power_efficiency, least, priced_efficiency, root


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
    """Return the smallest band shares [n] with which uploads take at most `air_s` [n] in s, and the powers [n].

    Powers are fractions of full power. Airtimes below `round_.shortest_s` are raised to this minimum.
    """
    air_s = np.maximum(air_s, round_.shortest_s)
    full = full_power_efficiency(round_.gamma * air_s / round_.need_s)
    efficiency = np.clip(full, max(round_.lowest, 1e-300), round_.highest)
    share = np.minimum(round_.need_s / (air_s * efficiency), 1.0)
    return share, powers(round_, share, air_s)


def powers(round_: Round, share: Array, air_s: Array) -> Array:
    """Return the powers [n] with which uploads on the band shares `share` [n] take the airtimes `air_s` [n] in s.

    Powers are fractions of full power.
    """
    part = share * expm1(round_.need_s / (share * air_s)) / round_.gamma
    return np.minimum(part, 1.0)


_SAME = 1e-9
_TINY, _HUGE = 1e-30, 1e30


class LeastEnergy(Planner):
    """Minimises the energy of a round in which all uploads arrive within a given time.

    If the time is too short, the round is as short as possible.
    """

    round_s: float | None = Field(None, gt=0)
    """Time in s, from the start of a round, within which all uploads should arrive. null to use `stretch` instead."""
    stretch: float = Field(2.0, ge=1)
    """Duration of a round as a multiple of its shortest possible duration, used if `round_s` is null. With 1, no energy
    is saved."""

    def plan(self, round_: Round) -> Grant[Array]:
        fastest = shortest(round_)
        min_s = float(np.max(fastest.ends_s))
        end_s = self.stretch * min_s if self.round_s is None else self.round_s
        return fastest if end_s <= min_s * (1 + _SAME) else cheapest(round_, end_s)


class _Choice(NamedTuple):
    """Optimal resources of each device at a given price of the band (Lagrange multiplier of the bandwidth limit).

    The resources are airtimes in s [n], spectral efficiencies in nat/s/Hz [n] and band shares [n].
    """

    air_s: Array
    efficiency: Array
    share: Array


def cheapest(round_: Round, end_s: float) -> Grant[Array]:
    """Return the grants with minimum energy for a round of `end_s` seconds, which must exceed the shortest duration."""
    high = 1.0
    while _choice(round_, end_s, high).share.sum() > 1.0 and high < _HUGE:
        high *= 100.0
    low = high
    while _choice(round_, end_s, low).share.sum() <= 1.0 and low > _TINY:
        low /= 100.0
    if low < high and low > _TINY:

        def excess(log_price: float) -> float:
            return math.log(_choice(round_, end_s, math.exp(log_price)).share.sum())

        high = math.exp(float(scipy.optimize.brentq(excess, math.log(low), math.log(high), xtol=1e-10)))
    else:
        high = max(low, _TINY)
    best = _choice(round_, end_s, high)
    share = best.share / max(1.0, float(best.share.sum()))
    left_s = np.maximum(end_s - round_.ready_s - best.air_s, 1e-300)
    clock = np.clip(round_.compute_s / left_s, round_.min_clock, 1.0)
    ends_s = round_.ready_s + round_.compute_s / clock + best.air_s
    return Grant.undisturbed(share, powers(round_, share, best.air_s), clock, ends_s)


def _choice(round_: Round, end_s: float, price: float) -> _Choice:
    """Return the optimal resources of each device if the whole band costs `price` J.

    The optimum minimises energy plus cost of the band, which is a convex problem in the device's airtime.
    """
    left_s = end_s - round_.ready_s
    air_s = root(lambda air_s: _slope(round_, left_s, air_s, price), round_.shortest_s, left_s - round_.compute_s)
    efficiency, _ = _efficiency(round_, air_s, price)
    return _Choice(air_s, efficiency, round_.need_s / (air_s * efficiency))


def _efficiency(round_: Round, air_s: Array, price: float) -> tuple[Array, Mask]:
    """Return the optimal spectral efficiencies [n] for the airtimes `air_s` [n], and the mask [n] of full powers."""
    drawn_w = round_.power_w / round_.amplifier_efficiency
    wanted = np.minimum(priced_efficiency(price * round_.gamma / (drawn_w * air_s)), round_.highest)
    full = full_power_efficiency(round_.gamma * air_s / round_.need_s)
    return np.maximum(np.minimum(wanted, full), max(round_.lowest, 1e-300)), full < wanted


def _slope(round_: Round, left_s: Array, air_s: Array, price: float) -> Array:
    """Return the derivative [n], with respect to the airtime, of each device's energy plus its cost of the band."""
    u, at_full_power = _efficiency(round_, air_s, price)
    drawn_w = round_.power_w / round_.amplifier_efficiency
    with np.errstate(all="ignore"):
        band_w = price * round_.need_s / air_s**2
        sending = np.where(at_full_power, drawn_w - band_w / (u + expm1(-u)), -band_w / u)
        clock = round_.compute_s / (left_s - air_s)
        computing = np.where(clock > round_.min_clock, 2.0 * round_.compute_j * clock**2 / (left_s - air_s), 0.0)
    return np.asarray(sending + round_.circuit_w + computing)
