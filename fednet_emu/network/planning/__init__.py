"""Planners, which assign shares of the band, transmit powers and clock frequencies to the devices of a round."""

from typing import Annotated

from fednet_emu.component.slot import Slot, kinds
from fednet_emu.network.planning.base import Planner
from fednet_emu.network.planning.baselines import EqualBand, Turns
from fednet_emu.network.planning.fedl import Fedl
from fednet_emu.network.planning.least_energy import LeastEnergy, LeastTime
from fednet_emu.network.planning.resource_blocks import ResourceBlocks

PLANNERS: dict[str, type[Planner]] = kinds(LeastTime, LeastEnergy, ResourceBlocks, Fedl, EqualBand, Turns)

AnyPlanner = Annotated[Planner, Slot("planner", PLANNERS)]
