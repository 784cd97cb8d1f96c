"""Planners: how the band, the powers and the clocks of a round are divided among its devices."""

from __future__ import annotations

from typing import Annotated

from fednet_emu.component.slot import Slot
from fednet_emu.network.planning.base import Grants, Planner, Round
from fednet_emu.network.planning.fedl import Fedl
from fednet_emu.network.planning.least_energy import LeastEnergy
from fednet_emu.network.planning.least_time import LeastTime
from fednet_emu.network.planning.resource_blocks import ResourceBlocks

PLANNERS: dict[str, type[Planner]] = {
    "least-time": LeastTime,
    "least-energy": LeastEnergy,
    "resource-blocks": ResourceBlocks,
    "fedl": Fedl,
}

AnyPlanner = Annotated[Planner, Slot("planner", PLANNERS)]

__all__ = ["PLANNERS", "AnyPlanner", "Fedl", "Grants", "LeastEnergy", "LeastTime", "Planner", "ResourceBlocks", "Round"]
