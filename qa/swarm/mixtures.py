"""Mixtures of the newer kinds: cells, windows, planners, antennas, batteries, edges, sums, selection, links, ..."""

from __future__ import annotations

from random import Random
from typing import Any

from fednet_emu.algorithms.selection import SELECTIONS
from fednet_emu.compression import COMPRESSIONS
from fednet_emu.devices.harvesting import HARVESTINGS
from fednet_emu.network.planning import PLANNERS

SHARE = 0.5
"""How often a mixture has each part; kind by kind, so that most parts meet in some mixture."""
ALGORITHMS = ("fedavg", "fedprox", "scaffold", "fednova", "q-ffl", "hier-favg", "fedbuff", "fedper")
NEWER: dict[str, tuple[Any, ...]] = {
    "algorithm.selection": tuple(SELECTIONS),
    "algorithm.deadline_s": (0.01, 1.0, 100.0),
    "devices.availability": ("windows", "windows", "periodic"),
    "devices.battery": (True,),
    "devices.battery.harvesting": tuple(HARVESTINGS),
    "devices.mobility": ("random-direction",),
    "network.cells": ("list", "hexagonal"),
    "network.downlink.compression": tuple(COMPRESSIONS),
    "network.downlink.mode": ("unicast",),
    "network.power_control": ("open-loop", "none"),
    "network.reception": ("mrc", "zf"),
    "network.session": ("none", "none", "grpc"),
    "network.transport": ("none", "tcp", "tcp", "quic", "udp"),
    "network.uplink.access": (
        *("planned", "planned", "over-the-air", "ofdma", "noma", "full-reuse"),
        *("nr-grants", "nr-grants", "dcf", "ethernet", "lora"),
    ),
    "network.uplink.access.planner": tuple(PLANNERS),
    "network.uplink.compression": tuple(COMPRESSIONS),
    "network.uplink.idle": ("rrc",),
}
"""By key path, the kinds or values of which a mixture has one; where the path does not exist, it is not used."""
SATELLITES = {
    "devices.availability": "passes",
    "devices.mobility": "walker",
    "network.cells": "ground",
    "network.uplink.delay": "range",
    "channel.path_loss": "free-space",
    "channel.device.tx_power_dbm": 80.0,
    "channel.base_station.tx_power_dbm": 80.0,
}
"""What satellites do not go without; the power stands for that of their antennas."""


def mixture(rng: Random) -> dict[str, Any]:
    """What a mixture must have, as `NEEDS` has it for an algorithm; all else is drawn as in any scenario."""
    needs = {path: rng.choice(kinds) for path, kinds in NEWER.items() if rng.random() < SHARE}
    satellites = SATELLITES if rng.random() < SHARE / 5 else {}
    return {"algorithm": rng.choice(ALGORITHMS), **needs, **satellites}
