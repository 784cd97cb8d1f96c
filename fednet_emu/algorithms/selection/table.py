"""The table of the rules for who is asked, by their names in scenario files."""

from __future__ import annotations

from typing import Annotated

from fednet_emu.algorithms.selection.age import Age
from fednet_emu.algorithms.selection.base import Selection
from fednet_emu.algorithms.selection.fedcs import FedCs
from fednet_emu.algorithms.selection.most_charged import MostCharged
from fednet_emu.algorithms.selection.oort import Oort
from fednet_emu.algorithms.selection.plain import Everybody, RoundRobin, Uniform
from fednet_emu.algorithms.selection.power_of_choice import PowerOfChoice
from fednet_emu.algorithms.selection.rates import BestChannel, ProportionalFair
from fednet_emu.component.slot import Slot, kinds

SELECTIONS: dict[str, type[Selection]] = kinds(
    Age, Everybody, BestChannel, FedCs, MostCharged, Oort, PowerOfChoice, ProportionalFair, RoundRobin, Uniform
)
"""Every rule that is built in."""

AnySelection = Annotated[Selection, Slot("selection", SELECTIONS)]
"""Type of a field that holds one rule."""
