"""Compression of messages; uplink and downlink have separate settings."""

from typing import Annotated

from fednet_emu.component.slot import Slot, kinds
from fednet_emu.compression.base import Compression, NoCompression
from fednet_emu.compression.chain import STAGES, Chain

COMPRESSIONS: dict[str, type[Compression]] = kinds(NoCompression, *STAGES.values(), Chain)
"""Built-in kinds of compression."""

AnyCompression = Annotated[Compression, Slot("compression", COMPRESSIONS)]
