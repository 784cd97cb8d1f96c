"""Recorded rates of real links: file formats, rate series, and their assignment to devices."""

from typing import Annotated

from fednet_emu.component.slot import Slot, kinds
from fednet_emu.network.traces.formats import (
    CsvTraces,
    FlashTraces,
    Irish5gTraces,
    Lumos5gTraces,
    MahimahiTraces,
    PensieveTraces,
)
from fednet_emu.network.traces.series import RateTraces

RATE_TRACES: dict[str, type[RateTraces]] = kinds(
    CsvTraces, FlashTraces, Irish5gTraces, Lumos5gTraces, MahimahiTraces, PensieveTraces
)
"""All built-in formats of rate traces."""

AnyRateTraces = Annotated[RateTraces, Slot("trace", RATE_TRACES)]
"""Type of a settings field for rate traces."""
