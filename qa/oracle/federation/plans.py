"""Plans of a round by bisection and by trying all ways, and of a burst over the air, from the definitions."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import permutations
from typing import Any, NamedTuple

from scipy.special import exp1

from .physics import Physics

Plans = dict[int, "Grant"]


class Grant(NamedTuple):
    """What a device may use in a round, and when its upload should have arrived, from the start of the round."""

    share: float
    part: float
    ends_s: float
    clock: float = 1.0
    noise: float = 1.0
    error: float = 0.0


def plan(physics: Physics, planner: Any, invited: list[int]) -> Plans:
    """The grants of those who take part; computing at less than the full clock saves nothing at a constant power."""
    return {"least-time": least_time, "fedl": fedl, "resource-blocks": resource_blocks}[planner.kind](
        physics, planner, invited
    )


def starts_s(physics: Physics, devices: list[int]) -> dict[int, float]:
    """When each has computed, after a broadcast to these that is as long as the worst link needs."""
    down_s = max((physics.message_bit / physics.bps(physics.down_snr[k]) for k in devices), default=0.0)
    return {k: down_s + physics.compute_s[k] for k in devices}


def increasing(crosses: Callable[[float], float], low: float, high: float) -> float:
    """Where an increasing function crosses zero."""
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (low, middle) if crosses(middle) > 0 else (middle, high)
    return high


def least_time(physics: Physics, planner: Any, invited: list[int]) -> Plans:
    """All end together, as soon as the narrowest parts that reach it fit into the band."""
    law, starts, bits = physics.scenario.channel.rate, starts_s(physics, invited), physics.message_bit
    gamma = {k: physics.up_snr[k] / 10 ** ((law.gap_db + planner.margin_db) / 10) for k in invited}
    highest = law.max_efficiency_bps_hz or math.inf

    def bps(k: int, share: float) -> float:
        return physics.hertz * share * min(math.log2(1 + gamma[k] / share), highest)

    widest = {k: min(1.0, gamma[k] / (2**law.min_efficiency_bps_hz - 1 or 1e-300)) for k in invited}

    def share(k: int, end_s: float) -> float:
        need_bps = bits / max(end_s - starts[k], 1e-300)
        if bps(k, widest[k]) < need_bps * (1 - 1e-12):
            return math.inf
        return increasing(lambda part: bps(k, part) - need_bps, 0.0, widest[k])

    latest_s = max(starts.values(), default=0.0) + sum(bits / bps(k, widest[k]) for k in invited)
    end_s = increasing(
        lambda end_s: 1.0 - sum(share(k, end_s) for k in invited), max(starts.values(), default=0), latest_s
    )
    grants = {}
    for k in invited:
        part = share(k, end_s)
        efficiency = bits / (end_s - starts[k]) / (physics.hertz * part)
        grants[k] = Grant(part, min(part * (2**efficiency - 1) / gamma[k], 1.0), end_s)
    return grants


def fedl(physics: Physics, planner: Any, invited: list[int]) -> Plans:
    """Turns: each for itself has the efficiency u with the least (P (e^u - 1) / g + P_c + kappa) / u."""
    law, powers, starts = physics.scenario.channel.rate, physics.powers, starts_s(physics, invited)
    lowest, highest = (value * math.log(2) for value in (law.min_efficiency_bps_hz, law.max_efficiency_bps_hz or 1e9))
    grants, free_s = {}, 0.0
    for k in sorted(invited, key=lambda k: (round(starts[k], 9), k)):
        gamma = physics.up_snr[k] / 10 ** ((law.gap_db + planner.margin_db) / 10)
        price = (powers.circuit_w + planner.j_per_s) * gamma / powers.amplifier_w
        most = min(math.log1p(gamma), highest)
        u = max(increasing(lambda u, price=price: (u - 1) * math.exp(u) + 1 - price, 0.0, most), lowest)
        widest = min(gamma / math.expm1(lowest), 1.0) if lowest else 1.0  # the part of its turn's band that it can use
        free_s = max(free_s, starts[k]) + physics.message_bit * math.log(2) / (physics.hertz * widest * u)
        grants[k] = Grant(1.0, min(math.expm1(u) / gamma, 1.0), free_s)
    return {k: grants[k] for k in invited}


def resource_blocks(physics: Physics, planner: Any, invited: list[int]) -> Plans:
    """Of all ways to give each at most one block, the one with most samples that arrive; all have as many."""
    noise = [1 + 10 ** (level_db / 10) for level_db in planner.inr_db] or [1.0] * planner.blocks
    share, powers = 1 / planner.blocks, physics.powers
    worth, air_s, error = {}, {}, {}
    for k in invited:
        for block, level in enumerate(noise):
            snr = physics.up_snr[k] / 10 ** (planner.margin_db / 10) / level
            sinr, bps = snr / share, physics.bps(snr, share)
            air_s[k, block] = physics.message_bit / bps if bps else math.inf
            error[k, block] = 1 - math.exp(-(10 ** (planner.waterfall_db / 10)) / sinr)
            energy_j = powers.computing_w * physics.compute_s[k]
            energy_j += (powers.amplifier_w + powers.circuit_w) * air_s[k, block]
            allowed = air_s[k, block] <= (planner.max_upload_s or 1e300) and energy_j <= (planner.max_energy_j or 1e300)
            worth[k, block] = 1 - error[k, block] if allowed else 0.0
    seats = [*range(planner.blocks), *[-1] * len(invited)]
    ways = (dict(zip(invited, seats, strict=False)) for seats in set(permutations(seats, len(invited))))
    best = max(ways, key=lambda way: sum(worth.get(pair, 0.0) for pair in way.items()))
    given = {k: block for k, block in best.items() if worth.get((k, block), 0.0) > 0}
    starts = starts_s(physics, [*given])
    return {
        k: Grant(share, 1.0, starts[k] + air_s[k, block], noise=noise[block], error=error[k, block])
        for k, block in given.items()
    }


class Sending(NamedTuple):
    """By device: why it is silent, the part of its power that it needs; and the common SNR."""

    silent: dict[int, str]
    part: dict[int, float]
    snr: float


def sending(physics: Physics, ready: list[int], now_ns: int) -> Sending:
    """Signals arrive with SNR eta: the highest that all can reach, or a given one; a weak channel is not inverted."""
    access = physics.scenario.network.uplink.access
    rayleigh = physics.scenario.channel.fading.kind == "rayleigh"
    mean_inverse = float(exp1(access.cutoff)) if rayleigh else float(access.cutoff <= 1)
    bound = 1 / access.cutoff if access.budget == "peak" else mean_inverse
    most = {k: physics.up_snr[k] / bound for k in ready}
    snr = min(most.values()) if access.snr_db is None else 10 ** (access.snr_db / 10)
    gain = {k: physics.gain(k, now_ns) for k in ready}
    silent = {
        k: "unreachable" if most[k] * (1 + 1e-9) < snr else "outage" if gain[k] < access.cutoff else "" for k in ready
    }
    return Sending(silent, {k: snr / (physics.up_snr[k] * gain[k]) for k in ready}, snr)
