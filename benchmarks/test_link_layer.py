"""What the link layer costs: an hour of a hundred devices with grants, aged reports and TCP, and with a rate law alone."""

from __future__ import annotations

import time
from typing import NamedTuple

from fednet_emu.emulation.build import build
from fednet_emu.emulation.load import load_scenario

CELL = (
    "devices.count=100",
    "devices.placement.radius_m=150",
    "channel.bandwidth_hz=2e7",
    "channel.path_loss={kind: log-distance, exponent: 3}",
    "channel.shadowing=none",
    "channel.fading={kind: rayleigh, coherence_s: 0.05}",
    "channel.long_transfers=ergodic",
    "network.downlink.mode=unicast",
    "data={kind: synthetic, n_samples: 2000, features: 20}",
    "partition=iid",
    "model.hidden=[2000]",
    "algorithm.cohort=100",
    "evaluation.per_device=false",
    "stop={simulated_s: 3600}",
)
"""A hundred devices upload 2 Mbit each in every round, of which an hour has some hundred."""
RATE_ALONE = ("channel.rate=nr-mcs", "network.uplink.access=ofdma", "network.downlink.access=ofdma")
LINK_LAYER = (
    "channel.numerology_khz=30",
    "channel.rate={kind: nr-blocks, feedback: aged}",
    "network.uplink.access=nr-grants",
    "network.downlink.access=nr-grants",
    "network.transport=tcp",
)


class Cost(NamedTuple):
    """What a run costs: events, their number per message, and host time per message in s."""

    events: int
    messages: int
    host_s: float


def cost(*settings: str) -> Cost:
    """An hour of the cell, timing only."""
    scenario = load_scenario("quickstart", [*CELL, *settings])
    fed = build(scenario, timing_only=True)
    started_s = time.process_time()
    fed.run(scenario.algorithm)
    host_s = time.process_time() - started_s
    return Cost(next(fed.clock._eid), len(fed.ledger.transfers), host_s)
