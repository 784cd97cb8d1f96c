"""Recorded rates of real links, one format per file, and the speeds of real devices."""

from typing import Annotated

from fednet_emu.component.slot import Slot, kinds
from fednet_emu.network.traces.base import RateTraces
from fednet_emu.network.traces.formats import (
    CsvTraces,
    FlashTraces,
    Irish5gTraces,
    Lumos5gTraces,
    MahimahiTraces,
    PensieveTraces,
)

RATE_TRACES: dict[str, type[RateTraces]] = kinds(
    CsvTraces, FlashTraces, Irish5gTraces, Lumos5gTraces, MahimahiTraces, PensieveTraces
)
"""Every format of rate traces that is built in."""

AnyRateTraces = Annotated[RateTraces, Slot("trace", RATE_TRACES)]
"""Type of a field that holds one source of rate traces."""
