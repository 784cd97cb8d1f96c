"""Mobility: where devices are at any time, one law per file; positions are evaluated when asked, without events."""

from typing import Annotated

from fednet_emu.component.slot import Slot, kinds
from fednet_emu.devices.mobility.base import Mobility, Static
from fednet_emu.devices.mobility.gauss_markov import GaussMarkov
from fednet_emu.devices.mobility.gps import GpsMobility
from fednet_emu.devices.mobility.random_direction import RandomDirection
from fednet_emu.devices.mobility.random_waypoint import RandomWaypoint
from fednet_emu.devices.mobility.satellites import Tle, Walker
from fednet_emu.devices.mobility.setdest import Ns2Mobility
from fednet_emu.devices.mobility.vehicles import SumoMobility
from fednet_emu.devices.mobility.walks import TraceMobility

MOBILITIES: dict[str, type[Mobility]] = kinds(
    GaussMarkov,
    RandomDirection,
    RandomWaypoint,
    Static,
    TraceMobility,
    GpsMobility,
    SumoMobility,
    Ns2Mobility,
    Walker,
    Tle,
)
"""Every kind of mobility that is built in; random direction is the one to take when nothing speaks for another."""

AnyMobility = Annotated[Mobility, Slot("mobility", MOBILITIES)]
"""Type of a field that holds one kind of mobility."""
