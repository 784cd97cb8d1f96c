"""What the link layer costs: an hour of a hundred devices with grants, aged reports and TCP, and with rates alone."""

from __future__ import annotations

import statistics
import time
from typing import NamedTuple

from fednet_emu.emulation.build import build
from fednet_emu.emulation.load import load_scenario

CELL = (
    "devices.count=100",
    "devices.speed={kind: log-normal, median_flop_per_s: 2.5e5, sigma: 0.2}",
    "channel.bandwidth_hz=2e7",
    "channel.path_loss={kind: log-distance, exponent: 3}",
    "channel.shadowing=none",
    "channel.fading={kind: rayleigh, coherence_s: 0.05}",
    "network.downlink.mode=unicast",
    "data={kind: synthetic, n_samples: 2000, features: 20}",
    "partition=iid",
    "model.hidden=[2000]",
    "algorithm.cohort=100",
    "evaluation.per_device=false",
    "stop={simulated_s: 3600}",
)
"""Every two to three minutes a hundred devices get 2 Mbit each, train for a minute, and send as much."""
RATE_ALONE = ("channel.rate=nr-mcs", "network.uplink.access=ofdma", "network.downlink.access=ofdma")
LINK_LAYER = (
    "channel.subcarrier_spacing_khz=30",
    "channel.fading_model=ergodic",
    "channel.rate={kind: nr-blocks, feedback: aged}",
    "network.uplink.access=nr-grants",
    "network.downlink.access=nr-grants",
    "network.transport=tcp",
)
"""Aged reports are a mean over fading; a rate alone is walked block by block, which is the default."""
REPEATS = 3
MOST = 1.5


class Cost(NamedTuple):
    """What an hour costs."""

    events: int
    messages: int
    host_s: float

    def over(self, other: Cost) -> tuple[float, float]:
        """Events and host time over those of another hour."""
        return self.events / other.events, self.host_s / other.host_s


def hour(*settings: str) -> Cost:
    """An hour of the cell, timing only, without building it."""
    scenario = load_scenario("quickstart", [*CELL, *settings])
    fed = build(scenario, timing_only=True)
    started_s = time.process_time()
    fed.run(scenario.algorithm)
    host_s = time.process_time() - started_s
    return Cost(next(fed.clock._eid), len(fed.ledger.transfers), host_s)


def test_an_hour_of_a_hundred_devices() -> None:
    """With slots, grants, aged reports and TCP: at most 1.5 times the events and the host time of a rate alone."""
    pairs = [(hour(*LINK_LAYER), hour(*RATE_ALONE)) for _ in range(REPEATS)]
    (events, _), host = pairs[0][0].over(pairs[0][1]), statistics.median(one.over(other)[1] for one, other in pairs)
    more = pairs[0][1].messages / pairs[0][0].messages
    print(f"\nlink layer over a rate alone: {events:.2f} of the events, {host:.2f} of the host time")
    print(f"per message: {more * events:.2f} of the events, {more * host:.2f} of the host time")
    for name, cost in zip(("link layer", "rate alone"), pairs[0], strict=True):
        print(f"{name}: {cost.messages} messages, {cost.events} events, {cost.host_s:.2f} s")

    assert events < MOST
    assert host < MOST
