"""Mobility: the positions of devices over time, which are computed on demand, without simulation events."""

from typing import Annotated

from fednet_emu.component.slot import Slot, kinds
from fednet_emu.devices.mobility.base import Mobility, Static
from fednet_emu.devices.mobility.random_models import GaussMarkov, RandomDirection, RandomWaypoint
from fednet_emu.devices.mobility.satellites import Tle, Walker
from fednet_emu.devices.mobility.setdest import Ns2Mobility
from fednet_emu.devices.mobility.vehicles import SumoMobility
from fednet_emu.devices.mobility.walks import GpsMobility, TraceMobility

MOBILITIES: dict[str, type[Mobility]] = kinds(
    *(GaussMarkov, RandomDirection, RandomWaypoint, Static, TraceMobility),
    *(GpsMobility, SumoMobility, Ns2Mobility, Walker, Tle),
)
"""Table of the built-in kinds of mobility, from kind to class."""

AnyMobility = Annotated[Mobility, Slot("mobility", MOBILITIES)]
