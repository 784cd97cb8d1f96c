"""Small scenarios in which decisions matter, and the normal run to hold an episode against."""

from __future__ import annotations

from functools import cache
from typing import Any

from fednet_emu.emulation.build import build
from fednet_emu.federation.federation import Federation
from fednet_emu.scenario.model import Scenario
from fednet_emu.testing import small_scenario

SPEEDS = "devices.speed={kind: list, flop_per_s: [1e6, 5e5, 333333.3333333333, 250000]}"
"""Computations take 0.72, 1.44, 2.16 and 2.88 ms."""
LARGER = (
    "devices.count=8",
    "data.n_samples=160",
    "algorithm.cohort=3",
    "devices.speed={kind: log-normal, median_flop_per_s: 1e6, sigma: 0.7}",
    "stop.rounds=6",
)
FADING = "channel={include: urban-micro, bandwidth_hz: 3e5}"
SCENES = {
    "still": (FADING, "network.uplink.access=tdma"),
    "coming and going": ("devices.availability={kind: periodic, on_s: 0.006, off_s: 0.004}",),
    "losses and deadline": (
        FADING,
        "algorithm.deadline_s=0.02",
        "algorithm.retries=1",
        "network.uplink.message_loss={kind: random, probability: 0.3}",
        "network.downlink.mode=unicast",
    ),
    "moving": (FADING, "devices.mobility={kind: random-waypoint, min_speed_m_s: 10, max_speed_m_s: 40}"),
    "ended by time": ("stop={rounds: 100, simulated_s: 0.02}",),
    "batteries": ("devices.battery={capacity_j: 2e-4}", "channel=urban-micro"),
    "scaffold": ("algorithm.kind=scaffold",),
    "ofdma": (FADING, "network.uplink.access=ofdma", "devices.straggler={kind: log-normal, sigma: 0.5}"),
}
PLANNED = (FADING.replace("3e5}", "3e5, fading: none}"), "network.uplink.access={kind: planned, planner: PLANNER}")
CELLS = (
    "network.cells={kind: hexagonal, rings: 1, inter_site_distance_m: 200}",
    "devices.placement={kind: disc, radius_m: 250, inner_radius_m: 5}",
)


@cache
def scene(*settings: str) -> Scenario:
    return small_scenario(*LARGER, *settings)


def normal(scenario: Scenario, seed: int, *, timing_only: bool = True) -> Federation:
    """The federation after a normal run of a scenario with this seed."""
    own = scenario.model_copy(update={"seed": seed})
    fed = build(own, timing_only=timing_only)
    fed.run(own.algorithm)
    return fed


def losses(table: Any) -> list[float]:
    found: list[float] = table.column("loss").tolist()
    return found
