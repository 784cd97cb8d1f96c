"""A Flower app on a network: that of a scenario, or an urban cell."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from fednet_emu.algorithms.flower.folder import AppFolder, NoApp
from fednet_emu.emulation.given import ScenarioLike
from fednet_emu.errors import ScenarioError
from fednet_emu.scenario.library import run_name
from fednet_emu.scenario.model import LEARNING

NODES = 10
"""Number of devices where neither a scenario nor the app says it, as in Flower's own simulation."""
WEEK_S = 604_800.0

URBAN_CELL: dict[str, Any] = {
    "devices": {
        "placement": {"kind": "disc", "radius_m": 150, "inner_radius_m": 10},
        "speed": {"kind": "log-normal", "median_flop_per_s": 1e10, "sigma": 0.6},
    },
    "channel": "urban-micro",
    "network": {"uplink": {"access": "ofdma"}, "downlink": {"mode": "broadcast"}},
    "stop": {"simulated_s": WEEK_S},
}
"""Phones around a small base station in a street, which share its uplink; the app itself ends the run."""


def app_in(app: str, scenario: str | None) -> tuple[ScenarioLike, str, list[str]]:
    """Return the scenario in which an app runs, its name, and the settings that put the app into it.

    Of a given scenario, data, partition, model and algorithm are replaced by the app, and its attack, groups, server,
    edge servers and sidelink are left out.

    Raises:
        ScenarioError: there is no app in the folder.
    """
    try:
        folder = AppFolder.read(app)
    except NoApp as problem:
        raise ScenarioError(f"APP: {problem}") from None
    algorithm = f"algorithm={json.dumps({'kind': 'flower', 'app': app})}"
    name = folder.path.name
    if scenario is None:
        devices = {**URBAN_CELL["devices"], "count": folder.nodes or NODES}
        title = f"The Flower app {name} in an urban cell"
        return {"title": title, **URBAN_CELL, "devices": devices}, name, [algorithm]
    nothing = [f"{key}=null" for key in LEARNING]
    never_used = ["server={}", "network.edges=null", "network.sidelink=null"]
    return scenario, f"{name}-{run_name(Path(scenario))}", [algorithm, *nothing, *never_used]
