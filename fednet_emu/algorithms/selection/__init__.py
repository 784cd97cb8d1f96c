"""Device selection: table of the rules, which use turns, channels, estimated times, ages, charges or losses."""

from typing import Annotated

from fednet_emu.algorithms.selection.base import Selection, ServerView, highest, weighted
from fednet_emu.algorithms.selection.fedcs import FedCs
from fednet_emu.algorithms.selection.oort import Oort
from fednet_emu.algorithms.selection.power_of_choice import PowerOfChoice
from fednet_emu.algorithms.selection.rules import (
    Age,
    BestChannel,
    CellInterior,
    Everybody,
    MostCharged,
    Poisson,
    ProportionalFair,
    RoundRobin,
    Uniform,
)
from fednet_emu.component.slot import Slot, kinds

__all__ = ["SELECTIONS", "AnySelection", "Selection", "ServerView", "highest", "weighted"]

SELECTIONS: dict[str, type[Selection]] = kinds(
    Age,
    Everybody,
    BestChannel,
    CellInterior,
    FedCs,
    MostCharged,
    Oort,
    Poisson,
    PowerOfChoice,
    ProportionalFair,
    RoundRobin,
    Uniform,
)

AnySelection = Annotated[Selection, Slot("selection", SELECTIONS)]
