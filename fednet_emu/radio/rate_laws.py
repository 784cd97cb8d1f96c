"""The rate laws by their names in scenario files."""

from typing import Annotated

from fednet_emu.component.slot import Slot, kinds
from fednet_emu.radio.nr.blocks import NrBlocks
from fednet_emu.radio.nr.mcs import NrMcs
from fednet_emu.radio.rates.base import RateLaw
from fednet_emu.radio.rates.finite_blocklength import FiniteBlocklength
from fednet_emu.radio.rates.shannon import FixedRate, Shannon

RATE_LAWS: dict[str, type[RateLaw]] = kinds(Shannon, FixedRate, NrMcs, NrBlocks, FiniteBlocklength)

AnyRateLaw = Annotated[RateLaw, Slot("rate", RATE_LAWS)]
