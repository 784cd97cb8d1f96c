"""Survey: the rates in a radio environment as a function of distance, computed without running a scenario."""

from __future__ import annotations

from dataclasses import fields
from typing import NamedTuple

import numpy as np

from fednet_emu.arrays import Array
from fednet_emu.errors import ScenarioError
from fednet_emu.radio.channel import Channel
from fednet_emu.radio.fading import FadingByLineOfSight
from fednet_emu.radio.propagation.link import Hop, LinkDraws

LINKS = 2000
BLOCKS = 64
_DIMENSIONS = [field.name for field in fields(LinkDraws)]


class Rates(NamedTuple):
    """Quantiles (10, 50 and 90 %) in bit/s of the rates at each distance; nan outside the path-loss model's range."""

    low_bps: Array
    median_bps: Array
    high_bps: Array


def uplink_rates(channel: Channel, distances_2d_m: Array) -> Rates:
    """Return quantiles of uplink rates, averaged over fading, of a device that has the band alone.

    The quantiles are taken over 2000 positions per distance in m. The random quantities of the positions are a fixed
    low-discrepancy sequence, so the rates are reproducible, and the median is accurate to about 1 %. Devices that are
    too weak for the whole band send on part of the band (`narrowing`).
    Ignored here: other transmissions, headers, and the access scheme.
    """
    draws = _places(LINKS)
    quantiles = np.full((3, len(distances_2d_m)), np.nan)
    for column, distance_m in enumerate(distances_2d_m):
        try:
            rates_bps = _rates_bps(channel, float(distance_m), draws)
        except ScenarioError:
            continue
        quantiles[:, column] = np.quantile(rates_bps, (0.1, 0.5, 0.9))
    return Rates(*quantiles)


def _rates_bps(channel: Channel, distance_m: float, draws: LinkDraws) -> Array:
    hop = Hop(np.full(LINKS, distance_m), np.array(channel.device.height_m), np.array(channel.base_station.height_m))
    state = channel.large_scale(hop, draws)
    noise_w = channel.noise_w(channel.base_station, channel.usable_hz)
    snr = np.broadcast_to(state.gain, (LINKS,)) * channel.device.tx_power_w / noise_w
    blocks = (np.arange(BLOCKS) + 0.5) / BLOCKS
    if isinstance(channel.fading, FadingByLineOfSight):
        in_sight, not_in_sight = (channel.fading.of(los).gains(blocks) for los in (True, False))
        gains = np.where(np.broadcast_to(state.los, (LINKS,))[:, None], in_sight, not_in_sight)
    else:
        gains = channel.fading.gains(blocks)[None, :]
    law = channel.block_rate
    return np.asarray(law.rates_bps(snr[:, None] * gains, channel.usable_hz).mean(axis=1))


def _places(count: int) -> LinkDraws:
    """Return quasi-random draws for `count` links: a recurrence by the generalised golden ratio (Roberts 2018)."""
    ratio = 2.0
    for _ in range(60):
        ratio = (1.0 + ratio) ** (1.0 / (len(_DIMENSIONS) + 1))
    steps = {name: ratio ** -(index + 1.0) for index, name in enumerate(_DIMENSIONS)}
    numbers = np.arange(1, count + 1)
    return LinkDraws.of(lambda name: np.clip((0.5 + steps[name] * numbers) % 1.0, 1e-12, 1.0 - 1e-12))
